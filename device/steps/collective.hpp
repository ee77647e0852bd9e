// collective.hpp -- collectives as groups of threads perform a channel's share of them: rings and chains over
// the links of a ring, trees, rings of the rows and columns of a grid, one-shot and two-shot all-reduces and
// all-to-alls over links between every two ranks. The schedules say which block goes where in which step;
// move.hpp moves a message. In a kernel a block is the group of one channel, or two groups where a tree's
// halves work at the same time.
//
// Why results may overwrite operands: a rank stores an element of the result only from a message whose value
// depends on what this rank has sent of that very element, or in the move that loads it. (An all-gather's and
// a broadcast's result has no operand.) All schedules cut a block into the same slices in both directions. A
// reduce-scatter stores its block's slice at last; put at the beginning of `in`, it covers the same slice of
// the first block, which is as long and has been sent by then.
#pragma once

#include "device/schedule/exchange_schedule.hpp"
#include "device/schedule/ring_schedule.hpp"
#include "device/steps/channel.hpp"
#include "device/steps/move.hpp"

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

/// The moves of a group in a call, one after the other. Schedules are pure: a kernel that is launched again
/// goes through all of them, and those that have been done are passed over.
template <class Operation, class T, class Group>
class Moves {
 public:
  /// `done` moves have been, and of the next one this thread's `turns`.
  LOOM_HOST_DEVICE Moves(Group& group, Protocol protocol, const FifoForm& form, const WayOut& way_out,
                         Word done, std::uint32_t turns)
      : group_(group), protocol_(protocol), form_(form), way_out_(way_out), done_(done), turns_(turns) {}

  /// Elements in a slot.
  LOOM_HOST_DEVICE std::size_t slice() const {
    const std::size_t bytes = protocol_ == Protocol::kSimple ? SimpleMove::data_bytes(form_)
                              : protocol_ == Protocol::kLL   ? LLMove::data_bytes(form_)
                                                             : LL128Move::data_bytes(form_);
    return bytes / sizeof(T);
  }
  LOOM_HOST_DEVICE std::size_t slots() const { return form_.slot_count; }

  /// False, on all threads: the group leaves, and makes no further move.
  LOOM_HOST_DEVICE bool perform(const Move<T>& move) {
    if (asked_++ < done_) return true;
    if (!perform_now(move)) return false;
    ++done_;
    turns_ = 0;
    return true;
  }

  LOOM_HOST_DEVICE Word done() const { return done_; }
  LOOM_HOST_DEVICE std::uint32_t turns() const { return turns_; }

 private:
  LOOM_HOST_DEVICE LOOM_NOINLINE bool perform_now(const Move<T>& move) {
    if constexpr (LL128Move::carries<T>)
      if (protocol_ == Protocol::kLL128)
        return LL128Move::perform<Operation>(group_, move, form_, way_out_, turns_);
    return protocol_ == Protocol::kLL ? LLMove::perform<Operation>(group_, move, form_, way_out_, turns_)
                                      : SimpleMove::perform<Operation>(group_, move, form_, way_out_, turns_);
  }

  Group& group_;
  Protocol protocol_;
  const FifoForm& form_;
  const WayOut& way_out_;
  Word done_, asked_ = 0;
  std::uint32_t turns_;
};

/// Schedules are functions of their own: a kernel keeps more in registers so.
namespace detail {

template <class T>
LOOM_HOST_DEVICE T* at(T* base, std::size_t elem) {
  return base == nullptr ? nullptr : base + elem;
}

/// A ring rank's action on one slice.
template <class Moves, class T>
LOOM_HOST_DEVICE bool act(Moves& moves, const Ends<1>& ends, Passed& passed, RingAction action, const T* in,
                          T* out, std::size_t count) {
  Move<T> move;
  move.count = count;
  move.received = passed.received;
  move.sent = passed.sent;
  if (receives(action)) {
    move.from = ends.from;
    move.froms = 1;
  }
  if (sends(action)) {
    move.to = ends.to;
    move.tos = 1;
  }
  if (reads_own(action)) {
    move.in = in;
    move.in_at = move.froms;  // received op mine
  }
  if (action != RingAction::kRecvReduceSend && (receives(action) || out != in)) move.out = out;
  passed.received += static_cast<Word>(move.froms);
  passed.sent += static_cast<Word>(move.tos);
  return moves.perform(move);
}

LOOM_HOST_DEVICE constexpr RingCollective ring_collective_of(Algorithm algorithm) {
  return algorithm == Algorithm::kAllreduceRing || algorithm == Algorithm::kAllreduceHier
             ? RingCollective::kAllreduce
         : algorithm == Algorithm::kReduceScatterRing || algorithm == Algorithm::kReduceScatterHier
             ? RingCollective::kReduceScatter
             : RingCollective::kAllGather;
}

/// Where elements of the message lie, from one of them on.
template <class T>
struct Place {
  T* first = nullptr;
  std::size_t origin = 0;  ///< of the message, the element that lies there

  LOOM_HOST_DEVICE T* of(std::size_t elem) const { return at(first, elem - origin); }
};
/// Operands and results: where a rank has but one block of either, that.
template <class T>
LOOM_HOST_DEVICE Place<const T> operands(RingCollective collective, const T* in, std::size_t own) {
  return {in, collective == RingCollective::kAllGather ? own : 0};
}
template <class T>
LOOM_HOST_DEVICE Place<T> results(RingCollective collective, T* out, std::size_t own) {
  return {out, collective == RingCollective::kReduceScatter ? own : 0};
}

/// The block that a ring's rank sends first is a result of an all-gather alone: else it is not written.
LOOM_HOST_DEVICE constexpr bool stores_in(RingCollective collective, RingAction action) {
  return action != RingAction::kSend || collective == RingCollective::kAllGather;
}

/// Slices of all blocks, so many from one offset on. A round has fewer than a FIFO has slots: see Slicing in
/// host/ring_executor.hpp.
struct Round {
  std::size_t begin = 0, end = 0, slice = 1;
};

/// One step of a ring, on a block's slices of a round.
template <class Moves, class T>
LOOM_HOST_DEVICE bool ring_step_of(Moves& moves, const Ends<1>& ends, Passed& passed, RingAction action,
                                   const Part& part, const Round& round, const Place<const T>& from,
                                   const Place<T>& to) {
  for (std::size_t offset = round.begin; offset < round.end; offset += round.slice) {
    const Part elems = slice_of(part, offset, round.slice);
    if (!act(moves, ends, passed, action, from.of(elems.first), to.of(elems.first), elems.length))
      return false;
  }
  return true;
}

template <class Moves, class T>
LOOM_HOST_DEVICE LOOM_NOINLINE bool by_ring(Moves& moves, const Task& task, const Share& share,
                                            const Ring& ring, const Ends<1>& ends, Passed& passed,
                                            const T* in, T* out) {
  const RingCollective collective = ring_collective_of(task.algorithm);
  const std::size_t per_round = moves.slots() / 2 * moves.slice(),
                    length = longest_window(task.chunk, line_elems<T>, share),
                    own = block_of(task, task.rank).first;
  const Place<const T> from = operands(collective, in, own);
  const Place<T> to = results(collective, out, own);
  const int steps = ring_step_count(collective, ring.size);
  for (std::size_t begin = 0; begin < length; begin += per_round) {
    const Round round{begin, begin + per_round < length ? begin + per_round : length, moves.slice()};
    for (int k = 0; k < steps; ++k) {
      const RingStep step = ring_step(collective, ring.position, ring.size, k);
      if (!ring_step_of(moves, ends, passed, step.action, part_of<T>(task, share, ring.ranks[step.chunk]),
                        round, from, stores_in(collective, step.action) ? to : Place<T>()))
        return false;
    }
  }
  return true;
}

/// A ring of the hosts for each column. What a host sends of a row of blocks, its ranks have reduced before,
/// each its own block's sum; what it has received of results, they gather. While the column's messages are on
/// their way, the row goes on with other blocks.
template <class Moves, class T>
LOOM_HOST_DEVICE LOOM_NOINLINE bool by_grid(Moves& moves, const Task& task, const Share& share,
                                            const Grid& grid, Passed& local, Passed& rail, const T* in,
                                            T* out) {
  const RingCollective collective = ring_collective_of(task.algorithm);
  const bool reduces = collective != RingCollective::kAllGather;
  const std::size_t per_round = moves.slots() / 2 * moves.slice(),
                    length = longest_window(task.chunk, line_elems<T>, share),
                    own = block_of(task, task.rank).first;
  const Place<const T> from = operands(collective, in, own);
  const Place<T> to = results(collective, out, own);
  const int steps = ring_step_count(collective, grid.rows);
  for (std::size_t begin = 0; begin < length; begin += per_round) {
    const Round round{begin, begin + per_round < length ? begin + per_round : length, moves.slice()};
    for (int k = 0; k < steps; ++k) {
      const RingStep step = ring_step(collective, grid.row, grid.rows, k);
      const auto part_in = [&](int column) {
        return part_of<T>(task, share, grid.ranks[step.chunk * grid.columns + column]);
      };
      const auto along_row = [&](RingCollective of_row, const Place<const T>& source,
                                 const Place<T>& target) {
        for (int j = 0; j < grid.columns; ++j) {
          const RingStep of = ring_step(of_row, grid.column, grid.columns, j);
          if (!ring_step_of(moves, grid.local, local, of.action, part_in(of.chunk), round, source,
                            stores_in(of_row, of.action) ? target : Place<T>()))
            return false;
        }
        return true;
      };
      const Part mine = part_in(grid.column);
      // The host's sum of my block lies where the result will; or, where results have no place for it, aside.
      const Place<T> sum =
          collective == RingCollective::kAllreduce
              ? to
              : Place<T>{reinterpret_cast<T*>(grid.scratch), slice_of(mine, round.begin, round.slice).first};
      const bool sums = reduces && reads_own(step.action);
      if (sums && !along_row(RingCollective::kReduceScatter, from, sum)) return false;
      const Place<const T> operand = sums ? Place<const T>{sum.first, sum.origin} : from;
      if (!ring_step_of(moves, grid.rail, rail, step.action, mine, round, operand,
                        stores_in(collective, step.action) ? to : Place<T>()))
        return false;
      const bool gathers = collective == RingCollective::kAllGather ||
                           (collective == RingCollective::kAllreduce && stores(step.action));
      if (gathers && !along_row(RingCollective::kAllGather, {to.first, to.origin}, to)) return false;
    }
  }
  return true;
}

template <class Moves, class T>
LOOM_HOST_DEVICE LOOM_NOINLINE bool by_chain(Moves& moves, const Task& task, const Share& share,
                                             const Ring& ring, const Ends<1>& ends, Passed& passed,
                                             const T* in, T* out) {
  const ChainCollective collective =
      task.algorithm == Algorithm::kBroadcastChain ? ChainCollective::kBroadcast : ChainCollective::kReduce;
  int root = 0;
  while (root + 1 < ring.size && ring.ranks[root] != task.root) ++root;
  const RingAction action = chain_action(collective, ring.position, ring.size, root);
  const Part part = part_of<T>(task, share, 0);
  const std::size_t slice = moves.slice();
  if (!stores(action)) out = nullptr;
  for (std::size_t offset = 0; offset < part.length; offset += slice) {
    const Part elems = slice_of(part, offset, slice);
    if (!act(moves, ends, passed, action, at(in, elems.first), at(out, elems.first), elems.length))
      return false;
  }
  return true;
}

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

/// The blocks of an all-to-all that go by a channel's links, at one distance after the other: body(links,
/// sent, received), with this channel's parts of the blocks, until it is false.
template <class T, class Body>
LOOM_HOST_DEVICE bool for_each_distance(const Task& task, const Distances& exchange, Body&& body) {
  DistanceLinks* links = exchange.links;
  for (int distance = exchange.first; distance < task.size; distance += exchange.stride, ++links) {
    const int ahead = (task.rank + distance) % task.size,
              behind = (task.rank + task.size - distance) % task.size;
    const auto part = [&](const Part& block) {
      const Part of_block = window(block.length, line_elems<T>, exchange.of_blocks);
      return Part{block.first + of_block.first, of_block.length};
    };
    if (!body(*links, part(task.blocks[ahead]), part(task.blocks[task.size + behind]))) return false;
  }
  return true;
}

/// One half sends, the other receives. All ranks take the distances in the same order: so what a half waits
/// for comes before what waits for it.
template <class Moves, class T>
LOOM_HOST_DEVICE LOOM_NOINLINE bool by_exchange(Moves& moves, const Task& task, const Distances& exchange,
                                                int half, const T* in, T* out) {
  const bool sends = half == 0;
  const std::size_t slice = moves.slice();
  const auto exchange_at = [&](const DistanceLinks& links, const Part& sent, const Part& received) {
    const Part& part = sends ? sent : received;
    Word passed = sends ? links.passed.sent : links.passed.received;
    for (std::size_t offset = 0; offset < part.length; offset += slice, ++passed) {
      const Part elems = slice_of(part, offset, slice);
      Move<T> move;
      move.count = elems.length;
      move.sent = move.received = passed;
      if (sends)
        move.to = &links.to, move.tos = 1, move.in = in + elems.first;
      else
        move.from = &links.from, move.froms = 1, move.out = out + elems.first;
      if (!moves.perform(move)) return false;
    }
    return true;
  };
  if (!for_each_distance<T>(task, exchange, exchange_at)) return false;
  const Part &source = task.blocks[task.rank], &target = task.blocks[task.size + task.rank];
  const Part own = window(target.length, line_elems<T>, exchange.of_own);
  if (sends || own.length == 0) return true;
  Move<T> copy;
  copy.in = in + source.first + own.first;
  copy.out = out + target.first + own.first;
  copy.count = own.length;
  return moves.perform(copy);
}

/// Those of a half that is done, by one of its threads.
template <class T>
LOOM_HOST_DEVICE void count_messages(const Task& task, const Distances& exchange, int half,
                                     std::size_t slice) {
  for_each_distance<T>(task, exchange, [&](DistanceLinks& links, const Part& sent, const Part& received) {
    if (half == 0)
      links.passed.sent += divide_up(sent.length, slice);
    else
      links.passed.received += divide_up(received.length, slice);
    return true;
  });
}

/// Each rank sends its slice to all, and reduces all slices for itself.
template <class Moves, class T, class Links>
LOOM_HOST_DEVICE LOOM_NOINLINE bool by_one_shot(Moves& moves, const Task& task, const Share& share,
                                                const Links& ends, Passed& passed, const T* in, T* out) {
  const Part part = part_of<T>(task, share, 0);
  const std::size_t slice = moves.slice();
  for (std::size_t offset = 0; offset < part.length; offset += slice) {
    const Part elems = slice_of(part, offset, slice);
    Move<T> offer, reduce;
    offer.to = ends.to;
    offer.tos = ends.tos;
    offer.sent = passed.sent++;
    offer.in = reduce.in = in + elems.first;
    reduce.from = ends.from;
    reduce.froms = ends.froms;
    reduce.received = passed.received++;
    reduce.in_at = task.rank;  // in order of rank
    reduce.out = out + elems.first;
    offer.count = reduce.count = elems.length;
    if (!moves.perform(offer) || !moves.perform(reduce)) return false;
  }
  return true;
}

/// For a slice of all blocks each link carries two messages: operands of the peer's block, results of mine.
template <class Moves, class T, class Links>
LOOM_HOST_DEVICE LOOM_NOINLINE bool by_two_shot(Moves& moves, const Task& task, const Share& share,
                                                const Links& ends, Passed& passed, const T* in, T* out) {
  const std::size_t slice = moves.slice(), length = longest_window(task.chunk, line_elems<T>, share);
  const auto end_of = [&](int peer) { return peer < task.rank ? peer : peer - 1; };
  for (std::size_t offset = 0; offset < length; offset += slice) {
    const auto slice_of_block = [&](int block) {
      return slice_of(part_of<T>(task, share, block), offset, slice);
    };
    for (int k = 0; k < ends.tos; ++k) {
      const Exchange step = exchange_step(Pattern::kTwoShotAllreduce, 0, task.rank, k);
      const Part elems = slice_of_block(step.sent);
      Move<T> offer;
      offer.to = &ends.to[end_of(step.to)];
      offer.tos = 1;
      offer.sent = passed.sent;
      offer.in = in + elems.first;
      offer.count = elems.length;
      if (!moves.perform(offer)) return false;
    }
    const Part own = slice_of_block(task.rank);
    Move<T> reduce;
    reduce.from = ends.from;
    reduce.froms = ends.froms;
    reduce.to = ends.to;
    reduce.tos = ends.tos;
    reduce.received = passed.received;
    reduce.sent = passed.sent + 1;
    reduce.in = in + own.first;
    reduce.in_at = task.rank;
    reduce.out = out + own.first;
    reduce.count = own.length;
    if (!moves.perform(reduce)) return false;
    for (int k = 0; k < ends.froms; ++k) {
      const Exchange step = exchange_step(Pattern::kTwoShotAllreduce, 1, task.rank, k);
      const Part elems = slice_of_block(step.received);
      Move<T> take;
      take.from = &ends.from[end_of(step.from)];
      take.froms = 1;
      take.received = passed.received + 1;
      take.out = out + elems.first;
      take.count = elems.length;
      if (!moves.perform(take)) return false;
    }
    passed.sent += 2;
    passed.received += 2;
  }
  return true;
}

}  // namespace detail

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
  Moves<Operation, T, Group> moves(group, Protocol{protocol}, forms_of(task.algorithm, forms)[protocol],
                                   way_out, done, task.resumes ? turns : 0);
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
    complete = detail::by_trees(moves, task, channel, half, protocol, passed_by_tree, in, out);
  } else if (kind == LinkKind::kRing) {
    const bool is_chain =
        task.algorithm == Algorithm::kBroadcastChain || task.algorithm == Algorithm::kReduceChain;
    complete = is_chain ? detail::by_chain(moves, task, share, channel.ring, ring_ends, passed, in, out)
                        : detail::by_ring(moves, task, share, channel.ring, ring_ends, passed, in, out);
  } else if (kind == LinkKind::kGrid) {
    complete = detail::by_grid(moves, task, share, channel.grid, passed, passed_by_rail, in, out);
  } else if (kind == LinkKind::kExchange) {
    complete = detail::by_exchange(moves, task, channel.exchange, half, in, out);
  } else {
    complete = task.algorithm == Algorithm::kOneShot
                   ? detail::by_one_shot(moves, task, share, pairwise_ends, passed, in, out)
                   : detail::by_two_shot(moves, task, share, pairwise_ends, passed, in, out);
  }

  // A barrier, too: all threads have read what one of them writes now.
  const bool abandoned = group.any(!complete && way_out.taken());
  if (!complete) turns = moves.turns();
  if (group.index() == 0) {
    moves_done = complete ? kAllMoves : moves.done();
    if (complete && kind == LinkKind::kExchange)
      detail::count_messages<T>(task, channel.exchange, half, moves.slice());
    if (complete && kind != LinkKind::kTree && kind != LinkKind::kExchange) kept = passed;
    if (complete && kind == LinkKind::kGrid) channel.grid.rail.passed = passed_by_rail;
    for (int t = 0; complete && kind == LinkKind::kTree && t < channel.trees; ++t) {
      TreeEnds& ends = channel.tree[t].ends[protocol];
      detail::pass_over(task, channel.tree[t], ends, passed_by_tree[t]);
      for (int h = 0; h < kHalves; ++h)
        if (h == half || groups_of(task.algorithm) == 1) ends.passed[h] = passed_by_tree[t];
    }
  }
  return complete ? Outcome::kDone : abandoned ? Outcome::kAbandoned : Outcome::kLeft;
}

}  // namespace loom::device::steps
