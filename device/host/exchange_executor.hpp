// exchange_executor.hpp -- performs any pattern of exchange_schedule.hpp on host memory over links.
// Resumable: it never waits. For messages that a few slots hold; rings and trees are pipelines, this is not.
#pragma once

#include <span>
#include <vector>

#include "device/host/ring_executor.hpp"
#include "device/link/link.hpp"
#include "device/schedule/exchange_schedule.hpp"

namespace loom::device {

/// The links between this position and another; nullptr where nothing is sent.
struct PeerLinks {
  SendLink* send = nullptr;
  RecvLink* receive = nullptr;
};

/// One collective by one pattern. All positions give the same pattern, count, elem_bytes and root.
struct ExchangeStage {
  Pattern pattern = Pattern::kOneShotAllreduce;
  std::byte* data = nullptr;  ///< block_count(pattern, size) blocks: what this position gives, then its
                              ///< result (of a reduce, at the root alone)
  std::size_t count = 0;      ///< elements of a block
  std::size_t elem_bytes = 1;
  ReduceFn reduce = nullptr;  ///< of patterns that reduce
  int root = 0;               ///< of patterns that have one
};

/// Reductions come out bitwise equal on all positions: operands are taken in order of position.
class ExchangeExecutor {
 public:
  ~ExchangeExecutor();  // not inline: GCC 14 would warn about members of one that does not exist
  /// links[p] leads to position p, of at least two; every link that the pattern uses is there, and each has
  /// at least slot_bytes per slot, which is at least elem_bytes.
  ExchangeExecutor(std::span<const PeerLinks> links, int position, std::size_t slot_bytes,
                   const ExchangeStage& stage);

  using State = RingExecutor::State;
  /// Goes on until it must wait. Throws what the links throw.
  State advance();
  /// The position that a blocked executor waits for.
  int awaited() const noexcept { return awaited_; }

 private:
  bool send(const Exchange& step);
  bool receive(const Exchange& step);
  bool reduce_in_order();
  RecvLink& link_from(int position) const { return *links_[static_cast<std::size_t>(position)].receive; }
  Exchange step(int k) const { return exchange_step(stage_.pattern, round_, position_, k, stage_.root); }
  std::byte* at(int block) const;
  std::size_t tile_bytes() const { return tile_count_ * stage_.elem_bytes; }

  std::span<const PeerLinks> links_;
  int position_, size_;
  ExchangeStage stage_;
  std::size_t tile_elems_;      ///< of a block that go through all rounds at once
  std::size_t tile_first_ = 0;  ///< elements [tile_first_, tile_first_ + tile_count_) of each block do now
  std::size_t tile_count_;
  int round_ = 0;
  bool sending_ = true;
  int next_ = 0;  ///< exchange of the round to send or receive in
  int awaited_ = 0;
  std::vector<std::byte> sum_;  ///< of a tile of a block, while its operands are still needed
};

}  // namespace loom::device
