// collective.hpp -- collectives as groups of threads perform a channel's share of them: rings and chains over
// the links of a ring, trees, rings of the rows and columns of a grid, one-shot and two-shot all-reduces and
// all-to-alls over links between every two ranks. The schedules (rings.hpp, trees.hpp, pairs.hpp) say which
// block goes where in which step; each is a function of its own: a kernel keeps more in registers so.
// move.hpp moves a message. In a kernel a block is the group of one channel, or two groups where a tree's
// halves work at the same time.
//
// Why results may overwrite operands: a rank stores an element of the result only from a message whose value
// depends on what this rank has sent of that very element, or in the move that loads it. (An all-gather's and
// a broadcast's result has no operand.) All schedules cut a block into the same slices in both directions. A
// reduce-scatter stores its block's slice at last; put at the beginning of `in`, it covers the same slice of
// the first block, which is as long and has been sent by then.
#pragma once

#include "device/steps/pairs.hpp"
#include "device/steps/rings.hpp"
#include "device/steps/trees.hpp"

namespace loom::device::steps {

/// Rings, chains and trees use what the task says, if the channel has such links, or else Simple; pairwise
/// links likewise, or else LL. LL128 cannot carry all elements. Grids and exchanges have links for Simple.
template <class T>
LOOM_HOST_DEVICE constexpr Protocol protocol_for(const Task& task, const ChannelForm& forms) {
  const FifoForm* const of_links = forms_of(task.algorithm, forms);
  const LinkKind kind = links_of(task.algorithm);
  if (kind == LinkKind::kGrid || kind == LinkKind::kExchange) return Protocol::kSimple;
  if (of_links[static_cast<int>(task.protocol)].slot_count > 0 &&
      (task.protocol != Protocol::kLL128 || LL128Move::carries<T>))
    return task.protocol;
  return is_pairwise(task.algorithm) ? Protocol::kLL : Protocol::kSimple;
}

/// How a group's share of a call ends, on all its threads.
enum class Outcome : int {
  kDone,
  kLeft,      ///< somebody let it wait; perform the task again, with `resumes`
  kAbandoned  ///< the links must not be used any more
};

/// Group number `half` of groups_of(task.algorithm). They share `channel`, and agree on nothing. The links'
/// counters go on from call to call; those of a call that has left stay as they were before it.
template <class Operation, class T, class Group>
LOOM_HOST_DEVICE Outcome perform(Group& group, int half, const Task& task, Channel& channel,
                                 const ChannelForm& forms, const WayOut& way_out) {
  Word& moves_done = channel.moves_done[half];
  std::uint32_t& turns = channel.turns[half * group.size() + group.index()];
  const Word done = task.resumes ? moves_done : 0;
  if (done == kAllMoves) return Outcome::kDone;

  const int protocol = static_cast<int>(protocol_for<T>(task, forms));
  const LinkKind kind = links_of(task.algorithm);
  const bool may_slice = kind != LinkKind::kExchange && kind != LinkKind::kPairwise;
  Moves<Operation, T, Group> moves(group, Protocol{protocol}, forms_of(task.algorithm, forms)[protocol],
                                   may_slice ? task.slice_bytes : 0, way_out, done, task.resumes ? turns : 0);
  const auto* const in = static_cast<const T*>(task.in);
  auto* const out = static_cast<T*>(task.out);
  const Share share = share_of(task, channel);
  auto& ring_ends = channel.ring.ends[protocol];
  auto& pairwise_ends = channel.pairwise[protocol];
  Passed& kept = kind == LinkKind::kRing   ? ring_ends.passed
                 : kind == LinkKind::kGrid ? channel.grid.local.passed
                                           : pairwise_ends.passed;
  // Each thread counts for itself.
  Passed passed = kept, passed_by_rail = channel.grid.rail.passed;
  Word passed_by_tree[kTrees] = {channel.tree[0].ends[protocol].passed[half],
                                 channel.tree[1].ends[protocol].passed[half]};
  bool complete = false;
  if (kind == LinkKind::kTree) {
    complete = is_in_blocks(task.algorithm)
                   ? by_trees_in_blocks(moves, task, channel, protocol, passed_by_tree, in, out)
                   : by_trees(moves, task, channel, half, protocol, passed_by_tree, in, out);
  } else if (kind == LinkKind::kRing) {
    const bool is_chain =
        task.algorithm == Algorithm::kBroadcastChain || task.algorithm == Algorithm::kReduceChain;
    complete = is_chain ? by_chain(moves, task, share, channel.ring, ring_ends, passed, in, out)
                        : by_ring(moves, task, share, channel.ring, ring_ends, passed, in, out);
  } else if (kind == LinkKind::kGrid) {
    complete = by_grid(moves, task, share, channel.grid, passed, passed_by_rail, in, out);
  } else if (kind == LinkKind::kExchange) {
    complete = by_exchange(moves, task, channel.exchange, half, in, out);
  } else {
    complete = task.algorithm == Algorithm::kOneShot
                   ? by_one_shot(moves, task, share, pairwise_ends, passed, in, out)
                   : by_two_shot(moves, task, share, pairwise_ends, passed, in, out);
  }

  // A barrier, too: all threads have read what one of them writes now.
  const bool abandoned = group.any(!complete && way_out.taken());
  if (!complete) turns = moves.turns();
  if (group.index() == 0) {
    moves_done = complete ? kAllMoves : moves.done();
    if (complete && kind == LinkKind::kExchange)
      count_messages<T>(task, channel.exchange, half, moves.slice());
    if (complete && kind != LinkKind::kTree && kind != LinkKind::kExchange) kept = passed;
    if (complete && kind == LinkKind::kGrid) channel.grid.rail.passed = passed_by_rail;
    for (int t = 0; complete && kind == LinkKind::kTree && t < channel.trees; ++t) {
      TreeEnds& ends = channel.tree[t].ends[protocol];
      pass_over(task, channel.tree[t], ends, passed_by_tree[t]);
      for (int h = 0; h < kHalves; ++h)
        if (h == half || groups_of(task.algorithm) == 1) ends.passed[h] = passed_by_tree[t];
    }
  }
  return complete ? Outcome::kDone : abandoned ? Outcome::kAbandoned : Outcome::kLeft;
}

}  // namespace loom::device::steps
