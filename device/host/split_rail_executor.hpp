// split_rail_executor.hpp -- all-reduce, reduce-scatter and all-gather over a grid of ranks. The blocks of
// the message overlap, so that the network is busy while the hosts prepare the next block and spread the last
// one. Resumable: it never waits.
//
//   collective        inside              along the rails    inside       a host sends, h hosts
//   all-reduce        reduce-scatter      all-reduce         all-gather   2 (h-1)/h S
//   reduce-scatter    reduce-scatter      reduce-scatter                  (h-1)/h S
//   all-gather                            all-gather         all-gather   (h-1)/h S
//
// Along rails of two ranks an all-reduce is an exchange: as many bytes, in one step instead of two.
// S: bytes of the message; of block collectives, of all blocks. Each is the least that any algorithm can do.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <variant>
#include <vector>

#include "device/host/cico_blocks_executor.hpp"
#include "device/host/exchange_executor.hpp"
#include "device/host/grid.hpp"
#include "device/host/scratch.hpp"
#include "device/host/stages.hpp"

namespace loom::device {

class SplitRailExecutor {
 public:
  /// A call that takes() accepts. Every rank gives the same FIFO shapes.
  SplitRailExecutor(const Grid& grid, const Call& call);
  SplitRailExecutor(const SplitRailExecutor&) = delete;
  SplitRailExecutor& operator=(const SplitRailExecutor&) = delete;

  /// As RingExecutor's.
  RingExecutor::State advance();
  /// The rank that a blocked executor waits for.
  int awaited() const noexcept;
  /// This rank's own block, if the place for it is shorter.
  const std::optional<CutBlock>& cut() const noexcept { return cut_; }

  static constexpr bool takes(Collective collective) {
    return collective == Collective::kAllreduce || gathers(collective) || scatters(collective);
  }

 private:
  static constexpr bool gathers(Collective collective) {
    return collective == Collective::kAllGather || collective == Collective::kAllGatherV;
  }
  static constexpr bool scatters(Collective collective) {
    return collective == Collective::kReduceScatter || collective == Collective::kReduceScatterV;
  }
  /// A stage along a rail.
  class Across {
   public:
    explicit Across(RingExecutor ring) : executor_(std::move(ring)) {}
    explicit Across(ExchangeExecutor exchange) : executor_(std::move(exchange)) {}
    RingExecutor::State advance() {
      return std::visit([](auto& executor) { return executor.advance(); }, executor_);
    }
    bool waits_for_previous() const noexcept {
      const auto* const ring = std::get_if<RingExecutor>(&executor_);
      return ring == nullptr || ring->waits_for_previous();  // of two ranks both neighbours are the same
    }

   private:
    std::variant<RingExecutor, ExchangeExecutor> executor_;
  };

  void add_inside(const RingStage& stage, std::size_t after);
  void add_across(const RingStage& stage, std::size_t after);
  void plan_allreduce();
  void plan_reduce_scatter();
  void plan_all_gather();
  void lay_out_blocks();
  ChunkRange block_of(int rank) const;
  std::size_t longest_block() const;
  std::size_t tile_elems() const;
  std::span<const ChunkRange> blocks_on(int host) const;
  void put_own_block();
  void finish();
  int self() const { return grid_.rank_at(grid_.rail.position, grid_.local.position); }

  Grid grid_;
  Call call_;
  std::vector<ChunkRange> blocks_;       ///< as grid_.ranks
  std::vector<ChunkRange> rail_blocks_;  ///< of my rail, by host; where scattered inside: in between_
  Scratch between_;                      ///< sums of a host's operands, on their way to the rail
  Scratch result_;                       ///< until the end, where it cannot go to its place at once
  std::array<PeerLinks, 2> exchanged_;   ///< along a rail of two ranks
  StageSequence<RingExecutor> inside_;
  StageSequence<Across> across_;
  bool finished_ = false;
  std::optional<CutBlock> cut_;
};

}  // namespace loom::device
