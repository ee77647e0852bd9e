// communicator.cpp -- the calls. How a communicator comes about is in communicator_setup.cpp.
#include "component/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "component/shared_layout.hpp"

namespace loom {

/// The algorithm that has carried the call; nothing: it is declined.
std::optional<Algorithm> Communicator::try_perform(const device::HostJob& job) {
  using device::Collective;
  if (!jobs_.empty()) [[unlikely]]
    finish_jobs();
  if (broken_) throw *broken_;
  if (device::is_reduction(job.collective) && job.reduce == nullptr) return {};
  try {
    const Algorithm algorithm = ready_plan(job);
    explain(algorithm, job);
    if (algorithm == Algorithm::kBelow) return {};
    // Where sizes differ from rank to rank, nobody knows alone that there is nothing to do.
    const bool nothing =
        job.count == 0 && job.collective != Collective::kBarrier && !device::lists_blocks(job.collective);
    if (!nothing) perform_by(algorithm, job);
    return algorithm;
  } catch (const Error& error) {
    links_.abandon();
    broken_ = error;
    throw;
  } catch (...) {
    links_.abandon();
    broken_.emplace(ErrorCode::kInternal, "An earlier call on this communicator failed.");
    throw;
  }
}

void Communicator::count(const device::HostJob& job, std::optional<Algorithm> carried) noexcept {
  CallCounters::Counts& counts = calls_[job.collective];
  if (carried) {
    calls_.add(counts.by[static_cast<std::size_t>(*carried)], 1);
    calls_.add(counts.bytes, job.bytes());
  } else if (!linking_) {
    const bool reduces = device::is_reduction(job.collective);
    const Fallback reason = reduces && job.reduce == nullptr ? Fallback::kNoKernel
                            : linked_ == false               ? Fallback::kNotConnected
                                                             : Fallback::kNotBetter;
    calls_.add(counts.fallbacks[static_cast<std::size_t>(reason)], 1);
  }
}

/// The plan, once what it needs is there. Whether all ranks may read each other's memory is known with the
/// links.
Algorithm Communicator::ready_plan(const device::HostJob& job) {
  const auto planned = [&] { return plan(job.collective, group_->wiring.shape, job.bytes(), abilities()); };
  const Algorithm first = planned();
  if (first == Algorithm::kBelow || first == Algorithm::kCopy) return first;
  return is_linked() ? planned() : Algorithm::kBelow;
}

/// Makes the links at its first call.
bool Communicator::is_linked() {
  if (linking_) return false;
  if (!linked_) linked_ = link();
  return *linked_;
}

/// A single rank's call.
void Communicator::perform_alone(const device::HostJob& job) {
  using device::Collective;
  const bool moves = device::lists_blocks(job.collective) || job.collective == Collective::kAllGather ||
                     job.collective == Collective::kAllToAll;
  if (moves) return device::move_own_block(job, 0);
  if (!device::is_reduction(job.collective) || job.collective == Collective::kExscan) return;
  if (job.in != job.out && job.count > 0) std::memcpy(job.out, job.in, job.bytes());
}

void Communicator::perform_by(Algorithm algorithm, const device::HostJob& job) {
  const device::RingJob ring_job{
      device::RingCollective::kAllreduce, job.in, job.out, job.count, job.elem_bytes, job.reduce};
  switch (algorithm) {
    case Algorithm::kCopy:
      return perform_alone(job);
    case Algorithm::kDirect: {
      device::Waiter waiter(wait_policy_);
      try {
        if (job.in_gaps == nullptr && job.out_gaps == nullptr) [[likely]]
          links_.direct->perform(job, waiter);
        else
          perform_directly(job, waiter);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kTimeout) throw;
        throw Error(error.code(), fmt::format("{} Waiting for {}.", error.what(),
                                              group_->names.at(links_.direct->awaited())));
      }
      return;
    }
    case Algorithm::kBoards:
      return drive(device::BoardExecutor(*links_.boards, job),
                   [](const device::BoardExecutor& executor) { return executor.awaited(); });
    case Algorithm::kSingleCopy:
      return drive(device::SingleCopyExecutor(*links_.boards, links_.pids, job),
                   [](const device::SingleCopyExecutor& executor) { return executor.awaited(); });
    case Algorithm::kBlocks:
      return drive(device::BlockExecutor(*links_.boards, job),
                   [](const device::BlockExecutor& executor) { return executor.awaited(); });
    case Algorithm::kScan:
      return drive(device::ScanExecutor(*links_.boards, job),
                   [](const device::ScanExecutor& executor) { return executor.awaited(); });
    case Algorithm::kFlatRing:
      // It crosses both kinds of link, and all its ranks must cut alike.
      static_assert(kSharedFifo.slot_bytes <= kNetFifo.slot_bytes &&
                    kSharedFifo.slot_count <= kNetFifo.slot_count);
      return run_ring(*group_->wiring.flat, flat_links(), kSharedFifo, ring_job);
    case Algorithm::kTwoLevels:
      return run_two_levels(job);
    case Algorithm::kRails:
      if (group_->wiring.local.size == 1)
        return run_ring(*group_->wiring.rail, rail_links(), kNetFifo, ring_job);
      return run_rails(ring_job);
    case Algorithm::kBelow:
      break;
  }
  throw Error(ErrorCode::kInternal, "A call that loom had declined was performed.");
}

device::RingLinks Communicator::local_links() const {
  return {group_->wiring.local.position, group_->wiring.local.size, links_.local_next.get(),
          links_.local_previous.get()};
}

device::RingLinks Communicator::rail_links() const {
  return {group_->wiring.rail->position, group_->wiring.rail->size, links_.net_next.get(),
          links_.net_previous.get()};
}

device::RingLinks Communicator::flat_links() const {
  device::RingLinks links{group_->wiring.flat->position, group_->wiring.flat->size, links_.net_next.get(),
                          links_.net_previous.get()};
  if (on_my_host(group_->wiring.flat->next)) links.next = links_.local_next.get();
  if (on_my_host(group_->wiring.flat->previous)) links.previous = links_.local_previous.get();
  return links;
}

/// Performs to the end, and until nothing of it needs a further call of ours: the application may not call
/// MPI again for long. `awaited_rank` names whom a blocked executor waits for.
template <class Executor, class PeerOf>
void Communicator::drive(Executor&& executor, PeerOf&& awaited_rank) {
  device::Waiter waiter(wait_policy_);
  std::uint64_t released = 0;
  const auto drained = [&] {
    const std::uint64_t before = released;
    const bool quiet = network_is_quiet(released);
    if (released != before) waiter.moved();
    return quiet;
  };
  bool done = false;
  try {
    while (!done || !drained()) {
      const auto state = done ? device::RingExecutor::State::kBlocked : executor.advance();
      done |= state == device::RingExecutor::State::kDone;
      if (state == device::RingExecutor::State::kMoved) waiter.moved();
      if (state == device::RingExecutor::State::kBlocked) waiter.pause();
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    const int peer = !done                 ? awaited_rank(executor)
                     : group_->wiring.rail ? group_->wiring.rail->next
                                           : group_->wiring.flat->next;
    throw Error(error.code(), fmt::format("{} Waiting for {}.", error.what(), group_->names.at(peer)));
  }
}

/// Whether nothing that this rank has sent depends on its calling MPI again. `released` counts what its peers
/// have taken.
bool Communicator::network_is_quiet(std::uint64_t& released) const {
  for (const Links::HostLinks& links : links_.host_links)
    if (links.send && !(links.send->handed_over() && links.receive->handed_over())) return false;
  if (links_.net_previous && !links_.net_previous->handed_over()) return false;
  if (!links_.net_next) return true;
  released = links_.net_next->released();
  return links_.net_next->drained();
}

void Communicator::run_ring(const connect::Ring& ring, const device::RingLinks& links,
                            const device::FifoShape& fifo, const device::RingJob& job) {
  const device::Slicing slicing =
      device::slice_ring(job.count, job.elem_bytes, ring.size, fifo.slot_bytes, fifo.slot_count);
  drive(device::RingExecutor(links, job, slicing),
        [&](const device::RingExecutor& executor) { return ring_peer(executor, ring); });
}

void Communicator::run_rails(const device::RingJob& job) {
  drive(device::RailsExecutor(local_links(), kSharedFifo, rail_links(), kNetFifo, job),
        [&](const device::RailsExecutor& executor) { return rails_peer(executor); });
}

int Communicator::rails_peer(const device::RailsExecutor& executor) const {
  using Waits = device::RailsExecutor::Waits;
  switch (executor.waits()) {
    case Waits::kOnLocalPrevious:
      return group_->wiring.local.previous;
    case Waits::kOnLocalNext:
      return group_->wiring.local.next;
    case Waits::kOnRailPrevious:
      return group_->wiring.rail->previous;
    case Waits::kOnRailNext:
      return group_->wiring.rail->next;
  }
  return rank_;
}

void Communicator::run_two_levels(const device::HostJob& job) {
  drive(device::TwoLevelExecutor(levels_of(job), job),
        [&](const device::TwoLevelExecutor& executor) { return rank_at(executor.awaited()); });
}

device::TwoLevels Communicator::levels_of(const device::HostJob& job) {
  const auto place_of = [&](int rank) -> device::HostAndLocal {
    return {group_->placement.node_of(rank), group_->placement.local_of(rank)};
  };
  return {.boards = links_.boards ? &*links_.boards : nullptr,
          .self = place_of(rank_),
          .root = place_of(job.root),
          .rank = rank_,
          .hosts = group_->wiring.shape.hosts,
          .links = links_.hosts,
          .slot_bytes = kHostsFifo.slot_bytes,
          .ranks = group_->ranks_by_host};
}

void Communicator::explain(Algorithm algorithm, const device::HostJob& job) {
  if (process_.runtime().parameters.verbose < 2 || rank_ != 0) return;
  const std::pair kind{job.collective, algorithm};
  if (std::find(explained_.begin(), explained_.end(), kind) != explained_.end()) return;
  explained_.push_back(kind);
  process_.runtime().log(fmt::format("{}: {} of {} bytes goes by {}", bootstrap_.name(),
                                     name_of(job.collective), job.bytes(), name_of(algorithm))
                             .c_str());
}

void Communicator::check_peers() const {
  for (const auto& [rank, process] : group_->host_mates)
    if (!device::is_alive(process))
      throw Error(ErrorCode::kPeerFailed, fmt::format("{} has died.", group_->names.at(rank)));
}

}  // namespace loom
