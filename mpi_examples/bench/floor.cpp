#include "mpi_examples/bench/floor.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace loom::bench {
namespace {

constexpr int kRuns = 9;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRuns / 2, values.end());
  return values[kRuns / 2];
}

/// One part of this size for each rank, in memory that all ranks share.
class SharedParts {
 public:
  SharedParts(MPI_Comm comm, std::size_t bytes) {
    char* mine = nullptr;
    MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, comm, &mine, &window_);
    std::memset(mine, 0, bytes);
    MPI_Barrier(comm);
  }
  ~SharedParts() { MPI_Win_free(&window_); }
  SharedParts(const SharedParts&) = delete;
  SharedParts& operator=(const SharedParts&) = delete;
  char* of(int rank) const {
    MPI_Aint size;
    int unit;
    char* part = nullptr;
    MPI_Win_shared_query(window_, rank, &size, &unit, &part);
    return part;
  }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
};

/// Two counters on two lines, each written by one rank and awaited by the other.
double flag_one_way_us(MPI_Comm comm, int rank) {
  constexpr int kRounds = 2000;
  const SharedParts parts(comm, 256);
  std::vector<double> us;
  for (int run = 0; run < kRuns; ++run) {
    MPI_Barrier(comm);
    const double start = MPI_Wtime();
    if (rank < 2) {
      std::atomic_ref<int> mine(*reinterpret_cast<int*>(parts.of(rank)));
      std::atomic_ref<int> other(*reinterpret_cast<int*>(parts.of(1 - rank)));
      for (int round = 1; round <= kRounds; ++round) {
        const int step = run * kRounds + round;
        if (rank == 0) mine.store(step, std::memory_order_release);
        while (other.load(std::memory_order_acquire) < step) {
        }
        if (rank == 1) mine.store(step, std::memory_order_release);
      }
    }
    us.push_back((MPI_Wtime() - start) * 1e6 / (2.0 * kRounds));
  }
  return median(us);
}

}  // namespace

Floor measure_floor(MPI_Comm comm, std::size_t bytes) {
  int rank, ranks;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  const std::size_t share = bytes / sizeof(float) / static_cast<std::size_t>(ranks);
  const auto at = [&](int part) { return static_cast<std::size_t>(part) * share; };
  const SharedParts in(comm, bytes), out(comm, bytes);
  std::vector<const float*> operands, results;
  for (int each = 0; each < ranks; ++each) {
    operands.push_back(reinterpret_cast<const float*>(in.of(each)));
    results.push_back(reinterpret_cast<const float*>(out.of(each)));
  }
  auto* const mine = reinterpret_cast<float*>(out.of(rank));

  std::vector<double> reduce_us, copy_us;
  for (int run = 0; run < kRuns; ++run) {
    MPI_Barrier(comm);
    double start = MPI_Wtime();
    for (int other = 1; other < ranks; ++other) {
      const float* const a = (other == 1 ? operands[0] : mine) + at(rank);
      const float* const b = operands[static_cast<std::size_t>(other)] + at(rank);
      float* const sum = mine + at(rank);
      for (std::size_t i = 0; i < share; ++i) sum[i] = a[i] + b[i];
    }
    reduce_us.push_back((MPI_Wtime() - start) * 1e6);
    MPI_Barrier(comm);
    start = MPI_Wtime();
    for (int other = 0; other < ranks; ++other)
      if (other != rank)
        std::memcpy(mine + at(other), results[static_cast<std::size_t>(other)] + at(other),
                    share * sizeof(float));
    copy_us.push_back((MPI_Wtime() - start) * 1e6);
  }
  return {.flag_us = flag_one_way_us(comm, rank), .reduce_us = median(reduce_us), .copy_us = median(copy_us)};
}

}  // namespace loom::bench
