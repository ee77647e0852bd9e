#include "device/host/pairwise_executor.hpp"

#include <algorithm>
#include <cstring>

namespace loom::device {

PairwiseExecutor::PairwiseExecutor(const PairwiseLinks& pairwise, const Call& call)
    : pairwise_(pairwise), call_(call), awaited_(pairwise.rank) {
  // Each rank begins with the next one, so that not all send to one at once.
  const auto ranks = static_cast<int>(pairwise.links.size());
  for (int k = 1; k < ranks; ++k)
    if (const int rank = (pairwise.rank + k) % ranks;
        pairwise.links[static_cast<std::size_t>(rank)].send != nullptr)
      peers_.push_back({rank});
}

void PairwiseExecutor::Selected::move(void* context, int block, std::byte* packed, std::size_t bytes) {
  const auto& self = *static_cast<const Selected*>(context);
  self.all->move(self.all->context, self.ranks[static_cast<std::size_t>(block)], packed, bytes);
}

/// My host's ranks exchange their blocks by an all-to-all of their own, which reads them in its own way.
void PairwiseExecutor::plan_inside() {
  for (const int mate : pairwise_.mates) {
    const std::size_t at = static_cast<std::size_t>(mate) * call_.bytes();
    if (call_.streaming != nullptr) call_.streaming->need(call_.in + at, call_.bytes());
    in_blocks_.push_back(
        {call_.in_packer != nullptr ? nullptr : const_cast<std::byte*>(call_.in) + at, call_.bytes()});
    out_blocks_.push_back({call_.out_packer != nullptr ? nullptr : call_.out + at, call_.bytes()});
  }
  inside_call_.collective = Collective::kAllToAllV;
  inside_call_.in_blocks = in_blocks_.data();
  inside_call_.out_blocks = out_blocks_.data();
  inside_call_.owns_its_block =
      call_.in == call_.out && call_.in_packer == nullptr && call_.out_packer == nullptr;
  const auto select = [&](const Packer* all, Selected& selected, Packer& packer) -> const Packer* {
    if (all == nullptr) return nullptr;
    selected = {all, pairwise_.mates};
    packer = {Selected::move, &selected};
    return &packer;
  };
  inside_call_.in_packer = select(call_.in_packer, in_selected_, in_packer_);
  inside_call_.out_packer = select(call_.out_packer, out_selected_, out_packer_);
  if (pairwise_.cico != nullptr)
    inside_.emplace(*pairwise_.cico, inside_call_);
  else
    move_own_block(inside_call_, 0);
}

PairwiseExecutor::State PairwiseExecutor::advance_inside() {
  if (in_blocks_.empty()) plan_inside();
  if (inside_) {
    const State state = inside_->advance();
    awaited_ = pairwise_.mates[static_cast<std::size_t>(inside_->awaited())];
    if (state != State::kDone) return state;
    inside_.reset();
  }
  is_inside_done_ = true;
  if (call_.streaming != nullptr)
    for (const Block& block : out_blocks_) call_.streaming->have(block.data, block.bytes);
  return State::kDone;
}

PairwiseExecutor::State PairwiseExecutor::advance() {
  bool moved = false, done = true;
  for (Peer& peer : peers_) {
    moved |= send(peer);
    moved |= receive(peer);
    if (peer.sent == call_.bytes() && peer.received == call_.bytes()) continue;
    if (done) awaited_ = peer.rank;
    done = false;
  }
  // Behind the first slots, for its operands may still be on their way here.
  if (!is_inside_done_) {
    const int peer = awaited_;
    const State state = advance_inside();
    moved |= state != State::kBlocked;
    if (state == State::kDone) awaited_ = peer;
    done = done && state == State::kDone;
  }
  return done ? State::kDone : moved ? State::kMoved : State::kBlocked;
}

bool PairwiseExecutor::send(Peer& peer) {
  if (peer.sent == call_.bytes()) return false;
  SendLink& link = *pairwise_.links[static_cast<std::size_t>(peer.rank)].send;
  std::byte* const slot = link.try_acquire();
  if (slot == nullptr) return false;
  const std::size_t bytes = std::min(pairwise_.slot_bytes, call_.bytes() - peer.sent);
  if (call_.in_packer != nullptr) {
    call_.in_packer->move(call_.in_packer->context, peer.rank, slot, bytes);
  } else {
    const std::byte* const from = call_.in + static_cast<std::size_t>(peer.rank) * call_.bytes() + peer.sent;
    if (call_.streaming != nullptr) call_.streaming->need(from, bytes);
    std::memcpy(slot, from, bytes);
  }
  link.publish(bytes);
  peer.sent += bytes;
  return true;
}

/// In place, received bytes overwrite what has been sent.
bool PairwiseExecutor::receive(Peer& peer) {
  if (peer.received == peer.sent) return false;
  RecvLink& link = *pairwise_.links[static_cast<std::size_t>(peer.rank)].receive;
  const std::byte* const slot = link.try_receive();
  if (slot == nullptr) return false;
  const std::size_t bytes = std::min(pairwise_.slot_bytes, call_.bytes() - peer.received);
  if (call_.out_packer != nullptr) {
    call_.out_packer->move(call_.out_packer->context, peer.rank, const_cast<std::byte*>(slot), bytes);
  } else {
    std::byte* const to = call_.out + static_cast<std::size_t>(peer.rank) * call_.bytes() + peer.received;
    std::memcpy(to, slot, bytes);
    if (call_.streaming != nullptr) call_.streaming->have(to, bytes);
  }
  link.release();
  peer.received += bytes;
  return true;
}

}  // namespace loom::device
