#include "tests/virtual_gpu/memory/arrivals.hpp"

#include <algorithm>
#include <thread>

namespace virtual_gpu::memory {

class Arrivals::Guard {
 public:
  /// A process that ended while it held the lock does not give it back.
  explicit Guard(std::atomic<std::uint16_t>& lock) : lock_(lock) {
    constexpr int kMostTries = 1'000'000;
    for (int i = 0; lock_.exchange(1, std::memory_order_acquire) != 0 && i < kMostTries; ++i)
      std::this_thread::yield();
  }
  ~Guard() { lock_.store(0, std::memory_order_release); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  std::atomic<std::uint16_t>& lock_;
};

void Arrivals::note(double at) noexcept {
  double now = latest_.load(std::memory_order_relaxed);
  while (now < at && !latest_.compare_exchange_weak(now, at, std::memory_order_release)) {
  }
}

void Arrivals::note_release(std::size_t offset, std::uint64_t before, std::uint64_t value,
                            double at) noexcept {
  {
    const Guard guard(lock_);
    if (released_ == 0 || offset_ != offset) {
      released_ = 0;
      offset_ = static_cast<std::uint16_t>(offset);
      kept_[0] = {before, 0};
    }
    kept_[++released_ % kKept] = {value, at};
  }
  note(at);
}

Arrivals::Seen Arrivals::find(std::size_t offset, std::uint64_t value, double at,
                              std::int64_t after) noexcept {
  const Guard guard(lock_);
  if (released_ == 0 || offset_ != offset) return {value, latest(), kNone};
  const std::int64_t oldest = std::max<std::int64_t>(released_ - kKept + 1, 0);
  std::int64_t loaded = released_;
  while (loaded >= oldest && kept_[loaded % kKept].value != value) --loaded;
  if (loaded < oldest) return {value, 0, kNone};
  std::int64_t found = loaded;
  while (found > oldest && kept_[found % kKept].at > at) --found;
  found = std::clamp(after + 1, found, loaded);
  return {kept_[found % kKept].value, kept_[found % kKept].at, found};
}

}  // namespace virtual_gpu::memory
