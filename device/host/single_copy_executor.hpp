// single_copy_executor.hpp -- broadcast, all-gather and all-to-all of one host in which ranks read each
// other's buffers: a byte is copied once, and a call needs three rounds whatever its size. The boards carry
// addresses. Resumable: it never waits. (Reductions gain nothing: what is fetched has to go through a cache
// anyway, as it does from a board.)
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/host/board_executor.hpp"

namespace loom::device {

class SingleCopyExecutor {
 public:
  static constexpr bool takes(Collective collective) {
    return collective == Collective::kBroadcast || collective == Collective::kAllGather ||
           collective == Collective::kAllToAll;
  }

  /// pids: by rank; all of them permit read_peer_memory(). takes(job.collective), count >= 1.
  SingleCopyExecutor(Boards& boards, std::span<const std::int64_t> pids, const HostJob& job);

  using State = RingExecutor::State;
  /// Performs one round unless it must wait. Throws what Boards and read_peer_memory() throw.
  State advance();
  int awaited() const noexcept { return awaited_; }

 private:
  static constexpr int kRounds = 3;  ///< tell where my operand is; read; see that everybody has read
  bool is_reader() const;
  bool ready();
  void read_operands();
  void read(int rank, std::byte* to, std::size_t offset) const;

  Boards& boards_;
  std::span<const std::int64_t> pids_;
  HostJob job_;
  int round_ = 0;
  int awaited_ = 0;
  std::unique_ptr<std::byte[]>
      operand_copy_;  ///< of an all-to-all in place, whose operand is overwritten too early
};

}  // namespace loom::device
