// forced_tuner.hpp -- what the ranks of a communicator find out by probes, in place of what they would.
#pragma once

#include <algorithm>

#include "component/communicator/communicator.hpp"

namespace loom::test {

struct ForcedTuner {
  /// Collective, between calls: as if the ranks had just found this out, in every window.
  static void set(Communicator& communicator, bool candidates_lead) {
    const auto force = [&](Window& window) {
      window.candidate_leads_ = candidates_lead;
      window.at_ = 2 * window.pace().probe + 1;
    };
    for (auto& of_collective : communicator.links_.tuner->windows_)
      for (auto& of_size : of_collective) std::ranges::for_each(of_size, force);
  }
  /// Whether there are any inside a host, as if each rank had a CPU.
  static bool start(Communicator& communicator) {
    communicator.member_.group->oversubscribed = communicator.member_.group->oversubscribed_somewhere = false;
    return !communicator.links_.pids.empty();
  }
  /// The longest offer for which the fast path above small calls is tried.
  static std::uint64_t most_in_middle(const Communicator& communicator, device::Collective collective) {
    return communicator.fast_below_.middle[static_cast<std::size_t>(collective)] - 1;
  }
  static std::uint64_t performed(const Communicator& communicator, Algorithm by) {
    std::uint64_t calls = 0;
    for (const auto& counts : communicator.calls_.of) calls += counts.by[static_cast<std::size_t>(by)];
    return calls;
  }
};

}  // namespace loom::test
