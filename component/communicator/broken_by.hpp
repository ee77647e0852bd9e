// broken_by.hpp -- why every later call of a communicator fails.
#pragma once

#include <atomic>
#include <optional>

#include "base/error.hpp"
#include "base/mutex.hpp"

namespace loom {

/// A thread may set it while others call.
class BrokenBy {
 public:
  explicit operator bool() const noexcept { return is_set_.load(std::memory_order_acquire); }
  /// A later cause replaces an earlier one.
  void set(const Error& cause);
  /// Throws it, if there is one.
  void check() const {
    if (*this) [[unlikely]]
      throw_it();
  }

 private:
  [[noreturn]] void throw_it() const;

  mutable Mutex mutex_;
  std::optional<Error> cause_ LOOM_GUARDED_BY(mutex_);
  std::atomic<bool> is_set_ = false;
};

}  // namespace loom
