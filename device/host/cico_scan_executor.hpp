// cico_scan_executor.hpp -- prefix reductions of one host, in order of rank, tile by tile. Resumable: it
// never waits.
//
//   one shot    Every rank offers its operand and reduces those of the ranks before it, in a scan also its
//               own: the last rank reads n operands.
//   two shots   Of each tile a rank has a chunk. It reduces the operands of all ranks there and offers each
//               rank its result; then every rank takes the chunks of its own. Each reads two messages,
//               however many ranks there are.
#pragma once

#include "device/host/cico_executor.hpp"

namespace loom::device {

class CicoScanExecutor {
 public:
  /// What pays off: the same on all ranks.
  static bool goes_in_two_shots(const Rounds& rounds, std::size_t bytes) noexcept;

  /// kScan or kExscan; count >= 1. An exclusive scan leaves rank 0's output as it is.
  CicoScanExecutor(CicoBuffers& cico, const Call& call)
      : CicoScanExecutor(cico, call, goes_in_two_shots(cico, call.bytes())) {}
  CicoScanExecutor(CicoBuffers& cico, const Call& call, bool two_shots);

  using State = RingExecutor::State;
  /// Performs one round unless it must wait.
  State advance();
  int awaited() const noexcept { return awaited_; }

 private:
  /// Bytes [first, first + bytes) of a tile.
  struct Chunk {
    std::size_t first, bytes;
  };
  Chunk chunk_of(int rank, std::size_t tile) const;
  std::size_t bytes_of(std::size_t tile) const;
  bool is_inclusive() const { return call_.collective == Collective::kScan; }
  std::size_t place_for(int rank) const;
  void offer(std::size_t tile) const;
  void reduce_alone(std::size_t tile) const;
  void reduce_for_all(std::size_t tile) const;
  void take(std::size_t tile) const;

  CicoBuffers& cico_;
  Call call_;
  std::size_t unit_;        ///< whole elements, of which a chunk consists
  bool two_shots_;          ///< where a bank is long enough
  std::size_t tile_bytes_;  ///< in two shots at most half a bank; results lie in the other half
  std::size_t tiles_;
  std::size_t round_ = 0;
  int awaited_ = 0;
};

}  // namespace loom::device
