#include "mpi_examples/bench/floor.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace loom::bench {

/// One part of this size for each rank, in memory that all ranks share.
class Floor::SharedParts {
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

  template <class T>
  T* of(int rank) const {
    MPI_Aint size;
    int unit;
    char* part = nullptr;
    MPI_Win_shared_query(window_, rank, &size, &unit, &part);
    return reinterpret_cast<T*>(part);
  }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
};

Floor::Floor(MPI_Comm comm, std::size_t most_bytes)
    : comm_(comm),
      most_bytes_(most_bytes),
      flags_(std::make_unique<SharedParts>(comm, 256)),
      in_(std::make_unique<SharedParts>(comm, most_bytes)),
      out_(std::make_unique<SharedParts>(comm, most_bytes)) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &ranks_);
}

Floor::~Floor() = default;

/// Two counters on two lines; each is written by one rank and awaited by the other.
double Floor::flag_us() {
  constexpr int kRounds = 100;
  const int self = std::min(rank_, 1);
  std::atomic_ref<int> mine(*flags_->of<int>(self)), other(*flags_->of<int>(1 - self));
  MPI_Barrier(comm_);
  const double start = MPI_Wtime();
  for (int round = 0; round < kRounds && rank_ < 2; ++round) {
    ++step_;
    if (rank_ == 0) mine.store(step_, std::memory_order_release);
    while (other.load(std::memory_order_acquire) < step_) {
    }
    if (rank_ == 1) mine.store(step_, std::memory_order_release);
  }
  return (MPI_Wtime() - start) * 1e6 / (2.0 * kRounds);
}

double Floor::reduce_us(std::size_t bytes) {
  const std::size_t share = std::min(bytes, most_bytes_) / sizeof(float) / static_cast<std::size_t>(ranks_);
  const std::size_t first = static_cast<std::size_t>(rank_) * share;
  float* const sum = out_->of<float>(rank_) + first;
  MPI_Barrier(comm_);
  const double start = MPI_Wtime();
  for (int other = 1; other < ranks_; ++other) {
    const float* const a = other == 1 ? in_->of<float>(0) + first : sum;
    const float* const b = in_->of<float>(other) + first;
    for (std::size_t i = 0; i < share; ++i) sum[i] = a[i] + b[i];
  }
  return (MPI_Wtime() - start) * 1e6;
}

double Floor::copy_us(std::size_t bytes) {
  const std::size_t share = std::min(bytes, most_bytes_) / static_cast<std::size_t>(ranks_);
  char* const mine = out_->of<char>(rank_);
  MPI_Barrier(comm_);
  const double start = MPI_Wtime();
  for (int other = 0; other < ranks_; ++other) {
    const std::size_t at = static_cast<std::size_t>(other) * share;
    if (other != rank_) std::memcpy(mine + at, out_->of<char>(other) + at, share);
  }
  return (MPI_Wtime() - start) * 1e6;
}

}  // namespace loom::bench
