// cico_scan_executor.hpp -- prefix reductions of one host: every rank offers its operand, tile by tile, and
// reduces the operands of the ranks before it, in a scan also its own, in order of rank. Resumable: it never
// waits.
#pragma once

#include "device/host/cico_executor.hpp"

namespace loom::device {

class CicoScanExecutor {
 public:
  /// kScan or kExscan; count >= 1. An exclusive scan leaves rank 0's output as it is.
  CicoScanExecutor(CicoBuffers& cico, const Call& call);

  using State = RingExecutor::State;
  /// Performs one round unless it must wait.
  State advance();
  int awaited() const noexcept { return awaited_; }

 private:
  void reduce(std::size_t tile) const;
  std::size_t bytes_of(std::size_t tile) const;

  CicoBuffers& cico_;
  Call call_;
  std::size_t tile_bytes_, tiles_;
  std::size_t round_ = 0;
  int awaited_ = 0;
};

}  // namespace loom::device
