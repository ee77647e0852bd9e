// bootstrap.hpp -- exchanges between the ranks of a communicator before loom has connected them. Allocates
// nothing; what is built on it is in agreement.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "component/core.h"

namespace loom {

/// The fallback component could not communicate. Unlike an Error this is not agreed on: nothing can be.
class BootstrapFailed : public std::runtime_error {
 public:
  BootstrapFailed()
      : std::runtime_error(
            "The fallback component could not gather what the processes have to tell each other.") {}
};

/// Its functions are collective and throw BootstrapFailed.
class Bootstrap {
 public:
  /// `raw` may go after this; its context must stay, and its name while name() is asked for.
  explicit Bootstrap(const loom_bootstrap& raw) noexcept : raw_(raw) {}

  int rank() const noexcept { return raw_.rank; }
  int size() const noexcept { return raw_.size; }
  bool alone() const noexcept { return raw_.alone; }
  bool looks_for_devices() const noexcept { return raw_.looks_for_devices; }
  /// The ranks have found that they differ in coll_loom_reproducible.
  void say_orders_differ() const noexcept {
    if (raw_.orders_differ != nullptr) *raw_.orders_differ = true;
  }
  const char* name() const noexcept { return raw_.name; }
  void rename(const char* name) noexcept { raw_.name = name; }

  /// Every rank's `bytes` bytes into `all`, by rank.
  void gather(const void* mine, void* all, std::size_t bytes) const {
    if (raw_.all_gather(raw_.context, mine, all, bytes) != 0) throw BootstrapFailed();
  }
  /// Of each word the largest over all ranks (LOOM_MAX), or their sum (LOOM_SUM).
  template <std::size_t N>
  std::array<std::uint64_t, N> reduce(loom_op op, const std::array<std::uint64_t, N>& mine) const {
    std::array<std::uint64_t, N> all;
    if (raw_.all_reduce(raw_.context, mine.data(), all.data(), N, op) != 0) throw BootstrapFailed();
    return all;
  }

 private:
  loom_bootstrap raw_;
};

}  // namespace loom
