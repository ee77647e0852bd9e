#include "device/host/single_copy_executor.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "device/link/peer_memory.hpp"

namespace loom::device {
namespace {

constexpr std::size_t kStepBytes = 16 * 1024;  // of a block on its way into a non-contiguous buffer
// The longest operand in place that is copied; longer ones use the CICO buffers rather than so much memory.
constexpr std::size_t kMostCopiedBytes = 32 * 1024 * 1024;
// Read between two returns to the caller, which has other things to do, and looks at the clock.
constexpr std::size_t kPieceBytes = 1024 * 1024;

}  // namespace

SingleCopyExecutor::SingleCopyExecutor(CicoBuffers& cico, std::span<const std::int64_t> pids,
                                       const Call& call, Begun begun)
    : cico_(cico),
      pids_(pids),
      call_(call),
      step_(begun == Begun::kYes ? Step::kRead : Step::kTell),
      operand_(call.in_packer == nullptr ? call.in : nullptr) {
  cico.enter({call, CallFamily::kSingleCopy});
  if (scatters_result(call.collective) && call.in == call.out)
    operand_ = nullptr;  // my part overwrites another's
  if (reduces()) told_.resize(static_cast<std::size_t>(cico.size()));
  if (call.collective != Collective::kAllToAll || operand_ == nullptr || call.in != call.out) return;
  const std::size_t bytes = static_cast<std::size_t>(cico.size()) * call.bytes();
  if (bytes <= kMostCopiedBytes) operand_copy_.reset(new (std::nothrow) std::byte[bytes]);
  if (operand_copy_) std::memcpy(operand_copy_.get(), call.in, bytes);
  operand_ = operand_copy_.get();
}

SingleCopyExecutor::State SingleCopyExecutor::advance() {
  if (by_cico_) return by_cico_->advance();
  switch (step_) {
    case Step::kTell:
      return tell();
    case Step::kRead:
      return reduces() ? reduce_operands() : read_operands();
    case Step::kReadResults:
      return read_results();
    case Step::kReduceLast:
      reduce_last();
      if (call_.collective == Collective::kReduce && cico_.self() == call_.root) return State::kDone;
      step_ = Step::kWait;
      return State::kMoved;
    case Step::kWait:
      return has_all(&CicoBuffers::is_level) ? State::kDone : State::kBlocked;
  }
  return State::kDone;
}

bool SingleCopyExecutor::is_reader() const {
  return call_.collective == Collective::kBroadcast && cico_.self() != call_.root;
}

/// Whether all others have come as far.
bool SingleCopyExecutor::has_all(bool (CicoBuffers::*as_far)(int)) {
  for (int rank = 0; rank < cico_.size(); ++rank) {
    if (rank == cico_.self()) continue;
    awaited_ = rank;
    if (!(cico_.*as_far)(rank)) return false;
  }
  return true;
}

/// A rank that only reads writes nothing to its CICO buffer.
SingleCopyExecutor::State SingleCopyExecutor::tell() {
  if (!is_reader()) {
    if (!has_all(&CicoBuffers::is_past)) return State::kBlocked;
    const Buffers mine{operand_, call_.out};
    std::memcpy(cico_.to_write(), &mine, sizeof(mine));
    cico_.sign();
  }
  cico_.publish();
  step_ = Step::kRead;
  keep_own();  // while others come
  return State::kMoved;
}

/// The rank is level, in the round after tell(), and in the same call.
bool SingleCopyExecutor::has_told(int rank) {
  if (!cico_.is_level(rank)) return false;
  cico_.compare(rank);
  return true;
}

/// What the rank has told.
SingleCopyExecutor::Buffers SingleCopyExecutor::buffers_of(int rank) const {
  Buffers buffers;
  std::memcpy(&buffers, cico_.to_read(rank), sizeof(buffers));
  return buffers;
}

/// Reads the next piece of the rank's block at `offset` to a block of my output. True: it was the last piece.
bool SingleCopyExecutor::read_piece(int rank, int block, std::size_t offset) {
  const std::byte* const from = buffers_of(rank).operand + offset;
  const auto pid = pids_[static_cast<std::size_t>(rank)];
  const std::size_t end = std::min(at_ + kPieceBytes, call_.bytes());
  if (call_.out_packer == nullptr) {
    std::byte* const to = call_.out + static_cast<std::size_t>(block) * call_.bytes();
    read_peer_memory(pid, to + at_, from + at_, end - at_);
    at_ = end;
  }
  for (std::byte step[kStepBytes]; at_ < end;) {
    const std::size_t bytes = std::min(kStepBytes, end - at_);
    read_peer_memory(pid, step, from + at_, bytes);
    call_.out_packer->move(call_.out_packer->context, block, step, bytes);
    at_ += bytes;
  }
  return at_ == call_.bytes();
}

/// The rank whose operand this rank reads as the k-th: not all ranks read from the same one at a time.
int SingleCopyExecutor::source(int k) const {
  return call_.collective == Collective::kBroadcast ? call_.root : (cico_.self() + 1 + k) % cico_.size();
}

/// Reads all operands, each as soon as it is there; then this rank needs none any more, and says so. If one
/// cannot be read, all ranks see that, and what has been read by then is read again from the CICO buffers.
SingleCopyExecutor::State SingleCopyExecutor::read_operands() {
  if (operand_ == nullptr && !is_reader()) return go_by_cico();
  const bool broadcast = call_.collective == Collective::kBroadcast;
  const int sources = broadcast ? (is_reader() ? 1 : 0) : cico_.size() - 1;
  // What a packer has unpacked cannot be unpacked again.
  const int needed_at_once =
      call_.out_packer != nullptr && read_ == 0 ? sources : std::min(read_ + 1, sources);
  for (int k = read_; k < needed_at_once; ++k) {
    awaited_ = source(k);
    if (!has_told(awaited_)) return State::kBlocked;
    if (buffers_of(awaited_).operand == nullptr) return go_by_cico();
  }
  const std::size_t mine = static_cast<std::size_t>(cico_.self()) * call_.bytes();
  const std::size_t offset = call_.collective == Collective::kAllToAll ? mine : 0;
  if (read_ < sources) {
    const int peer = awaited_ = source(read_);
    if (!read_piece(peer, broadcast ? 0 : peer, offset)) return State::kMoved;
    at_ = 0;
    if (++read_ < sources) return State::kMoved;
  }
  if (call_.out_packer != nullptr && !broadcast)
    call_.out_packer->move(call_.out_packer->context, cico_.self(), const_cast<std::byte*>(operand_ + offset),
                           call_.bytes());
  if (sources > 0) check_peers();
  cico_.publish();
  step_ = Step::kWait;
  return is_reader() ? State::kDone : State::kMoved;
}

/// The part of the message that the rank reduces. The root of a reduce takes all.
SingleCopyExecutor::Range SingleCopyExecutor::part_of(int rank) const {
  switch (call_.collective) {
    case Collective::kAllreduce: {
      const ChunkRange chunk = chunk_range(call_.count, call_.elem_bytes(), cico_.size(), rank);
      return {chunk.first * call_.elem_bytes(), chunk.count * call_.elem_bytes()};
    }
    case Collective::kReduceScatter:
      return {static_cast<std::size_t>(rank) * call_.bytes(), call_.bytes()};
    case Collective::kReduceScatterV:
      return {call_.bounds[rank] * call_.elem_bytes(),
              (call_.bounds[rank + 1] - call_.bounds[rank]) * call_.elem_bytes()};
    default:
      return {0, rank == call_.root ? call_.bytes() : 0};
  }
}

/// Reduces a tile of my part of all ranks' operands, but leaves the last reduction of the last tile to
/// reduce_last(). Of a reduce, only the root looks at what the others have told: they never say that their
/// operands cannot be read.
SingleCopyExecutor::State SingleCopyExecutor::reduce_operands() {
  const bool rooted = call_.collective == Collective::kReduce;
  const int self = cico_.self();
  if (!rooted || self == call_.root) {
    if (at_ == 0) {
      if (!has_all(&CicoBuffers::is_level)) return State::kBlocked;
      bool readable = rooted || operand_ != nullptr;
      for (int rank = 0; rank < cico_.size(); ++rank) {
        if (rank != self) cico_.compare(rank);
        told_[static_cast<std::size_t>(rank)] = buffers_of(rank);
        readable &= rank == self || buffers_of(rank).operand != nullptr;
      }
      if (!readable) return go_by_cico();
    }
    if (const Range part = part_of(self); at_ < part.bytes) {
      reduce_tile(part);
      if (at_ < part.bytes) return State::kMoved;
    }
    check_peers();
  }
  at_ = 0;
  // The others need not wait for my arithmetic, except for the results of an all-reduce.
  if (call_.collective == Collective::kAllreduce) reduce_last();
  cico_.publish();
  step_ = call_.collective == Collective::kAllreduce ? Step::kReadResults : Step::kReduceLast;
  return State::kMoved;
}

/// Checks the ranks whose memory I have read, and who go on only once I say so: if one had given up before
/// that, it might have written there. (Others may have left, and failed in a later call.)
void SingleCopyExecutor::check_peers() const {
  for (int rank = 0; rank < cico_.size(); ++rank)
    if (rank != cico_.self() && (!is_reader() || rank == call_.root)) cico_.check(rank);
}

void SingleCopyExecutor::reduce_last() {
  if (last_.count > 0) call_.reduce()(last_.to, last_.left, last_.right, last_.count);
}

/// Reduces in order of rank. The output takes the partial results if it is free from the beginning; in place
/// it is my operand, and takes them only from my turn on. Until then they lie in banks of mine that nobody
/// reads.
void SingleCopyExecutor::reduce_tile(const Range& part) {
  const int self = cico_.self(), ranks = cico_.size();
  const bool in_place = call_.in == call_.out;
  const bool two_pieces = in_place && self > 1, no_piece = !in_place && ranks == 2;
  const std::span<std::byte> banks = cico_.room();
  const std::size_t room = no_piece ? kPieceBytes : two_pieces ? banks.size() / 2 : banks.size();
  const std::size_t bytes = std::min(room / call_.elem_bytes() * call_.elem_bytes(), part.bytes - at_);
  std::byte* const out = call_.out + (scatters_result(call_.collective) ? 0 : part.first) + at_;
  std::byte* const partial = in_place ? banks.data() : out;
  std::byte* const fetched = no_piece ? out : two_pieces ? banks.data() + room : banks.data();
  const auto operand = [&](int rank, std::byte* to) -> const std::byte* {
    if (rank == self) return call_.in + part.first + at_;
    awaited_ = rank;
    read_peer_memory(pids_[static_cast<std::size_t>(rank)], to,
                     told_[static_cast<std::size_t>(rank)].operand + part.first + at_, bytes);
    return to;
  };
  const std::byte* left = operand(0, partial);
  for (int rank = 1; rank < ranks; ++rank) {
    last_ = {rank < self ? partial : out, left, operand(rank, fetched), bytes / call_.elem_bytes()};
    if (rank < ranks - 1 || at_ + bytes < part.bytes) reduce_last();
    left = last_.to;
  }
  at_ += bytes;
}

/// Reads a piece of another rank's result of an all-reduce, as soon as it is there. In place this is safe:
/// the result's owner has read my operand there.
SingleCopyExecutor::State SingleCopyExecutor::read_results() {
  if (read_ < cico_.size() - 1) {
    const int peer = awaited_ = source(read_);
    if (at_ == 0 && !cico_.is_level(peer)) return State::kBlocked;
    const Range part = part_of(peer);
    const std::size_t bytes = std::min(kPieceBytes, part.bytes - at_);
    read_peer_memory(pids_[static_cast<std::size_t>(peer)], call_.out + part.first + at_,
                     told_[static_cast<std::size_t>(peer)].result + part.first + at_, bytes);
    at_ += bytes;
    if (at_ == part.bytes) {
      ++read_;
      at_ = 0;
    }
    if (read_ < cico_.size() - 1) return State::kMoved;
  }
  check_peers();
  cico_.publish();
  step_ = Step::kWait;
  return State::kMoved;
}

/// In place, the operand may have been overwritten, but then there is a copy.
SingleCopyExecutor::State SingleCopyExecutor::go_by_cico() {
  if (operand_copy_) call_.in = operand_copy_.get();
  return by_cico_.emplace(cico_, call_).advance();
}

/// Copies my own block, except to a non-contiguous output, which cannot be unpacked again.
void SingleCopyExecutor::keep_own() const {
  if (call_.collective == Collective::kBroadcast || reduces() || operand_ == nullptr ||
      call_.out_packer != nullptr)
    return;
  const std::size_t mine = static_cast<std::size_t>(cico_.self()) * call_.bytes();
  const std::byte* const from = operand_ + (call_.collective == Collective::kAllToAll ? mine : 0);
  if (from != call_.out + mine) std::memcpy(call_.out + mine, from, call_.bytes());
}

}  // namespace loom::device
