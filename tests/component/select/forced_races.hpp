// forced_races.hpp -- what a communicator's ranks find out of two ways, in place of what they would.
#pragma once

#include <algorithm>

#include "component/communicator.hpp"

namespace loom::test {

struct ForcedRaces {
  /// Collective, between calls: as if the ranks had just found this out, in every race; the next
  /// trial between hosts in so many calls.
  static void set(Communicator& communicator, bool rivals_lead,
                  std::uint32_t calls_to_trial = Trials::kPeriod) {
    const auto force = [&](Race& race) {
      race.rival_leads_ = rivals_lead;
      race.at_ = 2 * race.pace().lap + 1;
    };
    Races& races = communicator.links_.races;
    for (auto& of_collective : races.races_)
      for (auto& of_size : of_collective) std::ranges::for_each(of_size, force);
    communicator.links_.trials = {.calls_left = calls_to_trial, .star_leads = rivals_lead};
  }
  /// Whether there are any inside a host, as if each rank had a CPU.
  static bool start(Communicator& communicator) {
    communicator.group_->oversubscribed = false;
    return !communicator.links_.pids.empty();
  }
  static std::uint64_t performed(const Communicator& communicator, Algorithm by) {
    std::uint64_t calls = 0;
    for (const auto& counts : communicator.calls_.of) calls += counts.by[static_cast<std::size_t>(by)];
    return calls;
  }
};

}  // namespace loom::test
