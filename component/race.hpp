// race.hpp -- which of two ways carries calls of a kind faster, as the program's own calls show: now and then
// some are timed. Arithmetic alone; communicator_races.cpp has the calls.
//
// No topology tells it. What a core has just written comes to another from its cache, and where the two have
// no last cache in common a quarter as fast as the kernel copies it; virtual machines do not say what their
// CPUs share, and their hosts move them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "device/host/host_job.hpp"

namespace loom {

namespace test {
struct ForcedRaces;
}

/// The usual way against its rival, for one kind of call. All ranks make the same calls of it, with the same
/// arguments save finish()'s. For each call of the kind:
///
///   if meets(): settle(the largest own_ns() of all ranks, ...); by_rival(); the call; finish()
///
/// In each period the usual way and then its rival carry a lap of calls, of which the last are timed, from
/// when all ranks have come to them: the first ones find the caches as the other way has left them, and are
/// up to twice as fast or as slow. Then the faster of the two has the rest.
///
/// A program repeats itself, too: laps begin with the same of two, three and, of short calls, six by turns,
/// and a period is a prime number of calls, so that what one lap has found easier, another will have in the
/// next.
class Race {
 public:
  struct Pace {
    std::uint32_t period, lap, timed;  ///< calls
  };
  /// What takes long is timed more often, for CPUs are moved by the clock, and noticed by fewer calls.
  static constexpr Pace kShort{.period = 1021, .lap = 18, .timed = 6};
  static constexpr Pace kLong{.period = 97, .lap = 3, .timed = 2};

  /// Whether all ranks meet before the next call.
  bool meets() const { return is_timed() || at() == pace().lap || at() == 2 * pace().lap; }
  bool is_timed() const { return at() < 2 * pace().lap && at() % pace().lap >= pace().lap - pace().timed; }
  /// What this rank's last call has taken, if it was timed; or 0.
  std::uint64_t own_ns() const { return own_ns_; }

  /// Before a call at which the ranks meet, what the call before has taken the slowest; 0: it was not timed.
  /// Once both laps are over the rival takes the lead if the usual way took more than `margin` times as long,
  /// and loses it if it took longer itself. True: the leader has changed.
  bool settle(std::uint64_t slowest_ns, double margin) {
    Lap& lap = laps_[at() <= pace().lap ? 0 : 1];
    lap.sum_ns += slowest_ns;
    lap.most_ns = std::max(lap.most_ns, slowest_ns);
    if (at() < 2 * pace().lap) return false;
    const bool leads = mean_ns(false) > (rival_leads_ ? 1 : margin) * mean_ns(true);
    return std::exchange(rival_leads_, leads) != leads;
  }

  bool rival_leads() const { return rival_leads_; }
  /// Who carries the next call.
  bool by_rival() const { return at() < 2 * pace().lap ? at() >= pace().lap : rival_leads_; }

  /// took_ns: on this rank, of a timed call.
  void finish(std::uint64_t took_ns = 0) {
    own_ns_ = is_timed() ? std::max<std::uint64_t>(took_ns, 1) : 0;
    if (++calls_; at() == 0) laps_.fill({});
  }

  /// Of the last lap's timed calls, save the longest: who is held up tells nothing of the way.
  double mean_ns(bool of_rival) const {
    const Lap& lap = laps_[of_rival ? 1 : 0];
    return static_cast<double>(lap.sum_ns - lap.most_ns) / (pace().timed - 1);
  }

 private:
  friend class Races;
  friend struct test::ForcedRaces;
  struct Lap {
    std::uint64_t sum_ns = 0, most_ns = 0;
  };
  const Pace& pace() const { return is_long_ ? kLong : kShort; }
  /// In the period.
  std::uint64_t at() const { return calls_ % pace().period; }

  std::uint64_t calls_ = 0;
  bool is_long_ = false;
  bool rival_leads_ = false;
  std::uint64_t own_ns_ = 0;
  std::array<Lap, 2> laps_;
};

/// The races of one communicator's links: one for each collective and power of two of the whole message.
class Races {
 public:
  Races() {
    for (auto& of_collective : races_)
      for (std::size_t size = kLongSize; size < kSizes; ++size) of_collective[size].is_long_ = true;
  }

  /// collective: as SingleCopyExecutor takes. Sizes (2^(k-1), 2^k] race together.
  Race& of(device::Collective collective, std::size_t whole_bytes) {
    if (collective == device::Collective::kReduceScatterV) collective = device::Collective::kReduceScatter;
    const auto width = static_cast<std::size_t>(std::bit_width(whole_bytes > 0 ? whole_bytes - 1 : 0));
    return races_[static_cast<std::size_t>(collective)]
                 [std::clamp(width, kLeastWidth, kLeastWidth + kSizes - 1) - kLeastWidth];
  }

 private:
  friend struct test::ForcedRaces;
  static constexpr std::size_t kLeastWidth = 13, kSizes = 19;  // to 8 KiB, ... to 2 GiB
  static constexpr std::size_t kLongSize = 20 - kLeastWidth;   // above 512 KiB
  static constexpr std::size_t kCollectives = static_cast<std::size_t>(device::Collective::kAllToAll) + 1;
  std::array<std::array<Race, kSizes>, kCollectives> races_;
};

}  // namespace loom
