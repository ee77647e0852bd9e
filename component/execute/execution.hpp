// execution.hpp -- performs calls over the links of one communicator: makes executors, drives operations, and
// names who is waited for.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "component/execute/adopted_broadcast.hpp"
#include "component/execute/operation.hpp"
#include "component/links/links.hpp"
#include "component/setup/member.hpp"
#include "device/call.h"
#include "device/link/peer_memory.hpp"
#include "device/link/waiter.hpp"

namespace loom {

/// An all-reduce in place of what each rank knows.
device::Call combination(device::Op op, std::span<std::uint64_t> words);

/// As for Communicator: one call at a time. What throws ends the communicator, save
/// Truncated, and DifferentCall, which a broadcast may adopt.
class Execution {
 public:
  /// Both must outlive this.
  Execution(Member& member, Links& links) : member_(member), links_(links) {}
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  /// Once the group is known.
  void set_wait_policy() noexcept;
  const device::WaitPolicy& wait_policy() const noexcept { return wait_policy_; }
  /// Persistent calls, which the program has promised to start in one order on all ranks; for messages.
  void expect_promised_order() noexcept { promised_order_ = true; }

  /// Waits until the call has ended, and until nothing of it needs a further call of ours: the application
  /// may not call MPI again for long.
  void perform(Algorithm algorithm, const device::Call& call);
  void drive(Operation& operation);
  /// As far as it goes without waiting.
  State advance(Operation& operation);

  /// What combines a few words in calls that do not wait.
  Algorithm combines_by() const;
  // immediate_calls.cpp: by immediate exchanges, or by links between hosts.
  /// Before a call that does not go by an immediate exchange: a rank that is in one that does shall not wait
  /// for this rank, nor take its next one for this one. And the receivers of a broadcast learn its size while
  /// they can still do as the root does.
  void announce(const device::Call& call, device::CallFamily family);
  /// The largest value of all ranks. No rank returns before all have come.
  std::uint64_t largest(std::uint64_t mine);
  /// Whether it is the same on all ranks, and not 0.
  bool all_have(std::uint64_t word);
  struct Lacking {
    bool alike;           ///< all ranks have the same word, which is not 0
    std::uint64_t ranks;  ///< a bit for each that does not have it so; the 64th and later ones share one
  };
  Lacking who_lacks(std::uint64_t word, bool here);
  /// The same of up to kMostExchanging ranks; and `alike` only if what all ranks have for `pairs` adds up to
  /// 0. By sums, which find words that differ but for the chance of a hash.
  Lacking who_lacks(std::uint64_t word, bool here, std::uint64_t pairs);
  /// Each rank's bytes, which are equally many, by rank.
  void gather(const void* mine, void* all, std::size_t bytes);
  /// Whether it is so here on all ranks; the same answer to all.
  bool holds_everywhere(bool here) { return largest(here ? 0 : 1) == 0; }
  /// The lowest rank where it is not so, told to all; nothing: there is none. Ranks that have only `heard` of
  /// another rank's failure come last.
  std::optional<int> first_without(bool here, bool heard = false) {
    const auto ranks = static_cast<std::uint64_t>(member_.bootstrap.size());
    const std::uint64_t mine = (heard ? 0 : ranks) + ranks - static_cast<std::uint64_t>(member_.rank);
    const std::uint64_t most = largest(here ? 0 : mine);
    return most == 0 ? std::nullopt : std::optional(static_cast<int>((2 * ranks - most) % ranks));
  }
  /// From inside a handler of what an immediate exchange has thrown: names the rank that was waited for in
  /// vain.
  [[noreturn]] void fail_immediate() const;

  /// For an operation that has waited so long. Throws Error once the limit has passed.
  void check_waiting(const Operation& operation, double waited_s) const;
  /// For an operation that has been waiting. Throws Error once a peer is known to be dead, to have given up,
  /// or to be in another call.
  void check_peers();
  /// Tells the peers that this rank has been waiting for half of the limit.
  void say_waiting() noexcept { links_.say_waiting(); }
  double time_limit_s() const noexcept { return member_.process.runtime().parameters.timeout_s; }

  /// This rank can perform the broadcast as its root does.
  bool adopts(const device::Call& call, const device::DifferentCall& other,
              device::CallProgress progress) const;
  /// Throws Truncated if not all of it has had room.
  void tell_adopted(const AdoptedBroadcast& adopted, int root) const;
  /// From inside a handler. Peers that have not met the other call learn of it from this rank.
  [[noreturn]] void fail_for(const device::DifferentCall& other);

 private:
  const Group& group() const noexcept { return *member_.group; }

  /// By an ImmediateExchange, or a TieredExchange.
  template <class Exchange>
  void exchange_immediately(const device::Call& call, Exchange& exchange);
  void combine(device::Op op, std::span<std::uint64_t> words);
  template <class Exchange>
  void pack_and_exchange(const device::Call& call, Exchange& exchange, device::Waiter& waiter,
                         std::size_t call_bytes);
  void copy_alone(const device::Call& call) const;

  // operation.cpp
  void make_executor(Executor& executor, Algorithm algorithm, const device::Call& call, device::Begun begun,
                     const device::cuda::ProgramMark* after = nullptr);
  device::Grid grid() const;
  device::HostAndLocal place_in_grid(int rank) const;
  device::HierLinks levels();
  device::PairwiseLinks pairwise();
  device::CallNote note_between_hosts(const device::Call& call) const;
  int awaited_rank(const Operation& operation) const;

  int rank_at(const device::HostAndLocal& place) const {
    return group().placement.ranks_of(place.host)[static_cast<std::size_t>(place.local)];
  }
  std::string awaited_text(const Operation& operation) const;
  void tell_cut(device::Collective collective, const std::optional<device::CutBlock>& cut) const;
  [[noreturn]] void fail_for(const device::ProcessEnded& ended) const;

  Member& member_;
  Links& links_;
  device::WaitPolicy wait_policy_;
  bool promised_order_ = false;
};

}  // namespace loom
