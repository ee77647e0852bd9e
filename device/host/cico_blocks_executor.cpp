#include "device/host/cico_blocks_executor.hpp"

#include <algorithm>
#include <cstring>

#include "device/schedule/exchange_schedule.hpp"

namespace loom::device {
namespace {

bool is_gather(Collective collective) {
  return collective == Collective::kGather || collective == Collective::kGatherV;
}
bool is_scatter(Collective collective) {
  return collective == Collective::kScatter || collective == Collective::kScatterV;
}
/// Each rank sends one block to all others.
bool is_shared(Collective collective) {
  return collective == Collective::kAllGatherV;
}

/// Bytes of `block` from `first` on, packed.
void read(const Call& call, int block, std::size_t first, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  if (call.in_packer != nullptr)
    call.in_packer->move(call.in_packer->context, block, to, bytes);
  else
    std::memcpy(to, call.in_blocks[block].data + first, bytes);
}

void write(const Call& call, int block, std::size_t first, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (call.out_packer != nullptr)
    call.out_packer->move(call.out_packer->context, block, const_cast<std::byte*>(from), bytes);
  else
    std::memcpy(call.out_blocks[block].data + first, from, bytes);
}

/// From one of the operand's blocks to one of the result's.
void move_block(const Call& call, int from, int to, std::size_t bytes) {
  if (call.in_packer == nullptr) return write(call, to, 0, call.in_blocks[from].data, bytes);
  if (call.out_packer == nullptr) return read(call, from, 0, call.out_blocks[to].data, bytes);
  std::byte step[8 * 1024];
  for (std::size_t at = 0; at < bytes; at += sizeof(step)) {
    const std::size_t length = std::min(sizeof(step), bytes - at);
    read(call, from, at, step, length);
    write(call, to, at, step, length);
  }
}

}  // namespace

CicoBlocksExecutor::CicoBlocksExecutor(CicoBuffers& cico, const Call& call) : cico_(cico), call_(call) {
  const bool one_piece = is_gather(call.collective) || is_shared(call.collective);
  const std::size_t pieces = one_piece ? 1 : static_cast<std::size_t>(cico.size()) - 1;
  header_bytes_ = ((1 + pieces) * sizeof(std::uint64_t) + kCacheLine - 1) / kCacheLine * kCacheLine;
  piece_bytes_ = (cico.bank_bytes() - header_bytes_) / pieces / kCacheLine * kCacheLine;
  cico.enter({call, CallFamily::kBlocks});
  if (call.collective != Collective::kBarrier) to_take_.resize(static_cast<std::size_t>(cico.size()));
}

bool CicoBlocksExecutor::sends_to(int rank) const {
  if (rank == cico_.self() || call_.collective == Collective::kBarrier) return false;
  if (is_gather(call_.collective)) return rank == call_.root;
  return !is_scatter(call_.collective) || cico_.self() == call_.root;
}
bool CicoBlocksExecutor::receives_from(int rank) const {
  if (rank == cico_.self() || call_.collective == Collective::kBarrier) return false;
  if (is_scatter(call_.collective)) return rank == call_.root;
  return !is_gather(call_.collective) || cico_.self() == call_.root;
}

/// Which of my blocks goes to a rank, or comes from it.
int CicoBlocksExecutor::in_block(int rank) const {
  return is_gather(call_.collective) || is_shared(call_.collective) ? 0 : rank;
}
int CicoBlocksExecutor::out_block(int rank) const {
  return is_scatter(call_.collective) ? 0 : rank;
}

/// Which piece of the sender's bank is the rank's.
std::size_t CicoBlocksExecutor::place_of(int rank, int sender) const {
  if (is_gather(call_.collective) || is_shared(call_.collective)) return 0;
  return static_cast<std::size_t>(rank < sender ? rank : rank - 1);
}

CicoBlocksExecutor::State CicoBlocksExecutor::advance() {
  if (rounds_ > 0 && round_ > rounds_) return State::kDone;
  if (!cico_.all_are_ready(round_, awaited_)) return State::kBlocked;
  if (round_ == 1) {
    learn_rounds();
    learn_lengths();
  }
  if (round_ > 0) take();
  if (round_ > 0 && round_ == rounds_) {
    // All ranks end here. Nobody writes to the banks that I have read before I publish again.
    ++round_;
    return State::kDone;
  }
  if (round_ == 0) {
    announce();
    keep_own();
  }
  offer();
  if (round_ == 0) cico_.sign();
  cico_.publish();
  ++round_;
  return State::kMoved;
}

void CicoBlocksExecutor::announce() {
  std::uint64_t rounds = 1;
  for (int rank = 0; rank < cico_.size(); ++rank)
    if (sends_to(rank)) {
      const std::size_t bytes = call_.in_blocks[in_block(rank)].bytes;
      rounds = std::max<std::uint64_t>(rounds, (bytes + piece_bytes_ - 1) / piece_bytes_);
      header()[1 + place_of(rank, cico_.self())] = bytes;
    }
  header()[0] = rounds;
}

std::uint64_t CicoBlocksExecutor::header_of(int rank, std::size_t word) const {
  return reinterpret_cast<const std::uint64_t*>(cico_.to_read(rank))[word];
}

void CicoBlocksExecutor::learn_rounds() {
  for (int rank = 0; rank < cico_.size(); ++rank)
    rounds_ = std::max<std::size_t>(rounds_, header_of(rank, 0));
}

/// A sender may send less than there is room for.
void CicoBlocksExecutor::learn_lengths() {
  for (int rank = 0; rank < cico_.size(); ++rank) {
    if (!receives_from(rank)) continue;
    const std::size_t sent = header_of(rank, 1 + place_of(cico_.self(), rank));
    const std::size_t room = call_.out_blocks[out_block(rank)].bytes;
    to_take_[static_cast<std::size_t>(rank)] = std::min(sent, room);
    if (sent > room && !cut_) cut_ = {rank, sent, room};
  }
}

void CicoBlocksExecutor::offer() {
  const std::size_t first = round_ * piece_bytes_;
  std::byte* const pieces = cico_.to_write() + header_bytes_;
  for (int k = 0; k < cico_.size() - 1; ++k) {
    const int peer = other_position(cico_.self(), k);
    if (!sends_to(peer)) continue;
    const int block = in_block(peer);
    const std::size_t bytes = call_.in_blocks[block].bytes;
    if (first < bytes) {
      std::byte* const piece = pieces + place_of(peer, cico_.self()) * piece_bytes_;
      const std::size_t length = std::min(piece_bytes_, bytes - first);
      read(call_, block, first, piece, length);
      if (is_shared(call_.collective) && !call_.owns_its_block) keep_shared(first, piece, length);
    }
    if (is_shared(call_.collective)) return;
  }
}

/// Copies my own block of an all-gather as it goes to the others.
void CicoBlocksExecutor::keep_shared(std::size_t first, const std::byte* piece, std::size_t bytes) {
  const int self = cico_.self();
  const std::size_t sent = call_.in_blocks[0].bytes, room = call_.out_blocks[self].bytes;
  if (sent > room) cut_ = {self, sent, room};
  if (first < room) write(call_, self, first, piece, std::min(bytes, room - first));
}

/// Takes what others offered me in the round before.
void CicoBlocksExecutor::take() {
  const std::size_t first = (round_ - 1) * piece_bytes_;
  for (int k = 0; k < cico_.size() - 1; ++k) {
    const int peer = other_position(cico_.self(), k);
    if (!receives_from(peer)) continue;
    const std::size_t bytes = to_take_[static_cast<std::size_t>(peer)];
    if (first >= bytes) continue;
    const std::size_t place = place_of(cico_.self(), peer);
    write(call_, out_block(peer), first, cico_.to_read(peer) + header_bytes_ + place * piece_bytes_,
          std::min(piece_bytes_, bytes - first));
  }
}

void CicoBlocksExecutor::keep_own() {
  if (call_.collective == Collective::kBarrier || is_shared(call_.collective)) return;
  const bool rooted = is_gather(call_.collective) || is_scatter(call_.collective);
  if (!rooted || cico_.self() == call_.root) cut_ = move_own_block(call_, cico_.self());
}

std::optional<CutBlock> move_own_block(const Call& call, int self) {
  if (lists_blocks(call.collective)) {
    if (call.owns_its_block) return {};
    const int from = is_gather(call.collective) || is_shared(call.collective) ? 0 : self;
    const int to = is_scatter(call.collective) ? 0 : self;
    const std::size_t bytes = call.in_blocks[from].bytes, room = call.out_blocks[to].bytes;
    move_block(call, from, to, std::min(bytes, room));
    return bytes > room ? std::optional(CutBlock{self, bytes, room}) : std::nullopt;
  }
  if (call.collective != Collective::kAllGather && call.collective != Collective::kAllToAll) return {};
  if (call.in == call.out && call.in_packer == nullptr && call.out_packer == nullptr) return {};
  const Block in{const_cast<std::byte*>(call.in), call.bytes()}, out{call.out, call.bytes()};
  Call blocks = call;
  blocks.in_blocks = &in;
  blocks.out_blocks = &out;
  move_block(blocks, 0, 0, call.bytes());
  return {};
}

}  // namespace loom::device
