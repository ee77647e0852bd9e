// mpi_nonblocking_on_device_test -- calls that do not wait, on buffers that stay on a device: which calls
// those are, that all ranks decide alike, and that nothing of them waits for the program's own work. On
// tests/virtual_gpu, with a rule for kernels. Exit code 1: wrong.
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"
#include "tests/mpi/waiting.hpp"

namespace {

using namespace loom::mpi_test;

constexpr int kCount = 5000;
std::optional<loom::mpi::ToolInterface> tools;

int mine(int i) {
  return i % 1000 + rank * 10'000;
}
int of_rank(int r, int i) {
  return i % 1000 + r * 10'000;
}
int sum(int i) {
  return ranks * (i % 1000) + ranks * (ranks - 1) / 2 * 10'000;
}
int nothing(int) {
  return -1;
}

/// Whether kernels have carried so many calls of the collective, and nothing was staged unless others are; or
/// none of them.
void check(const char* collective, int stay, const std::function<void()>& body, bool stages_others = false) {
  const auto counts_now = [&] {
    return std::pair(tools->counter("coll_loom_calls", collective, "kernel").value_or(0),
                     tools->counter("coll_loom_staged_bytes").value_or(0));
  };
  const auto [calls, staged] = counts_now();
  body();
  const auto [calls_after, staged_after] = counts_now();
  if (calls_after != calls + static_cast<std::uint64_t>(stay))
    std::fprintf(stderr, "kernels have carried %d calls, not %d\n", static_cast<int>(calls_after - calls),
                 stay);
  require(calls_after == calls + static_cast<std::uint64_t>(stay),
          (std::string(collective) + (stay > 0 ? " does not stay on the device" : " stays on the device"))
              .c_str());
  if (stay > 0 && !stages_others)
    require(staged_after == staged, (std::string(collective) + " is staged all the same").c_str());
}

void wait_for(MPI_Request& request) {
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
bool is_done(MPI_Request& request) {
  int done;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  return done != 0;
}

void iallreduce(int stay, MPI_Comm comm, MemoryKind kind = MemoryKind::kDevice) {
  check("allreduce", stay, [&] {
    Ints in(kCount, mine, kind), out(kCount, nothing, kind);
    MPI_Request request;
    MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, &request);
    wait_for(request);
    out.is(sum, "an iallreduce is wrong");
    in.is(mine, "an iallreduce changes its operand");
  });
}

/// Rank r has so many elements; rank 1 has none.
int length_of(int r) {
  return r == 1 ? 0 : 2000 + 7 * r;
}

void lists_of_blocks(int stay, MPI_Comm comm) {
  std::vector<int> counts, places;
  int all = 0;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(length_of(r));
    places.push_back(all + 3 * r);
    all += length_of(r);
  }
  const int own = length_of(rank), first = places[static_cast<std::size_t>(rank)] - 3 * rank;
  check("reduce_scatter", stay, [&] {
    Ints in(all, mine), out(own + 1, nothing);
    MPI_Request request;
    MPI_Ireduce_scatter(in.at(), out.at(), counts.data(), MPI_INT, MPI_SUM, comm, &request);
    wait_for(request);
    out.is([&](int i) { return i < own ? sum(first + i) : -1; }, "an ireduce_scatter is wrong");
  });
  check("reduce_scatter", 0, [&] {  // its result goes elsewhere first, which needs memory
    Ints both(all, mine);
    MPI_Request request;
    MPI_Ireduce_scatter(MPI_IN_PLACE, both.at(), counts.data(), MPI_INT, MPI_SUM, comm, &request);
    wait_for(request);
    both.is([&](int i) { return i < own ? sum(first + i) : mine(i); },
            "an ireduce_scatter in place is wrong");
  });
  check("allgatherv", stay, [&] {
    Ints in(own + 1, mine), out(all + 4 * ranks, nothing);
    MPI_Request request;
    MPI_Iallgatherv(in.at(), own, MPI_INT, out.at(), counts.data(), places.data(), MPI_INT, comm, &request);
    wait_for(request);
    out.is(
        [&](int i) {
          for (int r = 0; r < ranks; ++r)
            if (const int at = i - places[static_cast<std::size_t>(r)]; at >= 0 && at < length_of(r))
              return of_rank(r, at);
          return -1;
        },
        "an iallgatherv is wrong");
  });
}

void every_collective(int stay, MPI_Comm comm) {
  const int root = ranks - 1;
  MPI_Request request;
  iallreduce(stay, comm);
  check("allreduce", stay, [&] {
    Ints both(kCount, mine);
    MPI_Iallreduce(MPI_IN_PLACE, both.at(), kCount, MPI_INT, MPI_SUM, comm, &request);
    wait_for(request);
    both.is(sum, "an iallreduce in place is wrong");
  });
  check("reduce", stay, [&] {
    Ints in(kCount, mine), out(kCount, nothing);
    MPI_Ireduce(in.at(), rank == root ? out.at() : nullptr, kCount, MPI_INT, MPI_SUM, root, comm, &request);
    wait_for(request);
    if (rank == root) out.is(sum, "an ireduce is wrong");
  });
  check("bcast", stay, [&] {
    Ints buffer(kCount, mine);
    MPI_Ibcast(buffer.at(), kCount, MPI_INT, root, comm, &request);
    wait_for(request);
    buffer.is([&](int i) { return of_rank(root, i); }, "an ibcast is wrong");
  });
  check("allgather", stay, [&] {
    Ints in(kCount, mine), out(kCount * ranks, nothing);
    MPI_Iallgather(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, comm, &request);
    wait_for(request);
    out.is([](int i) { return of_rank(i / kCount, i % kCount); }, "an iallgather is wrong");
  });
  check("allgather", stay, [&] {
    Ints both(kCount * ranks, [](int i) { return i / kCount == rank ? mine(i % kCount) : -1; });
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INT, both.at(), kCount, MPI_INT, comm, &request);
    wait_for(request);
    both.is([](int i) { return of_rank(i / kCount, i % kCount); }, "an iallgather in place is wrong");
  });
  check("reduce_scatter_block", stay, [&] {
    Ints in(kCount * ranks, mine), out(kCount, nothing);
    MPI_Ireduce_scatter_block(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, &request);
    wait_for(request);
    out.is([](int i) { return sum(rank * kCount + i); }, "an ireduce_scatter_block is wrong");
  });
  check("alltoall", between_hosts() ? stay : 0, [&] {  // inside a host there is no kernel
    Ints in(kCount * ranks, [](int i) { return of_rank(rank, i / kCount); }), out(kCount * ranks, nothing);
    MPI_Ialltoall(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, comm, &request);
    wait_for(request);
    out.is([](int i) { return of_rank(i / kCount, rank); }, "an ialltoall is wrong");
  });
  lists_of_blocks(stay, comm);
}

/// Calls that cannot stay there on one rank, for each reason, are right on all; and later ones stay.
void step_back_together(MPI_Comm comm) {
  iallreduce(0, comm, rank == 0 ? MemoryKind::kHost : MemoryKind::kDevice);
  iallreduce(1, comm);
  check("bcast", 0, [&] {  // gaps, on the last rank alone
    MPI_Datatype pairs;
    MPI_Type_vector(kCount / 2, 2, 3, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    const bool gaps = rank == ranks - 1;
    Ints buffer(kCount / 2 * 3, mine);
    MPI_Request request;
    MPI_Ibcast(buffer.at(), gaps ? 1 : kCount, gaps ? pairs : MPI_INT, 0, comm, &request);
    MPI_Type_free(&pairs);
    wait_for(request);
    buffer.is(
        [&](int i) {
          if (rank == 0) return mine(i);
          if (gaps) return i % 3 < 2 ? of_rank(0, i / 3 * 2 + i % 3) : mine(i);
          return i < kCount ? of_rank(0, i) : mine(i);
        },
        "an ibcast to a type with gaps is wrong");
  });
  iallreduce(1, comm);
}

/// Several calls are on their way; a blocking one follows.
void start_many(MPI_Comm comm) {
  constexpr int kCalls = 6;
  std::vector<std::unique_ptr<Ints>> in, out;
  std::vector<MPI_Request> requests(kCalls);
  check(
      "allreduce", kCalls - 2,
      [&] {
        for (int call = 0; call < kCalls; ++call) {
          // The second and the fourth one are not on the device everywhere.
          const bool apart = (call == 1 && rank == 0) || (call == 3 && rank == ranks - 1);
          const MemoryKind kind = apart ? MemoryKind::kHost : MemoryKind::kDevice;
          in.push_back(std::make_unique<Ints>(
              kCount, [call](int i) { return mine(i) + call; }, kind));
          out.push_back(std::make_unique<Ints>(kCount, nothing, kind));
          MPI_Iallreduce(in.back()->at(), out.back()->at(), kCount, MPI_INT, MPI_SUM, comm,
                         &requests[static_cast<std::size_t>(call)]);
        }
        int one = 1;
        MPI_Bcast(&one, 1, MPI_INT, 0, comm);
        MPI_Waitall(kCalls, requests.data(), MPI_STATUSES_IGNORE);
      },
      true);
  for (int call = 0; call < kCalls; ++call)
    out[static_cast<std::size_t>(call)]->is([call](int i) { return sum(i) + ranks * call; },
                                            "one of many iallreduces is wrong");
}

/// Starts and tests return although the operand waits for the host. Then the call ends although what the
/// program has enqueued later waits.
void go_on_beside_the_program(MPI_Comm comm) {
  constexpr int kTests = 30;
  check("allreduce", 1, [&] {
    Ints in(kCount, mine), out(kCount, nothing);
    MPI_Request request;
    {
      Waiting earlier;
      MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, &request);
      for (int i = 0; i < kTests; ++i)
        require(!is_done(request), "a call is complete before work that was enqueued ahead of it");
      earlier.end();
      Waiting later;
      wait_for(request);
    }
    out.is(sum, "an iallreduce beside work that waits for the host is wrong");
  });
}

/// The program frees memory and synchronises with its GPU between start and wait, and a peer joins only after
/// a message that follows.
void synchronise_between(MPI_Comm comm) {
  check("allreduce", 1, [&] {
    Ints in(kCount, mine), out(kCount, nothing);
    auto other = std::make_unique<Ints>(kCount, mine, MemoryKind::kDevice);
    MPI_Request request;
    int token = 0;
    const bool is_late = rank == ranks - 1;
    if (is_late) MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, &request);
    other.reset();
    require(Driver::get().function<int()>("cuCtxSynchronize")() == 0, "the GPU has failed");
    if (rank == 0) MPI_Send(&token, 1, MPI_INT, ranks - 1, 0, MPI_COMM_WORLD);
    wait_for(request);
    out.is(sum, "an iallreduce with a late rank is wrong");
  });
}

/// Of two communicators, started in opposite orders.
void start_crosswise(MPI_Comm one, MPI_Comm other) {
  check("allreduce", 2, [&] {
    Ints in(kCount, mine), out(kCount, nothing), again(kCount, nothing);
    MPI_Request requests[2];
    const auto start = [&](bool second) {
      MPI_Iallreduce(in.at(), (second ? again : out).at(), kCount, MPI_INT, MPI_SUM, second ? other : one,
                     &requests[second]);
    };
    start(rank % 2 == 0);
    start(rank % 2 != 0);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    out.is(sum, "an iallreduce beside one of another communicator is wrong");
    again.is(sum, "an iallreduce of another communicator is wrong");
  });
}

/// Other memory lies where memory was that the ranks have shared, and rank 0 is refused it, as drivers refuse
/// it while the old one is open. That is closed by the next call that may wait, and not by this one: CUDA
/// waits for all work of the program then.
void renew_a_buffer(MPI_Comm comm) {
  const auto peers = [] { return counts().peers; };
  Ints out(kCount, nothing);
  auto in = std::make_unique<Ints>(kCount, mine);
  MPI_Allreduce(in->at(), out.at(), kCount, MPI_INT, MPI_SUM, comm);
  in.reset();
  in = std::make_unique<Ints>(kCount, mine);
  if (rank == 0) fail("cuIpcOpenMemHandle", 0, 1);
  const std::uint64_t opened = peers();
  MPI_Request request;
  MPI_Iallreduce(in->at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, &request);
  {
    const Waiting later;
    wait_for(request);
    require(rank != 0 || peers() == opened, "memory of other ranks is closed beside work of the program");
  }
  out.is(sum, "an iallreduce of renewed memory is wrong");
  if (rank == 0) fail("cuIpcOpenMemHandle", 0, 0);
  // By no call: once that work has ended.
  const double until = MPI_Wtime() + 10;
  while (rank == 0 && peers() >= opened)
    require(MPI_Wtime() < until, "nobody closes memory that has been freed");
  MPI_Barrier(comm);
}

}  // namespace

int main(int argc, char** argv) {
  begin(argc, argv);
  tools.emplace();
  MPI_Comm comm, other;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  if (argc > 1 && std::string(argv[1]) == "renew") {
    renew_a_buffer(comm);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&other);
    tools.reset();
    MPI_Finalize();
    return 0;
  }
  // Links and kernels are made by calls that may wait. The first calls of a communicator connect the ranks.
  every_collective(0, comm);
  for (int i = 0; i < 2; ++i) iallreduce(0, other);
  for (const MPI_Comm each : {comm, other}) MPI_Barrier(each);
  if (between_hosts()) {  // all-to-alls have links of their own, which one of them makes
    Ints in(kCount * ranks, mine), out(kCount * ranks, nothing);
    MPI_Alltoall(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, comm);
  }
  every_collective(1, comm);
  step_back_together(comm);
  start_many(comm);
  go_on_beside_the_program(comm);
  synchronise_between(comm);
  start_crosswise(comm, other);
  MPI_Comm_free(&comm);
  MPI_Comm_free(&other);
  tools.reset();
  MPI_Finalize();
  return 0;
}
