#include "device/host/board_executor.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "device/host/copy.hpp"
#include "device/schedule/exchange_schedule.hpp"

namespace loom::device {
namespace {

// Work on so much at a time that operands and result of a reduction meet in the L1 cache.
constexpr std::size_t kBlockBytes = 8 * 1024;
// And where the result is then streamed to the output, so little that both can overlap inside the CPU.
constexpr std::size_t kStreamBlockBytes = 1024;
TileLimits limits(const Boards& boards) {
  return {.bank_bytes = boards.bank_bytes(), .min_tile_bytes = 4 * 1024, .min_chunk_tile_bytes = 16 * 1024};
}

/// Bytes of the buffers of all ranks in such a call.
constexpr std::size_t touched_bytes(const HostJob& job, std::size_t ranks) {
  switch (job.collective) {
    case Collective::kBroadcast:
      return ranks * job.bytes();
    case Collective::kReduce:
    case Collective::kReduceScatterV:
      return (ranks + 1) * job.bytes();
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return (ranks + 1) * ranks * job.bytes();
    case Collective::kAllToAll:
      return 2 * ranks * ranks * job.bytes();
    default:
      return 2 * ranks * job.bytes();
  }
}

[[maybe_unused]] std::size_t cache_bytes(int name) {
  const long size = sysconf(name);
  return size > 0 ? static_cast<std::size_t>(size) : 0;
}

/// What the caches may be expected to keep of the ranks' buffers from one call to the next: those of the
/// cores, or the last one. Streaming what they would have kept costs twice the time, not streaming what they
/// cannot keep a third more (loom_bench). Of a large cache the neighbours have their share: on 480 MiB in a
/// virtual machine the two are level at 112 MiB.
std::size_t cached_bytes(std::size_t ranks) {
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  static const std::size_t l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE), l3 = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
#else
  constexpr std::size_t l2 = 0, l3 = 0;
#endif
  constexpr std::size_t kMiB = 1024 * 1024;
  return std::max(ranks * l2, std::clamp(l3 / 4 * 3, 16 * kMiB, 112 * kMiB));
}

bool outgrows_caches(const HostJob& job, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return touched_bytes(job, ranks) > cached_bytes(ranks);
}

}  // namespace

BoardExecutor::BoardExecutor(Boards& boards, const HostJob& job, Begun begun)
    : BoardExecutor(boards, job, outgrows_caches(job, boards.size()), begun) {}

BoardExecutor::BoardExecutor(Boards& boards, const HostJob& job, bool streams, Begun begun)
    : BoardWalk(boards, job, limits(boards), begun), boards_(boards), streams_(streams && kCanStream) {}

BoardExecutor::State BoardExecutor::advance() {
  if (done()) return State::kDone;
  if (!ready()) return State::kBlocked;
  perform([this](std::size_t tile) { take(tile); }, [this](std::size_t tile) { reduce_own(tile); },
          [this](std::size_t tile) { offer(tile); });
  if (streams_) stream_fence();
  return end_round();
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
    std::memcpy(to, fetched(first, bytes), bytes);
}

/// As far as it is on its way, it has come.
const std::byte* BoardExecutor::fetched(std::size_t first, std::size_t bytes) const {
  if (job_.transit != nullptr) job_.transit->need(job_.in + first, bytes);
  return job_.in + first;
}

/// What is at `out` stays as it is.
void BoardExecutor::tell(const std::byte* out, std::size_t bytes) const {
  if (job_.transit == nullptr) return;
  if (streams_) stream_fence();
  job_.transit->have(out, bytes);
}

void BoardExecutor::put(int block, std::size_t first, const std::byte* from, std::size_t bytes) const {
  if (job_.out_gaps != nullptr)
    job_.out_gaps->move(job_.out_gaps->context, block, const_cast<std::byte*>(from), bytes);
  else
    copy_out(job_.out + first, from, bytes);
}

void BoardExecutor::write(int block, std::size_t first, const std::byte* from, std::size_t bytes) const {
  put(block, first, from, bytes);
  if (job_.out_gaps == nullptr) tell(job_.out + first, bytes);
}

/// What I owe myself in an all-to-all.
void BoardExecutor::keep(const Range& own) const {
  const int self = boards_.self();
  if (job_.in_gaps == nullptr && job_.out_gaps == nullptr) {
    const std::byte* const from = fetched(own.first, own.bytes);
    if (job_.in != job_.out) copy_out(job_.out + own.first, from, own.bytes);
    tell(job_.out + own.first, own.bytes);
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
      if (!in_place) put(self, own + at, piece(0) + at, bytes);
    }
    if (job_.out_gaps == nullptr) tell(job_.out + own, range.bytes);
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
  if (range.bytes == 0) return;  // there may be no output
  const std::byte* const mine = fetched(range.first, range.bytes);
  // In place and with unequal parts, result and operand may overlap without being the same.
  const bool apart = streams_ || (job_.collective == Collective::kReduceScatterV && job_.in == job_.out);
  const bool keep = job_.collective != Collective::kReduce || self == job_.root;
  std::byte* const out = keep ? job_.out + (scatters() ? tile * tile_bytes_ : range.first) : nullptr;
  alignas(kCacheLine) std::byte own_block[kBlockBytes];
  for (std::size_t at = 0, bytes; at < range.bytes; at += bytes) {
    bytes = std::min(block_bytes(out, at), range.bytes - at);
    const std::size_t count = bytes / job_.elem_bytes;
    const auto operand = [&](int rank) { return rank == self ? mine + at : piece_of(rank, self) + at; };
    std::byte* const result = chunked_ ? piece(self) + at : apart ? own_block : out + at;
    // In place, the result may lie where my own operand does: what is still to be read must not be written
    // yet.
    std::byte* const partial = ranks == 2 ? result : own_block;
    job_.reduce(ranks == 2 ? result : partial, operand(0), operand(1), count);
    for (int rank = 2; rank < ranks; ++rank)
      job_.reduce(rank == ranks - 1 ? result : partial, partial, operand(rank), count);
    if (keep && result != out + at) copy_out(out + at, result, bytes);
  }
  if (keep) tell(out, range.bytes);
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
