// waiter.hpp -- how a call waits for its peers: it spins, then yields, checks for dead peers, and fails at
// the time limit.
#pragma once

#include <chrono>
#include <functional>

namespace loom::device {

/// Fixed for a communicator.
struct WaitPolicy {
  std::function<void()> progress;          ///< lets everything else in this process progress; may be empty
  std::function<void()> check_peers;       ///< throws Error when a peer is known to be dead; may be empty
  std::function<void()> say_waiting = {};  ///< once, after half of the time limit; may be empty
  bool oversubscribed = false;             ///< the peer may need this CPU: hardly spin
  double timeout_s = 0;                    ///< longest wait without any step forward; 0: no limit
};

/// Waiting inside one call. Not shared between threads.
class Waiter {
 public:
  /// is_excused: whether the awaited peer is known to wait, too; may be nullptr, must outlive this. If so,
  /// the limit is a little longer, so that the ranks that wait for the missing one fail first, and say which
  /// it is.
  explicit Waiter(const WaitPolicy& policy, const std::function<bool()>* is_excused = nullptr)
      : policy_(policy),
        is_excused_(is_excused),
        bare_spins_(policy.oversubscribed ? kSpinsOversubscribed : kBareSpins) {}

  /// How much longer: at most, and as a share of the limit.
  static constexpr double kMostGraceSeconds = 1, kGraceShare = 0.2;

  /// The call has come a step further: the next wait begins anew.
  void moved() noexcept { pauses_ = 0; }
  /// To be called after each fruitless look. Throws Error (kTimeout, or what check_peers throws).
  void pause() {
    if (++pauses_ > bare_spins_) [[unlikely]]
      pause_longer();
  }

 private:
  // A look at a flag takes some nanoseconds; a peer on another core answers within some hundred. Up to
  // kBareSpins the rank only looks at the flag, up to kSpins it also tells the CPU that it spins, and from
  // then on it yields.
  static constexpr unsigned kBareSpins = 200;
  static constexpr unsigned kSpins = 2000;
  static constexpr unsigned kSpinsOversubscribed = 20;

  void pause_longer();

  const WaitPolicy& policy_;
  const std::function<bool()>* is_excused_;
  bool has_said_ = false;
  unsigned bare_spins_;
  unsigned pauses_ = 0;
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point checked_ = {};  ///< whatever has moved since
};

/// Whether a wait of waited_s is past its limit (0: no limit). is_excused as for Waiter.
bool is_past(double limit_s, double waited_s, const std::function<bool()>* is_excused);

}  // namespace loom::device
