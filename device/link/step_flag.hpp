// step_flag.hpp -- the monotonic counter that synchronises the two ends of a connection.
#pragma once

#include <atomic>
#include <cstdint>

namespace loom::device {

/// Counts published slots. One writer, any number of readers, possibly in other processes.
///   publish(n): release  -- pairs with --  value(): acquire
/// so once value() >= n is seen, the contents of slots 1..n are visible. Only grows; 64 bits never wrap.
class StepFlag {
 public:
  /// Above every step: the writer has abandoned the connection.
  static constexpr std::uint64_t kAbandoned = ~std::uint64_t{0};
  /// Below kAbandoned, and above every step. In messages: the writer has been waiting for long.
  static constexpr std::uint64_t kWaiting = kAbandoned - 1;

  void publish(std::uint64_t step) noexcept { step_.store(step, std::memory_order_release); }
  std::uint64_t value() const noexcept { return step_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint64_t> step_{0};
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");
};

inline constexpr std::size_t kCacheLine = 64;

}  // namespace loom::device
