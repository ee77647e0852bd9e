// call_selector.hpp -- which algorithm carries the calls of one communicator: the table (select.hpp) for its
// shape and links, and probes where two algorithms may be the fastest (tuner.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "component/execute/execution.hpp"
#include "component/links/links.hpp"
#include "component/select/select.hpp"
#include "component/setup/member.hpp"
#include "device/call.h"

namespace loom {

/// All of it answers alike on all ranks.
class CallSelector {
 public:
  /// All must outlive this.
  CallSelector(const Member& member, Links& links, Execution& execution)
      : member_(member), links_(links), execution_(execution) {}

  /// Of the call as it would be carried now; without links, as if node leaders had none.
  Choice choose(const device::Call& call, bool may_wait);
  Conditions conditions() const;
  /// Links are not made for a few small calls; each is counted, before choose().
  void count_small_call(const device::Call& call);
  /// The calls of `other`, too, count for links between node leaders.
  void count_with(const CallSelector& other) noexcept { counts_with_ = &other; }

  /// What a call that does not wait uses of the two: only blocking calls are timed.
  Algorithm leading(const device::Call& call, Choice choice);
  /// Performs a call for which choose() has named a candidate. Returns the algorithm that has carried it.
  /// Throws as Execution::perform().
  Algorithm perform_probing(const device::Call& call, Choice choice);

  /// At coll_loom_verbose 2: says what carries such calls, and why; once for each collective and algorithm.
  void explain(Algorithm algorithm, const device::Call& call, bool may_wait = true);

 private:
  bool hier_is_due() const;
  std::size_t bytes_of(const device::Call& call) const;
  std::size_t whole_message_of(const device::Call& call) const;
  Window& window_of(const device::Call& call, Algorithm usual);
  std::uint64_t largest_on_host(std::uint64_t mine);
  void explain_probe(const device::Call& call, const Window& window, Choice choice) const;

  const Member& member_;
  Links& links_;
  Execution& execution_;
  Selector selector_;
  std::uint64_t small_calls_ = 0;  ///< between hosts, before the links were made
  const CallSelector* counts_with_ = nullptr;
  std::vector<std::pair<device::Collective, Algorithm>> explained_;
};

}  // namespace loom
