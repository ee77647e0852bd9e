// loom_overlap -- how much of a nonblocking allreduce hides behind computation?
//
//   mpirun ... loom_overlap [MIB [REPETITIONS]]        (16 MiB, 9 times)
//
// Times MPI_Iallreduce and MPI_Wait alone, a computation that takes as long, and the computation between the
// two. The hidden share of the call is (alone + computation - both) / alone. Medians of the slowest rank.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

/// Touches no memory that others use, and calls no MPI.
double compute(std::size_t steps) {
  double x = 1.0;
  for (std::size_t i = 0; i < steps; ++i) x = std::sqrt(x + static_cast<double>(i & 7));
  return x;
}

template <class Body>
double slowest_median(int repetitions, Body&& body) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    body();
    double taken = MPI_Wtime() - start;
    MPI_Allreduce(MPI_IN_PLACE, &taken, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    seconds.push_back(taken);
  }
  std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2, seconds.end());
  return seconds[static_cast<std::size_t>(repetitions / 2)];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int mib = argc > 1 ? std::max(1, std::atoi(argv[1])) : 16;
  const int repetitions = argc > 2 ? std::max(1, std::atoi(argv[2])) : 9;
  const int count = mib << 18;
  std::vector<float> in(static_cast<std::size_t>(count), 1.0f), out(in.size());
  volatile double sink = 0;

  MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);  // connects the ranks
  const auto reduce = [&](std::size_t steps) {
    MPI_Request request;
    MPI_Iallreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (steps > 0) sink = sink + compute(steps);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  reduce(0);
  const double alone = slowest_median(repetitions, [&] { reduce(0); });
  constexpr std::size_t kTrialSteps = 1'000'000;
  const double trial = slowest_median(3, [&] { sink = sink + compute(kTrialSteps); });
  const auto steps = static_cast<std::size_t>(alone / trial * static_cast<double>(kTrialSteps));
  const double computation = slowest_median(repetitions, [&] { sink = sink + compute(steps); });
  const double both = slowest_median(repetitions, [&] { reduce(steps); });
  if (rank == 0)
    std::printf(
        "MPI_Iallreduce of %d MiB alone %.2f ms, computation %.2f ms, both %.2f ms: %.0f %% of the call "
        "hidden\n",
        mib, alone * 1e3, computation * 1e3, both * 1e3, 100 * (alone + computation - both) / alone);
  MPI_Finalize();
}
