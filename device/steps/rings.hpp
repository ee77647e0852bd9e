// rings.hpp -- schedules over the links of a ring: all-reduce, reduce-scatter, all-gather, chains; and over
// those of a grid, whose rows are hosts.
#pragma once

#include "device/schedule/ring_schedule.hpp"
#include "device/steps/moves.hpp"

namespace loom::device::steps {

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
         : algorithm == Algorithm::kReduceScatterRing || algorithm == Algorithm::kReduceScatterHier ||
                 algorithm == Algorithm::kReduceScatterTree
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

/// Elements of a slice, where the longest block has `length`: as few as let a block be one round, for its
/// first slices are sent on while its last ones arrive.
template <class T, class Moves>
LOOM_HOST_DEVICE std::size_t slice_in_rounds(const Moves& moves, std::size_t length) {
  const std::size_t slice = divide_up(divide_up(length, moves.slots() / 2), line_elems<T>) * line_elems<T>;
  if (slice < moves.slice()) return moves.slice();
  return slice < moves.slot() ? slice : moves.slot();
}

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
  const std::size_t length = longest_window(task.chunk, line_elems<T>, share),
                    slice = slice_in_rounds<T>(moves, length), per_round = moves.slots() / 2 * slice,
                    own = block_of(task, task.rank).first;
  const Place<const T> from = operands(collective, in, own);
  const Place<T> to = results(collective, out, own);
  const int steps = ring_step_count(collective, ring.size);
  for (std::size_t begin = 0; begin < length; begin += per_round) {
    const Round round{begin, begin + per_round < length ? begin + per_round : length, slice};
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
  const std::size_t length = longest_window(task.chunk, line_elems<T>, share),
                    slice = slice_in_rounds<T>(moves, length), per_round = moves.slots() / 2 * slice,
                    own = block_of(task, task.rank).first;
  const Place<const T> from = operands(collective, in, own);
  const Place<T> to = results(collective, out, own);
  const int steps = ring_step_count(collective, grid.rows);
  for (std::size_t begin = 0; begin < length; begin += per_round) {
    const Round round{begin, begin + per_round < length ? begin + per_round : length, slice};
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

}  // namespace loom::device::steps
