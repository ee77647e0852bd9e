// mpi_long_run_test -- very many small calls on one communicator: each result is right, loom has carried and
// counted every one, and files, mappings and memory stay as they were.
//
//   mpi_long_run_test CALLS
//
// Allreduces, broadcasts from changing roots, barriers, all-gathers, reduces and reduce-scatters of a few
// bytes, in an order that all ranks know.
//
// Exit code 1: a result is wrong, something grows, or loom has not carried all of them.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "held.hpp"
#include "mpi_examples/support/loom_pvars.hpp"

namespace {

using loom::test::Held;

int rank, ranks;

void require(bool condition, const char* what, std::uint64_t call) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d, call %llu: %s\n", rank, ranks, static_cast<unsigned long long>(call),
               what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

constexpr int kKinds = 6;
const char* const kNames[kKinds] = {"allreduce", "bcast",  "barrier",
                                    "allgather", "reduce", "reduce_scatter_block"};

struct Buffers {
  explicit Buffers(int n) : all(static_cast<std::size_t>(n)), ones(static_cast<std::size_t>(n), 1) {}
  std::vector<std::int64_t> all, ones;
};

/// Values change from call to call, so that what an older call left is not right by accident.
void make_call(std::uint64_t call, Buffers& buffers) {
  const auto value = static_cast<std::int64_t>(call);
  const int root = static_cast<int>(call % static_cast<std::uint64_t>(ranks));
  std::int64_t mine = value + rank, result = -1;
  const std::int64_t sum = value * ranks + static_cast<std::int64_t>(ranks) * (ranks - 1) / 2;
  switch (call % kKinds) {
    case 0:
      MPI_Allreduce(&mine, &result, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
      return require(result == sum, "a sum is wrong", call);
    case 1:
      result = rank == root ? value : -1;
      MPI_Bcast(&result, 1, MPI_INT64_T, root, MPI_COMM_WORLD);
      return require(result == value, "what a root sends is wrong", call);
    case 2:
      MPI_Barrier(MPI_COMM_WORLD);
      return;
    case 3:
      MPI_Allgather(&mine, 1, MPI_INT64_T, buffers.all.data(), 1, MPI_INT64_T, MPI_COMM_WORLD);
      for (int r = 0; r < ranks; ++r)
        require(buffers.all[static_cast<std::size_t>(r)] == value + r, "what a rank gives is wrong", call);
      return;
    case 4:
      MPI_Reduce(&mine, &result, 1, MPI_INT64_T, MPI_SUM, root, MPI_COMM_WORLD);
      return require(rank != root || result == sum, "a root's sum is wrong", call);
    default:
      for (int r = 0; r < ranks; ++r) buffers.all[static_cast<std::size_t>(r)] = value + r;
      MPI_Reduce_scatter_block(buffers.all.data(), &result, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
      return require(result == (value + rank) * ranks, "a rank's part of a sum is wrong", call);
  }
}

std::uint64_t carried(loom::mpi::ToolInterface& tool) {
  std::uint64_t calls = 0;
  for (const char* name : kNames) calls += tool.counter("coll_loom_calls", name).value_or(0);
  return calls;
}

void run(std::uint64_t calls) {
  require(calls > 0, "how many calls?", calls);
  loom::mpi::ToolInterface tool;
  Buffers buffers(ranks);
  const std::uint64_t warm_up = 60'000;  // until loom has settled on algorithms
  carried(tool);                         // counts from here
  for (std::uint64_t call = 0; call < warm_up; ++call) make_call(call, buffers);
  const Held before = Held::now();
  const std::uint64_t counted_before = carried(tool);
  const double began = MPI_Wtime();
  for (std::uint64_t call = 0; call < calls; ++call) {
    make_call(call, buffers);
    if (rank == 0 && call % 100'000'000 == 99'999'999) {
      std::printf("%llu calls, %.0f s, %zu KiB\n", static_cast<unsigned long long>(call + 1),
                  MPI_Wtime() - began, Held::now().resident_kib);
      std::fflush(stdout);
    }
  }
  const Held after = Held::now();
  const std::uint64_t counted = carried(tool) - counted_before;
  if (rank == 0)
    std::printf(
        "%llu calls, %llu carried by loom: files %zu -> %zu, mappings %zu -> %zu, names %zu -> %zu, %zu -> "
        "%zu KiB\n",
        static_cast<unsigned long long>(calls), static_cast<unsigned long long>(counted), before.files,
        after.files, before.mappings, after.mappings, before.names, after.names, before.resident_kib,
        after.resident_kib);
  require(counted == calls, "loom has not carried and counted all calls", calls);
  require(after.files <= before.files, "open files grow", calls);
  require(after.mappings <= before.mappings, "shared mappings grow", calls);
  require(after.names <= before.names, "names in /dev/shm grow", calls);
  require(after.resident_kib <= before.resident_kib + 256, "resident memory grows", calls);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000);
  MPI_Finalize();
}
