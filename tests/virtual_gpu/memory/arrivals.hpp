// arrivals.hpp -- when strong stores have come to a line of memory, in virtual time. It lies in memory that
// processes share, beside the lines; all zeros before the first store.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace virtual_gpu::memory {

/// Of a word that is released, the last values, too: blocks run here in another order than on the machine, so
/// one that looks late has to see what was there before.
class Arrivals {
 public:
  /// Before the store. Times of one word only grow.
  void note(double at) noexcept;
  /// Of one word in the line. before: what it has now.
  void note_release(std::size_t offset, std::uint64_t before, std::uint64_t value, double at) noexcept;
  /// Of the latest store.
  double latest() const noexcept { return latest_.load(std::memory_order_acquire); }

  /// A value of the word, by the number of its release.
  struct Seen {
    std::uint64_t value;
    double at;
    std::int64_t number;
  };
  static constexpr std::int64_t kNone = -1;
  /// What a word, from which `value` has been loaded, had at that time; if that is no later than number
  /// `after`, the next one, unless the value itself is not. kNone: nobody has released that value.
  Seen find(std::size_t offset, std::uint64_t value, double at, std::int64_t after) noexcept;

 private:
  class Guard;
  static constexpr std::int64_t kKept = 6;

  std::atomic<std::uint16_t> lock_;
  std::uint16_t offset_;
  std::int64_t released_;
  std::atomic<double> latest_;
  struct {
    std::uint64_t value;
    double at;
  } kept_[kKept];  ///< by number modulo kKept; number 0: before the first release
};
static_assert(std::atomic<double>::is_always_lock_free, "shared between processes");

}  // namespace virtual_gpu::memory
