#include "device/host/scan_executor.hpp"

#include <algorithm>
#include <cstring>

#include "device/schedule/exchange_schedule.hpp"

namespace loom::device {
namespace {

// As in a BoardExecutor: a block stays in the L1 cache while the operands pass; several tiles let writing and
// reading overlap, but none is shorter than what a round costs to agree on.
constexpr std::size_t kBlockBytes = 8 * 1024;
constexpr std::size_t kTiles = 4;
constexpr std::size_t kMinTileBytes = 16 * 1024;

}  // namespace

ScanExecutor::ScanExecutor(Boards& boards, const HostJob& job) : boards_(boards), job_(job) {
  const std::size_t unit = std::max<std::size_t>(1, kCacheLine / job.elem_bytes) * job.elem_bytes;
  const std::size_t most = boards.bank_bytes();
  const std::size_t wanted =
      boards.few_rounds() ? most : std::clamp(job.bytes() / kTiles, kMinTileBytes, most);
  tile_bytes_ = wanted / unit * unit;
  tiles_ = (job.bytes() + tile_bytes_ - 1) / tile_bytes_;
  boards.enter({job, CallFamily::kBlocks});
}

/// Round r offers tile r and reduces tile r - 1, which all have offered.
ScanExecutor::State ScanExecutor::advance() {
  if (round_ > tiles_) return State::kDone;
  if (!ready()) return State::kBlocked;
  if (round_ > 0) reduce(round_ - 1);
  if (round_ == tiles_) {
    ++round_;
    return State::kDone;
  }
  std::memcpy(boards_.to_write(), job_.in + round_ * tile_bytes_, bytes_of(round_));
  if (round_ == 0) boards_.sign();
  boards_.publish();
  ++round_;
  return State::kMoved;
}

bool ScanExecutor::ready() {
  for (int k = 0; k < boards_.size() - 1; ++k) {
    awaited_ = other_position(boards_.self(), k);
    if (!(round_ == 0 ? boards_.is_past(awaited_) : boards_.is_level(awaited_))) return false;
    if (round_ == 1) boards_.compare(awaited_);
  }
  return true;
}

std::size_t ScanExecutor::bytes_of(std::size_t tile) const {
  return std::min(tile_bytes_, job_.bytes() - tile * tile_bytes_);
}

/// In place, my own operand is read from my board: by now the output may have overwritten it.
void ScanExecutor::reduce(std::size_t tile) const {
  const int operands = boards_.self() + (job_.collective == Collective::kScan ? 1 : 0);
  if (operands == 0) return;
  const std::size_t bytes = bytes_of(tile), block_bytes = kBlockBytes / job_.elem_bytes * job_.elem_bytes;
  std::byte* const out = job_.out + tile * tile_bytes_;
  for (std::size_t at = 0; at < bytes; at += block_bytes) {
    const std::size_t length = std::min(block_bytes, bytes - at), count = length / job_.elem_bytes;
    if (operands == 1) std::memcpy(out + at, boards_.to_read(0) + at, length);
    const std::byte* so_far = boards_.to_read(0) + at;
    for (int rank = 1; rank < operands; ++rank, so_far = out + at)
      job_.reduce(out + at, so_far, boards_.to_read(rank) + at, count);
  }
}

}  // namespace loom::device
