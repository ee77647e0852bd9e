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
  const bool returns = is_root_ && stage_.collective == TreeCollective::kAllreduce;
  if (returns && !children_can_take()) return false;
  std::byte* const to = is_root_ ? stage_.out + at : links_.parent.send->try_acquire();
  if (to == nullptr) {
    awaited_ = kParent;
    return false;
  }
  if (!reduce_children(to, count)) return false;
  if (!is_root_)
    links_.parent.send->publish(bytes);
  else
    have(to, bytes);
  if (returns) {
    fill_children(to, bytes);
    publish_to_children(bytes);
  }
  up_ += count;
  return true;
}

/// to = mine op first child op second child ... false: one of them has not sent yet.
bool TreeExecutor::reduce_children(std::byte* to, std::size_t count) {
  const std::byte* const mine = stage_.in + up_ * stage_.elem_bytes;
  const auto child_of = [&](int i) { return links_.child[static_cast<std::size_t>(i)].receive; };
  int children = 0, last = 0;
  for (int i = 0; i < TreeLinks::kMostChildren; ++i)
    if (child_of(i) != nullptr) ++children, last = i;
  const std::size_t bytes = count * stage_.elem_bytes;
  if (children == 1) {
    need(mine, bytes);
    const auto reduce = [&](const std::byte* received) { stage_.reduce(to, mine, received, count); };
    awaited_ = last;
    return child_of(last)->try_consume(bytes, Consumer(reduce));
  }
  for (int i = 0; i < TreeLinks::kMostChildren; ++i)
    if (child_of(i) != nullptr && child_of(i)->try_receive() == nullptr) {
      awaited_ = i;
      return false;
    }
  need(mine, bytes);
  const std::byte* so_far = mine;
  for (const PeerLinks& child : links_.child) {
    if (child.receive == nullptr) continue;
    stage_.reduce(to, so_far, child.receive->try_receive(), count);
    so_far = to;
    child.receive->release();
  }
  if (so_far != to) std::memcpy(to, so_far, bytes);
  return true;
}

bool TreeExecutor::slice_down() {
  const std::size_t count = slice(down_), at = down_ * stage_.elem_bytes, bytes = count * stage_.elem_bytes;
  const std::byte* const own = is_root_ ? operand(at, bytes) : nullptr;
  if (!children_can_take()) return false;
  awaited_ = kParent;
  if (is_root_) {
    fill_children(own, bytes);
    is_packed_ = false;
  } else if (stage_.out_packer == nullptr) {
    std::byte* const to = stage_.out + at;
    const auto spread = [&](const std::byte* received) {
      fill_children(received, bytes);
      std::memcpy(to, received, bytes);
    };
    if (!links_.parent.receive->try_consume(bytes, Consumer(spread))) return false;
    have(to, bytes);
  } else {  // which may take long
    const std::byte* const received = links_.parent.receive->try_receive();
    if (received == nullptr) return false;
    fill_children(received, bytes);
    stage_.out_packer->move(stage_.out_packer->context, 0, const_cast<std::byte*>(received), bytes);
    links_.parent.receive->release();
  }
  publish_to_children(bytes);
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
  for (int i = 0; i < TreeLinks::kMostChildren; ++i) {
    SendLink* const link = links_.child[static_cast<std::size_t>(i)].send;
    if (link == nullptr) continue;
    std::byte*& slot = slots_[static_cast<std::size_t>(i)];
    slot = link->try_acquire();
    if (slot == nullptr) {
      awaited_ = i;
      return false;
    }
  }
  return true;
}

void TreeExecutor::fill_children(const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (links_.child[i].send != nullptr) std::memcpy(slots_[i], from, bytes);
}

void TreeExecutor::publish_to_children(std::size_t bytes) {
  for (const PeerLinks& child : links_.child)
    if (child.send != nullptr) child.send->publish(bytes);
}

}  // namespace loom::device
