// mpi_persistent_on_device_test -- persistent requests whose buffers stay on a device: in whatever order
// ranks start them, beside other calls and the program's own work; with `promised`, between hosts, in the
// order that the program has promised. On tests/virtual_gpu. Exit code 1: wrong.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"
#include "tests/mpi/waiting.hpp"

namespace {

using namespace loom::mpi_test;

constexpr int kCount = 3000;
std::optional<loom::mpi::ToolInterface> tools;
const char* algorithm = "zero_copy";  ///< that carries them
bool promised = false;

int of_rank(int r, int i) {
  return i % 1000 + r * 10'000;
}
int mine(int i) {
  return of_rank(rank, i);
}
int sum(int i, int operands = ranks) {
  return operands * (i % 1000) + operands * (operands - 1) / 2 * 10'000;
}
int nothing(int) {
  return -1;
}

/// Whether so many calls of the collective have stayed on the device, and nothing was staged beside them; or
/// none of them have.
void check(const char* collective, int stay, const std::function<void()>& body,
           bool others_are_staged = false) {
  const auto counts_now = [&] {
    return std::pair(tools->counter("coll_loom_calls", collective, algorithm).value_or(0),
                     tools->counter("coll_loom_staged_bytes").value_or(0));
  };
  const auto [calls, staged] = counts_now();
  body();
  const auto [calls_after, staged_after] = counts_now();
  if (calls_after != calls + static_cast<std::uint64_t>(stay))
    std::fprintf(stderr, "%d calls have stayed on the device, not %d\n",
                 static_cast<int>(calls_after - calls), stay);
  require(calls_after == calls + static_cast<std::uint64_t>(stay),
          (std::string("a persistent ") + collective +
           (stay > 0 ? " does not stay on the device" : " stays on the device"))
              .c_str());
  if (stay > 0 && !others_are_staged)
    require(staged_after == staged, (std::string(collective) + " is staged all the same").c_str());
}

/// Whose ranks start requests in one order, if that is promised.
MPI_Comm new_communicator() {
  MPI_Comm comm;
  MPI_Info info;
  MPI_Info_create(&info);
  if (promised) MPI_Info_set(info, "coll_loom_ordered_starts", "true");
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
  MPI_Info_free(&info);
  return comm;
}

void wait_for(MPI_Request& request) {
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// Starts the request several times; renew() comes before each start, and judge() after each.
void run(MPI_Request& request, const std::function<void()>& renew, const std::function<void()>& judge) {
  for (int round = 0; round < 3; ++round) {
    renew();
    MPI_Start(&request);
    wait_for(request);
    judge();
  }
  MPI_Request_free(&request);
}

void allreduce(int stay, MPI_Comm comm, MemoryKind kind = MemoryKind::kDevice) {
  check("allreduce", 3 * stay, [&] {
    Ints in(kCount, mine, kind), out(kCount, nothing, kind);
    MPI_Request request;
    INIT(Allreduce)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    int round = 0;
    run(
        request,
        [&] {
          ++round;
          in.fill([&](int i) { return mine(i) + round; });
        },
        [&] { out.is([&](int i) { return sum(i) + ranks * round; }, "a persistent allreduce is wrong"); });
  });
}

/// Rank r has so many elements; rank 1 has none.
int length_of(int r) {
  return r == 1 ? 0 : 900 + 7 * r;
}

void every_collective(MPI_Comm comm) {
  const int root = ranks - 1;
  MPI_Request request;
  allreduce(1, comm);
  {
    Ints both(kCount, mine);
    check("allreduce", 3, [&] {
      INIT(Allreduce)
      (MPI_IN_PLACE, both.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
      run(
          request, [&] { both.fill(mine); }, [&] { both.is([](int i) { return sum(i); }, "in place"); });
    });
    check("bcast", 3, [&] {
      INIT(Bcast)(both.at(), kCount, MPI_INT, root, comm, MPI_INFO_NULL, &request);
      run(
          request, [&] { both.fill(mine); },
          [&] { both.is([&](int i) { return of_rank(root, i); }, "a persistent bcast is wrong"); });
    });
  }
  Ints in(kCount * ranks, mine), out(kCount * ranks, nothing);
  const auto clear = [&] { out.fill(nothing); };
  check("reduce", 3, [&] {
    INIT(Reduce)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, root, comm, MPI_INFO_NULL, &request);
    run(request, clear, [&] {
      out.is([&](int i) { return rank == root && i < kCount ? sum(i) : -1; }, "a persistent reduce is wrong");
    });
  });
  const int by_zero_copy = promised ? 0 : 3;
  check("scan", by_zero_copy, [&] {
    INIT(Scan)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    run(request, clear, [&] {
      out.is([&](int i) { return i < kCount ? sum(i, rank + 1) : -1; }, "a persistent scan is wrong");
    });
  });
  check("allgather", 3, [&] {
    INIT(Allgather)(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, comm, MPI_INFO_NULL, &request);
    run(request, clear, [&] {
      out.is([](int i) { return of_rank(i / kCount, i % kCount); }, "a persistent allgather is wrong");
    });
  });
  check("alltoall", 3, [&] {
    INIT(Alltoall)(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, comm, MPI_INFO_NULL, &request);
    run(request, clear, [&] {
      out.is([](int i) { return of_rank(i / kCount, rank * kCount + i % kCount); },
             "a persistent alltoall is wrong");
    });
  });
  check("reduce_scatter_block", 3, [&] {
    INIT(Reduce_scatter_block)
    (in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    run(request, clear, [&] {
      out.is([](int i) { return i < kCount ? sum(rank * kCount + i) : -1; },
             "a persistent reduce_scatter_block is wrong");
    });
  });
  check("allgatherv", 3, [&] {
    std::vector<int> counts, places;
    for (int r = 0; r < ranks; ++r) {
      counts.push_back(length_of(r));
      places.push_back(r * kCount);
    }
    INIT(Allgatherv)
    (in.at(), length_of(rank), MPI_INT, out.at(), counts.data(), places.data(), MPI_INT, comm, MPI_INFO_NULL,
     &request);
    run(request, clear, [&] {
      out.is([](int i) { return i % kCount < length_of(i / kCount) ? of_rank(i / kCount, i % kCount) : -1; },
             "a persistent allgatherv is wrong");
    });
  });
}

/// Of requests of several collectives, which each rank starts in an order of its own.
void start_in_any_order(MPI_Comm comm) {
  constexpr int kRequests = 6;
  std::vector<std::unique_ptr<Ints>> in, out;
  std::vector<MPI_Request> requests(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    in.push_back(std::make_unique<Ints>(kCount, [i](int e) { return mine(e) + i; }));
    out.push_back(std::make_unique<Ints>(kCount, nothing));
    auto& request = requests[static_cast<std::size_t>(i)];
    if (i % 2 == 0) INIT(Allreduce)
    (in.back()->at(), out.back()->at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    else INIT(Bcast)(in.back()->at(), kCount, MPI_INT, i % ranks, comm, MPI_INFO_NULL, &request);
  }
  for (int round = 0; round < 4; ++round) {
    for (const auto& each : out) each->fill(nothing);
    check("allreduce", kRequests / 2, [&] {
      for (int i = 0; i < kRequests; ++i)
        MPI_Start(&requests[static_cast<std::size_t>((i + rank * (round + 1)) % kRequests)]);
      int one = rank;
      MPI_Bcast(&one, 1, MPI_INT, 0, comm);
      require(one == 0, "a bcast among persistent requests is wrong");
      // The last one that this rank has started completes first, and then all others.
      wait_for(requests[static_cast<std::size_t>((kRequests - 1 + rank * (round + 1)) % kRequests)]);
      MPI_Waitall(kRequests, requests.data(), MPI_STATUSES_IGNORE);
    });
    for (int i = 0; i < kRequests; i += 2)
      out[static_cast<std::size_t>(i)]->is([i](int e) { return sum(e) + ranks * i; },
                                           "an allreduce among others is wrong");
    for (int i = 1; i < kRequests; i += 2)
      in[static_cast<std::size_t>(i)]->is([i](int e) { return of_rank(i % ranks, e) + i; },
                                          "a bcast among others is wrong");
  }
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}

/// Each rank makes more requests at other places among its starts, and waits in another order. Requests on
/// host memory, and one whose buffers lie on the device of some ranks alone, take their turns among the
/// others.
void start_in_the_promised_order(MPI_Comm comm) {
  constexpr int kRequests = 7, kRounds = 4;
  std::vector<std::unique_ptr<Ints>> in, out;
  std::vector<MPI_Request> requests;
  const auto make = [&] {
    const int i = static_cast<int>(requests.size());
    const bool on_host = i == 3 || (i == 4 && rank == 0);
    const MemoryKind kind = on_host ? MemoryKind::kHost : MemoryKind::kDevice;
    in.push_back(std::make_unique<Ints>(
        kCount, [i](int e) { return mine(e) + i; }, kind));
    out.push_back(std::make_unique<Ints>(kCount, nothing, kind));
    INIT(Allreduce)
    (in.back()->at(), out.back()->at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL,
     &requests.emplace_back());
  };
  const auto start = [&](int i) { MPI_Start(&requests[static_cast<std::size_t>(i)]); };
  const auto judge = [&] {
    for (int i = 0; i < static_cast<int>(requests.size()); ++i)
      out[static_cast<std::size_t>(i)]->is([i](int e) { return sum(e) + ranks * i; },
                                           "an allreduce in the promised order is wrong");
  };
  make();
  make();
  check("allreduce", 3, [&] {
    // All make the third after the second; some start the first two before, some behind.
    if (rank % 2 == 0) start(0);
    if (rank % 3 == 0 && rank % 2 == 0) start(1);
    make();
    if (rank % 2 != 0) start(0);
    if (rank % 3 != 0 || rank % 2 != 0) start(1);
    start(2);
    MPI_Waitall(3, requests.data(), MPI_STATUSES_IGNORE);
  });
  judge();
  while (static_cast<int>(requests.size()) < kRequests) make();
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& each : out) each->fill(nothing);
    check(
        "allreduce", kRequests - 2,
        [&] {
          for (int i = 0; i < kRequests; ++i) start((i + round) % kRequests);
          int one = rank;
          MPI_Bcast(&one, 1, MPI_INT, 0, comm);
          require(one == 0, "a bcast among persistent requests is wrong");
          wait_for(requests[static_cast<std::size_t>(rank % kRequests)]);
          MPI_Waitall(kRequests, requests.data(), MPI_STATUSES_IGNORE);
        },
        true);
    judge();
  }
  std::rotate(requests.begin(), requests.begin() + rank % kRequests, requests.end());
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}

/// Rank 0 has started a request when all make one that needs the first links, or another kernel; the others
/// start it later.
void make_among_starts(MemoryKind kind, MPI_Op op) {
  MPI_Comm comm = new_communicator();
  Ints in(kCount, mine, kind), out(kCount, nothing, kind), on_device(kCount, mine), result(kCount, nothing);
  MPI_Request first, second;
  INIT(Allreduce)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &first);
  if (rank == 0) MPI_Start(&first);
  INIT(Allreduce)(on_device.at(), result.at(), kCount, MPI_INT, op, comm, MPI_INFO_NULL, &second);
  if (rank != 0) MPI_Start(&first);
  MPI_Start(&second);
  wait_for(first);
  wait_for(second);
  out.is([](int i) { return sum(i); }, "a request that some have started is wrong");
  result.is([&](int i) { return op == MPI_SUM ? sum(i) : of_rank(ranks - 1, i); },
            "a request that was made meanwhile is wrong");
  MPI_Request_free(&first);
  MPI_Request_free(&second);
  MPI_Comm_free(&comm);
}

/// Whose operand waits for the program, which starts more, and enqueues work that waits for the host, too.
void start_behind_a_staged_one(MPI_Comm comm) {
  const MemoryKind kind = rank == 1 ? MemoryKind::kHost : MemoryKind::kDevice;
  Ints staged_in(kCount, mine, kind), staged_out(kCount, nothing, kind), in(kCount, mine),
      out(kCount, nothing);
  MPI_Request staged, stays;
  INIT(Allreduce)
  (staged_in.at(), staged_out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &staged);
  INIT(Allreduce)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &stays);
  Waiting earlier;
  MPI_Start(&staged);
  MPI_Start(&stays);
  earlier.end();
  {
    Waiting later;
    wait_for(staged);
    wait_for(stays);
  }
  staged_out.is([](int i) { return sum(i); }, "a staged allreduce before another one is wrong");
  out.is([](int i) { return sum(i); }, "an allreduce behind a staged one is wrong");
  MPI_Request_free(&staged);
  MPI_Request_free(&stays);
}

/// A start returns although the operand waits for the host; the call ends although what the program enqueues
/// later waits.
void go_on_beside_the_program(MPI_Comm comm) {
  check("allreduce", 1, [&] {
    Ints in(kCount, mine), out(kCount, nothing);
    MPI_Request request;
    INIT(Allreduce)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    Waiting earlier;
    MPI_Start(&request);
    for (int i = 0; i < 30; ++i) {
      int done;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      require(!done, "a request is complete before work that was enqueued ahead of it");
    }
    earlier.end();
    {
      Waiting later;
      wait_for(request);
    }
    out.is([](int i) { return sum(i); }, "an allreduce beside work that waits for the host is wrong");
    MPI_Request_free(&request);
  });
}

/// Before there are links between GPUs for it, a request is made while a call is under way, behind work of
/// rank 0 that waits for its host, and while another request has been started there alone.
void make_beside_the_program() {
  MPI_Comm comm = new_communicator();
  std::vector<int> host_in(kCount, 1), host_out(kCount);
  MPI_Request on_host, call, request;
  INIT(Allreduce)
  (host_in.data(), host_out.data(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &on_host);
  Ints in(kCount, mine), of_call(kCount, nothing), out(kCount, nothing);
  // Between hosts a call that does not wait stays on the device once a blocking one has made links.
  if (promised) MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm);
  {
    std::optional<Waiting> earlier;
    if (rank == 0) {
      earlier.emplace();
      MPI_Start(&on_host);
    }
    MPI_Iallreduce(in.at(), of_call.at(), kCount, MPI_INT, MPI_SUM, comm, &call);
    INIT(Allreduce)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
  }
  if (rank != 0) MPI_Start(&on_host);
  wait_for(call);
  of_call.is([](int i) { return sum(i); }, "a call beside the making of a request is wrong");
  wait_for(on_host);
  require(host_out.back() == ranks, "a request that was started beside the making of another is wrong");
  MPI_Request_free(&on_host);
  run(
      request, [&] { out.fill(nothing); },
      [&] { out.is([](int i) { return sum(i); }, "a request that was made beside the program is wrong"); });
  allreduce(1, comm);
  MPI_Comm_free(&comm);
}

/// The first call of a communicator, in which rank 0 has no bytes.
void make_without_bytes() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const int root = ranks - 1, count = rank == 0 ? 0 : kCount;
  std::vector<int> counts, places;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(r == 0 ? 0 : kCount);
    places.push_back(r * kCount);
  }
  Ints in(kCount, mine), out(kCount * ranks, nothing);
  check("gatherv", 3, [&] {
    MPI_Request request;
    INIT(Gatherv)
    (in.at(), count, MPI_INT, out.at(), counts.data(), places.data(), MPI_INT, root, comm, MPI_INFO_NULL,
     &request);
    run(
        request, [&] { out.fill(nothing); },
        [&] {
          out.is([&](int i) { return rank == root && i >= kCount ? of_rank(i / kCount, i % kCount) : -1; },
                 "a persistent gatherv is wrong");
        });
  });
  MPI_Comm_free(&comm);
}

/// Requests that cannot stay on the device on one rank are right on all; and later ones stay.
void step_back_together(MPI_Comm comm) {
  allreduce(0, comm, rank == 0 ? MemoryKind::kHost : MemoryKind::kDevice);
  allreduce(0, comm, MemoryKind::kHost);
  allreduce(1, comm);
  // By zero copy: a result where operands are yet to be read.
  check("reduce_scatter_block", promised ? 3 : 0, [&] {
    Ints both(kCount * ranks, mine);
    MPI_Request request;
    INIT(Reduce_scatter_block)
    (MPI_IN_PLACE, both.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    run(
        request, [&] { both.fill(mine); },
        [&] {
          both.is([](int i) { return i < kCount ? sum(rank * kCount + i) : mine(i); },
                  "a persistent reduce_scatter_block in place is wrong");
        });
  });
  allreduce(1, comm);
}

/// Far more than a communicator has memory for at first, some never started, freed in an order of each rank.
void make_many(MPI_Comm comm) {
  constexpr int kRequests = 150;
  Ints in(kCount, mine), out(kCount, nothing);
  for (int round = 0; round < 2; ++round) {
    std::vector<MPI_Request> requests(kRequests);
    for (MPI_Request& request : requests)
      INIT(Allreduce)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    check("allreduce", 3, [&] {
      for (const int i : {0, kRequests / 2, kRequests - 1}) {
        out.fill(nothing);
        MPI_Start(&requests[static_cast<std::size_t>(i)]);
        wait_for(requests[static_cast<std::size_t>(i)]);
        out.is([](int e) { return sum(e); }, "one of many requests is wrong");
      }
    });
    std::rotate(requests.begin(), requests.begin() + rank, requests.end());
    for (MPI_Request& request : requests) MPI_Request_free(&request);
  }
}

/// The operand is freed and made anew, at the same address on all ranks, between starts of a request and of
/// another one with the same buffers.
void renew_buffers(MPI_Comm comm) {
  auto in = std::make_unique<Ints>(kCount, mine);
  Ints out(kCount, nothing);
  MPI_Request requests[2];
  std::uint64_t peers = 0;
  for (MPI_Request& request : requests) {
    peers = counts().peers;
    INIT(Allreduce)(in->at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
  }
  require(counts().peers == peers, "memory is opened once more for another request");
  int renewed = 0;
  const int* before = nullptr;
  for (int round = 0; round < 6; ++round) {
    for (MPI_Request& request : requests) {
      out.fill(nothing);
      MPI_Start(&request);
      wait_for(request);
      out.is([&](int i) { return sum(i) + ranks * round; }, "an allreduce of renewed memory is wrong");
    }
    before = in->at();
    in.reset();
    in = std::make_unique<Ints>(kCount, [&](int i) { return mine(i) + round + 1; });
    int is_there = in->at() == before;
    MPI_Allreduce(MPI_IN_PLACE, &is_there, 1, MPI_INT, MPI_MIN, comm);
    if (!is_there) break;
    ++renewed;
  }
  require(renewed > 0, "the driver never gives out an address again");
  // The driver of rank 0 refuses new memory while the old one is open. CUDA waits for the program's work when
  // that is closed: so the request waits, and its rank does not.
  in.reset();
  in = std::make_unique<Ints>(kCount, mine);
  int is_there = in->at() == before;
  MPI_Allreduce(MPI_IN_PLACE, &is_there, 1, MPI_INT, MPI_MIN, comm);
  if (is_there) {
    if (rank == 0) {
      fail("cuIpcOpenMemHandle", 0, 1);
      MPI_Start(&requests[0]);
    }
    {
      std::optional<Waiting> later;
      if (rank == 0) later.emplace();
      int token = 0;
      MPI_Bcast(&token, 1, MPI_INT, 0, MPI_COMM_WORLD);  // the others come when that is there
      if (rank != 0) MPI_Start(&requests[0]);
      const double until = MPI_Wtime() + 0.3;
      for (int done = 0; MPI_Wtime() < until && !done;) MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
      if (rank == 0) fail("cuIpcOpenMemHandle", 0, 0);
    }
    wait_for(requests[0]);
    out.is([](int i) { return sum(i); }, "an allreduce of memory that is refused at first is wrong");
  }
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}

}  // namespace

int main(int argc, char** argv) {
  begin(argc, argv);
  tools.emplace();
  promised = argc > 1 && std::string(argv[1]) == "promised";
  algorithm = promised ? "kernel" : "zero_copy";
  MPI_Comm comm = new_communicator();
  if (promised) {
    make_among_starts(MemoryKind::kHost, MPI_SUM);
    make_among_starts(MemoryKind::kDevice, MPI_MAX);
    start_in_the_promised_order(comm);
    start_behind_a_staged_one(comm);
  }
  every_collective(comm);
  if (!promised) start_in_any_order(comm);
  go_on_beside_the_program(comm);
  make_beside_the_program();
  if (!promised) make_without_bytes();
  step_back_together(comm);
  make_many(comm);
  if (!promised) renew_buffers(comm);
  MPI_Comm_free(&comm);
  tools.reset();
  MPI_Finalize();
  return 0;
}
