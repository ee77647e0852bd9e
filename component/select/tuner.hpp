// tuner.hpp -- which of two algorithms carries calls of a kind faster, as the program's own calls show: now
// and then some are timed. Arithmetic alone; tuned_calls.cpp has the calls.
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

#include "device/call.h"

namespace loom {

namespace test {
struct ForcedTuner;
}

/// The usual way against its candidate, for one kind of call. All ranks make the same calls of it, with the
/// same arguments save finish()'s. For each call of the kind:
///
///   if meets(): settle(the largest own_time() of all ranks, ...); by_candidate(); the call; finish()
///
/// In each period the usual way and then its candidate carry a probe of calls, of which the last are timed,
/// from when all ranks have come to them: the first ones find the caches as the other way has left them, and
/// are up to twice as fast or as slow. Then the faster of the two has the rest, of which a few are timed as
/// well: where these are not what they were, the next period begins early, once in a period at the most.
///
/// A program repeats itself, too: both probes time the same of two, three or four calls by turns, and a
/// period is a prime number of calls, so that what one probe has found easier in other patterns, another will
/// have in a later one.
class Window {
 public:
  struct Pace {
    std::uint32_t period, probe, timed;  ///< calls
    std::uint32_t watched_every;         ///< of the rest
  };
  /// What takes long is timed more often, for CPUs are moved by the clock, and noticed by fewer calls.
  static constexpr Pace kShort{.period = 1021, .probe = 24, .timed = 6, .watched_every = 61};
  static constexpr Pace kLong{.period = 97, .probe = 4, .timed = 3, .watched_every = 7};

  /// Whether all ranks meet before the next call.
  bool meets() const { return is_timed() || at_ == pace().probe || at_ == 2 * pace().probe; }
  bool is_timed() const {
    return is_in_probes() ? at_ % pace().probe >= pace().probe - pace().timed
                          : (at_ - 2 * pace().probe + 1) % pace().watched_every == 0;
  }
  /// What this rank's last timed call has taken, until the ranks meet again; or 0.
  std::uint64_t own_time() const { return own_time_; }

  /// Before a call at which the ranks meet: the longest own_time(). Once both probes are over the candidate
  /// takes the lead if the usual way took more than `margin` times as long, and loses it if it took longer
  /// itself. True: the leader has changed.
  bool settle(std::uint64_t longest, double margin) {
    own_time_ = 0;
    if (at_ == pace().probe - pace().timed) return false;  // of the period before
    if (longest == 0) return false;                        // the first of several to be timed
    if (at_ > 2 * pace().probe) {
      watch(longest);
      return false;
    }
    Probe& probe = probes_[at_ <= pace().probe ? 0 : 1];
    probe.sum += longest;
    probe.most = std::max(probe.most, longest);
    probe.least = std::min(probe.least, longest);
    if (is_in_probes()) return false;
    const bool leads = mean(false) > (candidate_leads_ ? 1 : margin) * mean(true);
    return std::exchange(candidate_leads_, leads) != leads;
  }

  bool candidate_leads() const { return candidate_leads_; }
  /// Who carries the next call.
  bool by_candidate() const { return is_in_probes() ? at_ >= pace().probe : candidate_leads_; }

  /// took: by this rank for a timed call; in any unit, for the size of the call.
  void finish(std::uint64_t took = 0) {
    if (is_timed()) own_time_ = std::max<std::uint64_t>(took, 1);
    if (++at_ < pace().period) return;
    begin();
    was_early_ = false;
  }

  /// Of the last probe's timed calls, save the longest: who is held up tells nothing of the way.
  double mean(bool of_candidate) const {
    const Probe& probe = probes_[of_candidate ? 1 : 0];
    return static_cast<double>(probe.sum - probe.most) / (pace().timed - 1);
  }

 private:
  friend class Tuner;
  friend struct test::ForcedTuner;
  struct Probe {
    std::uint64_t sum = 0, most = 0, least = std::numeric_limits<std::uint64_t>::max();
  };
  const Pace& pace() const { return is_long_ ? kLong : kShort; }
  bool is_in_probes() const { return at_ < 2 * pace().probe; }

  void begin() {
    at_ = 0;
    changes_ = 0;
    probes_.fill({});
  }

  /// One call may have been held up; two tell that the machine has changed, or that the program's calls are
  /// not alike: that is no reason to begin again and again.
  void watch(std::uint64_t longest) {
    constexpr double kChange = 1.5;
    const Probe& probe = probes_[candidate_leads_ ? 1 : 0];
    const double now = static_cast<double>(longest);
    const bool has_changed =
        now > kChange * static_cast<double>(probe.most) || kChange * now < static_cast<double>(probe.least);
    changes_ = has_changed ? changes_ + 1 : 0;
    if (changes_ < 2 || was_early_) return;
    begin();
    was_early_ = true;
  }

  std::uint32_t at_ = 0;       ///< calls of the period
  std::uint32_t changes_ = 0;  ///< watched calls that took another time, one after the other
  bool was_early_ = false;     ///< this period, or the one before that it has cut short
  bool is_long_ = false;
  bool candidate_leads_ = false;
  std::uint64_t own_time_ = 0;
  std::array<Probe, 2> probes_;
};

/// The tuner of one communicator's links: one for each collective and power of two of the whole message,
/// where a immediate exchange is the usual way and where it is not.
class Tuner {
 public:
  Tuner() {
    for (auto& of_collective : windows_)
      for (std::size_t size = kLongSize; size < kSizes; ++size)
        for (Window& window : of_collective[size]) window.is_long_ = true;
  }

  /// collective: as SingleCopyExecutor takes. Sizes (2^(k-1), 2^k] window together.
  Window& of(device::Collective collective, std::size_t whole_bytes, bool usually_immediate = false) {
    if (collective == device::Collective::kReduceScatterV) collective = device::Collective::kReduceScatter;
    const auto width = static_cast<std::size_t>(std::bit_width(whole_bytes > 0 ? whole_bytes - 1 : 0));
    return windows_[static_cast<std::size_t>(collective)]
                   [std::clamp(width, kLeastWidth, kLeastWidth + kSizes - 1) - kLeastWidth]
                   [usually_immediate];
  }

 private:
  friend struct test::ForcedTuner;
  static constexpr std::size_t kLeastWidth = 14, kSizes = 18;  // to 16 KiB, ... to 2 GiB
  static constexpr std::size_t kLongSize = 20 - kLeastWidth;   // above 512 KiB
  static constexpr std::size_t kCollectives = static_cast<std::size_t>(device::Collective::kAllToAll) + 1;
  std::array<std::array<std::array<Window, 2>, kSizes>, kCollectives> windows_;
};

}  // namespace loom
