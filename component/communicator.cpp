// communicator.cpp -- the calls. How a communicator comes about is in communicator_setup.cpp.
#include "component/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "component/fifo_shapes.hpp"

namespace loom {

bool Communicator::try_allreduce(const std::byte* in, std::byte* out, std::size_t count, device::Type type,
                                 device::Op op) {
  if (broken_) throw *broken_;
  const device::ReduceFn reduce = device::find_reduce(op, type);
  if (reduce == nullptr) return false;
  const std::size_t elem_bytes = device::size_of(type);
  const Algorithm algorithm = plan_allreduce(wiring_.shape, count * elem_bytes);
  if (process_.runtime().parameters.verbose >= 2) explain(algorithm, count * elem_bytes);
  if (algorithm == Algorithm::kBelow) return false;
  if (count == 0) return true;
  try {
    if (!ready_for(algorithm)) return false;
    perform(algorithm, {device::RingCollective::kAllreduce, in, out, count, elem_bytes, reduce});
  } catch (const Error& error) {
    abandon();
    broken_ = error;
    throw;
  } catch (...) {
    abandon();
    broken_.emplace(ErrorCode::kInternal, "An earlier call on this communicator failed.");
    throw;
  }
  return true;
}

bool Communicator::ready_for(Algorithm algorithm) {
  if (algorithm == Algorithm::kCopy) return true;
  if (linking_) return false;
  if (!linked_) linked_ = link();
  return *linked_;
}

void Communicator::perform(Algorithm algorithm, const device::RingJob& job) {
  using device::RingCollective;
  switch (algorithm) {
    case Algorithm::kCopy:
      if (job.in != job.out) std::memcpy(job.out, job.in, job.count * job.elem_bytes);
      return;
    case Algorithm::kDirect: {
      device::Waiter waiter(wait_policy_);
      try {
        direct_->allreduce(job.in, job.out, job.count, job.elem_bytes, job.reduce, waiter);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kTimeout) throw;
        throw Error(error.code(), fmt::format("{} Waiting for {}.", error.what(), names_.at(direct_->awaited())));
      }
      return;
    }
    case Algorithm::kRing:
      return run_ring(wiring_.local, local_links(), kSharedFifo, job);
    case Algorithm::kFlatRing:
      // It crosses both kinds of link, and all its ranks must cut alike.
      static_assert(kSharedFifo.slot_bytes <= kNetFifo.slot_bytes && kSharedFifo.slot_count <= kNetFifo.slot_count);
      return run_ring(*wiring_.flat, flat_links(), kSharedFifo, job);
    case Algorithm::kRails:
      if (wiring_.local.size == 1) return run_ring(*wiring_.rail, rail_links(), kNetFifo, job);
      return run_rails(job);
    case Algorithm::kBelow:
      break;
  }
  throw Error(ErrorCode::kInternal, "A call that loom had declined was performed.");
}

device::RingLinks Communicator::local_links() const {
  return {wiring_.local.position, wiring_.local.size, local_next_.get(), local_previous_.get()};
}

device::RingLinks Communicator::rail_links() const {
  return {wiring_.rail->position, wiring_.rail->size, net_next_.get(), net_previous_.get()};
}

device::RingLinks Communicator::flat_links() const {
  device::RingLinks links{wiring_.flat->position, wiring_.flat->size, net_next_.get(), net_previous_.get()};
  if (on_my_host(wiring_.flat->next)) links.next = local_next_.get();
  if (on_my_host(wiring_.flat->previous)) links.previous = local_previous_.get();
  return links;
}

/// Performs to the end, and until what was sent needs no further call of ours: the application may not call MPI again
/// for long. `awaited_rank` names whom a blocked executor waits for.
template <class Executor, class PeerOf>
void Communicator::drive(Executor&& executor, PeerOf&& awaited_rank) {
  device::Waiter waiter(wait_policy_);
  const auto drained = [&] { return !net_next_ || net_next_->drained(); };
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
    const int peer = !done ? awaited_rank(executor) : wiring_.rail ? wiring_.rail->next : wiring_.flat->next;
    throw Error(error.code(), fmt::format("{} Waiting for {}.", error.what(), names_.at(peer)));
  }
}

void Communicator::run_ring(const connect::Ring& ring, const device::RingLinks& links, const device::FifoShape& fifo,
                            const device::RingJob& job) {
  const device::Slicing slicing =
      device::slice_ring(job.count, job.elem_bytes, ring.size, fifo.slot_bytes, fifo.slot_count);
  drive(device::RingExecutor(links, job, slicing), [&](const device::RingExecutor& executor) {
    return executor.waits_for_previous() ? ring.previous : ring.next;
  });
}

void Communicator::run_rails(const device::RingJob& job) {
  drive(device::RailsExecutor(local_links(), kSharedFifo, rail_links(), kNetFifo, job),
        [&](const device::RailsExecutor& executor) {
          using Waits = device::RailsExecutor::Waits;
          switch (executor.waits()) {
            case Waits::kOnLocalPrevious: return wiring_.local.previous;
            case Waits::kOnLocalNext: return wiring_.local.next;
            case Waits::kOnRailPrevious: return wiring_.rail->previous;
            case Waits::kOnRailNext: return wiring_.rail->next;
          }
          return rank_;
        });
}

void Communicator::explain(Algorithm algorithm, std::size_t bytes) {
  if (rank_ != 0 || std::find(explained_.begin(), explained_.end(), algorithm) != explained_.end()) return;
  explained_.push_back(algorithm);
  process_.runtime().log(
      fmt::format("{}: allreduce of {} bytes goes by {}", name_, bytes, name_of(algorithm)).c_str());
}

void Communicator::check_peers() const {
  for (const auto& [rank, process] : host_mates_)
    if (!device::is_alive(process))
      throw Error(ErrorCode::kPeerFailed, fmt::format("{} has died.", names_.at(rank)));
}

void Communicator::abandon() noexcept {
  if (direct_) direct_->abandon();
  if (local_next_) local_next_->abandon();
  if (local_previous_) local_previous_->abandon();
  if (net_next_) net_next_->abandon();
  if (net_previous_) net_previous_->abandon();
}

}  // namespace loom
