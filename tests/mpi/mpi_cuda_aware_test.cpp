// mpi_cuda_aware_test -- which addresses the fallback component gets of calls that loom leaves to it: those
// of buffers on devices, where Open MPI moves such memory, or those of staging buffers. stand_in/ is that
// component, preloaded, on tests/virtual_gpu. Every third rank has its buffers on the host.
//
//   mpi_cuda_aware_test HOW WORD...
//
// HOW they fall back: "certainly", so that loom knows it before it looks at the call's size; "declined", by
// size; "own_op", reductions by an operation of the program. WORDs say what arrives as it is: "moves",
// "reductions", "nonblocking". Exit code 1: wrong.
#include <dlfcn.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "device_ints.hpp"
#include "tests/mpi/stand_in/stand_in.h"

namespace loom::mpi_test {
namespace {

constexpr int kCount = 1000;

MPI_Op op = MPI_SUM;

template <class Function>
Function* stand_in(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  require(found != nullptr, "the stand-in is not preloaded");
  return reinterpret_cast<Function*>(found);
}

void watch(bool yes) {
  stand_in<stand_in_watch_t>("stand_in_watch")(yes);
}

MemoryKind kind() {
  return rank % 3 == 2 ? MemoryKind::kHost : MemoryKind::kDevice;
}

void check_address(const std::string& of, const void* mine, const void* noted, bool noted_on_device,
                   bool as_it_is) {
  const bool on_host = kind() == MemoryKind::kHost;
  require((mine == noted) == (as_it_is || on_host),
          (of + (as_it_is ? " is staged" : " is not staged")).c_str());
  require(noted_on_device == (as_it_is && !on_host), (of + " lies elsewhere than it should").c_str());
}

/// The function has been called once since watch(). nullptr: the buffer means nothing on this rank.
void check_addresses(const std::string& function, const void* in, const void* out, bool as_it_is) {
  const StandInNote note = stand_in<stand_in_noted_t>("stand_in_noted")(function.c_str());
  require(note.calls == 1, (function + " does not reach the fallback component").c_str());
  if (in != nullptr) check_address(function + ": what it sends", in, note.in, note.in_on_device, as_it_is);
  if (out != nullptr)
    check_address(function + ": what it receives", out, note.out, note.out_on_device, as_it_is);
}

/// The arguments of any call: for each rank a block of kCount numbers each way.
struct Arguments {
  Ints in{ranks * kCount, [](int i) { return 100'000 * rank + i; }, kind()};
  Ints out{ranks * kCount, [](int) { return -1; }, kind()};
  std::vector<int> counts = std::vector<int>(static_cast<std::size_t>(ranks), kCount);
  std::vector<int> disps, byte_disps;
  std::vector<MPI_Datatype> types = std::vector<MPI_Datatype>(static_cast<std::size_t>(ranks), MPI_INT);
  Arguments() {
    for (int r = 0; r < ranks; ++r) {
      disps.push_back(r * kCount);
      byte_disps.push_back(r * kCount * static_cast<int>(sizeof(int)));
    }
  }
  int* shared() { return rank == 0 ? in.at() : out.at(); }  ///< of a bcast
};

/// The number at place i of block r of the result; -1: untouched.
using Result = int(int r, int i);
int gathered(int r, int i) {
  return 100'000 * r + i;
}
int gathered_at_root(int r, int i) {
  return rank == 0 ? gathered(r, i) : -1;
}
int scattered(int r, int i) {
  return r == 0 ? rank * kCount + i : -1;
}
int exchanged(int r, int i) {
  return 100'000 * r + rank * kCount + i;
}
int of_root(int r, int i) {
  return r == 0 && rank != 0 ? i : -1;
}
int sum_of_first(int n, int i) {
  return 100'000 * (n * (n - 1) / 2) + n * i;
}
int summed(int r, int i) {
  return r == 0 ? sum_of_first(ranks, i) : -1;
}
int summed_at_root(int r, int i) {
  return rank == 0 ? summed(r, i) : -1;
}
int block_summed(int r, int i) {
  return r == 0 ? sum_of_first(ranks, rank * kCount + i) : -1;
}
int scanned(int r, int i) {
  return r == 0 ? sum_of_first(rank + 1, i) : -1;
}
int scanned_before(int r, int i) {
  return r == 0 && rank > 0 ? sum_of_first(rank, i) : -1;
}

enum class Ranks { kAll, kRoot, kOthers };  // the root is rank 0
bool is_among(Ranks which) {
  return which == Ranks::kAll || (which == Ranks::kRoot) == (rank == 0);
}

struct Case {
  const char* name;
  bool reduces;
  bool works_nonblocking;  ///< with UCX
  Ranks senders, receivers;
  Result* result;
  void (*blocking)(Arguments& a);
  void (*nonblocking)(Arguments& a, MPI_Request* request);
  void (*persistent)(Arguments& a, MPI_Request* request);
};

// The three forms of a call; the arguments in front of the communicator.
#define FORMS(Name, name, ...)                                                                       \
  [](Arguments& a) { MPI_##Name(__VA_ARGS__, MPI_COMM_WORLD); },                                     \
      [](Arguments& a, MPI_Request* request) { MPI_I##name(__VA_ARGS__, MPI_COMM_WORLD, request); }, \
      [](Arguments& a, MPI_Request* request) {                                                       \
        INIT(Name)(__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, request);                             \
      }
#define IN a.in.at()
#define OUT a.out.at()
#define BLOCKS kCount, MPI_INT
#define LISTED a.counts.data(), a.disps.data(), MPI_INT
#define LISTED_W a.counts.data(), a.byte_disps.data(), a.types.data()

constexpr Ranks kAll = Ranks::kAll, kRoot = Ranks::kRoot, kOthers = Ranks::kOthers;
const Case kCases[] = {
    {"bcast", false, true, kRoot, kOthers, of_root, FORMS(Bcast, bcast, a.shared(), BLOCKS, 0)},
    {"allgather", false, true, kAll, kAll, gathered, FORMS(Allgather, allgather, IN, BLOCKS, OUT, BLOCKS)},
    {"allgatherv", false, true, kAll, kAll, gathered, FORMS(Allgatherv, allgatherv, IN, BLOCKS, OUT, LISTED)},
    {"alltoall", false, true, kAll, kAll, exchanged, FORMS(Alltoall, alltoall, IN, BLOCKS, OUT, BLOCKS)},
    {"alltoallv", false, true, kAll, kAll, exchanged, FORMS(Alltoallv, alltoallv, IN, LISTED, OUT, LISTED)},
    {"alltoallw", false, true, kAll, kAll, exchanged,
     FORMS(Alltoallw, alltoallw, IN, LISTED_W, OUT, LISTED_W)},
    {"gather", false, false, kAll, kRoot, gathered_at_root,
     FORMS(Gather, gather, IN, BLOCKS, OUT, BLOCKS, 0)},
    {"gatherv", false, false, kAll, kRoot, gathered_at_root,
     FORMS(Gatherv, gatherv, IN, BLOCKS, OUT, LISTED, 0)},
    {"scatter", false, false, kRoot, kAll, scattered, FORMS(Scatter, scatter, IN, BLOCKS, OUT, BLOCKS, 0)},
    {"scatterv", false, false, kRoot, kAll, scattered, FORMS(Scatterv, scatterv, IN, LISTED, OUT, BLOCKS, 0)},
    {"allreduce", true, false, kAll, kAll, summed, FORMS(Allreduce, allreduce, IN, OUT, BLOCKS, op)},
    {"reduce", true, false, kAll, kRoot, summed_at_root, FORMS(Reduce, reduce, IN, OUT, BLOCKS, op, 0)},
    {"reduce_scatter_block", true, false, kAll, kAll, block_summed,
     FORMS(Reduce_scatter_block, reduce_scatter_block, IN, OUT, BLOCKS, op)},
    {"reduce_scatter", true, false, kAll, kAll, block_summed,
     FORMS(Reduce_scatter, reduce_scatter, IN, OUT, a.counts.data(), MPI_INT, op)},
    {"scan", true, false, kAll, kAll, scanned, FORMS(Scan, scan, IN, OUT, BLOCKS, op)},
    {"exscan", true, false, kAll, kOthers, scanned_before, FORMS(Exscan, exscan, IN, OUT, BLOCKS, op)}};

template <class Make>
void check(const Case& the, const std::string& function, bool as_it_is, Make&& make) {
  Arguments a;
  const std::uint64_t copies = counts().copies;
  watch(true);
  make(a);
  watch(false);
  const bool copied = counts().copies > copies;
  require(!as_it_is || !copied, (function + ": loom copies what it leaves to others").c_str());
  const bool shares = the.result == of_root;
  check_addresses(function, is_among(the.senders) ? (shares ? a.shared() : IN) : nullptr,
                  is_among(the.receivers) ? (shares ? a.shared() : OUT) : nullptr, as_it_is);
  a.out.is([&](int i) { return the.result(i / kCount, i % kCount); }, (function + " is wrong").c_str());
}

void finish(MPI_Request* request) {
  MPI_Wait(request, MPI_STATUS_IGNORE);
}

void check_forms(const Case& the, bool blocking_as_it_is, bool nonblocking_as_it_is) {
  const std::string name = the.name;
  check(the, name, blocking_as_it_is, [&](Arguments& a) { the.blocking(a); });
  check(the, "i" + name, nonblocking_as_it_is, [&](Arguments& a) {
    MPI_Request request;
    the.nonblocking(a, &request);
    finish(&request);
  });
  check(the, name + "_init", false, [&](Arguments& a) {
    MPI_Request request;
    the.persistent(a, &request);
    MPI_Start(&request);
    finish(&request);
    MPI_Request_free(&request);
  });
}

/// No list of Open MPI's has them.
void check_neighbours() {
  MPI_Comm ring;
  const int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
  Ints in(
      kCount, [](int i) { return 100'000 * rank + i; }, kind()),
      out(2 * kCount, -1, kind());
  watch(true);
  MPI_Neighbor_allgather(in.at(), BLOCKS, out.at(), BLOCKS, ring);
  watch(false);
  check_addresses("neighbor_allgather", in.at(), out.at(), false);
  out.is([](int i) { return gathered((rank + (i < kCount ? ranks - 1 : 1)) % ranks, i % kCount); },
         "neighbor_allgather is wrong");
  MPI_Comm_free(&ring);
}

/// A buffer whose address is no device's, though its bytes are on one: whoever gets it as it is reads them by
/// the CPU.
void check_displaced() {
  for (const bool from_bottom : {true, false}) {
    Ints numbers(
        kCount, [](int i) { return rank == 0 ? i : -1; }, kind());
    int here = 0;
    MPI_Aint at, of_here;
    MPI_Get_address(numbers.at(), &at);
    MPI_Get_address(&here, &of_here);
    if (!from_bottom) at = MPI_Aint_diff(at, of_here);
    MPI_Datatype type;
    MPI_Type_create_hindexed_block(1, kCount, &at, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Bcast(from_bottom ? MPI_BOTTOM : &here, 1, type, 0, MPI_COMM_WORLD);
    numbers.is([](int i) { return i; }, "a bcast by displacements is wrong");
    MPI_Type_free(&type);
  }
}

void run(const std::string& how, const std::set<std::string>& words) {
  if (how == "own_op")
    MPI_Op_create(
        [](void* in, void* inout, int* count, MPI_Datatype*) {
          for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
        },
        1, &op);
  // What is declined by size connects the ranks first.
  int ignored = 0;
  MPI_Allreduce(MPI_IN_PLACE, &ignored, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (const Case& the : kCases) {
    const bool as_it_is = words.contains(the.reduces ? "reductions" : "moves");
    if (how == "certainly")
      check_forms(the, as_it_is, the.works_nonblocking && words.contains("nonblocking"));
    else if (how == "declined" || the.reduces)
      check(the, the.name, as_it_is, [&](Arguments& a) { the.blocking(a); });
  }
  check_displaced();
  if (how == "certainly") check_neighbours();
  if (how == "own_op") MPI_Op_free(&op);
}

}  // namespace
}  // namespace loom::mpi_test

int main(int argc, char** argv) {
  using namespace loom::mpi_test;
  begin(argc, argv);
  require(argc >= 2, "say how calls fall back");
  run(argv[1], std::set<std::string>(argv + 2, argv + argc));
  MPI_Finalize();
  return 0;
}
