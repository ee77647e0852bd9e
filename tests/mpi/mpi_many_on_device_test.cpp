// mpi_many_on_device_test -- many communicators at a time, each with a call on GPUs: the first have links of
// kernels, those for which no memory is left are staged, and what is freed serves later ones.
//
//   mpi_many_on_device_test COMMUNICATORS LEAST MOST [full]
//       LEAST MOST   how many of them kernels should carry
//       full         skipped without LOOM_TEST_FULL=1, for it takes long
//
// Exit code 1: a result is wrong, kernels carry fewer or more, or something is left of what has been freed;
// 77: skipped.
#include <mpi.h>

#include <cinttypes>
#include <cstdlib>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"

using namespace loom::mpi_test;

namespace {

void allreduce(MPI_Comm comm) {
  Ints in(1000, rank, MemoryKind::kDevice), out(1000, -1, MemoryKind::kDevice);
  MPI_Allreduce(in.at(), out.at(), 1000, MPI_INT, MPI_SUM, comm);
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce is wrong");
}

/// What this process has of the GPU, once all ranks know that all have left the links of freed communicators.
VirtualGpuCounts settled() {
  for (int i = 0; i < 2; ++i) {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    allreduce(copy);
    MPI_Comm_free(&copy);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  return counts();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::getenv("LOOM_TEST_FULL") == nullptr) return 77;
  begin(argc, argv);
  require(argc >= 4, "usage: mpi_many_on_device_test COMMUNICATORS LEAST MOST [full]");
  const auto least = std::strtoull(argv[2], nullptr, 10), most = std::strtoull(argv[3], nullptr, 10);
  {
    loom::mpi::ToolInterface tools;
    const auto by_kernel = [&] {
      return tools.counter("coll_loom_calls", "allreduce", "kernel").value_or(0);
    };
    const VirtualGpuCounts first = settled();
    std::vector<MPI_Comm> comms(static_cast<std::size_t>(std::atoi(argv[1])));
    const std::uint64_t before = by_kernel();
    for (MPI_Comm& comm : comms) {
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      allreduce(comm);
    }
    const std::uint64_t carried = by_kernel() - before;
    if (rank == 0) std::printf("kernels carry %" PRIu64 " of %zu\n", carried, comms.size());
    require(least <= carried && carried <= most, "kernels carry fewer communicators, or more");
    for (MPI_Comm& comm : comms) allreduce(comm);
    require(by_kernel() - before == 2 * carried, "a communicator has changed its mind");
    for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm later;
    MPI_Comm_dup(MPI_COMM_WORLD, &later);
    const std::uint64_t freed = by_kernel();
    allreduce(later);
    require(by_kernel() == freed + 1, "what has been freed serves no later communicator");
    MPI_Comm_free(&later);
    const VirtualGpuCounts last = settled();
    if (last.allocations > first.allocations || last.streams > first.streams)
      std::fprintf(stderr,
                   "rank %d: %" PRIu64 " allocations and %" PRIu64 " streams; they were %" PRIu64
                   " and %" PRIu64 "\n",
                   rank, last.allocations, last.streams, first.allocations, first.streams);
    // A rank may not know yet that all have left the last links: these and their GPU are still there.
    require(last.allocations <= first.allocations + 2 && last.streams <= first.streams + 1,
            "communicators that have gone leave something on the GPU");
  }
  MPI_Finalize();
  return 0;
}
