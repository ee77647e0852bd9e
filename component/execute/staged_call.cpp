#include "component/execute/staged_call.hpp"

#include "component/execute/device_pieces.hpp"

namespace loom {

using device::cuda::PolledSide;
using device::cuda::StridedRegion;

StagedCall::StagedCall(device::cuda::Staging& staging, const device::cuda::ProgramMark& after,
                       const device::Call& call, int rank, int ranks)
    : on_host_(call), in_place_(!device::lists_blocks(call.collective) && call.in == call.out) {
  for_all_pieces(call, rank, ranks, [&](const Piece& piece) {
    add(piece.side, piece.data, piece.bytes);
    return true;
  });
  std::vector<PolledSide> sides;
  for (Side* const side : {&in_, &out_}) {
    if (side->load.empty() && side->store.empty()) continue;
    constexpr bool kMayWait = false;
    // Whoever advances the call may not be the program's thread.
    side->buffer =
        staging.staging_buffer(side->first(), side->load, side->store, kMayWait, after.owner().context);
    sides.push_back({side->buffer.get(), side->load, side->store});
  }
  replace_buffers(rank, ranks);
  copies_ = std::make_unique<device::cuda::PolledCopies>(sides, &after);
}

const std::byte* StagedCall::Side::first() const {
  return load.empty() ? store.front().device : load.front().device;
}

void StagedCall::add(loom_side side, const std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  const StridedRegion region{const_cast<std::byte*>(data), nullptr, bytes, 1, bytes};
  side == LOOM_IN ? side_of_in().load.push_back(region) : out_.store.push_back(region);
}

/// Buffers that do not matter on this rank, and empty blocks, stay as they are.
void StagedCall::replace_buffers(int rank, int ranks) {
  if (!device::lists_blocks(on_host_.collective)) {
    if (!side_of_in().load.empty()) on_host_.in = side_of_in().on_host(on_host_.in);
    if (!out_.store.empty()) on_host_.out = out_.on_host(on_host_.out);
    return;
  }
  const auto replace = [&](loom_side which, const device::Block* given, std::vector<device::Block>& blocks,
                           const Side& side) {
    const loom_significance* const row = loom_significance_of(static_cast<int>(on_host_.collective));
    blocks.assign(given, given + loom_blocks_of(row, which, loom_role_of(rank, on_host_.root), ranks));
    for (device::Block& block : blocks)
      if (block.bytes > 0) block.data = side.on_host(block.data);
  };
  replace(LOOM_IN, on_host_.in_blocks, in_blocks_, in_);
  replace(LOOM_OUT, on_host_.out_blocks, out_blocks_, out_);
  on_host_.in_blocks = in_blocks_.data();
  on_host_.out_blocks = out_blocks_.data();
  on_host_.owns_its_block = false;  // the operand has a staging buffer of its own
}

}  // namespace loom
