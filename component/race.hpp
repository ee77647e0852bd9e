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
#include <limits>
#include <utility>

#include "device/host/host_job.hpp"

namespace loom {

namespace test {
struct ForcedRaces;
}

/// The usual way against its rival, for one kind of call. All ranks make the same calls of it, with the same
/// arguments save finish()'s. For each call of the kind:
///
///   if meets(): settle(the largest own_time() of all ranks, ...); by_rival(); the call; finish()
///
/// In each period the usual way and then its rival carry a lap of calls, of which the last are timed, from
/// when all ranks have come to them: the first ones find the caches as the other way has left them, and are
/// up to twice as fast or as slow. Then the faster of the two has the rest, of which a few are timed as well:
/// where these are not what they were, the next period begins early, once in a period at the most.
///
/// A program repeats itself, too: both laps time the same of two, three or four calls by turns, and a period
/// is a prime number of calls, so that what one lap has found easier in other patterns, another will have in
/// a later one.
class Race {
 public:
  struct Pace {
    std::uint32_t period, lap, timed;  ///< calls
    std::uint32_t watched_every;       ///< of the rest; 0: none
    bool in_a_row;  ///< the timed calls of a lap follow one another as the program makes them
  };
  /// What takes long is timed more often, for CPUs are moved by the clock, and noticed by fewer calls.
  static constexpr Pace kShort{.period = 1021, .lap = 24, .timed = 6, .watched_every = 61, .in_a_row = false};
  static constexpr Pace kLong{.period = 97, .lap = 4, .timed = 3, .watched_every = 7, .in_a_row = false};
  /// Between hosts calls differ more, one from the next; and where CPUs are busy with messages, what is left
  /// to do after a call makes the next one longer.
  static constexpr Pace kFar{.period = 2039, .lap = 36, .timed = 24, .watched_every = 0, .in_a_row = true};

  /// Whether all ranks meet before the next call.
  bool meets() const {
    const bool follows = pace().in_a_row && at_ % pace().lap != pace().lap - pace().timed;
    return (is_timed() && !follows) || at_ == pace().lap || at_ == 2 * pace().lap;
  }
  bool is_timed() const {
    if (is_in_laps()) return at_ % pace().lap >= pace().lap - pace().timed;
    return pace().watched_every > 0 && (at_ - 2 * pace().lap + 1) % pace().watched_every == 0;
  }
  /// What this rank's last timed call has taken, until the ranks meet again; or 0. In a row: all of them,
  /// save the longest.
  std::uint64_t own_time() const { return own_.sum - own_.most; }

  /// Before a call at which the ranks meet: the longest own_time(). Once both laps are over the rival takes
  /// the lead if the usual way took more than `margin` times as long, and loses it if it took longer itself.
  /// True: the leader has changed.
  bool settle(std::uint64_t longest, double margin) {
    own_ = {};
    if (at_ == pace().lap - pace().timed) return false;  // of the period before
    if (longest == 0) return false;                      // the first of several to be timed
    if (at_ > 2 * pace().lap) {
      watch(longest);
      return false;
    }
    Lap& lap = laps_[at_ <= pace().lap ? 0 : 1];
    if (pace().in_a_row)
      lap.sum = longest;
    else
      lap.add(longest);
    if (is_in_laps()) return false;
    const bool leads = mean(false) > (rival_leads_ ? 1 : margin) * mean(true);
    return std::exchange(rival_leads_, leads) != leads;
  }

  bool rival_leads() const { return rival_leads_; }
  /// Who carries the next call.
  bool by_rival() const { return is_in_laps() ? at_ >= pace().lap : rival_leads_; }

  /// took: by this rank for a timed call; in any unit, for the size of the call.
  void finish(std::uint64_t took = 0) {
    if (is_timed() && pace().in_a_row)
      own_.add(took);
    else if (is_timed())
      own_.sum = std::max<std::uint64_t>(took, 1);
    if (++at_ < pace().period) return;
    begin();
    was_early_ = false;
  }

  /// Of the last lap's timed calls, save the longest: who is held up tells nothing of the way.
  double mean(bool of_rival) const {
    const Lap& lap = laps_[of_rival ? 1 : 0];
    return static_cast<double>(lap.sum - lap.most) / (pace().timed - 1);
  }

 private:
  friend class Races;
  friend struct test::ForcedRaces;
  struct Lap {
    std::uint64_t sum = 0, most = 0, least = std::numeric_limits<std::uint64_t>::max();
    void add(std::uint64_t took) {
      sum += took;
      most = std::max(most, took);
      least = std::min(least, took);
    }
  };
  const Pace& pace() const { return *pace_; }
  bool is_in_laps() const { return at_ < 2 * pace().lap; }

  void begin() {
    at_ = 0;
    changes_ = 0;
    laps_.fill({});
  }

  /// One call may have been held up; two tell that the machine has changed, or that the program's calls are
  /// not alike: that is no reason to begin again and again.
  void watch(std::uint64_t longest) {
    constexpr double kChange = 1.5;
    const Lap& lap = laps_[rival_leads_ ? 1 : 0];
    const double now = static_cast<double>(longest);
    const bool has_changed =
        now > kChange * static_cast<double>(lap.most) || kChange * now < static_cast<double>(lap.least);
    changes_ = has_changed ? changes_ + 1 : 0;
    if (changes_ < 2 || was_early_) return;
    begin();
    was_early_ = true;
  }

  std::uint32_t at_ = 0;       ///< calls of the period
  std::uint32_t changes_ = 0;  ///< watched calls that took another time, one after the other
  bool was_early_ = false;     ///< this period, or the one before that it has cut short
  const Pace* pace_ = &kShort;
  bool rival_leads_ = false;
  Lap own_;
  std::array<Lap, 2> laps_;
};

/// The races of one communicator's links: one for each collective and power of two of the whole message,
/// where a direct exchange is the usual way and where it is not; or between hosts one for each collective, of
/// short messages.
class Races {
 public:
  Races() {
    for (auto& of_collective : races_)
      for (std::size_t size = kLongSize; size < kSizes; ++size)
        for (Race& race : of_collective[size]) race.pace_ = &Race::kLong;
    for (Race& race : between_hosts_) race.pace_ = &Race::kFar;
  }

  /// collective: as SingleCopyExecutor takes. Sizes (2^(k-1), 2^k] race together.
  Race& of(device::Collective collective, std::size_t whole_bytes, bool usually_direct = false) {
    if (collective == device::Collective::kReduceScatterV) collective = device::Collective::kReduceScatter;
    const auto width = static_cast<std::size_t>(std::bit_width(whole_bytes > 0 ? whole_bytes - 1 : 0));
    return races_[static_cast<std::size_t>(collective)]
                 [std::clamp(width, kLeastWidth, kLeastWidth + kSizes - 1) - kLeastWidth][usually_direct];
  }
  /// collective: as TwoLevelExecutor takes.
  Race& between_hosts(device::Collective collective) {
    return between_hosts_[static_cast<std::size_t>(collective)];
  }

 private:
  friend struct test::ForcedRaces;
  static constexpr std::size_t kLeastWidth = 14, kSizes = 18;  // to 16 KiB, ... to 2 GiB
  static constexpr std::size_t kLongSize = 20 - kLeastWidth;   // above 512 KiB
  static constexpr std::size_t kCollectives = static_cast<std::size_t>(device::Collective::kAllToAll) + 1;
  std::array<std::array<std::array<Race, 2>, kSizes>, kCollectives> races_;
  std::array<Race, static_cast<std::size_t>(device::Collective::kBarrier) + 1> between_hosts_;
};

}  // namespace loom
