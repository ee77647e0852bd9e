// single_copy_executor.hpp -- collectives of one host in which ranks read each other's buffers: a byte is
// copied once, and a call needs three rounds whatever its size, an all-reduce four. The CICO buffers carry
// addresses. Resumable: it never waits.
//
// Operands of reductions are read tile by tile, to the output or to a bank of the own CICO buffer that nobody
// else reads, and are still in the cache when they are reduced. Reductions go in order of rank, as on the
// CICO buffers: the same bits.
//
// An operand that others cannot read (it is not contiguous, or is overwritten too early) is told as a null
// address: then all ranks see that, and use the CICO buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "device/host/cico_executor.hpp"

namespace loom::device {

class SingleCopyExecutor {
 public:
  static constexpr bool takes(Collective collective) {
    return collective <= Collective::kAllToAll || collective == Collective::kReduceScatterV;
  }

  /// pids: by rank; all of them permit read_peer_memory(). takes(call.collective), count >= 1.
  /// begun: as for CicoWalk.
  SingleCopyExecutor(CicoBuffers& cico, std::span<const std::int64_t> pids, const Call& call,
                     Begun begun = Begun::kNo);

  using State = RingExecutor::State;
  /// Performs one round unless it must wait. Throws what CicoBuffers and read_peer_memory() throw.
  State advance();
  int awaited() const noexcept { return by_cico_ ? by_cico_->awaited() : awaited_; }

 private:
  /// Tell where my buffers are; read the others' operands, or reduce my part of them; of an all-reduce, read
  /// the others' results; wait until they have read mine. A round each, the last of which publishes nothing.
  /// kReduceLast: after the round in which all was read; it touches only the banks of CicoBuffers::room().
  enum class Step { kTell, kRead, kReduceLast, kReadResults, kWait };
  /// What a rank tells.
  struct Buffers {
    const std::byte* operand;  ///< nullptr: the others cannot read it
    const std::byte* result;   ///< of an all-reduce
  };
  /// Bytes of a message.
  struct Range {
    std::size_t first, bytes;
  };
  bool is_reader() const;
  bool reduces() const { return is_reduction(call_.collective); }
  bool has_all(bool (CicoBuffers::*as_far)(int));
  bool has_told(int rank);
  State tell();
  State read_operands();
  State reduce_operands();
  State read_results();
  State go_by_cico();
  int source(int k) const;
  Buffers buffers_of(int rank) const;
  Range part_of(int rank) const;
  void reduce_last();
  void check_peers() const;
  void reduce_tile(const Range& part);
  void keep_own() const;
  bool read_piece(int rank, int block, std::size_t offset);

  CicoBuffers& cico_;
  std::span<const std::int64_t> pids_;
  Call call_;
  Step step_ = Step::kTell;
  int read_ = 0;  ///< operands, or results
  struct {
    std::byte* to;
    const std::byte *left, *right;
    std::size_t count = 0;  ///< elements
  } last_;                  ///< the reduction that is left to reduce_last()
  std::size_t at_ = 0;      ///< bytes of the operand, part or result at hand that are done
  int awaited_ = 0;
  const std::byte* operand_;   ///< that others read; nullptr: they cannot
  std::vector<Buffers> told_;  ///< by rank, of a reduction, whose later rounds read other banks
  /// Of an all-to-all in place, whose operand is overwritten too early.
  std::unique_ptr<std::byte[]> operand_copy_;
  std::optional<CicoExecutor> by_cico_;
};

}  // namespace loom::device
