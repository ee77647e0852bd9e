#include "device/host/cico_scan_executor.hpp"

#include <algorithm>
#include <cstring>

namespace loom::device {
namespace {

// As in CicoExecutor: a block stays in the L1 cache while the operands pass. Several tiles let writing and
// reading overlap, but none is so short that the round costs more than that saves.
constexpr std::size_t kBlockBytes = 8 * 1024;
constexpr std::size_t kTiles = 4;
constexpr std::size_t kMinTileBytes = 16 * 1024;

}  // namespace

CicoScanExecutor::CicoScanExecutor(CicoBuffers& cico, const Call& call) : cico_(cico), call_(call) {
  const std::size_t unit = std::max<std::size_t>(1, kCacheLine / call.elem_bytes()) * call.elem_bytes();
  const std::size_t most = cico.bank_bytes();
  const std::size_t wanted =
      cico.few_rounds() ? most : std::clamp(call.bytes() / kTiles, std::min(kMinTileBytes, most), most);
  tile_bytes_ = wanted / unit * unit;
  tiles_ = (call.bytes() + tile_bytes_ - 1) / tile_bytes_;
  cico.enter({call, CallFamily::kBlocks});
}

/// Round r offers tile r and reduces tile r - 1, which all have offered.
CicoScanExecutor::State CicoScanExecutor::advance() {
  if (round_ > tiles_) return State::kDone;
  if (!cico_.all_are_ready(round_, awaited_)) return State::kBlocked;
  if (round_ > 0) reduce(round_ - 1);
  if (round_ == tiles_) {
    ++round_;
    return State::kDone;
  }
  std::memcpy(cico_.to_write(), call_.in + round_ * tile_bytes_, bytes_of(round_));
  if (round_ == 0) cico_.sign();
  cico_.publish();
  ++round_;
  return State::kMoved;
}

std::size_t CicoScanExecutor::bytes_of(std::size_t tile) const {
  return std::min(tile_bytes_, call_.bytes() - tile * tile_bytes_);
}

/// In place, my own operand is read from my CICO buffer: by now the output may have overwritten it.
void CicoScanExecutor::reduce(std::size_t tile) const {
  const int operands = cico_.self() + (call_.collective == Collective::kScan ? 1 : 0);
  if (operands == 0) return;
  const std::size_t bytes = bytes_of(tile),
                    block_bytes = kBlockBytes / call_.elem_bytes() * call_.elem_bytes();
  std::byte* const out = call_.out + tile * tile_bytes_;
  for (std::size_t at = 0; at < bytes; at += block_bytes) {
    const std::size_t length = std::min(block_bytes, bytes - at), count = length / call_.elem_bytes();
    if (operands == 1) std::memcpy(out + at, cico_.to_read(0) + at, length);
    const std::byte* so_far = cico_.to_read(0) + at;
    for (int rank = 1; rank < operands; ++rank, so_far = out + at)
      call_.reduce()(out + at, so_far, cico_.to_read(rank) + at, count);
  }
}

}  // namespace loom::device
