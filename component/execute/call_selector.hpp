// call_selector.hpp -- which algorithm carries the calls of one communicator: the table (select.hpp) for its
// shape and links, and probes where two algorithms may be the fastest (tuner.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "component/execute/execution.hpp"
#include "component/links/links.hpp"
#include "component/select/select.hpp"
#include "component/setup/member.hpp"
#include "device/call.h"
#include "device/cuda/kernel_way.hpp"

namespace loom {

/// A call of a window, from the moment when all ranks have arrived.
class TimedCall {
 public:
  /// bytes: of the whole message. The others must outlive this.
  TimedCall(const Process& process, Window& window, std::size_t bytes)
      : process_(process),
        window_(window),
        bytes_(std::max<std::size_t>(bytes, 1)),
        began_(window.is_timed() ? process.now() : 0) {}
  void finish() {
    constexpr double kNsPerMib = 1e9 * 1024 * 1024;
    const double took = window_.is_timed() ? process_.now() - began_ : 0;
    window_.finish(static_cast<std::uint64_t>(took / static_cast<double>(bytes_) * kNsPerMib));
  }

 private:
  const Process& process_;
  Window& window_;
  std::size_t bytes_;
  double began_;
};

/// As MPI has it, for messages.
enum class CallForm : std::uint8_t { kBlocking, kNonblocking, kPersistent };

/// All of it answers alike on all ranks, save plain_exchange().
class CallSelector {
 public:
  /// All must outlive this.
  CallSelector(const Member& member, Links& links, Execution& execution)
      : member_(member), links_(links), execution_(execution) {}

  /// Of the call as it would be carried now; without links, as if node leaders had none.
  Choice choose(const device::Call& call, bool may_wait);
  Conditions conditions() const;
  /// Links are not made for a few small calls; each is counted, before choose(). Whether this is one.
  bool count_small_call(const device::Call& call);
  /// Of the call that was counted last: it comes again.
  void uncount_small_call() noexcept { --small_calls_; }
  /// The calls of `other`, too, count for links between node leaders.
  void count_with(const CallSelector& other) noexcept { counts_with_ = &other; }

  /// Links have been made.
  void forget() noexcept { selector_.forget(); }
  /// Of a blocking call on contiguous buffers: what carries it if an exchange is all that it needs, because
  /// nothing is timed, agreed on or told. Then `window` is where it counts, or nullptr. Else kFallback, as
  /// long as this rank has not asked choose() a few times.
  Algorithm plain_exchange(const device::Call& call, Window*& window) const {
    window = nullptr;
    const Choice* const choice = selector_.compiled(call.collective, call.bytes(), true);
    if (choice == nullptr) return Algorithm::kFallback;
    if (!choice->candidate && choice->algorithm == Algorithm::kTiered) return Algorithm::kTiered;
    if (choice->algorithm != Algorithm::kImmediate) return Algorithm::kFallback;
    if (choice->candidate)
      window = &links_.tuner->of(call.collective, whole_message_of(call), Tuner::Usual::kImmediate);
    return window == nullptr || window->is_plain() ? Algorithm::kImmediate : Algorithm::kFallback;
  }

  /// What a call that does not wait uses of the two: only blocking calls are timed.
  Algorithm leading(const device::Call& call, Choice choice);
  /// What carries it in a lane where all ranks together would go by `algorithm`: a lane has no tiers.
  Algorithm in_a_lane(Algorithm algorithm, const device::Call& call) const;
  /// Performs a call for which choose() has named a candidate. Returns the algorithm that has carried it.
  /// Throws as Execution::perform().
  Algorithm perform_probing(const device::Call& call, Choice choice);

  /// Of all blocks together.
  std::size_t whole_message_of(const device::Call& call) const;
  /// At coll_loom_verbose 1, when a window has another leader.
  void explain_leader(const device::Call& call, const Window& window, Algorithm usual,
                      Algorithm candidate) const;
  /// At coll_loom_verbose 2: says what carries such calls, and why; once for each collective, form and
  /// algorithm.
  void explain(Algorithm algorithm, const device::Call& call, CallForm form = CallForm::kBlocking,
               std::string_view reason = {});
  /// The same where buffers are on GPUs; of kernels also once for each kind of links and protocol.
  /// probes: staging may be as fast.
  void explain_on_gpus(Algorithm algorithm, const device::Call& call,
                       const std::optional<device::cuda::KernelWay>& way, bool probes, CallForm form);
  /// Of a call that does not wait, which may go otherwise later.
  void explain_staged(const device::Call& call, const char* reason);

 private:
  /// What has been explained.
  struct Explained {
    device::Collective collective;
    Algorithm algorithm;
    CallForm form = CallForm::kBlocking;
    std::optional<std::pair<device::steps::Algorithm, device::steps::Protocol>> by = {};
    bool lacks_links = false;
    friend bool operator==(const Explained&, const Explained&) = default;
  };
  template <class Words>
  void explain_once(const Explained& kind, const device::Call& call, Words&& words);
  bool hier_is_due() const;
  std::size_t bytes_of(const device::Call& call) const;
  Window& window_of(const device::Call& call, Algorithm usual);

  const Member& member_;
  Links& links_;
  Execution& execution_;
  Selector selector_;
  std::uint64_t small_calls_ = 0;  ///< between hosts, before the links were made
  const CallSelector* counts_with_ = nullptr;
  std::vector<Explained> explained_;
};

}  // namespace loom
