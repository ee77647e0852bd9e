// mpi_spawn_test -- processes that come later by MPI_Comm_spawn: collectives between the old and the new
// ones, on both merged, and after the new ones have gone. Exit code 1: wrong.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "tests/mpi/between_groups.hpp"
#include "tests/mpi/conformance/conformance.hpp"

namespace {

constexpr int kNew = 2;

int rank, ranks;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// Collectives between old and new processes, and on all of them, the new ones behind.
void use_together(MPI_Comm both, bool is_new) {
  const char* wrong = loom::mpi_test::wrong_between_groups(both, is_new);
  require(wrong == nullptr, wrong);
  MPI_Comm merged;
  MPI_Intercomm_merge(both, is_new, &merged);
  int all, sum = 1;
  MPI_Comm_size(merged, &all);
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, merged);
  require(sum == all, "a sum over old and new processes");
  loom::conformance::Settings few;
  few.share = 0.001;
  loom::conformance::Run run(merged, few);
  run_moving(run);
  run_reducing(run);
  require(run.wrong == 0, "collectives of old and new processes");
  MPI_Comm_free(&merged);
}

int start_from(MPI_Comm old) {
  use_together(old, true);
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  require(sum == kNew, "a sum of the new processes");
  MPI_Comm_disconnect(&old);
  MPI_Finalize();
  return 0;
}

void start_others(char* program) {
  MPI_Comm both;
  char yes[] = "new";
  char* arguments[] = {yes, nullptr};
  int errors[kNew];
  MPI_Comm_spawn(program, arguments, kNew, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &both, errors);
  use_together(both, false);
  MPI_Comm_disconnect(&both);
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  require(sum == ranks, "a sum after the others have gone");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm old;
  MPI_Comm_get_parent(&old);
  if (old != MPI_COMM_NULL) return start_from(old);
  for (int times = 0; times < 2; ++times) start_others(argv[0]);
  MPI_Finalize();
}
