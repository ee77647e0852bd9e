// loom_overlap -- how much of a nonblocking allreduce hides behind computation?
//
//   mpirun ... loom_overlap [MIB [REPETITIONS]] [--memory host | device] [--at-least PERCENT]    (16 MiB, 9
//   times)
//
// Times MPI_Iallreduce and MPI_Wait alone, a computation that takes as long, and the computation between the
// two. The hidden share of the call is (alone + computation - both) / alone. Medians of the slowest rank.
// With device memory kernels compute, in the legacy default stream.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "mpi_examples/support/clock.hpp"
#include "mpi_examples/support/vectors.hpp"

namespace {

using loom::mpi::MemoryKind;
using loom::mpi::Vector;

/// Touches no memory that others use, and calls no MPI. Kernels compute on page-locked memory of the host, so
/// that they and the call do not share the bandwidth of the GPU's memory or of its links.
class Computation {
 public:
  explicit Computation(MemoryKind where)
      : by_kernels_(where == MemoryKind::kDevice),
        x_(by_kernels_ ? kMost : 1, by_kernels_ ? MemoryKind::kRegistered : MemoryKind::kHost),
        y_(x_.size(), x_.where()) {}

  /// Kernels are only started: one, but for very many steps, since the host is to be free for the call.
  void start(std::size_t steps) {
    if (by_kernels_) {
      for (std::size_t left = steps; left > 0; left -= std::min<std::size_t>(left, kMost)) {
        const loom::kernels::Combine work{0.5, x_.data(), 0.5, y_.data()};
        loom::mpi::launch(work.kName, kBlocks, &work, static_cast<int>(std::min<std::size_t>(left, kMost)));
      }
      return;
    }
    double x = 1.0;
    for (std::size_t i = 0; i < steps; ++i) x = std::sqrt(x + static_cast<double>(i & 7));
    sink_ = sink_ + x;
  }
  /// Copies one element, for which the default stream waits.
  void finish() {
    if (by_kernels_) loom::mpi::Driver::get().to_host(&copied_, y_.data(), sizeof(copied_));
  }
  void perform(std::size_t steps) {
    start(steps);
    finish();
  }

 private:
  static constexpr int kMost = 1 << 22;  ///< elements: 32 MiB of each operand
  static constexpr int kBlocks = 16;     ///< they leave multiprocessors and bandwidth to others
  bool by_kernels_;
  Vector x_, y_;
  double copied_ = 0;
  volatile double sink_ = 0;
};

double slowest_median(int repetitions, const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    const double start = loom::mpi::begin_together(MPI_COMM_WORLD);
    body();
    double taken = loom::mpi::now() - start;
    MPI_Allreduce(MPI_IN_PLACE, &taken, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    seconds.push_back(taken);
  }
  std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2, seconds.end());
  return seconds[static_cast<std::size_t>(repetitions / 2)];
}

/// The hidden share of the call, in percent, on rank 0.
double run(int mib, int repetitions, MemoryKind where, int rank) {
  const int count = mib << 17;
  const Vector in(std::vector<double>(static_cast<std::size_t>(count), 1.0), where);
  Vector out(count, where);
  Computation computation(where);
  // Connects the ranks, and on GPUs makes the links.
  MPI_Allreduce(in.data(), out.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  const auto reduce = [&](std::size_t steps) {
    MPI_Request request;
    MPI_Iallreduce(in.data(), out.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    if (steps > 0) computation.start(steps);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (steps > 0) computation.finish();
  };
  reduce(0);
  const double alone = slowest_median(repetitions, [&] { reduce(0); });
  constexpr std::size_t kTrialSteps = 100'000;
  computation.perform(1);
  std::size_t steps = kTrialSteps;
  for (int i = 0; i < 2; ++i) {
    const double trial = slowest_median(3, [&] { computation.perform(steps); });
    steps = std::max<std::size_t>(1, static_cast<std::size_t>(alone / trial * static_cast<double>(steps)));
  }
  const double computing = slowest_median(repetitions, [&] { computation.perform(steps); });
  const double both = slowest_median(repetitions, [&] { reduce(steps); });
  const double hidden = 100 * (alone + computing - both) / alone;
  if (rank == 0)
    loom::print(
        "MPI_Iallreduce of {} MiB alone {:.2f} ms, computation {:.2f} ms, both {:.2f} ms: {:.0f} % of the "
        "call hidden\n",
        mib, alone * 1e3, computing * 1e3, both * 1e3, hidden);
  return hidden;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int mib = 16, repetitions = 9;
  std::string memory = "host";
  CLI::App app("Tells how much of a nonblocking allreduce hides behind computation.", "loom_overlap");
  app.add_option("mib", mib, "Of a rank's operand")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("repetitions", repetitions, "Of each measurement")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--memory", memory, "Where the buffers are, and what computes: host, or device")
      ->check(loom::mpi::why_not_in)
      ->capture_default_str();
  double least = -1000;
  app.add_option("--at-least", least, "Fail where less of the call is hidden, in percent");
  int exit_code = 0;
  try {
    app.parse(argc, argv);
    const std::string no_gpu = loom::mpi::why_no_gpu(memory == "device", MPI_COMM_WORLD);
    if (!no_gpu.empty()) throw CLI::ValidationError("--memory", no_gpu);
    const double hidden = run(mib, repetitions, loom::mpi::memory_named(memory), rank);
    exit_code = rank == 0 && !(hidden >= least) ? 1 : 0;
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    exit_code = app.exit(error, text, text) == 0 ? 0 : 2;  // all ranks read the same arguments
    if (rank == 0) loom::print(exit_code == 0 ? stdout : stderr, "{}", text.str());
  }
  MPI_Finalize();
  return exit_code;
}
