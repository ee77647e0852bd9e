// block_executor.hpp -- collectives of one host whose blocks may differ in size from rank to rank: gather and
// scatter, and the v and w forms. Also a barrier, which is the same without blocks. Resumable: it never
// waits.
//
// How long a call takes must be known to all, while a block's size is known only to the two ranks that it
// concerns. So every rank says in the first round how many rounds its own blocks need; the longest decides.
#pragma once

#include "device/host/board_executor.hpp"

namespace loom::device {

class BlockExecutor {
 public:
  /// lists_blocks(job.collective), or a barrier. The blocks must stay where they are until this is done.
  BlockExecutor(Boards& boards, const HostJob& job);

  using State = RingExecutor::State;
  /// Performs one round unless it must wait.
  State advance();
  int awaited() const noexcept { return awaited_; }

 private:
  /// Room at the start of a bank for the number of rounds.
  static constexpr std::size_t kHeaderBytes = kCacheLine;

  bool sends_to(int rank) const;
  bool receives_from(int rank) const;
  int in_block(int rank) const;
  int out_block(int rank) const;
  int place_of(int rank, int sender) const;
  bool ready();
  void learn_rounds();
  void announce();
  void offer();
  void take();
  void keep_own() const;

  Boards& boards_;
  HostJob job_;
  std::size_t piece_bytes_;  ///< of each block in a round
  std::size_t round_ = 0;
  std::size_t rounds_ = 0;  ///< in which somebody offers something; known from round 1 on
  int awaited_ = 0;
};

/// What a rank owes itself, from its operand to its result; all of the job where it is alone. Not for
/// reductions.
void move_own_block(const HostJob& job, int self);

}  // namespace loom::device
