#include "device/host/block_executor.hpp"

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
/// One block goes to everybody alike.
bool is_shared(Collective collective) {
  return collective == Collective::kAllGatherV;
}

/// Bytes of `block` from `first` on, packed.
void read(const HostJob& job, int block, std::size_t first, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  if (job.in_gaps != nullptr)
    job.in_gaps->move(job.in_gaps->context, block, to, bytes);
  else
    std::memcpy(to, job.in_blocks[block].data + first, bytes);
}

void write(const HostJob& job, int block, std::size_t first, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (job.out_gaps != nullptr)
    job.out_gaps->move(job.out_gaps->context, block, const_cast<std::byte*>(from), bytes);
  else
    std::memcpy(job.out_blocks[block].data + first, from, bytes);
}

/// From one of the operand's blocks to one of the result's.
void move_block(const HostJob& job, int from, int to, std::size_t bytes) {
  if (job.in_gaps == nullptr) return write(job, to, 0, job.in_blocks[from].data, bytes);
  if (job.out_gaps == nullptr) return read(job, from, 0, job.out_blocks[to].data, bytes);
  std::byte step[8 * 1024];
  for (std::size_t at = 0; at < bytes; at += sizeof(step)) {
    const std::size_t length = std::min(sizeof(step), bytes - at);
    read(job, from, at, step, length);
    write(job, to, at, step, length);
  }
}

}  // namespace

BlockExecutor::BlockExecutor(Boards& boards, const HostJob& job) : boards_(boards), job_(job) {
  const bool one_piece = is_gather(job.collective) || is_shared(job.collective);
  const std::size_t pieces = one_piece ? 1 : static_cast<std::size_t>(boards.size()) - 1;
  header_bytes_ = ((1 + pieces) * sizeof(std::uint64_t) + kCacheLine - 1) / kCacheLine * kCacheLine;
  piece_bytes_ = (boards.bank_bytes() - header_bytes_) / pieces / kCacheLine * kCacheLine;
  boards.enter({job, CallFamily::kBlocks});
  if (job.collective != Collective::kBarrier) to_take_.resize(static_cast<std::size_t>(boards.size()));
}

bool BlockExecutor::sends_to(int rank) const {
  if (rank == boards_.self() || job_.collective == Collective::kBarrier) return false;
  if (is_gather(job_.collective)) return rank == job_.root;
  return !is_scatter(job_.collective) || boards_.self() == job_.root;
}
bool BlockExecutor::receives_from(int rank) const {
  if (rank == boards_.self() || job_.collective == Collective::kBarrier) return false;
  if (is_scatter(job_.collective)) return rank == job_.root;
  return !is_gather(job_.collective) || boards_.self() == job_.root;
}

/// Which of my blocks goes to a rank, or comes from it.
int BlockExecutor::in_block(int rank) const {
  return is_gather(job_.collective) || is_shared(job_.collective) ? 0 : rank;
}
int BlockExecutor::out_block(int rank) const {
  return is_scatter(job_.collective) ? 0 : rank;
}

/// Which piece of the sender's bank is the rank's.
std::size_t BlockExecutor::place_of(int rank, int sender) const {
  if (is_gather(job_.collective) || is_shared(job_.collective)) return 0;
  return static_cast<std::size_t>(rank < sender ? rank : rank - 1);
}

BlockExecutor::State BlockExecutor::advance() {
  if (rounds_ > 0 && round_ > rounds_) return State::kDone;
  if (!ready()) return State::kBlocked;
  if (round_ == 1) {
    learn_rounds();
    learn_lengths();
  }
  if (round_ > 0) take();
  if (round_ > 0 && round_ == rounds_) {
    // Everybody ends here. That I have read will show when I next publish, before which nobody writes there.
    ++round_;
    return State::kDone;
  }
  if (round_ == 0) {
    announce();
    keep_own();
  }
  offer();
  if (round_ == 0) boards_.sign();
  boards_.publish();
  ++round_;
  return State::kMoved;
}

bool BlockExecutor::ready() {
  for (int k = 0; k < boards_.size() - 1; ++k) {
    awaited_ = other_position(boards_.self(), k);
    if (!(round_ == 0 ? boards_.is_past(awaited_) : boards_.is_level(awaited_))) return false;
    if (round_ == 1) boards_.compare(awaited_);
  }
  return true;
}

void BlockExecutor::announce() {
  std::uint64_t rounds = 1;
  for (int rank = 0; rank < boards_.size(); ++rank)
    if (sends_to(rank)) {
      const std::size_t bytes = job_.in_blocks[in_block(rank)].bytes;
      rounds = std::max<std::uint64_t>(rounds, (bytes + piece_bytes_ - 1) / piece_bytes_);
      header()[1 + place_of(rank, boards_.self())] = bytes;
    }
  header()[0] = rounds;
}

std::uint64_t BlockExecutor::header_of(int rank, std::size_t word) const {
  return reinterpret_cast<const std::uint64_t*>(boards_.to_read(rank))[word];
}

void BlockExecutor::learn_rounds() {
  for (int rank = 0; rank < boards_.size(); ++rank)
    rounds_ = std::max<std::size_t>(rounds_, header_of(rank, 0));
}

/// Whoever sends less than there is room for is taken at its word.
void BlockExecutor::learn_lengths() {
  for (int rank = 0; rank < boards_.size(); ++rank) {
    if (!receives_from(rank)) continue;
    const std::size_t sent = header_of(rank, 1 + place_of(boards_.self(), rank));
    const std::size_t room = job_.out_blocks[out_block(rank)].bytes;
    to_take_[static_cast<std::size_t>(rank)] = std::min(sent, room);
    if (sent > room && !cut_) cut_ = {rank, sent, room};
  }
}

void BlockExecutor::offer() {
  const std::size_t first = round_ * piece_bytes_;
  std::byte* const pieces = boards_.to_write() + header_bytes_;
  for (int k = 0; k < boards_.size() - 1; ++k) {
    const int peer = other_position(boards_.self(), k);
    if (!sends_to(peer)) continue;
    const int block = in_block(peer);
    const std::size_t bytes = job_.in_blocks[block].bytes;
    if (first < bytes) {
      std::byte* const piece = pieces + place_of(peer, boards_.self()) * piece_bytes_;
      const std::size_t length = std::min(piece_bytes_, bytes - first);
      read(job_, block, first, piece, length);
      if (is_shared(job_.collective) && !job_.owns_its_block) keep_shared(first, piece, length);
    }
    if (is_shared(job_.collective)) return;
  }
}

/// My own block of an all-gather, as it goes to the others.
void BlockExecutor::keep_shared(std::size_t first, const std::byte* piece, std::size_t bytes) {
  const int self = boards_.self();
  const std::size_t sent = job_.in_blocks[0].bytes, room = job_.out_blocks[self].bytes;
  if (sent > room) cut_ = {self, sent, room};
  if (first < room) write(job_, self, first, piece, std::min(bytes, room - first));
}

/// What others have offered me in the round before.
void BlockExecutor::take() {
  const std::size_t first = (round_ - 1) * piece_bytes_;
  for (int k = 0; k < boards_.size() - 1; ++k) {
    const int peer = other_position(boards_.self(), k);
    if (!receives_from(peer)) continue;
    const std::size_t bytes = to_take_[static_cast<std::size_t>(peer)];
    if (first >= bytes) continue;
    const std::size_t place = place_of(boards_.self(), peer);
    write(job_, out_block(peer), first, boards_.to_read(peer) + header_bytes_ + place * piece_bytes_,
          std::min(piece_bytes_, bytes - first));
  }
}

void BlockExecutor::keep_own() {
  if (job_.collective == Collective::kBarrier || is_shared(job_.collective)) return;
  const bool rooted = is_gather(job_.collective) || is_scatter(job_.collective);
  if (!rooted || boards_.self() == job_.root) cut_ = move_own_block(job_, boards_.self());
}

std::optional<CutBlock> move_own_block(const HostJob& job, int self) {
  if (lists_blocks(job.collective)) {
    if (job.owns_its_block) return {};
    const int from = is_gather(job.collective) || is_shared(job.collective) ? 0 : self;
    const int to = is_scatter(job.collective) ? 0 : self;
    const std::size_t bytes = job.in_blocks[from].bytes, room = job.out_blocks[to].bytes;
    move_block(job, from, to, std::min(bytes, room));
    return bytes > room ? std::optional(CutBlock{self, bytes, room}) : std::nullopt;
  }
  if (job.collective != Collective::kAllGather && job.collective != Collective::kAllToAll) return {};
  if (job.in == job.out && job.in_gaps == nullptr && job.out_gaps == nullptr) return {};
  const Block in{const_cast<std::byte*>(job.in), job.bytes()}, out{job.out, job.bytes()};
  HostJob blocks = job;
  blocks.in_blocks = &in;
  blocks.out_blocks = &out;
  move_block(blocks, 0, 0, job.bytes());
  return {};
}

}  // namespace loom::device
