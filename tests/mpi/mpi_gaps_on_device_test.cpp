// mpi_gaps_on_device_test -- calls whose buffers on a device have gaps: kernels pack and unpack them there,
// in calls of every form. On tests/virtual_gpu. Exit code 1: wrong.
//
//   mpi_gaps_on_device_test EXECUTOR [LIMIT]
//       EXECUTOR  which algorithm carries the calls: zero_copy or kernel
//       LIMIT     coll_loom_memory_limit: more requests than there is memory for, and nothing else
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"
#include "tests/mpi/waiting.hpp"

namespace {

using namespace loom::mpi_test;

std::string executor;
std::optional<loom::mpi::ToolInterface> tools;

enum class Form { kBlocking, kNonblocking, kPersistent };

/// Which calls a program makes, and by which functions.
struct Calls {
  Form form;
  MPI_Comm comm;
  std::optional<bool> stay;  ///< on the device, as kernels carry them or not; nothing: they may
  bool one_waits = false;    ///< a call that waits follows, while their buffers are there
};

int nothing(int) {
  return -1;
}
int sent(int from, int to, int i) {
  return (i % 100 + from * 100 + to) * 7;
}

/// Elements of 8 integers in 12, of which the last blocks come first, from a negative lower bound on.
class Scattered {
 public:
  Scattered() {
    const int lengths[] = {3, 1, 4}, places[] = {5, 2, -4};
    MPI_Type_indexed(3, lengths, places, MPI_INT, &pieces_);
    MPI_Type_create_resized(pieces_, -kBefore * static_cast<MPI_Aint>(sizeof(int)), 12 * sizeof(int), &type);
    MPI_Type_commit(&type);
  }
  ~Scattered() {
    MPI_Type_free(&type);
    MPI_Type_free(&pieces_);
  }
  Scattered(const Scattered&) = delete;
  Scattered& operator=(const Scattered&) = delete;
  static constexpr int kBefore = 4;  ///< integers before the address of an element
  /// Which of its element's integers stands there; -1: none.
  static int at(int place) {
    constexpr int kWhich[] = {4, 5, 6, 7, -1, -1, 3, -1, -1, 0, 1, 2};
    return kWhich[place % 12];
  }
  MPI_Datatype type;

 private:
  MPI_Datatype pieces_;
};
constexpr int kElements = 3000;

/// Checks that each call stays on the device, or does not, where calls.stay says so. make(request) makes the
/// call of the form; judge(round) checks its result. A persistent one is started three times.
void check(const Calls& calls, const char* collective, bool stays,
           const std::function<void(MPI_Request*)>& make, const std::function<void()>& judge) {
  const auto counts_now = [&] {
    return std::pair(tools->counter("coll_loom_calls", collective, executor).value_or(0),
                     tools->counter("coll_loom_staged_bytes").value_or(0));
  };
  counts_now();
  const auto [calls_before, staged_before] = counts_now();
  MPI_Request request = MPI_REQUEST_NULL;
  make(&request);
  const int rounds = calls.form == Form::kPersistent ? 3 : 1;
  for (int round = 0; round < rounds; ++round) {
    if (calls.form == Form::kPersistent) MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    judge();
  }
  if (calls.form == Form::kPersistent) MPI_Request_free(&request);
  const auto [calls_after, staged_after] = counts_now();
  if (calls.one_waits) MPI_Barrier(calls.comm);
  if (!calls.stay) return;
  const auto expected = static_cast<std::uint64_t>(stays ? rounds : 0);
  if (calls_after != calls_before + expected)
    std::fprintf(stderr, "%s, form %d: %d calls have stayed on the device, not %d\n", collective,
                 static_cast<int>(calls.form), static_cast<int>(calls_after - calls_before),
                 static_cast<int>(expected));
  require(calls_after == calls_before + expected,
          stays ? "a call does not stay on the device" : "a call stays on the device");
  if (stays) require(staged_after == staged_before, "a call that stays on the device is staged all the same");
}

/// Column r is for rank r; contiguous there.
void transpose(const Calls& calls) {
  constexpr int kRows = 12'000;  // of two elements, which begin `ranks` columns of two apart
  MPI_Datatype column, columns;
  MPI_Type_vector(kRows, 2, 2 * ranks, MPI_INT, &column);
  MPI_Type_create_resized(column, 0, 2 * sizeof(int), &columns);
  MPI_Type_commit(&columns);
  Ints in(2 * ranks * kRows, [](int i) { return sent(rank, i / 2 % ranks, i / 2 / ranks * 2 + i % 2); }),
      out(2 * ranks * kRows, nothing);
  check(
      calls, "alltoall", calls.stay == true && executor != "kernel",
      [&](MPI_Request* request) {
        if (calls.form == Form::kBlocking)
          MPI_Alltoall(in.at(), 1, columns, out.at(), 2 * kRows, MPI_INT, calls.comm);
        else if (calls.form == Form::kNonblocking)
          MPI_Ialltoall(in.at(), 1, columns, out.at(), 2 * kRows, MPI_INT, calls.comm, request);
        else
          INIT(Alltoall)
        (in.at(), 1, columns, out.at(), 2 * kRows, MPI_INT, calls.comm, MPI_INFO_NULL, request);
      },
      [&] {
        out.is([](int i) { return sent(i / (2 * kRows), rank, i % (2 * kRows)); },
               "a transposition is wrong");
        out.fill(nothing);
      });
  MPI_Type_free(&columns);
  MPI_Type_free(&column);
}

/// On odd ranks alone the result has gaps.
void gather_everywhere(const Calls& calls) {
  const Scattered scattered;
  const int all = ranks * kElements;
  const bool gaps = rank % 2 == 1;
  Ints in(8 * kElements, [](int i) { return sent(rank, 0, i); }), out(12 * all, nothing);
  int* const to = gaps ? out.at() + Scattered::kBefore : out.at();
  const int count = gaps ? kElements : 8 * kElements;
  const MPI_Datatype type = gaps ? scattered.type : MPI_INT;
  check(
      calls, "allgather", calls.stay == true,
      [&](MPI_Request* request) {
        if (calls.form == Form::kBlocking)
          MPI_Allgather(in.at(), 8 * kElements, MPI_INT, to, count, type, calls.comm);
        else if (calls.form == Form::kNonblocking)
          MPI_Iallgather(in.at(), 8 * kElements, MPI_INT, to, count, type, calls.comm, request);
        else
          INIT(Allgather)
        (in.at(), 8 * kElements, MPI_INT, to, count, type, calls.comm, MPI_INFO_NULL, request);
      },
      [&] {
        out.is(
            [&](int at) {
              if (!gaps) return at < 8 * all ? sent(at / (8 * kElements), 0, at % (8 * kElements)) : -1;
              const int i = Scattered::at(at);
              return i < 0 ? -1 : sent(at / 12 / kElements, 0, at / 12 % kElements * 8 + i);
            },
            "an allgather to a type with gaps is wrong");
        out.fill(nothing);
      });
}

/// Kernels divide entries by their rows, and cut these.
void gather_long_rows(const Calls& calls) {
  constexpr int kRows = 3, kLength = 6'001, kApart = 7'000;
  MPI_Datatype rows, type;
  MPI_Type_vector(kRows, kLength, kApart, MPI_INT, &rows);
  MPI_Type_create_resized(rows, 0, kRows * kApart * sizeof(int), &type);
  MPI_Type_commit(&type);
  Ints in(kRows * kLength, [](int i) { return sent(rank, 4, i); }), out(ranks * kRows * kApart, nothing);
  check(
      calls, "allgather", calls.stay == true,
      [&](MPI_Request* request) {
        if (calls.form == Form::kBlocking)
          MPI_Allgather(in.at(), kRows * kLength, MPI_INT, out.at(), 1, type, calls.comm);
        else if (calls.form == Form::kNonblocking)
          MPI_Iallgather(in.at(), kRows * kLength, MPI_INT, out.at(), 1, type, calls.comm, request);
        else
          INIT(Allgather)
        (in.at(), kRows * kLength, MPI_INT, out.at(), 1, type, calls.comm, MPI_INFO_NULL, request);
      },
      [&] {
        out.is(
            [&](int at) {
              const int row = at / kApart, column = at % kApart;
              return column < kLength ? sent(row / kRows, 4, row % kRows * kLength + column) : -1;
            },
            "an allgather to long rows is wrong");
        out.fill(nothing);
      });
  MPI_Type_free(&type);
  MPI_Type_free(&rows);
}

void gather_in_place(const Calls& calls) {
  const Scattered scattered;
  const int all = ranks * kElements;
  const auto own = [](int at) { return sent(rank, 2, at % (12 * kElements)); };
  Ints both(12 * all, [&](int at) { return at / 12 / kElements == rank ? own(at) : -1; });
  int* const to = both.at() + Scattered::kBefore;
  check(
      calls, "allgather", calls.stay == true,
      [&](MPI_Request* request) {
        if (calls.form == Form::kBlocking)
          MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, to, kElements, scattered.type, calls.comm);
        else if (calls.form == Form::kNonblocking)
          MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INT, to, kElements, scattered.type, calls.comm, request);
        else
          INIT(Allgather)
        (MPI_IN_PLACE, 0, MPI_INT, to, kElements, scattered.type, calls.comm, MPI_INFO_NULL, request);
      },
      [&] {
        both.is(
            [&](int at) {
              const int from = at / 12 / kElements;
              return from == rank || Scattered::at(at) >= 0 ? sent(from, 2, at % (12 * kElements)) : -1;
            },
            "an allgather in place with gaps is wrong");
      });
}

/// The root's own block stays where it is, and gaps with it.
void scatter_in_place(const Calls& calls) {
  const Scattered scattered;
  const int root = 0, first = rank * 8 * kElements;
  const auto whole = [](int at) { return sent(root, 3, at); };
  Ints in(12 * ranks * kElements, whole), out(8 * kElements, nothing);
  int* const from = in.at() + Scattered::kBefore;
  void* const to = rank == root ? MPI_IN_PLACE : static_cast<void*>(out.at());
  check(
      calls, "scatter", calls.stay == true && executor != "kernel",
      [&](MPI_Request* request) {
        if (calls.form == Form::kBlocking)
          MPI_Scatter(from, kElements, scattered.type, to, 8 * kElements, MPI_INT, root, calls.comm);
        else if (calls.form == Form::kNonblocking)
          MPI_Iscatter(from, kElements, scattered.type, to, 8 * kElements, MPI_INT, root, calls.comm,
                       request);
        else
          INIT(Scatter)
        (from, kElements, scattered.type, to, 8 * kElements, MPI_INT, root, calls.comm, MPI_INFO_NULL,
         request);
      },
      [&] {
        in.is(whole, "a scatter in place changes its operand");
        out.is(
            [&](int i) {
              constexpr int kPlaces[] = {9, 10, 11, 6, 0, 1, 2, 3};
              return rank == root ? -1 : whole((first + i) / 8 * 12 + kPlaces[i % 8]);
            },
            "a scatter in place of a type with gaps is wrong");
        out.fill(nothing);
      });
}

/// Of calls that do not wait loom makes others, which are not in place.
void exchange_in_place(const Calls& calls) {
  if (calls.form != Form::kBlocking) return;
  const Scattered scattered;
  const auto own = [](int at) { return sent(rank, at / 12 / kElements, at % (12 * kElements)); };
  Ints both(12 * ranks * kElements, own);
  check(
      calls, "alltoall", executor != "kernel",
      [&](MPI_Request*) {
        MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, both.at() + Scattered::kBefore, kElements, scattered.type,
                     calls.comm);
      },
      [&] {
        both.is(
            [&](int at) {
              return Scattered::at(at) >= 0 ? sent(at / 12 / kElements, rank, at % (12 * kElements))
                                            : own(at);
            },
            "an alltoall in place with gaps is wrong");
      });
}

/// The first rank's block is the last one, rank 1 sends nothing, and only the root knows how long the message
/// is.
void gather_blocks(const Calls& calls) {
  const Scattered scattered;
  const int root = ranks - 1;
  const auto elements_of = [](int r) { return r == 1 ? 0 : kElements; };
  std::vector<int> counts, first;
  for (int r = 0; r < ranks; ++r)
    counts.push_back(elements_of(r)), first.push_back((ranks - 1 - r) * kElements);
  Ints in(8 * kElements, [](int i) { return sent(rank, 1, i); }), out(12 * ranks * kElements, nothing);
  int* const to = out.at() + Scattered::kBefore;
  const int own = 8 * elements_of(rank);
  check(
      calls, "gatherv", calls.stay == true && executor != "kernel",
      [&](MPI_Request* request) {
        if (calls.form == Form::kBlocking)
          MPI_Gatherv(in.at(), own, MPI_INT, to, counts.data(), first.data(), scattered.type, root,
                      calls.comm);
        else if (calls.form == Form::kNonblocking)
          MPI_Igatherv(in.at(), own, MPI_INT, to, counts.data(), first.data(), scattered.type, root,
                       calls.comm, request);
        else
          INIT(Gatherv)
        (in.at(), own, MPI_INT, to, counts.data(), first.data(), scattered.type, root, calls.comm,
         MPI_INFO_NULL, request);
      },
      [&] {
        if (rank != root) return;
        out.is(
            [&](int at) {
              const int from = ranks - 1 - at / 12 / kElements, i = Scattered::at(at);
              return i < 0 || elements_of(from) == 0 ? -1 : sent(from, 1, at / 12 % kElements * 8 + i);
            },
            "a gatherv to a type with gaps is wrong");
        out.fill(nothing);
      });
}

void every_call(Form form, MPI_Comm comm) {
  // No kernel over links carries persistent ones.
  const Calls calls{form, comm, form != Form::kPersistent || executor != "kernel"};
  transpose(calls);
  gather_everywhere(calls);
  gather_long_rows(calls);
  gather_in_place(calls);
  scatter_in_place(calls);
  exchange_in_place(calls);
  gather_blocks(calls);
}

/// Calls that do not wait are staged for lack of memory and kernels, which the next call that waits makes,
/// unless the machine is so busy that this is put off for ever more calls, up to 255, and the ranks ask each
/// other ever more seldom.
constexpr int kMostCalls = 2000;

void without_a_call_that_waits() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const auto calls = [&] { return tools->counter("coll_loom_calls", "allgather", executor).value_or(0); };
  const std::uint64_t before = calls();
  gather_everywhere({Form::kNonblocking, comm, false});
  gather_everywhere({Form::kNonblocking, comm, false, true});  // makes what packing takes, on odd ranks
  gather_everywhere(
      {Form::kNonblocking, comm, false, true});  // makes links, or puts that off on a busy machine
  for (int i = 0; i < kMostCalls && calls() == before; ++i)
    gather_everywhere({Form::kNonblocking, comm, {}, true});
  require(calls() == before + 1, "no call stays on the device");
  gather_everywhere({Form::kNonblocking, comm, true});
  MPI_Comm_free(&comm);
}

/// Several are on their way, and each has memory of its own.
void several_at_once(MPI_Comm comm) {
  constexpr int kCalls = 3;
  const Scattered scattered;
  const auto go = [&] {
    std::list<Ints> in, out;
    MPI_Request requests[kCalls];
    for (int k = 0; k < kCalls; ++k) {
      in.emplace_back(12 * kElements, [&](int at) { return sent(rank, k, at); });
      out.emplace_back(8 * kElements * ranks, nothing);
      MPI_Iallgather(in.back().at() + Scattered::kBefore, kElements, scattered.type, out.back().at(),
                     8 * kElements, MPI_INT, comm, &requests[k]);
    }
    MPI_Waitall(kCalls, requests, MPI_STATUSES_IGNORE);
    int k = 0;
    for (Ints& each : out) {
      each.is(
          [&](int i) {
            constexpr int kPlaces[] = {9, 10, 11, 6, 0, 1, 2, 3};
            return sent(i / (8 * kElements), k, i % (8 * kElements) / 8 * 12 + kPlaces[i % 8]);
          },
          "one of several allgathers is wrong");
      ++k;
    }
  };
  const auto calls = [&] { return tools->counter("coll_loom_calls", "allgather", executor).value_or(0); };
  // Those behind one that is staged are staged, too: each round memory is made for one more.
  std::uint64_t before = calls();
  go();
  for (int round = kCalls; round < kMostCalls && calls() < before + kCalls; round += kCalls) {
    MPI_Barrier(comm);
    before = calls();
    go();
  }
  require(calls() == before + kCalls, "several calls at once do not stay on the device");
}

/// A call lacks memory that the pool has too little of. Calls on host memory after it neither make nor free
/// any while the program's work waits for the host.
void host_calls_wait_for_no_gpu(MPI_Comm comm) {
  constexpr int kMore = 8 * kElements;
  const Scattered scattered;
  Ints in(12 * kMore, [](int at) { return sent(rank, 0, at); }), out(8 * kMore * ranks, nothing);
  MPI_Request request;
  MPI_Iallgather(in.at() + Scattered::kBefore, kMore, scattered.type, out.at(), 8 * kMore, MPI_INT, comm,
                 &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  const Waiting waiting;
  for (int i = 0; i < 3; ++i) MPI_Barrier(comm);
}

/// Far more persistent requests than there is memory to pack for: a communicator takes a quarter of what is
/// left for all of them, and the others are staged.
void many_requests(std::uint64_t limit) {
  constexpr int kRequests = 150;
  const Scattered scattered;
  const auto free_bytes = [] {
    std::size_t free, all;
    require(Driver::get().function<int(std::size_t*, std::size_t*)>("cuMemGetInfo_v2")(&free, &all) == 0,
            "the GPU has failed");
    return free;
  };
  Ints in(12 * kElements, [](int at) { return sent(rank, 0, at); }), out(8 * kElements * ranks, nothing);
  const auto make = [&](MPI_Request& request) {
    INIT(Allgather)
    (in.at() + Scattered::kBefore, kElements, scattered.type, out.at(), 8 * kElements, MPI_INT,
     MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  };
  const auto calls = [&] { return tools->counter("coll_loom_calls", "allgather", executor).value_or(0); };
  std::vector<MPI_Request> requests(kRequests);
  make(requests[0]);  // links, too
  const std::size_t before = free_bytes();
  for (int i = 1; i < kRequests; ++i) make(requests[static_cast<std::size_t>(i)]);
  const std::size_t packing = before - free_bytes();
  if (packing > limit / 4) std::fprintf(stderr, "packing takes %zu bytes\n", packing);
  require(packing <= limit / 4, "packing takes more than a quarter of the memory");
  const std::uint64_t calls_before = calls();
  for (MPI_Request& request : requests) {
    out.fill(nothing);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    out.is(
        [](int i) {
          constexpr int kPlaces[] = {9, 10, 11, 6, 0, 1, 2, 3};
          return sent(i / (8 * kElements), 0, i % (8 * kElements) / 8 * 12 + kPlaces[i % 8]);
        },
        "one of many persistent allgathers is wrong");
    MPI_Request_free(&request);
  }
  const std::uint64_t stayed = calls() - calls_before;
  if (stayed <= 1 || stayed >= kRequests) std::fprintf(stderr, "%zu have stayed\n", std::size_t{stayed});
  require(stayed > 1 && stayed < kRequests, "the memory is for no request, or for all");
}

}  // namespace

int main(int argc, char** argv) {
  executor = argc > 1 ? argv[1] : "";
  begin(argc, argv);
  tools.emplace();
  if (argc > 2) {
    many_requests(std::strtoull(argv[2], nullptr, 10));
    tools.reset();
    MPI_Finalize();
    return 0;
  }
  every_call(Form::kBlocking, MPI_COMM_WORLD);
  every_call(Form::kNonblocking, MPI_COMM_WORLD);
  every_call(Form::kPersistent, MPI_COMM_WORLD);
  several_at_once(MPI_COMM_WORLD);
  host_calls_wait_for_no_gpu(MPI_COMM_WORLD);
  without_a_call_that_waits();
  if (rank == 0) std::printf("all right\n");
  tools.reset();
  MPI_Finalize();
  return 0;
}
