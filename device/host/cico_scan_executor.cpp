#include "device/host/cico_scan_executor.hpp"

#include <algorithm>
#include <cstring>

#include "device/schedule/divide_up.hpp"

namespace loom::device {
namespace {

// As in CicoExecutor: a block stays in the L1 cache while the operands pass. Several tiles let writing and
// reading overlap, but none is so short that the round costs more than that saves.
constexpr std::size_t kBlockBytes = 8 * 1024;
constexpr std::size_t kTiles = 4;
constexpr std::size_t kMinTileBytes = 16 * 1024;

// From so many bytes of all operands on, two shots take less time in the model of cache lines, on 4 to 64
// cores (docs/results/cores.md). Where ranks share CPUs, the work of all ranks together counts, n^2 / 2
// against 4 n messages, and one more round (4, 8 and 16 ranks on 2 cores).
constexpr int kFewestRanks = 4, kManyRanks = 16;
constexpr std::size_t kLeastOperands = 16 * 1024;
constexpr std::size_t kLeastOnSharedCpus = 1024 * 1024, kLeastOfManyOnSharedCpus = 64 * 1024;

}  // namespace

bool CicoScanExecutor::goes_in_two_shots(const Rounds& rounds, std::size_t bytes) noexcept {
  const int ranks = rounds.size();
  if (ranks < kFewestRanks) return false;
  if (!rounds.few_rounds()) return bytes >= kLeastOperands / static_cast<std::size_t>(ranks);
  return bytes >= (ranks < kManyRanks ? kLeastOnSharedCpus : kLeastOfManyOnSharedCpus);
}

CicoScanExecutor::CicoScanExecutor(CicoBuffers& cico, const Call& call, bool two_shots)
    : cico_(cico),
      call_(call),
      unit_(std::max<std::size_t>(1, kCacheLine / call.elem_bytes()) * call.elem_bytes()),
      two_shots_(two_shots && cico.bank_bytes() / 2 >= static_cast<std::size_t>(cico.size()) * unit_) {
  const std::size_t most = cico.bank_bytes() / (two_shots_ ? 2 : 1),
                    unit = unit_ * (two_shots_ ? static_cast<std::size_t>(cico.size()) : 1);
  const std::size_t wanted =
      cico.few_rounds() ? most : std::clamp(call.bytes() / kTiles, std::min(kMinTileBytes, most), most);
  tile_bytes_ = std::max<std::size_t>(wanted / unit, 1) * unit;
  tiles_ = divide_up(call.bytes(), tile_bytes_);
  cico.enter({call, CallFamily::kBlocks});
}

/// Round r offers tile r and reduces tile r - 1, which all have offered; in two shots it takes the results of
/// tile r - 2.
CicoScanExecutor::State CicoScanExecutor::advance() {
  const std::size_t last = tiles_ + (two_shots_ ? 1 : 0);
  if (round_ > last) return State::kDone;
  if (!cico_.all_are_ready(round_, awaited_)) return State::kBlocked;
  if (two_shots_ && round_ >= 2) take(round_ - 2);
  if (round_ >= 1 && round_ <= tiles_) two_shots_ ? reduce_for_all(round_ - 1) : reduce_alone(round_ - 1);
  if (round_ < tiles_) offer(round_);
  if (round_ == 0) cico_.sign();
  if (round_++ == last) return State::kDone;  // nothing was written; see Rounds
  cico_.publish();
  return State::kMoved;
}

std::size_t CicoScanExecutor::bytes_of(std::size_t tile) const {
  return std::min(tile_bytes_, call_.bytes() - tile * tile_bytes_);
}

CicoScanExecutor::Chunk CicoScanExecutor::chunk_of(int rank, std::size_t tile) const {
  const std::size_t bytes = bytes_of(tile), ranks = static_cast<std::size_t>(cico_.size());
  const std::size_t chunk = divide_up(divide_up(bytes, ranks), unit_) * unit_;
  const std::size_t first = std::min(static_cast<std::size_t>(rank) * chunk, bytes);
  return {first, std::min(chunk, bytes - first)};
}

/// Where in a bank the result of a rank lies, which is not rank 0.
std::size_t CicoScanExecutor::place_for(int rank) const {
  return tile_bytes_ +
         static_cast<std::size_t>(rank - 1) * (tile_bytes_ / static_cast<std::size_t>(cico_.size()));
}

void CicoScanExecutor::offer(std::size_t tile) const {
  const std::byte* const mine = call_.in + tile * tile_bytes_;
  std::memcpy(cico_.to_write(), mine, bytes_of(tile));
  if (two_shots_ && cico_.self() == 0 && is_inclusive() && call_.in != call_.out)
    std::memcpy(call_.out + tile * tile_bytes_, mine, bytes_of(tile));
}

/// In place, my own operand is read from my CICO buffer: by now the output may have overwritten it.
void CicoScanExecutor::reduce_alone(std::size_t tile) const {
  const int operands = cico_.self() + (is_inclusive() ? 1 : 0);
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

/// Of my chunk: each rank's result is that of the rank before it, and one operand more.
void CicoScanExecutor::reduce_for_all(std::size_t tile) const {
  const Chunk mine = chunk_of(cico_.self(), tile);
  const std::size_t block_bytes = kBlockBytes / call_.elem_bytes() * call_.elem_bytes();
  for (std::size_t at = 0; at < mine.bytes; at += block_bytes) {
    const std::size_t length = std::min(block_bytes, mine.bytes - at), count = length / call_.elem_bytes();
    const auto operand = [&](int rank) { return cico_.to_read(rank) + mine.first + at; };
    const auto result = [&](int rank) { return cico_.to_write() + place_for(rank) + at; };
    if (!is_inclusive()) std::memcpy(result(1), operand(0), length);
    const std::byte* so_far = is_inclusive() ? operand(0) : result(1);
    for (int rank = is_inclusive() ? 1 : 2; rank < cico_.size(); so_far = result(rank), ++rank)
      call_.reduce()(result(rank), so_far, operand(is_inclusive() ? rank : rank - 1), count);
  }
}

void CicoScanExecutor::take(std::size_t tile) const {
  if (cico_.self() == 0) return;
  for (int owner = 0; owner < cico_.size(); ++owner) {
    const Chunk chunk = chunk_of(owner, tile);
    if (chunk.bytes > 0)
      std::memcpy(call_.out + tile * tile_bytes_ + chunk.first,
                  cico_.to_read(owner) + place_for(cico_.self()), chunk.bytes);
  }
}

}  // namespace loom::device
