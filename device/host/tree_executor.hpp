// tree_executor.hpp -- all-reduce, broadcast and reduce over one tree, on host memory over links. Resumable:
// it never waits. Two of them, each with half of the message, make the double binary tree
// (tree_schedule.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "device/call.h"
#include "device/host/exchange_executor.hpp"

namespace loom::device {

/// A rank's links in a tree, each both ways as far as the collective uses them. Absent ones are empty.
struct TreeLinks {
  static constexpr int kMostChildren = 3;
  PeerLinks parent;
  std::array<PeerLinks, kMostChildren> child;
};

enum class TreeCollective { kAllreduce, kBroadcast, kReduce };

/// All ranks give the same collective, count and elem_bytes. The root is the rank without a parent: a tree
/// can be rooted at any rank, since each of its links leads both ways.
struct TreeStage {
  TreeCollective collective = TreeCollective::kAllreduce;
  const std::byte* in = nullptr;  ///< count elements; of a broadcast only at the root; may be out
  std::byte* out = nullptr;       ///< count elements; of a reduction only at the root
  std::size_t count = 0;
  std::size_t elem_bytes = 1;
  ReduceFn reduce = nullptr;
  const Packer* in_packer = nullptr;  ///< of a broadcast: its only block is not contiguous
  const Packer* out_packer = nullptr;
  Streaming* streaming = nullptr;  ///< told what is read of `in` and has been written to `out`
};

/// Slices go up, reduced with each child's in turn, and down; the two directions are independent except at
/// the root, where what has come up goes down.
class TreeExecutor {
 public:
  TreeExecutor(const TreeLinks& links, const TreeStage& stage, std::size_t slice_elems);

  using State = RingExecutor::State;
  /// Goes on until it must wait. Throws what the links throw.
  State advance();
  /// What a blocked executor waits for: the link to this child, or kParent.
  static constexpr int kParent = -1;
  int awaited() const noexcept { return awaited_; }

 private:
  bool slice_up();
  bool slice_down();
  std::size_t slice(std::size_t done) const;
  bool reduce_children(std::byte* to, std::size_t count);
  bool children_can_take();
  void fill_children(const std::byte* from, std::size_t bytes);
  void publish_to_children(std::size_t bytes);
  void need(const std::byte* first, std::size_t bytes) {
    if (stage_.streaming != nullptr) stage_.streaming->need(first, bytes);
  }
  void have(const std::byte* first, std::size_t bytes) noexcept {
    if (stage_.streaming != nullptr) stage_.streaming->have(first, bytes);
  }
  const std::byte* operand(std::size_t at, std::size_t bytes);

  TreeLinks links_;
  TreeStage stage_;
  std::size_t slice_elems_;
  bool is_root_;
  std::vector<std::byte> packed_;  ///< the root's next slice, where its operand is not contiguous
  bool is_packed_ = false;
  std::size_t up_ = 0, down_ = 0;                             ///< elements that are through
  std::array<std::byte*, TreeLinks::kMostChildren> slots_{};  ///< of the children, to be filled
  int awaited_ = kParent;
};

}  // namespace loom::device
