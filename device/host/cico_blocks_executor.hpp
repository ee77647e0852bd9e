// cico_blocks_executor.hpp -- collectives of one host whose blocks may differ in size from rank to rank:
// gather and scatter, and the v and w forms. Also a barrier, which is the same without blocks. Resumable: it
// never waits.
//
// All ranks must know how many rounds a call takes, but only sender and receiver know the size of a block. So
// every rank says in the first round how many rounds its own blocks need; the highest number decides. It also
// says how long each block is: a receiver with less room takes what fits, goes through all rounds as the
// others do, and tells its caller.
#pragma once

#include <optional>

#include "device/host/cico_executor.hpp"

namespace loom::device {

/// A block that did not fit.
struct CutBlock {
  int peer;  ///< who sent it
  std::size_t sent, room;
};

class CicoBlocksExecutor {
 public:
  /// lists_blocks(call.collective), or a barrier. The blocks must stay where they are until this is done.
  CicoBlocksExecutor(CicoBuffers& cico, const Call& call);

  using State = RingExecutor::State;
  /// Performs one round unless it must wait.
  State advance();
  int awaited() const noexcept { return awaited_; }
  /// The first block that did not fit, once this is done.
  const std::optional<CutBlock>& cut() const noexcept { return cut_; }

 private:
  /// The start of a bank in the first round: the number of rounds, and then the bytes of each piece's whole
  /// block.
  std::uint64_t* header() const { return reinterpret_cast<std::uint64_t*>(cico_.to_write()); }
  std::uint64_t header_of(int rank, std::size_t word) const;

  bool sends_to(int rank) const;
  bool receives_from(int rank) const;
  int in_block(int rank) const;
  int out_block(int rank) const;
  std::size_t place_of(int rank, int sender) const;
  void learn_rounds();
  void learn_lengths();
  void announce();
  void offer();
  void take();
  void keep_own();
  void keep_shared(std::size_t first, const std::byte* piece, std::size_t bytes);

  CicoBuffers& cico_;
  Call call_;
  std::size_t header_bytes_;          ///< the same in all rounds
  std::size_t piece_bytes_;           ///< of each block in a round
  std::vector<std::size_t> to_take_;  ///< by rank: bytes of its block that have room here; from round 1 on
  std::optional<CutBlock> cut_;
  std::size_t round_ = 0;
  std::size_t rounds_ = 0;  ///< in which somebody offers something; known from round 1 on
  int awaited_ = 0;
};

/// Moves a rank's own block from its operand to its result; that is all of a call where the rank is alone.
/// Not for reductions. Returns the block if it does not fit.
std::optional<CutBlock> move_own_block(const Call& call, int self);

}  // namespace loom::device
