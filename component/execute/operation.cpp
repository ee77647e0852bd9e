// operation.cpp -- the factory of executors, what they see of the links, and the steps of an operation,
// whoever drives it.
#include "component/execute/operation.hpp"

#include <algorithm>
#include <concepts>
#include <utility>

#include "component/execute/execution.hpp"
#include "component/links/shared_layout.hpp"
#include "component/select/gpu_calls.hpp"

namespace loom {

using device::Collective;

/// The flat ring is a rail of all ranks. It crosses both kinds of link, and all its ranks must cut alike.
device::Grid Execution::grid() const {
  // A rank is at most a round of slices ahead, of half of the slots; see RingExecutor's Slicing.
  static_assert(kNetFifo.slot_count / 2 + kNetFifo.releases_per_credit <= kNetFifo.slot_count);
  constexpr device::FifoShape kFlat{.slot_bytes = std::min(kSharedFifo.slot_bytes, kNetFifo.slot_bytes),
                                    .slot_count = std::min(kSharedFifo.slot_count, kNetFifo.slot_count)};
  const connect::Ring& ring = group().across();
  const device::PeerLinks& between_hosts = links_.of(LinkKind::kRing).view()[0];
  device::Grid grid{.local = {},
                    .local_fifo = kSharedFifo,
                    .rail = {ring.position, ring.size, between_hosts.send, between_hosts.receive},
                    .rail_fifo = group().wiring.rail ? kNetFifo : kFlat,
                    .ranks = group().grid_ranks};
  if (group().wiring.rail) {
    grid.local = {group().wiring.local.position, group().wiring.local.size, links_.local.to_next.get(),
                  links_.local.from_previous.get()};
  } else {
    if (group().on_my_host(ring.next)) grid.rail.next = links_.local.to_next.get();
    if (group().on_my_host(ring.previous)) grid.rail.previous = links_.local.from_previous.get();
  }
  return grid;
}

/// Of a rank: its place on its rail, and in its host.
device::HostAndLocal Execution::place_in_grid(int rank) const {
  const std::vector<int>& ranks = group().grid_ranks;
  const auto seat = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const int per_host = group().wiring.rail ? group().wiring.local.size : 1;
  return {seat / per_host, seat % per_host};
}

device::HierLinks Execution::levels() {
  return {.cico = links_.cico ? &*links_.cico : nullptr,
          .places = group().places,
          .rank = member_.rank,
          .hosts = group().wiring.shape.hosts,
          .links = links_.of(LinkKind::kLeaders).view(),
          .slot_bytes = leader_fifo(group().wiring.shape.hosts).slot_bytes};
}

device::PairwiseLinks Execution::pairwise() {
  return {.links = links_.of(LinkKind::kPairwise).view(),
          .slot_bytes = kPairwiseFifo.slot_bytes,
          .cico = links_.cico ? &*links_.cico : nullptr,
          .mates = group().placement.ranks_of(group().placement.node_of(member_.rank)),
          .rank = member_.rank};
}

/// What links of several hosts are told before a call.
device::CallNote Execution::note_between_hosts(const device::Call& call) const {
  return {call.collective, device::CallFamily::kBetweenHosts,
          device::shared_bytes(call, group().wiring.shape.ranks)};
}

/// For the algorithms that have executors: all but a copy, and those by immediate exchanges, which wait (in
/// lanes there are some that do not).
void Execution::make_executor(Executor& executor, Algorithm algorithm, const device::Call& call,
                              device::Begun begun, const device::cuda::ProgramMark* after) {
  switch (algorithm) {
    case Algorithm::kCico:
      if (device::CicoExecutor::takes(call.collective))
        executor.emplace<device::CicoExecutor>(*links_.cico, call, begun);
      else if (call.collective == Collective::kScan || call.collective == Collective::kExscan)
        executor.emplace<device::CicoScanExecutor>(*links_.cico, call);
      else
        executor.emplace<device::CicoBlocksExecutor>(*links_.cico, call);
      return;
    case Algorithm::kTieredCico:
      executor.emplace<device::TieredCicoExecutor>(*links_.groups, call);
      return;
    case Algorithm::kSingleCopy:
      executor.emplace<device::SingleCopyExecutor>(*links_.cico, links_.pids, call, begun);
      return;
    case Algorithm::kImmediate:
      if (!links_.exchange) break;
      executor.emplace<device::LaneExchangeExecutor>(*links_.exchange, call);
      return;
    case Algorithm::kHier:
      executor.emplace<device::HierExecutor>(levels(), call);
      return;
    case Algorithm::kRing:
      if (device::SplitRailExecutor::takes(call.collective)) {
        executor.emplace<device::SplitRailExecutor>(grid(), call);
      } else {
        const device::HostAndLocal root = place_in_grid(call.root);
        executor.emplace<device::RootedExecutor>(grid(), call, root.host, root.local);
      }
      return;
    case Algorithm::kDbt: {
      const device::HostAndLocal root = place_in_grid(call.root);
      executor.emplace<device::DbtExecutor>(grid(), links_.trees, call, root.host, root.local);
      return;
    }
    case Algorithm::kPairwise:
      executor.emplace<device::PairwiseExecutor>(pairwise(), call);
      return;
    case Algorithm::kZeroCopy:
      executor.emplace<device::cuda::ZeroCopyExecutor>(*links_.gpus, call, true, after);
      return;
    case Algorithm::kKernel:
    case Algorithm::kKernelRing:
    case Algorithm::kKernelTree:
    case Algorithm::kKernelHier:
      executor.emplace<device::cuda::KernelExecutor>(
          *links_.gpus, call, member_.rank, group().wiring.shape.ranks, linkage_of(algorithm), after);
      return;
    case Algorithm::kCopy:
    case Algorithm::kTiered:
    case Algorithm::kFallback:
    case Algorithm::kStaged:
      break;
  }
  throw Error(ErrorCode::kInternal, "There is no executor for a call that was planned.");
}

State Execution::advance(Operation& operation) try {
  const device::Call& call = operation.call;
  if (operation.algorithm == Algorithm::kCopy) {
    copy_alone(call);
    return State::kDone;
  }
  if (!operation.executed) {
    if (operation.executor.index() == 0) {
      if (device::is_empty(call)) return State::kDone;
      if (group().wiring.shape.hosts > 1) links_.enter(note_between_hosts(call));
      if (const auto family = row_of(operation.algorithm).family; family && links_.groups)
        links_.groups->enter({call, *family});
      make_executor(operation.executor, operation.algorithm, call, device::Begun::kNo, operation.after);
    }
    const State state = std::visit(
        [](auto& executor) {
          if constexpr (requires { executor.advance(); })
            return executor.advance();
          else
            return State::kDone;
        },
        operation.executor);
    if (state != State::kDone) return state;
    operation.executed = true;
  }
  if (group().wiring.shape.hosts > 1) {
    const std::uint64_t before = operation.released;
    operation.not_quiet = links_.not_quiet(operation.released);
    if (operation.not_quiet) return operation.released != before ? State::kMoved : State::kBlocked;
  }
  std::visit(
      [&](const auto& executor) {
        if constexpr (requires { executor.cut(); }) tell_cut(call.collective, executor.cut());
      },
      operation.executor);
  if (operation.adopted) tell_adopted(*operation.adopted, call.root);
  return State::kDone;
} catch (const device::ProcessEnded& ended) {
  fail_for(ended);
} catch (const device::DifferentCall& other) {
  // As the root does, from the second round on: in the first receivers do nothing.
  if (operation.adopted || !adopts(operation.call, other, device::CallProgress::kFirstRound)) fail_for(other);
  operation.adopted = std::make_unique<AdoptedBroadcast>(operation.call, other.its().bytes());
  const bool once = other.its().family() == device::CallFamily::kSingleCopy;
  make_executor(operation.executor, once ? Algorithm::kSingleCopy : Algorithm::kCico,
                operation.adopted->call(), device::Begun::kYes);
  return State::kMoved;
}

/// The rank that a blocked operation waits for.
int Execution::awaited_rank(const Operation& operation) const {
  if (operation.executed) return operation.not_quiet.value_or(member_.rank);
  if (const auto* levels = std::get_if<device::HierExecutor>(&operation.executor))
    return rank_at(levels->awaited());
  return std::visit(
      [&](const auto& executor) {
        if constexpr (requires {
                        { executor.awaited() } -> std::convertible_to<int>;
                      })
          return executor.awaited();
        else
          return member_.rank;
      },
      operation.executor);
}

}  // namespace loom
