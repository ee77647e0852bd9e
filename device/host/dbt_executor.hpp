// dbt_executor.hpp -- all-reduce, broadcast and reduce over a grid of ranks by the double binary tree
// over hosts, along each rail or the root's. For messages so short, or hosts so many, that the steps of a
// ring would be most of the time. Resumable: it never waits.
//
//   collective    inside                  across                      inside                a host sends
//   all-reduce    reduce-scatter (ring)   all-reduce, on each rail                          2 S at most
//                                                                     all-gather (ring)
//   broadcast                             from the root, on its rail  chain from that rail  S at most
//   reduce        chain to the root's     to the root, on its rail                          S at most
//                 rail
//
// Depth across hosts: 2 log2 h of an all-reduce, log2 h of the others, and one step more for each further
// slice.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "device/host/double_tree_executor.hpp"
#include "device/host/scratch.hpp"
#include "device/host/stages.hpp"

namespace loom::device {

class DbtExecutor {
 public:
  /// A call that takes() accepts. Every rank gives the same FIFO shapes; root_host and root_place: where the
  /// root of a broadcast or reduce is in the grid.
  DbtExecutor(const Grid& grid, const DbtLinks& trees, const Call& call, int root_host, int root_place);
  DbtExecutor(DbtExecutor&&) = default;
  DbtExecutor& operator=(DbtExecutor&&) = delete;

  /// As SplitRailExecutor's.
  RingExecutor::State advance();
  int awaited() const noexcept;

  static constexpr bool takes(Collective collective) {
    return collective == Collective::kAllreduce || collective == Collective::kBroadcast ||
           collective == Collective::kReduce;
  }

 private:
  /// A stage inside a host: the two halves of an all-reduce use the ring, broadcast and reduce a chain.
  class Inside {
   public:
    explicit Inside(RingExecutor ring) : ring_(std::move(ring)) {}
    explicit Inside(RootedExecutor chain) : chain_(std::move(chain)) {}
    RingExecutor::State advance() { return ring_ ? ring_->advance() : chain_->advance(); }
    int awaited(const Grid& grid) const noexcept;

   private:
    std::optional<RingExecutor> ring_;
    std::optional<RootedExecutor> chain_;
  };

  void plan_allreduce(const DbtLinks& trees);
  void plan_broadcast(const DbtLinks& trees, int root_host, int root_place);
  void plan_reduce(const DbtLinks& trees, int root_host, int root_place);
  DoubleTreeExecutor tree(const DbtLinks& trees, int root, const TreeStage& call) const {
    return {trees,
            grid_.rail.position,
            grid_.rail.size,
            root,
            call,
            call_.bytes() / (root == kNobody ? static_cast<std::size_t>(grid_.local.size) : 1)};
  }
  RootedExecutor chain(const TreeStage& part, int root_place) const;
  std::size_t block_elems(std::size_t bytes) const;

  Grid grid_;
  Call call_;
  Scratch between_;       ///< a non-contiguous message packed, or sums of a host's operands
  bool unpacks_ = false;  ///< at the end, between_ to the caller's buffer
  StageSequence<DoubleTreeExecutor> across_;
  StageSequence<Inside> inside_;
};

}  // namespace loom::device
