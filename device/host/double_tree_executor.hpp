// double_tree_executor.hpp -- all-reduce, broadcast and reduce along a rail by the double binary tree over
// hosts (tree_schedule.hpp): each tree has half of the message. Resumable: it never waits.
#pragma once

#include <array>

#include "device/host/grid.hpp"

namespace loom::device {

class DoubleTreeExecutor {
 public:
  /// host: my place on the rail of `hosts`. root: the root's place; kNobody, of an all-reduce: each tree has
  /// its own root. message_bytes: of the whole message that the stage is a part of. All ranks of the rail
  /// give the same FIFO shape.
  DoubleTreeExecutor(const DbtLinks& trees, int host, int hosts, int root, const TreeStage& stage,
                     std::size_t message_bytes);

  using State = RingExecutor::State;
  /// As TreeExecutor's.
  State advance();
  /// The host of the rail that a blocked executor waits for.
  int awaited() const noexcept;

 private:
  struct Half {
    RootedPlace place;
    TreeExecutor executor;
    bool done = false;
  };
  static Half half(const DbtLinks& trees, int tree, int host, int hosts, int root, TreeStage stage,
                   std::size_t message_bytes);

  int host_;
  std::array<Half, 2> halves_;
};

}  // namespace loom::device
