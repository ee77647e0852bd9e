#include "device/host/exchange_executor.hpp"

#include <algorithm>
#include <cstring>

namespace loom::device {
namespace {

/// Blocks of the longest message of a pattern; at least 1.
int longest_message(Pattern pattern, int size) {
  switch (pattern) {
    case Pattern::kHalvingReduceScatter:
    case Pattern::kDoublingAllGather:
    case Pattern::kBruckAllGather:
      return std::max(1, size / 2 + size % 2);
    default:
      return 1;
  }
}

/// Direct reductions: a position meets all operands of a block at once, and takes them in order.
bool reduces_directly(Pattern pattern, int step, int size) {
  switch (pattern) {
    case Pattern::kOneShotAllreduce:
    case Pattern::kDirectReduceScatter:
    case Pattern::kDirectReduce:
      return true;
    case Pattern::kTwoShotAllreduce:
      return step < size - 1;
    default:
      return false;
  }
}

/// What a position has of the result before anything has come.
Blocks own_blocks(Pattern pattern, int position, int size) {
  switch (pattern) {
    case Pattern::kDoublingAllGather:
    case Pattern::kBruckAllGather:
    case Pattern::kDirectAllGather:
    case Pattern::kPairwiseAllToAll:
    case Pattern::kGather:
    case Pattern::kScatter:
      return {position, 1};
    default:
      return {0, block_count(pattern, size)};
  }
}

}  // namespace

ExchangeExecutor::~ExchangeExecutor() = default;

ExchangeExecutor::ExchangeExecutor(std::span<const PeerLinks> links, int position, std::size_t slot_bytes,
                                   const ExchangeStage& stage)
    : links_(links),
      position_(position),
      size_(static_cast<int>(links.size())),
      stage_(stage),
      blocks_(block_count(stage.pattern, size_)),
      phase_steps_(independent_steps(stage.pattern, size_)) {
  const auto longest = static_cast<std::size_t>(longest_message(stage.pattern, size_));
  tile_elems_ = std::max<std::size_t>(1, slot_bytes / longest / stage.elem_bytes);
  tile_.count = std::min(tile_elems_, stage.count);
  sum_.resize(stage.reduce == nullptr ? 0 : tile_.count * stage.elem_bytes);
  begin_tile();
}

std::byte* ExchangeExecutor::at(std::byte* blocks, int block) const {
  return blocks + (static_cast<std::size_t>(block) * stage_.count + tile_.first) * stage_.elem_bytes;
}

void ExchangeExecutor::begin_tile() {
  phase_ = step_ = 0;
  sending_ = true;
  if (stage_.in == stage_.out || blocks_ == 0) return;
  const bool is_given = stage_.pattern == Pattern::kDirectBroadcast || stage_.pattern == Pattern::kScatter;
  if (is_given && position_ != stage_.root) return;
  const Blocks own = own_blocks(stage_.pattern, position_, size_);
  for (int block = own.first; block < own.first + own.count; ++block)
    std::memcpy(at(stage_.out, block), at(stage_.in, block), tile_bytes());
}

ExchangeExecutor::State ExchangeExecutor::advance() {
  const int steps = step_count(stage_.pattern, size_);
  bool moved = false;
  while (true) {
    if (phase_ < steps) {
      const int end = std::min(phase_ + phase_steps_, steps);
      if (sending_) {
        for (; step_ < end; ++step_, moved = true)
          if (!send(step(step_))) return moved ? State::kMoved : State::kBlocked;
        step_ = phase_;
        sending_ = false;
      }
      if (reduces_directly(stage_.pattern, phase_, size_)) {
        if (!receive_all_in_order()) return moved ? State::kMoved : State::kBlocked;
      } else {
        for (; step_ < end; ++step_, moved = true)
          if (!receive(step(step_))) return moved ? State::kMoved : State::kBlocked;
      }
      phase_ = step_ = end;
      sending_ = true;
      continue;
    }
    tile_.first += tile_.count;
    if (tile_.first >= stage_.count) return State::kDone;
    tile_.count = std::min(tile_elems_, stage_.count - tile_.first);
    begin_tile();
  }
}

bool ExchangeExecutor::send(const Exchange& step) {
  if (step.to < 0) return true;
  SendLink& link = *links_[static_cast<std::size_t>(step.to)].send;
  std::byte* to = link.try_acquire();
  if (to == nullptr) {
    awaited_ = step.to;
    return false;
  }
  const std::byte* const from = step.from_input ? stage_.in : stage_.out;
  for (int i = 0; i < step.sent.count; ++i)
    std::memcpy(to + static_cast<std::size_t>(i) * tile_bytes(), at(from, (step.sent.first + i) % blocks_),
                tile_bytes());
  link.publish(static_cast<std::size_t>(step.sent.count) * tile_bytes());
  return true;
}

bool ExchangeExecutor::receive(const Exchange& step) {
  if (step.from < 0) return true;
  RecvLink& link = *links_[static_cast<std::size_t>(step.from)].receive;
  const std::byte* const received = link.try_receive();
  if (received == nullptr) {
    awaited_ = step.from;
    return false;
  }
  for (int i = 0; i < step.received.count; ++i) {
    std::byte* const mine = at(stage_.out, (step.received.first + i) % blocks_);
    const std::byte* const theirs = received + static_cast<std::size_t>(i) * tile_bytes();
    if (!step.reduces)
      std::memcpy(mine, theirs, tile_bytes());
    else if (step.from < position_)
      stage_.reduce(mine, theirs, mine, tile_.count);
    else
      stage_.reduce(mine, mine, theirs, tile_.count);
  }
  link.release();
  return true;
}

/// All operands of the one block that this position reduces in this phase lie in slots of different links,
/// which keep them until they are released.
bool ExchangeExecutor::receive_all_in_order() {
  int block = -1;
  for (int k = 0; k < size_ - 1; ++k) {
    const Exchange each = step(phase_ + k);
    if (each.from < 0) continue;
    if (links_[static_cast<std::size_t>(each.from)].receive->try_receive() == nullptr) {
      awaited_ = each.from;
      return false;
    }
    block = each.received.first;
  }
  if (block < 0) return true;
  std::byte* const mine = at(stage_.out, block);
  const auto operand = [&](int p) {
    return p == position_ ? mine : links_[static_cast<std::size_t>(p)].receive->try_receive();
  };
  const std::byte* so_far = operand(0);
  for (int p = 1; p < size_; ++p, so_far = sum_.data())
    stage_.reduce(sum_.data(), so_far, operand(p), tile_.count);
  std::memcpy(mine, sum_.data(), tile_bytes());
  for (int p = 0; p < size_; ++p)
    if (p != position_) links_[static_cast<std::size_t>(p)].receive->release();
  return true;
}

}  // namespace loom::device
