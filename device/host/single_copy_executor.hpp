// single_copy_executor.hpp -- broadcast, all-gather and all-to-all of one host in which ranks read each
// other's buffers: a byte is copied once, and a call needs three rounds whatever its size. The boards carry
// addresses. Resumable: it never waits. (Reductions gain nothing: what is fetched has to go through a cache
// anyway, as it does from a board.)
//
// An operand that others cannot read (it has gaps) is told as no address: then all ranks see that, and go by
// boards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  int awaited() const noexcept { return by_boards_ ? by_boards_->awaited() : awaited_; }

 private:
  /// Tell where my operand is; read the others'; wait until they have read mine. A round each, the last of
  /// which publishes nothing.
  enum class Step { kTell, kRead, kWait };
  bool is_reader() const;
  bool has_all(bool (Boards::*as_far)(int));
  State tell();
  State read_operands();
  State go_by_boards();
  int source(int k) const;
  const std::byte* operand_of(int rank) const;
  void keep_own() const;
  void read(int rank, int block, std::size_t offset) const;

  Boards& boards_;
  std::span<const std::int64_t> pids_;
  HostJob job_;
  Step step_ = Step::kTell;
  int read_ = 0;  ///< operands
  int awaited_ = 0;
  const std::byte* operand_;  ///< that others read; nullptr: they cannot
  /// Of an all-to-all in place, whose operand is overwritten too early.
  std::unique_ptr<std::byte[]> operand_copy_;
  std::optional<BoardExecutor> by_boards_;
};

}  // namespace loom::device
