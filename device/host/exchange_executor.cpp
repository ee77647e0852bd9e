#include "device/host/exchange_executor.hpp"

#include <algorithm>
#include <cstring>

namespace loom::device {

ExchangeExecutor::~ExchangeExecutor() = default;

ExchangeExecutor::ExchangeExecutor(std::span<const PeerLinks> links, int position, std::size_t slot_bytes,
                                   const ExchangeStage& stage)
    : links_(links),
      position_(position),
      size_(static_cast<int>(links.size())),
      stage_(stage),
      tile_elems_(std::max<std::size_t>(1, slot_bytes / stage.elem_bytes)),
      tile_count_(std::min(tile_elems_, stage.count)),
      sum_(stage.reduce == nullptr ? 0 : tile_bytes()) {}

/// The tile of a block.
std::byte* ExchangeExecutor::at(int block) const {
  return stage_.data + (static_cast<std::size_t>(block) * stage_.count + tile_first_) * stage_.elem_bytes;
}

ExchangeExecutor::State ExchangeExecutor::advance() {
  const int others = size_ - 1;
  bool moved = false;
  const auto waiting = [&] { return moved ? State::kMoved : State::kBlocked; };
  while (true) {
    if (sending_) {
      for (; next_ < others; ++next_, moved = true)
        if (!send(step(next_))) return waiting();
      sending_ = false;
      next_ = 0;
    }
    // A position that receives operands in a round receives one from every other position, and nothing else.
    if (step(0).reduces) {
      if (!reduce_in_order()) return waiting();
      moved = true;
    } else {
      for (; next_ < others; ++next_, moved = true)
        if (!receive(step(next_))) return waiting();
    }
    sending_ = true;
    next_ = 0;
    if (++round_ < round_count(stage_.pattern)) continue;
    round_ = 0;
    tile_first_ += tile_count_;
    if (tile_first_ >= stage_.count) return State::kDone;
    tile_count_ = std::min(tile_elems_, stage_.count - tile_first_);
  }
}

bool ExchangeExecutor::send(const Exchange& step) {
  if (step.to < 0) return true;
  SendLink& link = *links_[static_cast<std::size_t>(step.to)].send;
  std::byte* const to = link.try_acquire();
  if (to == nullptr) {
    awaited_ = step.to;
    return false;
  }
  std::memcpy(to, at(step.sent), tile_bytes());
  link.publish(tile_bytes());
  return true;
}

bool ExchangeExecutor::receive(const Exchange& step) {
  if (step.from < 0) return true;
  RecvLink& link = link_from(step.from);
  const std::byte* const received = link.try_receive();
  if (received == nullptr) {
    awaited_ = step.from;
    return false;
  }
  std::memcpy(at(step.received), received, tile_bytes());
  link.release();
  return true;
}

/// All operands of the one block that this position reduces lie in slots of different links, which keep them
/// until they are released.
bool ExchangeExecutor::reduce_in_order() {
  for (int k = 0; k < size_ - 1; ++k) {
    const int from = other_position(position_, k);
    if (link_from(from).try_receive() == nullptr) {
      awaited_ = from;
      return false;
    }
  }
  std::byte* const mine = at(step(0).received);
  const auto operand = [&](int p) { return p == position_ ? mine : link_from(p).try_receive(); };
  const std::byte* so_far = operand(0);
  for (int p = 1; p < size_; ++p, so_far = sum_.data())
    stage_.reduce(sum_.data(), so_far, operand(p), tile_count_);
  std::memcpy(mine, sum_.data(), tile_bytes());
  for (int k = 0; k < size_ - 1; ++k) link_from(other_position(position_, k)).release();
  return true;
}

}  // namespace loom::device
