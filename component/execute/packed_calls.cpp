#include "component/execute/packed_calls.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "component/setup/member.hpp"

namespace loom {

PackedCalls::Lease PackedCalls::lend(const device::Call& call, int rank, int ranks, bool may_wait) {
  Lease lease(nullptr, Return{this});
  if (call.in_packer == nullptr && call.out_packer == nullptr) return lease;
  std::unique_ptr<PackedCall> lent;
  std::vector<std::unique_ptr<PackedCall>> surplus;  // freed when nobody holds the lock
  {
    const MutexLock lock(mutex_);
    while (may_wait && idle_.size() > kMost) {
      surplus.push_back(std::move(idle_.back()));
      idle_.pop_back();
    }
    if (!idle_.empty()) {
      lent = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!lent) lent = std::make_unique<PackedCall>(process_, bytes_);
  bool ready = lent->prepare(call, rank, ranks, may_wait);
  if (!ready && may_wait && lent->lacks_room()) {
    drop_idle(lent->needs());
    ready = lent->prepare(call, rank, ranks, may_wait);
  }
  if (ready)
    lease.reset(lent.release());
  else
    take_back(std::move(lent));
  return lease;
}

PackedCalls::Lease PackedCalls::lend_without_freeing(const device::Call& call, int rank, int ranks) {
  Lease lease(nullptr, Return{this});
  if (call.in_packer == nullptr && call.out_packer == nullptr) return lease;
  std::vector<std::unique_ptr<PackedCall>> idle;
  auto made = std::make_unique<PackedCall>(process_, bytes_);
  {
    const MutexLock lock(mutex_);
    idle_.reserve(idle_.size() + 1);
    idle.swap(idle_);
  }
  const auto fits = std::ranges::find_if(
      idle, [&](const std::unique_ptr<PackedCall>& each) { return each->prepare(call, rank, ranks, false); });
  if (fits != idle.end()) {
    lease.reset(fits->release());
    idle.erase(fits);
  } else if (made->prepare(call, rank, ranks, true)) {
    lease.reset(made.release());
  } else if (made->holds() > 0) {
    idle.push_back(std::move(made));  // there is room
  }
  const MutexLock lock(mutex_);
  idle_.swap(idle);
  for (std::unique_ptr<PackedCall>& each : idle) idle_.push_back(std::move(each));
  return lease;
}

/// One whose call has failed may still be at work: to end it waits for that.
void PackedCalls::take_back(std::unique_ptr<PackedCall> call) noexcept {
  without_failing([&] {
    if (call->has_lost_gpu() || !call->is_done()) return;
    const MutexLock lock(mutex_);
    std::vector<std::unique_ptr<PackedCall>>& kept = call->lacks() ? lacking_ : idle_;
    // To free memory may wait for the GPU, and this may not.
    if (kept.size() < kMost || call->holds() > 0) kept.push_back(std::move(call));
  });
}

/// Those that hold less: one that lacks room shall have theirs. Equal ones keep theirs, else calls of one
/// size that are too many at once would take it from each other.
void PackedCalls::drop_idle(std::size_t below) {
  std::vector<std::unique_ptr<PackedCall>> dropped;  // before the lock, so that they are freed after it
  const MutexLock lock(mutex_);
  for (std::unique_ptr<PackedCall>& each : idle_)
    if (each->holds() < below) dropped.push_back(std::move(each));
  std::erase(idle_, nullptr);
}

bool PackedCalls::lack() const {
  const MutexLock lock(mutex_);
  return !lacking_.empty();
}

void PackedCalls::make_ready(const std::function<bool(const PackedCall&)>& may_wait_for_gpu) {
  std::vector<std::unique_ptr<PackedCall>> lacking;
  {
    const MutexLock lock(mutex_);
    lacking.swap(lacking_);
  }
  for (std::unique_ptr<PackedCall>& each : lacking)
    if (may_wait_for_gpu(*each)) {
      if (!each->make_ready() && each->lacks_room()) {
        drop_idle(each->needs());
        each->make_ready();
      }
      take_back(std::move(each));
    } else if (each->holds() > 0) {  // which to free may wait, too
      const MutexLock lock(mutex_);
      idle_.push_back(std::move(each));
    }
}

}  // namespace loom
