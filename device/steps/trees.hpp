// trees.hpp -- schedules over the links of trees.
#pragma once

#include "device/steps/moves.hpp"
#include "device/steps/rings.hpp"

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

/// Where a channel begins. Of two channels that follow each other, which often share a port, one is half of all
/// blocks ahead: between two hosts one is at blocks of either host, and the port is busy both ways. Pairs are
/// spread over what is between, and take the trees in turn. place: the channels before this one.
struct Beginning {
  int tree = 0, block = 0;
};
LOOM_HOST_DEVICE constexpr Beginning beginning_of(unsigned place, int trees, int blocks) {
  constexpr unsigned kPlaces = 16;  // further ones begin as the first ones do
  const unsigned pair = place / 2, spread = (pair & 1) * 4 + (pair & 2) + (pair & 4) / 4;
  const unsigned at = place % 2 * (kPlaces / 2) + spread;
  return {static_cast<int>(pair % static_cast<unsigned>(trees)),
          static_cast<int>(static_cast<std::uint64_t>(blocks) * at / kPlaces)};
}

/// Which of all blocks comes at a place: up to `first` they stay where they are, the others go round.
LOOM_HOST_DEVICE inline int block_at(int place, int first, int beginning, int blocks) {
  return place < first ? place : first + (place - first + beginning) % (blocks - first);
}

/// All-gathers and reduce-scatters: each block flows from its rank to all others, or from them to it, so a
/// link carries, one way, the blocks of all ranks behind it. Block after block in one order on all ranks: no
/// rank waits for a block whose neighbour waits for a later one. A block's slices follow each other, so that
/// the way along a chain is waited for once a block. Of a reduce-scatter the first block always comes first,
/// for results may overwrite its operand (see collective.hpp).
template <class Moves, class T>
LOOM_HOST_DEVICE LOOM_NOINLINE bool by_trees_in_blocks(Moves& moves, const Task& task, const Channel& channel,
                                                       int protocol, Word* passed, const T* in, T* out) {
  const RingCollective collective = ring_collective_of(task.algorithm);
  const bool gathers = collective == RingCollective::kAllGather;
  const Share share = share_of(task, channel);
  const std::size_t own = block_of(task, task.rank).first, slice = moves.slice();
  const Place<const T> operand = operands(collective, in, own);
  const Place<T> result = results(collective, out, own);
  const int first = gathers ? 0 : 1;  // of those that any channel may begin with
  const Beginning beginning = beginning_of(channel.of_trees.place, channel.trees, task.size - first);
  for (int i = 0; i < channel.trees; ++i) {
    const int t = (beginning.tree + i) % channel.trees;
    const Tree& tree = channel.tree[t];
    const TreeEnds& ends = tree.ends[protocol];
    for (int place = 0; place < task.size; ++place) {
      const int block = block_at(place, first, beginning.block, task.size), head = tree.heads[block];
      const bool is_mine = head == kNoHead;
      const int heads = is_mine ? 0 : 1, others = tree.neighbours - heads, first_head = is_mine ? 0 : head,
                first_other = head + 1;
      const Part part = part_of<T>(task, share, block);
      const Part of_tree = window(part.length, line_elems<T>,
                                  {static_cast<unsigned>(t), 1, static_cast<unsigned>(channel.trees)});
      for (std::size_t offset = 0; offset < of_tree.length; offset += slice) {
        const Part elems = slice_of(of_tree, offset, slice);
        const std::size_t elem = part.first + elems.first;
        Move<T> move;
        move.count = elems.length;
        move.received = move.sent = passed[t]++;
        move.froms = gathers ? heads : others;
        move.from = ends.from + (gathers ? first_head : first_other);
        move.tos = gathers ? others : heads;
        move.to = ends.to + (gathers ? first_other : first_head);
        if (is_mine || !gathers) move.in = operand.of(elem), move.in_at = move.froms;
        if (is_mine || gathers) move.out = result.of(elem);
        if (move.out == move.in && move.froms == 0) move.out = nullptr;
        if (!moves.perform(move)) return false;
        moves.pass_over(ends.from + (gathers ? first_other : first_head), gathers ? others : heads,
                        move.received);
      }
    }
  }
  return true;
}

/// The directions of a tree's links that a call has not used, by one thread of its only group: the neighbours
/// find room there again.
LOOM_HOST_DEVICE inline void pass_over(const Task& task, const Tree& tree, const TreeEnds& ends,
                                       Word passed) {
  if (task.algorithm == Algorithm::kAllreduceTree || is_in_blocks(task.algorithm)) return;
  const int head = head_of(task, tree);
  for (int i = 0; i < tree.neighbours; ++i)
    if ((i == head) == (task.algorithm == Algorithm::kReduceTree))
      store_release(ends.from[i].consumed, passed);
}

}  // namespace loom::device::steps
