#include "device/host/chain_executor.hpp"

#include <algorithm>
#include <cstring>

namespace loom::device {

ChainExecutor::ChainExecutor(const RingLinks& links, const ChainJob& job, std::size_t slice_elems)
    : links_(links),
      job_(job),
      slice_elems_(slice_elems),
      action_(chain_action(job.collective, links.position, links.size, job.root)) {}

ChainExecutor::State ChainExecutor::advance() {
  bool moved = false;
  while (done_ < job_.count) {
    const std::size_t count = std::min(slice_elems_, job_.count - done_);
    if (!perform_slice(done_, count)) return moved ? State::kMoved : State::kBlocked;
    done_ += count;
    moved = true;
  }
  return State::kDone;
}

bool ChainExecutor::perform_slice(std::size_t first, std::size_t count) {
  const std::byte* received = nullptr;
  std::byte* sent = nullptr;
  if (receives(action_) && (received = links_.previous->try_receive()) == nullptr) {
    waits_for_previous_ = true;
    return false;
  }
  if (sends(action_) && (sent = links_.next->try_acquire()) == nullptr) {
    waits_for_previous_ = false;
    return false;
  }
  const std::size_t at = first * job_.elem_bytes, bytes = count * job_.elem_bytes;
  switch (action_) {
    case RingAction::kSend:
      std::memcpy(sent, job_.in + at, bytes);
      break;
    case RingAction::kRecvCopySend:
      std::memcpy(job_.out + at, received, bytes);
      std::memcpy(sent, received, bytes);
      break;
    case RingAction::kRecvCopy:
      std::memcpy(job_.out + at, received, bytes);
      break;
    case RingAction::kRecvReduceSend:
      job_.reduce(sent, received, job_.in + at, count);
      break;
    case RingAction::kRecvReduceCopy:
    case RingAction::kRecvReduceCopySend:  // of rings alone
      job_.reduce(job_.out + at, received, job_.in + at, count);
      break;
  }
  if (sent != nullptr) links_.next->publish(bytes);
  if (received != nullptr) links_.previous->release();
  return true;
}

}  // namespace loom::device
