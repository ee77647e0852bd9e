#include "device/host/exchange_executor.hpp"

#include <algorithm>
#include <cstring>

#include "device/host/pipeline.hpp"

namespace loom::device {

ExchangeExecutor::~ExchangeExecutor() = default;

ExchangeExecutor::ExchangeExecutor(std::span<const PeerLinks> links, int position, std::size_t slot_bytes,
                                   const ExchangeStage& stage)
    : links_(links),
      position_(position),
      size_(static_cast<int>(links.size())),
      stage_(stage),
      tile_elems_(
          cut_evenly(stage.count, stage.elem_bytes, std::max<std::size_t>(1, slot_bytes / stage.elem_bytes))),
      sum_(stage.reduce == nullptr || size_ == 2 || stage.in != nullptr ? 0 : elems(0) * stage.elem_bytes) {}

/// A link's slots are sent in the order in which they are received: tile by tile, and in each by rounds. In a
/// first round nothing is sent that the call changes before.
ExchangeExecutor::State ExchangeExecutor::advance() {
  bool moved = false;
  while (!all_sent_ || !all_received_) {
    const bool sent = send(), received = receive();
    if (!sent && !received) return moved ? State::kMoved : State::kBlocked;
    moved = true;
  }
  return State::kDone;
}

/// false: this was the last one of all.
bool ExchangeExecutor::next_round(Place& place) const {
  if (++place.round < round_count(stage_.pattern)) return true;
  place.round = 0;
  place.first += elems(place.first);
  return place.first < stage_.count;
}

/// As much as there is room for. false: nothing.
bool ExchangeExecutor::send() {
  bool moved = false;
  while (!all_sent_ && may_send()) {
    for (; next_to_ < size_ - 1; ++next_to_, moved = true) {
      const Exchange exchange = step(sent_, next_to_);
      if (exchange.to < 0) continue;
      SendLink& link = *links_[static_cast<std::size_t>(exchange.to)].send;
      std::byte* const to = link.try_acquire();
      if (to == nullptr) {
        awaited_ = exchange.to;
        return moved;
      }
      const std::size_t bytes = elems(sent_.first) * stage_.elem_bytes;
      const std::byte* const from = given(exchange.sent, sent_.first);
      if (stage_.streaming != nullptr && sent_.round == 0) stage_.streaming->need(from, bytes);
      std::memcpy(to, from, bytes);
      link.publish(bytes);
    }
    next_to_ = 0;
    all_sent_ = !next_round(sent_);
  }
  return moved;
}

/// As much as has come. false: nothing. A position that receives operands in a round receives one from every
/// other position, and nothing else.
bool ExchangeExecutor::receive() {
  bool moved = false;
  while (!all_received_ && may_receive()) {
    if (step(received_, 0).reduces && size_ > 2) {
      if (!reduce_in_order()) return moved;
      moved = true;
    } else {
      for (; next_from_ < size_ - 1; ++next_from_, moved = true)
        if (!receive_one(step(received_, next_from_))) return moved;
    }
    next_from_ = 0;
    all_received_ = !next_round(received_);
  }
  return moved;
}

/// From the one position that something comes from, or to be copied.
bool ExchangeExecutor::receive_one(const Exchange& step) {
  if (step.from < 0) return true;
  const std::size_t first = received_.first, count = elems(first), bytes = count * stage_.elem_bytes;
  std::byte* const to = at(step.received, first);
  const auto take = [&](const std::byte* received) {
    if (!step.reduces)
      std::memcpy(to, received, bytes);
    else if (step.from < position_)
      stage_.reduce(to, received, given(step.received, first), count);
    else
      stage_.reduce(to, given(step.received, first), received, count);
  };
  if (!link_from(step.from).try_consume(bytes, Consumer(take))) {
    awaited_ = step.from;
    return false;
  }
  if (stage_.streaming != nullptr) stage_.streaming->have(to, bytes);
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
  const int block = step(received_, 0).received;
  const std::size_t first = received_.first, count = elems(first);
  std::byte* const mine = at(block, first);
  std::byte* const sum = stage_.in != nullptr ? mine : sum_.data();
  const auto operand = [&](int p) {
    return p == position_ ? given(block, first) : link_from(p).try_receive();
  };
  const std::byte* so_far = operand(0);
  for (int p = 1; p < size_; ++p, so_far = sum) stage_.reduce(sum, so_far, operand(p), count);
  if (sum != mine) std::memcpy(mine, sum, count * stage_.elem_bytes);
  if (stage_.streaming != nullptr) stage_.streaming->have(mine, count * stage_.elem_bytes);
  for (int k = 0; k < size_ - 1; ++k) link_from(other_position(position_, k)).release();
  return true;
}

}  // namespace loom::device
