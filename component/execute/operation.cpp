// operation.cpp -- what performs a call, and the steps of an operation, whoever drives it.
#include "component/execute/operation.hpp"

#include <concepts>
#include <utility>

#include "component/communicator.hpp"

namespace loom {

using device::Collective;

/// For the algorithms that have executors: all but a copy, and an immediate exchange, which waits.
void Communicator::make_executor(Executor& executor, Algorithm algorithm, const device::Call& call,
                                 device::Begun begun) {
  switch (algorithm) {
    case Algorithm::kCico:
      if (device::lists_blocks(call.collective) || call.collective == Collective::kBarrier)
        executor.emplace<device::CicoBlocksExecutor>(*links_.cico, call);
      else if (call.collective == Collective::kScan || call.collective == Collective::kExscan)
        executor.emplace<device::CicoScanExecutor>(*links_.cico, call);
      else
        executor.emplace<device::CicoExecutor>(*links_.cico, call, begun);
      return;
    case Algorithm::kSingleCopy:
      executor.emplace<device::SingleCopyExecutor>(*links_.cico, links_.pids, call, begun);
      return;
    case Algorithm::kHier:
      executor.emplace<device::HierExecutor>(levels(), call);
      return;
    case Algorithm::kRing:
      if (device::SplitRailExecutor::takes(call.collective))
        executor.emplace<device::SplitRailExecutor>(grid(), call);
      else
        executor.emplace<device::RootedExecutor>(rooted(call));
      return;
    case Algorithm::kDbt:
      executor.emplace<device::DbtExecutor>(over_trees(call));
      return;
    case Algorithm::kPairwise:
      executor.emplace<device::PairwiseExecutor>(pairwise(), call);
      return;
    case Algorithm::kHostDriven:
      executor.emplace<device::cuda::HostDrivenExecutor>(links_.gpus->cico(), call);
      return;
    case Algorithm::kKernel:
      executor.emplace<device::cuda::KernelExecutor>(*links_.gpus, call, rank_, group_->wiring.shape.ranks);
      return;
    case Algorithm::kCopy:
    case Algorithm::kImmediate:
    case Algorithm::kFallback:
      break;
  }
  throw Error(ErrorCode::kInternal, "There is no executor for a call that was planned.");
}

/// As far as it goes without waiting.
State Communicator::advance(Operation& operation) try {
  const device::Call& call = operation.call;
  if (operation.algorithm == Algorithm::kCopy) {
    copy_alone(call);
    return State::kDone;
  }
  if (!operation.executed) {
    if (operation.executor.index() == 0) {
      if (device::is_empty(call)) return State::kDone;
      if (group_->wiring.shape.hosts > 1) links_.enter(note_between_hosts(call));
      make_executor(operation.executor, operation.algorithm, call, device::Begun::kNo);
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
  const std::uint64_t before = operation.released;
  operation.not_quiet = links_.not_quiet(operation.released);
  if (operation.not_quiet) return operation.released != before ? State::kMoved : State::kBlocked;
  if (const auto* blocks = std::get_if<device::CicoBlocksExecutor>(&operation.executor))
    tell_cut(call.collective, blocks->cut());
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
int Communicator::awaited_rank(const Operation& operation) const {
  if (operation.executed) return operation.not_quiet.value_or(rank_);
  if (const auto* levels = std::get_if<device::HierExecutor>(&operation.executor))
    return rank_at(levels->awaited());
  return std::visit(
      [&](const auto& executor) {
        if constexpr (requires {
                        { executor.awaited() } -> std::convertible_to<int>;
                      })
          return executor.awaited();
        else
          return rank_;
      },
      operation.executor);
}

}  // namespace loom
