// mpi_plan_test -- calls of the five collectives that kernels carry, short and long, on device buffers: for
// check_plan.sh, which reads of coll_loom_verbose 2 how they went. Exit code 1: a result is wrong.
#include <mpi.h>

#include "tests/mpi/device_ints.hpp"

namespace {

using namespace loom::mpi_test;

int mine(int i) {
  return i % 1000 + rank;
}

/// count: of a block, for those that have one for each rank.
void calls(int count) {
  const auto sum = [](int i) { return ranks * (i % 1000) + ranks * (ranks - 1) / 2; };
  Ints in(count, mine), out(count, -1, MemoryKind::kDevice);
  MPI_Allreduce(in.at(), out.at(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  out.is(sum, "an allreduce is wrong");
  MPI_Reduce(in.at(), out.at(), count, MPI_INT, MPI_SUM, ranks - 1, MPI_COMM_WORLD);
  if (rank == ranks - 1) out.is(sum, "a reduce is wrong");
  MPI_Bcast(out.at(), count, MPI_INT, ranks - 1, MPI_COMM_WORLD);
  out.is(sum, "a bcast is wrong");
  Ints all(ranks * count, mine);
  MPI_Reduce_scatter_block(all.at(), out.at(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  out.is([&](int i) { return sum(rank * count + i); }, "a reduce_scatter_block is wrong");
  MPI_Allgather(in.at(), count, MPI_INT, all.at(), count, MPI_INT, MPI_COMM_WORLD);
  all.is([&](int i) { return i % count % 1000 + i / count; }, "an allgather is wrong");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const int count : {2, 20'000}) calls(count);
  MPI_Finalize();
  return 0;
}
