// trees.hpp -- schedules over the links of trees.
#pragma once

#include "device/steps/moves.hpp"

namespace loom::device::steps {

/// The neighbour above this rank in a call.
LOOM_HOST_DEVICE inline int head_of(const Task& task, const Tree& tree) {
  return task.algorithm == Algorithm::kAllreduceTree ? tree.parent : tree.heads[task.root];
}

/// One half of all trees of the channel, slice by slice in turn. passed: by tree.
template <class Moves, class T>
LOOM_HOST_DEVICE LOOM_NOINLINE bool by_trees(Moves& moves, const Task& task, const Channel& channel, int half,
                                             int protocol, Word* passed, const T* in, T* out) {
  const bool both = task.algorithm == Algorithm::kAllreduceTree,
             up = both ? half == 0 : task.algorithm == Algorithm::kReduceTree;
  const Part part = part_of<T>(task, share_of(task, channel), 0);
  const Share first{.before = 0, .weight = 1, .total = static_cast<unsigned>(channel.trees)};
  const std::size_t slice = moves.slice(), longest = longest_window(part.length, line_elems<T>, first);
  for (std::size_t offset = 0; offset < longest; offset += slice)
    for (int t = 0; t < channel.trees; ++t) {
      const Tree& tree = channel.tree[t];
      const TreeEnds& ends = tree.ends[protocol];
      const Part of_tree =
          window(part.length, line_elems<T>, {static_cast<unsigned>(t), first.weight, first.total});
      const Part elems = slice_of(of_tree, offset, slice);
      if (elems.length == 0) continue;
      const int head = head_of(task, tree);
      const bool is_top = head == kNoHead;
      const int others = tree.neighbours - (is_top ? 0 : 1);
      Move<T> move;
      move.count = elems.length;
      move.received = move.sent = passed[t]++;
      if (both && !up && is_top) continue;  // its upper half sends down, too
      const T* const mine = at(in, part.first + elems.first);
      T* const result = at(out, part.first + elems.first);
      if (up) {
        move.from = ends.from + (head + 1);
        move.froms = others;
        move.to = is_top ? ends.to : ends.to + head;
        move.tos = !is_top ? 1 : both ? others : 0;
        move.in = mine;
        move.in_at = move.froms;  // the others' op mine
        if (is_top) move.out = result;
      } else {
        move.to = ends.to + (head + 1);
        move.tos = others;
        if (is_top) move.in = mine;
        if (!is_top) move.from = ends.from + head, move.froms = 1, move.out = result;
      }
      if (!moves.perform(move)) return false;
    }
  return true;
}

/// The directions of a tree's links that a call has not used, by one thread of its only group: the neighbours
/// find room there again.
LOOM_HOST_DEVICE inline void pass_over(const Task& task, const Tree& tree, const TreeEnds& ends,
                                       Word passed) {
  if (task.algorithm == Algorithm::kAllreduceTree) return;
  const int head = head_of(task, tree);
  for (int i = 0; i < tree.neighbours; ++i)
    if ((i == head) == (task.algorithm == Algorithm::kReduceTree))
      store_release(ends.from[i].consumed, passed);
}

}  // namespace loom::device::steps
