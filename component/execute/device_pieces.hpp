// device_pieces.hpp -- which memory a call reads and writes on this rank, and which number tells calls that
// differ apart. For calls whose buffers stay on GPUs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/call.h"
#include "device/significance.h"

namespace loom {

/// A contiguous buffer, or a block of one, that matters on this rank.
struct Piece {
  loom_side side;
  const std::byte* data;
  std::size_t bytes;
};

/// Calls visit(piece) for all of them until it is false. False: it was, or some are not contiguous.
template <class Visit>
bool for_all_pieces(const device::Call& call, int rank, int ranks, Visit&& visit) {
  using device::Collective;
  const loom_significance* const row = loom_significance_of(static_cast<int>(call.collective));
  const loom_role role = loom_role_of(rank, call.root);
  const bool reads = loom_is_significant(row, LOOM_IN, role),
             writes = loom_is_significant(row, LOOM_OUT, role);
  if ((reads && call.in_packer != nullptr) || (writes && call.out_packer != nullptr)) return false;
  const auto all = static_cast<std::size_t>(ranks);
  if (device::lists_blocks(call.collective)) {
    // Kernels gather whole blocks.
    if (call.collective == Collective::kAllGatherV && call.in_blocks[0].bytes != call.out_blocks[rank].bytes)
      return false;
    const auto all_on = [&](loom_side side, const device::Block* blocks, int count) {
      return std::ranges::all_of(std::span(blocks, static_cast<std::size_t>(count)),
                                 [&](const device::Block& block) {
                                   return visit(Piece{side, block.data, block.bytes});
                                 });
    };
    return all_on(LOOM_IN, call.in_blocks, loom_blocks_of(row, LOOM_IN, role, ranks)) &&
           all_on(LOOM_OUT, call.out_blocks, loom_blocks_of(row, LOOM_OUT, role, ranks));
  }
  const bool sends_all =
                 call.collective == Collective::kReduceScatter || call.collective == Collective::kAllToAll,
             receives_all =
                 call.collective == Collective::kAllGather || call.collective == Collective::kAllToAll;
  const std::size_t read = sends_all ? all * call.bytes() : call.bytes(),
                    written = receives_all ? all * call.bytes()
                              : call.collective == Collective::kReduceScatterV
                                  ? (call.bounds[rank + 1] - call.bounds[rank]) * call.elem_bytes()
                                  : call.bytes();
  return (!reads || visit(Piece{LOOM_IN, call.in, read})) &&
         (!writes || visit(Piece{LOOM_OUT, call.out, written}));
}

/// FNV-1a, by words.
class Note {
 public:
  void add(std::uint64_t word) {
    note_ = (note_ ^ word) * 1099511628211U;
    note_ ^= note_ >> 29;  // high bits count, too
  }
  /// Not 0.
  std::uint64_t value() const { return note_ | 1; }

 private:
  std::uint64_t note_ = 14695981039346656037U;
};

/// Adds up to 0 over all ranks if each sends every other as much as that expects, but for a hash's chance. Of
/// an all-to-all that lists its blocks.
inline std::uint64_t pairs_of(const device::Call& call, int rank, int ranks) {
  const auto word = [](int from, int to, std::size_t bytes) {
    Note note;
    note.add(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to));
    note.add(bytes);
    return note.value();
  };
  std::uint64_t sum = 0;
  for (int peer = 0; peer < ranks; ++peer)
    sum += word(rank, peer, call.in_blocks[peer].bytes) - word(peer, rank, call.out_blocks[peer].bytes);
  return sum;
}

/// Of what all ranks must have alike in a call. Others for calls that differ, but for a hash's chance.
inline std::uint64_t note_of(const device::Call& call, int ranks) {
  using device::Collective;
  const bool reduces = device::is_reduction(call.collective),
             has_root =
                 (loom_significance_of(static_cast<int>(call.collective))->traits & LOOM_HAS_ROOT) != 0;
  Note note;
  note.add(static_cast<std::uint64_t>(call.collective));
  note.add(device::shared_bytes(call, ranks));
  note.add(has_root ? static_cast<std::uint64_t>(call.root) : 0);
  note.add(reduces ? static_cast<std::uint64_t>(call.op) << 8 | static_cast<std::uint64_t>(call.type) : 0);
  // Kernels divide the call by the lengths of its blocks.
  if (call.collective == Collective::kReduceScatterV)
    for (int r = 1; r < ranks; ++r) note.add(call.bounds[r]);
  if (call.collective == Collective::kAllGatherV)
    for (int r = 0; r < ranks; ++r) note.add(call.out_blocks[r].bytes);
  return note.value();
}

}  // namespace loom
