// mpi_rank_killed -- the last rank dies of SIGKILL in the middle of a loop of allreduces, which otherwise has
// no end. check_rank_killed.sh runs it and looks at what remains.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = argc > 1 ? std::atoi(argv[1]) : 1;
  std::printf("pid %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);

  std::vector<double> values(static_cast<std::size_t>(count), 1.0);
  for (int call = 0;; ++call) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    // Its last pid line is on its way by now.
    if (call == 100 && rank == ranks - 1) {
      usleep(200'000);
      std::raise(SIGKILL);
    }
  }
}
