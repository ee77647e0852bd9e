// exchange_executor.hpp -- performs any pattern of exchange_schedule.hpp on host memory over links.
// Resumable: it never waits. For messages that a few slots hold; rings and trees are pipelines, this is not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/host/ring_executor.hpp"
#include "device/link/link.hpp"
#include "device/schedule/exchange_schedule.hpp"

namespace loom::device {

/// Both ways between this position and another; nullptr where nothing goes.
struct PeerLinks {
  SendLink* send = nullptr;
  RecvLink* receive = nullptr;
};

/// One collective by one pattern. All positions give the same pattern, count, elem_bytes and root.
struct ExchangeStage {
  Pattern pattern = Pattern::kDissemination;
  const std::byte* in =
      nullptr;  ///< block_count(pattern, size) blocks, of which only those that this position gives are read
  std::byte* out =
      nullptr;  ///< as many; may be in. Blocks that are not this position's result are left undefined
  std::size_t count = 0;  ///< elements of a block
  std::size_t elem_bytes = 1;
  ReduceFn reduce = nullptr;  ///< of patterns that reduce
  int root = 0;               ///< of patterns that have one
};

/// Reductions come out bitwise equal on all positions: two operands are always taken in order of position,
/// and direct patterns reduce in that order.
class ExchangeExecutor {
 public:
  ~ExchangeExecutor();  // not inline: GCC 14 would warn of members of one that is not there
  /// links[p] leads to position p; every link that the pattern uses is there, and each has at least
  /// slot_bytes per slot, which is at least elem_bytes times the blocks of the longest message.
  ExchangeExecutor(std::span<const PeerLinks> links, int position, std::size_t slot_bytes,
                   const ExchangeStage& stage);

  using State = RingExecutor::State;
  /// Goes on until it must wait. Throws what the links throw.
  State advance();
  /// The position that a blocked executor waits for.
  int awaited() const noexcept { return awaited_; }

 private:
  /// Elements [first, first + count) of every block: what goes through all steps at once.
  struct Tile {
    std::size_t first = 0, count = 0;
  };
  bool send(const Exchange& step);
  bool receive(const Exchange& step);
  bool receive_all_in_order();
  void begin_tile();
  Exchange step(int k) const { return exchange_step(stage_.pattern, position_, size_, k, stage_.root); }
  std::byte* at(std::byte* blocks, int block) const;
  const std::byte* at(const std::byte* blocks, int block) const {
    return at(const_cast<std::byte*>(blocks), block);
  }
  std::size_t tile_bytes() const { return tile_.count * stage_.elem_bytes; }

  std::span<const PeerLinks> links_;
  int position_, size_;
  ExchangeStage stage_;
  int blocks_;              ///< of the message
  std::size_t tile_elems_;  ///< of a block that go at once
  int phase_steps_;         ///< steps whose sends do not wait for each other's receives
  Tile tile_;
  int step_ = 0;   ///< the next one to send or receive in
  int phase_ = 0;  ///< the first step of the phase
  bool sending_ = true;
  int awaited_ = 0;
  std::vector<std::byte> sum_;  ///< of a tile of a block, while its operands are still needed
};

}  // namespace loom::device
