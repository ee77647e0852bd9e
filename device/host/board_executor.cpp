#include "device/host/board_executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "device/exchange_schedule.hpp"
#include "device/host/copy.hpp"

namespace loom::device {
namespace {

// Work on so much at a time that operands and result of a reduction meet in the L1 cache.
constexpr std::size_t kBlockBytes = 8 * 1024;
// And where the result is then streamed to the output, so little that both can overlap inside the CPU.
constexpr std::size_t kStreamBlockBytes = 1024;
// An output from here on goes past the caches (2 MiB of L2 cache, large L3; loom_bench of each collective).
constexpr std::size_t kStreamBytes = 16 * 1024 * 1024;
// A part that does not fill its piece is cut into so many tiles, that reading overlaps with writing, but into
// none shorter than what a round costs to agree on, which three stages in a row feel more than two.
constexpr std::size_t kTilesPerPart = 4;
constexpr std::size_t kMinTileBytes = 4 * 1024;
constexpr std::size_t kMinChunkTileBytes = 16 * 1024;

std::size_t divide_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

/// Every rank reduces a chunk of the message. Of two ranks one may as well hand the root all of its operand:
/// together they move less. And so may others where they have to take turns on the CPUs: then only the root
/// waits.
bool has_chunks(Collective collective, const Boards& boards) {
  return collective == Collective::kAllreduce ||
         (collective == Collective::kReduce && boards.size() > 2 && !boards.few_rounds());
}
bool is_one_part(Collective collective, const Boards& boards) {
  return collective == Collective::kAllGather || collective == Collective::kBroadcast ||
         (collective == Collective::kReduce && !has_chunks(collective, boards));
}

}  // namespace

bool Boards::has_published(int rank, std::uint64_t round) {
  std::uint64_t& seen = seen_[static_cast<std::size_t>(rank)];
  if (seen >= round) return true;
  const std::uint64_t now = boards_[static_cast<std::size_t>(rank)]->filled.value();
  if (now == StepFlag::kAbandoned)
    throw Error(ErrorCode::kGivenUp, fmt::format("Rank {} gave up on this communicator.", rank));
  seen = now;
  return seen >= round;
}

BoardExecutor::BoardExecutor(Boards& boards, const HostJob& job)
    : boards_(boards),
      job_(job),
      chunked_(has_chunks(job.collective, boards)),
      one_part_(is_one_part(job.collective, boards)) {
  const auto ranks = static_cast<std::size_t>(boards.size());
  const std::size_t unit = std::max<std::size_t>(1, kCacheLine / job.elem_bytes) * job.elem_bytes;
  piece_bytes_ = Board::kBankBytes / (one_part_ ? 1 : ranks) / kCacheLine * kCacheLine;
  const std::size_t part_bytes = longest_part();
  const std::size_t wanted = boards.few_rounds() ? piece_bytes_
                                                 : std::max(divide_up(part_bytes, kTilesPerPart),
                                                            chunked_ ? kMinChunkTileBytes : kMinTileBytes);
  tile_bytes_ = std::max(std::min(wanted, piece_bytes_) / unit, std::size_t{1}) * unit;
  tiles_ = divide_up(part_bytes, tile_bytes_);
  rounds_ = tiles_ + (chunked_ ? 2 : 1);
  const bool gathers = job.collective == Collective::kAllGather || job.collective == Collective::kAllToAll;
  streams_ = job.bytes() * (gathers ? ranks : 1) >= kStreamBytes;
}

std::size_t BoardExecutor::longest_part() const {
  if (chunked_) return chunk_range(job_.count, job_.elem_bytes, boards_.size(), 0).count * job_.elem_bytes;
  if (job_.collective != Collective::kReduceScatterV) return job_.bytes();
  std::size_t longest = 0;
  for (int part = 0; part < boards_.size(); ++part)
    longest = std::max<std::size_t>(longest, job_.bounds[part + 1] - job_.bounds[part]);
  return longest * job_.elem_bytes;
}

BoardExecutor::State BoardExecutor::advance() {
  if (round_ == rounds_) return State::kDone;
  if (!ready()) return State::kBlocked;
  perform();
  if (streams_) stream_fence();
  if (++round_ == rounds_) return State::kDone;  // nothing was written; see Board
  boards_.publish();
  return State::kMoved;
}

bool BoardExecutor::ready() {
  const bool writes = this->writes();
  for (int rank = 0; rank < boards_.size(); ++rank) {
    if (rank == boards_.self()) continue;
    awaited_ = rank;
    if (reads_from(rank) && !boards_.is_level(rank)) return false;
    if (writes && !boards_.is_past(rank)) return false;
  }
  return true;
}

/// In this round; in the first there is nothing to read yet.
bool BoardExecutor::reads_from(int rank) const {
  if (round_ == 0) return false;
  if (job_.collective == Collective::kBroadcast) return rank == job_.root;
  return job_.collective != Collective::kReduce || !one_part_ || boards_.self() == job_.root;
}

bool BoardExecutor::writes() const {
  if (round_ + 1 == rounds_) return false;
  if (job_.collective == Collective::kBroadcast) return boards_.self() == job_.root;
  if (job_.collective == Collective::kReduce && one_part_) return boards_.self() != job_.root;
  return true;
}

/// Round r offers tile r, reduces tile r - 1, which all have offered, and takes the results of tile r - 2.
void BoardExecutor::perform() {
  const bool reduce = reduces();
  const std::size_t taken = chunked_ ? 2 : 1;
  if (round_ >= taken && !(reduce && taken == 1)) take(round_ - taken);
  if (reduce && round_ >= 1 && round_ - 1 < tiles_) reduce_own(round_ - 1);
  if (round_ < tiles_) offer(round_);
}

bool BoardExecutor::reduces() const {
  const bool whole = job_.collective == Collective::kReduce && one_part_;
  return chunked_ || scatters() || (whole && boards_.self() == job_.root);
}

bool BoardExecutor::scatters() const {
  return job_.collective == Collective::kReduceScatter || job_.collective == Collective::kReduceScatterV;
}

/// Bytes of a tile of a part, from the start of the message; a part is a rank's chunk or block.
BoardExecutor::Range BoardExecutor::tile_of(int part, std::size_t tile) const {
  std::size_t first = 0, length = job_.bytes();
  if (chunked_) {
    const ChunkRange chunk = chunk_range(job_.count, job_.elem_bytes, boards_.size(), part);
    first = chunk.first * job_.elem_bytes;
    length = chunk.count * job_.elem_bytes;
  } else if (job_.collective == Collective::kReduceScatterV) {
    first = job_.bounds[part] * job_.elem_bytes;
    length = job_.bounds[part + 1] * job_.elem_bytes - first;
  } else if (!one_part_) {
    first = static_cast<std::size_t>(part) * length;
  }
  const std::size_t offset = std::min(length, tile * tile_bytes_);
  return {first + offset, std::min(tile_bytes_, length - offset)};
}

std::byte* BoardExecutor::piece(int part) const {
  return boards_.to_write() + (one_part_ ? 0 : static_cast<std::size_t>(part) * piece_bytes_);
}
const std::byte* BoardExecutor::piece_of(int rank, int part) const {
  return boards_.to_read(rank) + (one_part_ ? 0 : static_cast<std::size_t>(part) * piece_bytes_);
}

void BoardExecutor::copy_out(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (streams_)
    stream_copy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

/// The bytes of my operand from `first` on, which lie in `block`.
void BoardExecutor::read(int block, std::size_t first, std::byte* to, std::size_t bytes) const {
  if (job_.in_gaps != nullptr)
    job_.in_gaps->move(job_.in_gaps->context, block, to, bytes);
  else if (bytes > 0)
    std::memcpy(to, job_.in + first, bytes);
}

void BoardExecutor::write(int block, std::size_t first, const std::byte* from, std::size_t bytes) const {
  if (job_.out_gaps != nullptr)
    job_.out_gaps->move(job_.out_gaps->context, block, const_cast<std::byte*>(from), bytes);
  else
    copy_out(job_.out + first, from, bytes);
}

/// What I owe myself in an all-to-all.
void BoardExecutor::keep(const Range& own) const {
  const int self = boards_.self();
  if (job_.in_gaps == nullptr && job_.out_gaps == nullptr) {
    if (job_.in != job_.out) copy_out(job_.out + own.first, job_.in + own.first, own.bytes);
    return;
  }
  std::byte block[kBlockBytes];
  for (std::size_t at = 0; at < own.bytes; at += kBlockBytes) {
    const std::size_t bytes = std::min(kBlockBytes, own.bytes - at);
    read(self, own.first + at, block, bytes);
    write(self, own.first + at, block, bytes);
  }
}

/// My contribution, for everybody or for each other rank; what I owe myself goes straight to its place.
void BoardExecutor::offer(std::size_t tile) {
  const int self = boards_.self();
  if (one_part_) {
    const Range range = tile_of(0, tile);
    if (job_.collective == Collective::kBroadcast) {
      if (self == job_.root) read(0, range.first, piece(0), range.bytes);
      return;
    }
    if (job_.collective == Collective::kReduce) {
      if (self != job_.root) read(0, range.first, piece(0), range.bytes);
      return;
    }
    const std::size_t own = static_cast<std::size_t>(self) * job_.bytes() + range.first;
    const bool gaps = job_.in_gaps != nullptr || job_.out_gaps != nullptr;
    const bool in_place = !gaps && job_.in + range.first == job_.out + own;
    for (std::size_t at = 0; at < range.bytes; at += kBlockBytes) {
      const std::size_t bytes = std::min(kBlockBytes, range.bytes - at);
      read(0, range.first + at, piece(0) + at, bytes);
      if (!in_place) write(self, own + at, piece(0) + at, bytes);
    }
    return;
  }
  for (int k = 0; k < boards_.size() - 1; ++k) {
    const int peer = other_position(self, k);
    const Range range = tile_of(peer, tile);
    read(peer, range.first, piece(peer), range.bytes);
  }
  if (job_.collective == Collective::kAllToAll) keep(tile_of(self, tile));
}

/// What is reduced at a time, from `at` on. Streamed blocks end where lines of the output do: what is left of
/// a line would have to be fetched.
std::size_t BoardExecutor::block_bytes(const std::byte* out, std::size_t at) const {
  const std::size_t block = (streams_ ? kStreamBlockBytes : kBlockBytes) / job_.elem_bytes * job_.elem_bytes;
  const std::size_t over = reinterpret_cast<std::uintptr_t>(out) % kCacheLine;
  return streams_ && at == 0 && over % job_.elem_bytes == 0 && over < block ? block - over : block;
}

/// All ranks' operands of my part, in order of rank; the result goes to my output and, where others want it,
/// to my board.
void BoardExecutor::reduce_own(std::size_t tile) {
  const int self = boards_.self(), ranks = boards_.size();
  const Range range = tile_of(self, tile);
  // In place and with unequal parts, result and operand may overlap without being the same.
  const bool apart = streams_ || (job_.collective == Collective::kReduceScatterV && job_.in == job_.out);
  const bool keep = job_.collective != Collective::kReduce || self == job_.root;
  std::byte* const out = keep ? job_.out + (scatters() ? tile * tile_bytes_ : range.first) : nullptr;
  alignas(kCacheLine) std::byte own_block[kBlockBytes];
  for (std::size_t at = 0, bytes; at < range.bytes; at += bytes) {
    bytes = std::min(block_bytes(out, at), range.bytes - at);
    const std::size_t count = bytes / job_.elem_bytes;
    const auto operand = [&](int rank) {
      return rank == self ? job_.in + range.first + at : piece_of(rank, self) + at;
    };
    std::byte* const result = chunked_ ? piece(self) + at : apart ? own_block : out + at;
    // In place, the result may lie where my own operand does: what is still to be read must not be written
    // yet.
    std::byte* const partial = ranks == 2 ? result : own_block;
    job_.reduce(ranks == 2 ? result : partial, operand(0), operand(1), count);
    for (int rank = 2; rank < ranks; ++rank)
      job_.reduce(rank == ranks - 1 ? result : partial, partial, operand(rank), count);
    if (keep && result != out + at) copy_out(out + at, result, bytes);
  }
}

/// What others have offered for me in the round before.
void BoardExecutor::take(std::size_t tile) {
  const int self = boards_.self();
  if (job_.collective == Collective::kBroadcast) {
    const Range range = tile_of(0, tile);
    if (self != job_.root) write(0, range.first, piece_of(job_.root, 0), range.bytes);
    return;
  }
  if (job_.collective == Collective::kReduce && self != job_.root) return;
  for (int k = 0; k < boards_.size() - 1; ++k) {
    const int peer = other_position(self, k);
    const Range range = tile_of(peer, tile);
    const std::size_t block =
        job_.collective == Collective::kAllGather ? static_cast<std::size_t>(peer) * job_.bytes() : 0;
    // A result lies in its owner's own piece, a block of an all-to-all in mine.
    const int part = job_.collective == Collective::kAllToAll ? self : peer;
    write(peer, block + range.first, piece_of(peer, part), range.bytes);
  }
}

}  // namespace loom::device
