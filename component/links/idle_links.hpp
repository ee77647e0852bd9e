// idle_links.hpp -- links that no communicator has: a freed one left them to the next.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/mutex.hpp"
#include "component/links/links.hpp"

namespace loom {

/// Of one group. Their counters stand where the last call left them, on all ranks alike.
class IdleLinks {
 public:
  /// Keeps a few that have a number, without pairwise ones; which ones does not depend on the order of the
  /// calls.
  void put(Links links) noexcept;
  /// Those with the lowest number, for the caller alone.
  std::optional<Links> take();

 private:
  Mutex mutex_;
  std::map<std::uint64_t, Links> by_number_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom
