#include "device/host/tree_executor.hpp"

#include <algorithm>
#include <cstring>

namespace loom::device {

TreeExecutor::TreeExecutor(const TreeLinks& links, const TreeStage& stage, std::size_t slice_elems)
    : links_(links),
      stage_(stage),
      slice_elems_(slice_elems),
      is_root_(links.parent.send == nullptr && links.parent.receive == nullptr) {
  if (stage.collective == TreeCollective::kBroadcast) up_ = stage.count;
  // At the root of an all-reduce, what has come up goes down in the same step.
  if (stage.collective == TreeCollective::kReduce ||
      (stage.collective == TreeCollective::kAllreduce && is_root_))
    down_ = stage.count;
}

TreeExecutor::State TreeExecutor::advance() {
  bool moved = false;
  while (up_ < stage_.count || down_ < stage_.count) {
    const bool went_down = down_ < stage_.count && slice_down();
    const bool went_up = up_ < stage_.count && slice_up();
    if (!went_down && !went_up) return moved ? State::kMoved : State::kBlocked;
    moved = true;
  }
  return State::kDone;
}

std::size_t TreeExecutor::slice(std::size_t done) const {
  return std::min(slice_elems_, stage_.count - done);
}

bool TreeExecutor::slice_up() {
  const std::size_t count = slice(up_), at = up_ * stage_.elem_bytes, bytes = count * stage_.elem_bytes;
  for (int i = 0; i < TreeLinks::kMostChildren; ++i)
    if (RecvLink* link = links_.child[static_cast<std::size_t>(i)].receive;
        link != nullptr && link->try_receive() == nullptr) {
      awaited_ = i;
      return false;
    }
  if (is_root_) {
    const bool returns = stage_.collective == TreeCollective::kAllreduce;
    if (returns && !children_can_take()) return false;
    reduce_children(stage_.out + at, up_, count);
    have(stage_.out + at, bytes);
    if (returns) send_down(stage_.out + at, bytes);
  } else {
    std::byte* const to = links_.parent.send->try_acquire();
    if (to == nullptr) {
      awaited_ = kParent;
      return false;
    }
    reduce_children(to, up_, count);
    links_.parent.send->publish(bytes);
  }
  for (const PeerLinks& child : links_.child)
    if (child.receive != nullptr) child.receive->release();
  up_ += count;
  return true;
}

/// to = mine op first child op second child ...
void TreeExecutor::reduce_children(std::byte* to, std::size_t first, std::size_t count) {
  const std::byte* so_far = stage_.in + first * stage_.elem_bytes;
  need(so_far, count * stage_.elem_bytes);
  for (const PeerLinks& child : links_.child) {
    if (child.receive == nullptr) continue;
    stage_.reduce(to, so_far, child.receive->try_receive(), count);
    so_far = to;
  }
  if (so_far != to) std::memcpy(to, so_far, count * stage_.elem_bytes);
}

bool TreeExecutor::slice_down() {
  const std::size_t count = slice(down_), at = down_ * stage_.elem_bytes, bytes = count * stage_.elem_bytes;
  const std::byte* const from = is_root_ ? operand(at, bytes) : links_.parent.receive->try_receive();
  if (from == nullptr) {
    awaited_ = kParent;
    return false;
  }
  if (!children_can_take()) return false;
  send_down(from, bytes);
  is_packed_ = false;
  if (!is_root_) {
    if (stage_.out_packer != nullptr)
      stage_.out_packer->move(stage_.out_packer->context, 0, const_cast<std::byte*>(from), bytes);
    else {
      std::memcpy(stage_.out + at, from, bytes);
      have(stage_.out + at, bytes);
    }
    links_.parent.receive->release();
  }
  down_ += count;
  return true;
}

/// The root's slice of a broadcast. A non-contiguous one is packed once, although it may be a while until the
/// children can take it.
const std::byte* TreeExecutor::operand(std::size_t at, std::size_t bytes) {
  if (stage_.in_packer == nullptr) {
    need(stage_.in + at, bytes);
    return stage_.in + at;
  }
  if (!is_packed_) {
    packed_.resize(bytes);
    stage_.in_packer->move(stage_.in_packer->context, 0, packed_.data(), bytes);
    is_packed_ = true;
  }
  return packed_.data();
}

bool TreeExecutor::children_can_take() {
  for (int i = 0; i < TreeLinks::kMostChildren; ++i)
    if (SendLink* link = links_.child[static_cast<std::size_t>(i)].send;
        link != nullptr && link->try_acquire() == nullptr) {
      awaited_ = i;
      return false;
    }
  return true;
}

void TreeExecutor::send_down(const std::byte* from, std::size_t bytes) {
  for (const PeerLinks& child : links_.child) {
    if (child.send == nullptr) continue;
    std::memcpy(child.send->try_acquire(), from, bytes);
    child.send->publish(bytes);
  }
}

}  // namespace loom::device
