// pairs.hpp -- schedules over links between every two ranks: one-shot and two-shot all-reduces, all-to-alls.
#pragma once

#include "device/schedule/exchange_schedule.hpp"
#include "device/steps/moves.hpp"

namespace loom::device::steps {

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

}  // namespace loom::device::steps
