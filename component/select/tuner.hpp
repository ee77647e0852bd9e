// tuner.hpp -- which of two algorithms is faster for calls of a kind? Now and then some of the program's own
// calls are timed. Only the arithmetic is here; call_selector.cpp performs the calls.
//
// No topology tells which is faster. A core reads from another core's cache what that one has just written;
// if the two share no last-level cache, this has a quarter of the speed of the kernel's copy. Virtual
// machines do not report which caches their CPUs share, and hosts move their CPUs.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "device/call.h"

namespace loom {

namespace test {
struct ForcedTuner;
}

/// Compares the usual algorithm with its candidate, for one kind of call. All ranks call these functions in
/// the same order and with the same arguments, except finish(). For each call of the kind:
///
///   if agrees(): settle(the largest own_time() of all ranks, ...); by_candidate(); the call; finish()
///
/// A period begins with two probes: a few calls by the usual algorithm, then as many by its candidate. Only
/// the last calls of a probe are timed, from the moment when all ranks have arrived: the first ones find the
/// caches as the other algorithm has left them, and take up to twice or half the time. The faster algorithm
/// then runs the rest of the period. A few of these calls are timed too: if their times have changed, the
/// next period begins early, at most once in a period.
///
/// Where the slower algorithm would take more than kMostCost of the time in its probes, the next periods are
/// longer, step by step, and of short calls fewer are watched; whatever changes, the next one is short again.
///
/// Programs repeat patterns of calls. If a pattern has two, three or four calls, both probes time the same
/// ones. A period is a prime number of calls, so that in longer patterns no probe always gets the easier
/// calls.
class Window {
 public:
  struct Pace {
    std::array<std::uint32_t, 4> period;         ///< calls; each is longer than the one before
    std::array<std::uint32_t, 4> watched_every;  ///< of the rest, in such periods
    std::uint32_t probe, timed;                  ///< calls
  };
  /// Long calls are timed more often: CPUs are moved by the clock, so fewer calls have to notice it.
  static constexpr Pace kShort{
      .period = {1021, 4093, 16381, 65521}, .watched_every = {61, 127, 251, 509}, .probe = 24, .timed = 6};
  static constexpr Pace kLong{
      .period = {97, 397, 1597, 6389}, .watched_every = {7, 7, 7, 7}, .probe = 4, .timed = 3};
  static constexpr double kMostCost = 0.01;

  /// Whether all ranks agree on times (settle()) before the next call.
  bool agrees() const { return is_timed() || at_ == pace().probe || at_ == 2 * pace().probe; }
  bool is_timed() const {
    return is_in_probes() ? at_ % pace().probe >= pace().probe - pace().timed
                          : (at_ - 2 * pace().probe + 1) % pace().watched_every[steps_] == 0;
  }
  /// The time of this rank's last timed call, until settle(); else 0.
  std::uint64_t own_time() const { return own_time_; }

  /// Before a call for which agrees() is true. longest: the largest own_time() of all ranks. After both
  /// probes the candidate takes the lead if the usual algorithm took more than `margin` times as long, and
  /// loses it if it took longer itself. True: the leader has changed.
  bool settle(std::uint64_t longest, double margin) {
    own_time_ = 0;
    if (at_ == pace().probe - pace().timed) return false;  // a time of the period before
    if (longest == 0) return false;                        // no call has been timed since the last settle()
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
    const bool changes = std::exchange(candidate_leads_, leads) != leads;
    const std::size_t most = changes ? 0 : steps_for(mean(!leads) / mean(leads));
    next_steps_ = std::min(steps_ + 1, most);
    steps_ = std::min(steps_, most);
    return changes;
  }

  /// Whether the next call goes by the usual algorithm and is neither timed nor agreed on, nor the last of a
  /// period. Then pass() is all that it needs.
  bool is_plain() const { return !by_candidate() && !agrees() && at_ + 1 < period(); }
  void pass() { ++at_; }

  bool candidate_leads() const { return candidate_leads_; }
  /// Whether the candidate runs the next call.
  bool by_candidate() const { return is_in_probes() ? at_ >= pace().probe : candidate_leads_; }

  /// took: this rank's time for a timed call, per byte, in any unit.
  void finish(std::uint64_t took = 0) {
    if (is_timed()) own_time_ = std::max<std::uint64_t>(took, 1);
    if (++at_ < period()) return;
    steps_ = next_steps_;
    begin();
    was_early_ = false;
  }

  /// Of the last probe's timed calls, except the longest: a delayed call tells nothing about the algorithm.
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

  std::uint32_t period() const { return pace().period[steps_]; }
  /// ratio: the time of the slower algorithm by that of the leader.
  std::size_t steps_for(double ratio) const {
    const double more = (ratio - 1) * pace().probe;  // calls' worth of time
    std::size_t steps = 0;
    while (steps + 1 < pace().period.size() && more > kMostCost * pace().period[steps]) ++steps;
    return steps;
  }

  void begin() {
    at_ = 0;
    changes_ = 0;
    probes_.fill({});
  }

  /// One call may have been delayed. Two in a row tell that the machine has changed, or that the program's
  /// calls differ; the latter is no reason to begin again more than once.
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
    steps_ = next_steps_ = 0;
  }

  std::uint32_t at_ = 0;                    ///< calls of the period
  std::uint32_t changes_ = 0;               ///< watched calls in a row whose time has changed
  std::size_t steps_ = 0, next_steps_ = 0;  ///< by which this period is longer, and the next one
  bool was_early_ = false;                  ///< this period has begun early
  bool is_long_ = false;
  bool candidate_leads_ = false;
  std::uint64_t own_time_ = 0;
  std::array<Probe, 2> probes_;
};

/// The windows of one communicator's links: for each collective and power of two of the whole message one for
/// each kind of usual algorithm, so that the two that are compared never change places in a window.
class Tuner {
 public:
  enum class Usual : std::uint8_t { kImmediate, kVarying, kOther };  ///< kVarying: AlgorithmRow::varies
  Tuner() {
    for (auto& of_collective : windows_)
      for (std::size_t size = kLongSize; size < kSizes; ++size)
        for (Window& window : of_collective[size]) window.is_long_ = true;
  }

  /// collective: one whose size all ranks know. Sizes (2^(k-1), 2^k] share a window.
  Window& of(device::Collective collective, std::size_t whole_bytes, Usual usual = Usual::kOther) {
    if (collective == device::Collective::kReduceScatterV) collective = device::Collective::kReduceScatter;
    if (collective == device::Collective::kAllGatherV) collective = device::Collective::kAllGather;
    assert(static_cast<std::size_t>(collective) < kCollectives);
    const auto width = static_cast<std::size_t>(std::bit_width(whole_bytes > 0 ? whole_bytes - 1 : 0));
    return windows_[static_cast<std::size_t>(collective)]
                   [std::clamp(width, kLeastWidth, kLeastWidth + kSizes - 1) - kLeastWidth]
                   [static_cast<std::size_t>(usual)];
  }

 private:
  friend struct test::ForcedTuner;
  static constexpr std::size_t kLeastWidth = 14, kSizes = 18;  // to 16 KiB, ... to 2 GiB
  static constexpr std::size_t kLongSize = 20 - kLeastWidth;   // above 512 KiB
  static constexpr std::size_t kCollectives = static_cast<std::size_t>(device::Collective::kExscan) + 1;
  std::array<std::array<std::array<Window, 3>, kSizes>, kCollectives> windows_;
};

}  // namespace loom
