#include "device/host/pairwise_executor.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace loom::device {
namespace {

/// Of a listed block, at the start of its first slot.
constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

}  // namespace

PairwiseExecutor::PairwiseExecutor(const PairwiseLinks& pairwise, const Call& call)
    : pairwise_(pairwise),
      call_(call),
      may_overwrite_(!lists_blocks() || call.owns_its_block),
      awaited_(pairwise.rank) {
  // Each rank begins with the next one, so that not all send to one at once.
  const auto ranks = static_cast<int>(pairwise.links.size());
  for (int k = 1; k < ranks; ++k) {
    const int rank = (pairwise.rank + k) % ranks;
    if (pairwise.links[static_cast<std::size_t>(rank)].send == nullptr) continue;
    Peer peer{.rank = rank, .to_send = in_block(rank).bytes, .room = out_block(rank).bytes};
    if (!lists_blocks()) {
      peer.to_receive = peer.room;
      peer.has_begun = peer.to_send == 0;
    }
    peers_.push_back(peer);
  }
}

/// Its data is nullptr where a packer moves it.
Block PairwiseExecutor::in_block(int rank) const {
  if (lists_blocks()) return call_.in_blocks[rank];
  std::byte* const data = const_cast<std::byte*>(call_.in) + static_cast<std::size_t>(rank) * call_.bytes();
  return {call_.in_packer != nullptr ? nullptr : data, call_.bytes()};
}
Block PairwiseExecutor::out_block(int rank) const {
  if (lists_blocks()) return call_.out_blocks[rank];
  std::byte* const data = call_.out + static_cast<std::size_t>(rank) * call_.bytes();
  return {call_.out_packer != nullptr ? nullptr : data, call_.bytes()};
}

void PairwiseExecutor::Selected::move(void* context, int block, std::byte* packed, std::size_t bytes) {
  const auto& self = *static_cast<const Selected*>(context);
  self.all->move(self.all->context, self.ranks[static_cast<std::size_t>(block)], packed, bytes);
}

/// My host's ranks exchange their blocks by an all-to-all of their own, which reads them in its own way.
void PairwiseExecutor::plan_inside() {
  for (const int mate : pairwise_.mates) {
    in_blocks_.push_back(in_block(mate));
    out_blocks_.push_back(out_block(mate));
    if (call_.streaming != nullptr) call_.streaming->need(in_blocks_.back().data, call_.bytes());
  }
  inside_call_.collective = Collective::kAllToAllV;
  inside_call_.in_blocks = in_blocks_.data();
  inside_call_.out_blocks = out_blocks_.data();
  inside_call_.owns_its_block =
      lists_blocks() ? call_.owns_its_block
                     : call_.in == call_.out && call_.in_packer == nullptr && call_.out_packer == nullptr;
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
  else if (const auto cut = move_own_block(inside_call_, 0); cut && !cut_)
    cut_ = {pairwise_.rank, cut->sent, cut->room};
}

PairwiseExecutor::State PairwiseExecutor::advance_inside() {
  if (in_blocks_.empty()) plan_inside();
  if (inside_) {
    const State state = inside_->advance();
    awaited_ = pairwise_.mates[static_cast<std::size_t>(inside_->awaited())];
    if (state != State::kDone) return state;
    if (const auto& cut = inside_->cut(); cut && !cut_)
      cut_ = {pairwise_.mates[static_cast<std::size_t>(cut->peer)], cut->sent, cut->room};
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
    if (peer.is_done()) continue;
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
  if (peer.has_sent()) return false;
  SendLink& link = *pairwise_.links[static_cast<std::size_t>(peer.rank)].send;
  std::byte* slot = link.try_acquire();
  if (slot == nullptr) return false;
  std::size_t before = 0;
  if (lists_blocks() && !peer.has_begun) {
    const std::uint64_t length = peer.to_send;
    std::memcpy(slot, &length, kLengthBytes);
    before = kLengthBytes;
  }
  peer.has_begun = true;
  const std::size_t bytes = std::min(pairwise_.slot_bytes - before, peer.to_send - peer.sent);
  if (bytes > 0 && call_.in_packer != nullptr) {
    call_.in_packer->move(call_.in_packer->context, peer.rank, slot + before, bytes);
  } else if (bytes > 0) {
    const std::byte* const from = in_block(peer.rank).data + peer.sent;
    if (call_.streaming != nullptr) call_.streaming->need(from, bytes);
    std::memcpy(slot + before, from, bytes);
  }
  link.publish(before + bytes);
  peer.sent += bytes;
  return true;
}

bool PairwiseExecutor::receive(Peer& peer) {
  if (peer.received == peer.to_receive) return false;
  // In place, received bytes overwrite what has been sent.
  if (may_overwrite_ && !peer.has_sent() && peer.received == peer.sent) return false;
  RecvLink& link = *pairwise_.links[static_cast<std::size_t>(peer.rank)].receive;
  const std::byte* slot = link.try_receive();
  if (slot == nullptr) return false;
  std::size_t before = 0;
  if (!peer.to_receive) {
    std::uint64_t length;
    std::memcpy(&length, slot, kLengthBytes);
    peer.to_receive = length;
    before = kLengthBytes;
    if (length > peer.room && !cut_) cut_ = {peer.rank, length, peer.room};
  }
  const std::size_t bytes = std::min(pairwise_.slot_bytes - before, *peer.to_receive - peer.received);
  if (peer.received < peer.room) store(peer, slot + before, std::min(bytes, peer.room - peer.received));
  link.release();
  peer.received += bytes;
  return true;
}

void PairwiseExecutor::store(const Peer& peer, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (call_.out_packer != nullptr) {
    call_.out_packer->move(call_.out_packer->context, peer.rank, const_cast<std::byte*>(from), bytes);
    return;
  }
  std::byte* const to = out_block(peer.rank).data + peer.received;
  std::memcpy(to, from, bytes);
  if (call_.streaming != nullptr) call_.streaming->have(to, bytes);
}

}  // namespace loom::device
