// communicator_gpus.cpp -- calls whose buffers lie on GPUs on all ranks, and stay there. Whether they do is a
// fact of each rank; a round of flags makes it a shared one, and every verdict of the set-up likewise.
#include <fmt/format.h>

#include <algorithm>

#include "component/communicator.hpp"

namespace loom {

using device::Collective;
using device::cuda::GpuLinks;
using device::cuda::Owner;

/// As far as that is known to all: then the ranks ask each other for the rest.
bool Communicator::goes_on_device(const device::HostJob& job, device::Op op, device::Type type) const {
  const connect::Shape& shape = group_->wiring.shape;
  if (group_->cuda_executor == LOOM_STAGED || shape.hosts > 1 || shape.ranks == 1) return false;
  const bool takes = group_->cuda_executor == LOOM_HANDED_OVER
                         ? device::cuda::HandedOverExecutor::takes(job.collective)
                         : device::cuda::persistent_way(job.collective, 1, shape.ranks).has_value();
  if (!takes || links_.has_gpus == false) return false;
  if (device::is_reduction(job.collective) && !device::cuda::Gpu::supports(op, type)) return false;
  return device::shared_bytes(job, shape.ranks) >= std::max<std::uint64_t>(1, group_->small_bytes);
}

bool Communicator::perform_on_device(const device::HostJob& job, device::Op op, device::Type type) {
  const bool hands_over = group_->cuda_executor == LOOM_HANDED_OVER;
  const Algorithm algorithm = hands_over ? Algorithm::kHandedOver : Algorithm::kPersistent;
  if (linking_ || !goes_on_device(job, op, type)) return false;
  if (!jobs_.empty()) finish_jobs();
  if (broken_) throw *broken_;
  try {
    if (!is_linked()) return false;
    const std::optional<Owner> owner = gpu_of(job);
    if (!holds_everywhere(owner.has_value())) return false;
    if (!links_.has_gpus) links_.has_gpus = make_gpu_links(*owner);
    if (!*links_.has_gpus) return false;
    explain(algorithm, job);
    if (hands_over)
      perform_handed_over(job, op, type);
    else
      perform_persistent(job, op, type);
  } catch (...) {
    fail_call();
  }
  count(job, algorithm);
  return true;
}

/// Whose the buffers are that matter on this rank, if they are contiguous, of one GPU, and of the one that
/// the links are on.
std::optional<Owner> Communicator::gpu_of(const device::HostJob& job) {
  const bool bcast = job.collective == Collective::kBroadcast, is_root = job.root == rank_;
  const bool reads = !bcast || is_root,
             writes = bcast ? !is_root : job.collective != Collective::kReduce || is_root;
  std::optional<Owner> owner;
  const auto is_there = [&](const std::byte* buffer, const device::Gaps* gaps) {
    if (gaps != nullptr) return false;
    const std::optional<Owner> found = process_.staging()->driver().owner_of(buffer);
    if (!found || (owner && (found->device != owner->device || found->context != owner->context)))
      return false;
    owner = found;
    return true;
  };
  try {
    if ((reads && !is_there(job.in, job.in_gaps)) || (writes && !is_there(job.out, job.out_gaps))) return {};
    if (links_.gpus && !(links_.gpus->gpu().is_of(*owner) && links_.gpus->is_alive())) return {};
  } catch (const Error&) {  // who stages the buffer finds out again, and says so
    return {};
  }
  return owner;
}

/// On all ranks, the same answer to all.
bool Communicator::holds_everywhere(bool here) {
  const auto mine = static_cast<std::byte>(here);
  std::byte all{};
  device::Waiter waiter(wait_policy_);
  try {
    links_.direct->perform({.collective = Collective::kAllreduce,
                            .in = &mine,
                            .out = &all,
                            .count = 1,
                            .elem_bytes = 1,
                            .reduce = device::find_reduce(device::Op::kMin, device::Type::kUint8)},
                           waiter);
  } catch (...) {
    fail_direct();
  }
  return all != std::byte{0};
}

/// Whether body() is true on all ranks; what it throws is told, and is a no.
template <class Body>
bool Communicator::try_everywhere(Body&& body) {
  bool here = false;
  try {
    here = body();
  } catch (const std::exception& error) {
    if (process_.runtime().parameters.verbose >= 1)
      without_failing([&] {
        process_.runtime().log(
            fmt::format("{}: device buffers go through the host: {}", where_, error.what()).c_str());
      });
  }
  return holds_everywhere(here);
}

/// Memory of the GPUs that all reach; true on every rank or on none.
bool Communicator::make_gpu_links(const Owner& owner) {
  std::vector<GpuLinks::Handle> handles;
  GpuLinks::Handle mine;
  const auto make = [&] {
    handles.resize(static_cast<std::size_t>(bootstrap_.size()));
    links_.gpus = std::make_unique<GpuLinks>(
        process_.gpu(owner),
        group_->cuda_executor == LOOM_HANDED_OVER ? GpuLinks::Kind::kHandedOver : GpuLinks::Kind::kPersistent,
        bootstrap_.size());
    mine = links_.gpus->handle();
    return true;
  };
  const auto gather = [&] {
    const device::HostJob job{.collective = Collective::kAllGather,
                              .in = reinterpret_cast<const std::byte*>(&mine),
                              .out = reinterpret_cast<std::byte*>(handles.data()),
                              .count = sizeof(mine)};
    perform_by(plan(job.collective, group_->wiring.shape, sizeof(mine), abilities()), job);
    return true;
  };
  const auto connect = [&] {
    links_.gpus->connect(handles, rank_);
    return true;
  };
  const auto deliver = [&] {
    if (!links_.gpus->delivers())
      throw Error(ErrorCode::kDevice, "what other ranks write to their GPUs cannot be read from this one.");
    return true;
  };
  if (try_everywhere(make) && gather() && try_everywhere(connect) && try_everywhere(deliver)) return true;
  if (links_.gpus) process_.retire(std::move(links_.gpus));
  return false;
}

/// The kernel waits for those of the other ranks; meanwhile this waits for it, and looks after its peers.
void Communicator::perform_persistent(const device::HostJob& job, device::Op op, device::Type type) {
  device::cuda::PersistentLinks& links = links_.gpus->persistent();
  const int ranks = group_->wiring.shape.ranks;
  const auto way = device::cuda::persistent_way(job.collective, job.bytes(), ranks);
  device::steps::Task task = device::cuda::divide(*way, job.count, job.elem_bytes, ranks);
  task.root = job.root;
  task.in = job.in;
  task.out = job.out;
  const bool reduces = device::is_reduction(job.collective);
  links.start(task, reduces ? std::optional(op) : std::nullopt, reduces ? type : device::Type::kUint8,
              way->channels);
  device::Waiter waiter(wait_policy_);
  try {
    while (!links.has_ended()) {
      links_.gpus->check_peers();
      waiter.pause();
    }
  } catch (...) {  // nobody may use the buffers while a kernel does
    links.abandon();
    links.finish();
    throw;
  }
  if (!links.finish()) throw Error(ErrorCode::kGivenUp, "A kernel was told to give up.");
}

}  // namespace loom
