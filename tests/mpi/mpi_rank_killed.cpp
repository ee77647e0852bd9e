// mpi_rank_killed -- the last rank dies of SIGKILL in the middle of a loop of allreduces, which otherwise has
// no end. check_rank_killed.sh runs it and looks at what remains.
//
//   mpi_rank_killed [COUNT [early] [device]]
//       device   buffers on GPUs; it dies inside a call, most likely with its kernel under way
//       early    it dies before it has launched its kernel, for which the others' wait (tests/virtual_gpu)
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "mpi_examples/support/device_memory.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = argc > 1 ? std::atoi(argv[1]) : 1;
  const bool device = argc > 2 && std::strcmp(argv[argc - 1], "device") == 0,
             early = argc > 2 && std::strcmp(argv[2], "early") == 0;
  std::printf("pid %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);

  loom::mpi::Memory values(static_cast<std::size_t>(count) * sizeof(double),
                           device ? loom::mpi::MemoryKind::kDevice : loom::mpi::MemoryKind::kHost);
  values.upload();
  std::optional<std::jthread> killer;
  const auto die = [] {  // its last pid line is on its way by then
    usleep(200'000);
    std::raise(SIGKILL);
  };
  for (int call = 0;; ++call) {
    MPI_Allreduce(MPI_IN_PLACE, values.address(), count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank != ranks - 1) continue;
    if (early && call == 3)
      loom::mpi::Driver::get().function<void(const char*, int, int)>("virtual_gpu_fail")("cuLaunchKernel", 0,
                                                                                         -SIGKILL);
    if (device && !early && call == 3) killer.emplace(die);
    if (!device && call == 100) die();
  }
}
