#include "device/host/cico_executor.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "device/host/copy.hpp"
#include "device/schedule/exchange_schedule.hpp"

namespace loom::device {
namespace {

// Bytes processed at a time, so that operands and result of a reduction stay in the L1 cache.
constexpr std::size_t kBlockBytes = 8 * 1024;
// Where the result is then streamed to the output: so few that both can overlap inside the CPU.
constexpr std::size_t kStreamBlockBytes = 1024;
TileLimits limits(const CicoBuffers& cico) {
  return {.bank_bytes = cico.bank_bytes(), .min_tile_bytes = 4 * 1024, .min_chunk_tile_bytes = 16 * 1024};
}

/// Bytes of all ranks' buffers in such a call.
constexpr std::size_t touched_bytes(const Call& call, std::size_t ranks) {
  switch (call.collective) {
    case Collective::kBroadcast:
      return ranks * call.bytes();
    case Collective::kReduce:
    case Collective::kReduceScatterV:
      return (ranks + 1) * call.bytes();
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return (ranks + 1) * ranks * call.bytes();
    case Collective::kAllToAll:
      return 2 * ranks * ranks * call.bytes();
    default:
      return 2 * ranks * call.bytes();
  }
}

[[maybe_unused]] std::size_t cache_bytes(int name) {
  const long size = sysconf(name);
  return size > 0 ? static_cast<std::size_t>(size) : 0;
}

/// Bytes of the ranks' buffers that the cores' caches, or the last-level cache, may be expected to keep from
/// one call to the next. Streaming what they would have kept doubles the time; not streaming what they cannot
/// keep takes a third more (loom_bench). Others share a large cache: with 480 MiB in a virtual machine both
/// take equally long at 112 MiB.
std::size_t cached_bytes(std::size_t ranks) {
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  static const std::size_t l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE), l3 = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
#else
  constexpr std::size_t l2 = 0, l3 = 0;
#endif
  constexpr std::size_t kMiB = 1024 * 1024;
  return std::max(ranks * l2, std::clamp(l3 / 4 * 3, 16 * kMiB, 112 * kMiB));
}

bool outgrows_caches(const Call& call, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return touched_bytes(call, ranks) > cached_bytes(ranks);
}

}  // namespace

CicoExecutor::CicoExecutor(CicoBuffers& cico, const Call& call, Begun begun)
    : CicoExecutor(cico, call, outgrows_caches(call, cico.size()), begun) {}

CicoExecutor::CicoExecutor(CicoBuffers& cico, const Call& call, bool streams, Begun begun)
    : CicoWalk(cico, call, limits(cico), begun), cico_(cico), streams_(streams && kCanStream) {}

CicoExecutor::State CicoExecutor::advance() {
  if (done()) return State::kDone;
  if (!ready()) return State::kBlocked;
  perform([this](std::size_t tile) { take(tile); }, [this](std::size_t tile) { reduce_own(tile); },
          [this](std::size_t tile) { offer(tile); });
  if (streams_) stream_fence();
  return end_round();
}

void CicoExecutor::copy_out(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (streams_)
    stream_copy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

/// Reads my operand from `first` on, which lies in `block`.
void CicoExecutor::read(int block, std::size_t first, std::byte* to, std::size_t bytes) const {
  if (call_.in_packer != nullptr)
    call_.in_packer->move(call_.in_packer->context, block, to, bytes);
  else if (bytes > 0)
    std::memcpy(to, fetched(first, bytes), bytes);
}

/// Returns once these bytes of the operand are on the host.
const std::byte* CicoExecutor::fetched(std::size_t first, std::size_t bytes) const {
  if (call_.streaming != nullptr) call_.streaming->need(call_.in + first, bytes);
  return call_.in + first;
}

/// The bytes at `out` are final.
void CicoExecutor::tell(const std::byte* out, std::size_t bytes) const {
  if (call_.streaming == nullptr) return;
  if (streams_) stream_fence();
  call_.streaming->have(out, bytes);
}

void CicoExecutor::put(int block, std::size_t first, const std::byte* from, std::size_t bytes) const {
  if (call_.out_packer != nullptr)
    call_.out_packer->move(call_.out_packer->context, block, const_cast<std::byte*>(from), bytes);
  else
    copy_out(call_.out + first, from, bytes);
}

void CicoExecutor::write(int block, std::size_t first, const std::byte* from, std::size_t bytes) const {
  put(block, first, from, bytes);
  if (call_.out_packer == nullptr) tell(call_.out + first, bytes);
}

/// Moves my own block of an all-to-all.
void CicoExecutor::keep(const Range& own) const {
  const int self = cico_.self();
  if (call_.in_packer == nullptr && call_.out_packer == nullptr) {
    const std::byte* const from = fetched(own.first, own.bytes);
    if (call_.in != call_.out) copy_out(call_.out + own.first, from, own.bytes);
    tell(call_.out + own.first, own.bytes);
    return;
  }
  std::byte block[kBlockBytes];
  for (std::size_t at = 0; at < own.bytes; at += kBlockBytes) {
    const std::size_t bytes = std::min(kBlockBytes, own.bytes - at);
    read(self, own.first + at, block, bytes);
    write(self, own.first + at, block, bytes);
  }
}

/// Offers my operand, to all or a part to each other rank; my own block goes straight to its place.
void CicoExecutor::offer(std::size_t tile) {
  const int self = cico_.self();
  if (one_part_) {
    const Range range = tile_of(0, tile);
    if (call_.collective == Collective::kBroadcast) {
      if (self == call_.root) read(0, range.first, piece(0), range.bytes);
      return;
    }
    if (call_.collective == Collective::kReduce) {
      if (self != call_.root) read(0, range.first, piece(0), range.bytes);
      return;
    }
    const std::size_t own = static_cast<std::size_t>(self) * call_.bytes() + range.first;
    const bool packs = call_.in_packer != nullptr || call_.out_packer != nullptr;
    const bool in_place = !packs && call_.in + range.first == call_.out + own;
    for (std::size_t at = 0; at < range.bytes; at += kBlockBytes) {
      const std::size_t bytes = std::min(kBlockBytes, range.bytes - at);
      read(0, range.first + at, piece(0) + at, bytes);
      if (!in_place) put(self, own + at, piece(0) + at, bytes);
    }
    if (call_.out_packer == nullptr) tell(call_.out + own, range.bytes);
    return;
  }
  for (int k = 0; k < cico_.size() - 1; ++k) {
    const int peer = other_position(self, k);
    const Range range = tile_of(peer, tile);
    read(peer, range.first, piece(peer), range.bytes);
  }
  if (call_.collective == Collective::kAllToAll) keep(tile_of(self, tile));
}

/// Bytes to reduce at a time, from `at` on. Streamed blocks end where cache lines of the output do: the rest
/// of a line would have to be fetched.
std::size_t CicoExecutor::block_bytes(const std::byte* out, std::size_t at) const {
  const std::size_t block =
      (streams_ ? kStreamBlockBytes : kBlockBytes) / call_.elem_bytes() * call_.elem_bytes();
  const std::size_t over = reinterpret_cast<std::uintptr_t>(out) % kCacheLine;
  return streams_ && at == 0 && over % call_.elem_bytes() == 0 && over < block ? block - over : block;
}

/// Reduces all ranks' operands of my part, in order of rank; the result goes to my output and, where others
/// want it, to my CICO buffer.
void CicoExecutor::reduce_own(std::size_t tile) {
  const int self = cico_.self(), ranks = cico_.size();
  const Range range = tile_of(self, tile);
  if (range.bytes == 0) return;  // there may be no output
  const std::byte* const mine = fetched(range.first, range.bytes);
  // In place and with unequal parts, result and operand may overlap without being the same.
  const bool apart = streams_ || (call_.collective == Collective::kReduceScatterV && call_.in == call_.out);
  const bool keep = call_.collective != Collective::kReduce || self == call_.root;
  std::byte* const out = keep ? call_.out + (scatters() ? tile * tile_bytes_ : range.first) : nullptr;
  alignas(kCacheLine) std::byte own_block[kBlockBytes];
  const ReduceFn reduce = call_.reduce();
  for (std::size_t at = 0, bytes; at < range.bytes; at += bytes) {
    bytes = std::min(block_bytes(out, at), range.bytes - at);
    const std::size_t count = bytes / call_.elem_bytes();
    const auto operand = [&](int rank) { return rank == self ? mine + at : piece_of(rank, self) + at; };
    std::byte* const result = chunked_ ? piece(self) + at : apart ? own_block : out + at;
    // In place, the result may lie where my own operand does, which must be read before it is overwritten.
    std::byte* const partial = ranks == 2 ? result : own_block;
    reduce(ranks == 2 ? result : partial, operand(0), operand(1), count);
    for (int rank = 2; rank < ranks; ++rank)
      reduce(rank == ranks - 1 ? result : partial, partial, operand(rank), count);
    if (keep && result != out + at) copy_out(out + at, result, bytes);
  }
  if (keep) tell(out, range.bytes);
}

/// Takes what others offered me in the round before.
void CicoExecutor::take(std::size_t tile) {
  for_each_taken(tile, [&](int peer, const Taken& taken) {
    const int block = call_.collective == Collective::kBroadcast ? 0 : peer;
    write(block, taken.first, piece_of(peer, taken.part), taken.bytes);
  });
}

}  // namespace loom::device
