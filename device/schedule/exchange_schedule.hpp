// exchange_schedule.hpp -- collectives in which a position sends to one peer and receives from one in each
// step. Pure arithmetic on blocks, as in ring_schedule.hpp; the simulator in the tests proves every pattern
// for every size.
//
// A position's output starts as its input. n: size; S: bytes of the larger of a rank's two buffers; log: log2
// rounded up. "Depth" counts messages that must follow one another; any reduction or broadcast needs log n of
// them, and an all-reduce at least 2 (n-1)/n S bytes from each rank, half of that for reduce-scatter,
// all-gather and all-to-all.
//
//   pattern                          depth       sent by the busiest rank  good for
//   kRecursiveDoublingAllreduce      log n (+1)  S log n                   small; +1 where n > 3/4 of 2^m
//   kHalvingReduceScatter            log n       (n-1)/n S: least          n = 2^m; small and medium
//   kDoublingAllGather               log n       (n-1)/n S: least          n = 2^m; small and medium
//   kBruckAllGather                  log n       (n-1)/n S: least          any n; small and medium
//   kDissemination                   log n       0                         barrier over many ranks
//   kOneShotAllreduce                1           (n-1) S                   tiny; hosts, or ranks of one
//   kTwoShotAllreduce                2           2 (n-1)/n S: least        inside a host
//   kDirectReduceScatter             1           (n-1)/n S: least          inside a host
//   kDirectAllGather                 1           (n-1)/n S: least          inside a host
//   kDirectBroadcast, kDirectReduce  1           (n-1) S, or S             tiny; hosts, or ranks of one
//   kPairwiseAllToAll                1           (n-1)/n S: least          any; v form: unequal blocks
//   kGather, kScatter                1           S/n, or (n-1)/n S: least  any; v form: unequal blocks
//
// Recursive doubling, halving: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
// Operations in MPICH", 2005. Bruck et al., "Efficient Algorithms for All-to-All Communications in Multiport
// Message-Passing Systems", 1997. Dissemination: Hensgen, Finkel, Manber, "Two Algorithms for Barrier
// Synchronization", 1988.
#pragma once

#include <bit>

#include "device/reduce/element_types.hpp"

namespace loom::device {

enum class Pattern {
  kRecursiveDoublingAllreduce,
  kHalvingReduceScatter,
  kDoublingAllGather,
  kBruckAllGather,
  kDissemination,
  kOneShotAllreduce,
  kTwoShotAllreduce,
  kDirectReduceScatter,
  kDirectAllGather,
  kDirectBroadcast,
  kDirectReduce,
  kPairwiseAllToAll,
  kGather,
  kScatter
};

/// Blocks [first, first + count), modulo the blocks of the message.
struct Blocks {
  int first = 0, count = 0;
};

/// One step of one position; the two halves may go on side by side. A peer of -1: none.
struct Exchange {
  int to = -1;
  Blocks sent;
  int from = -1;
  Blocks received;
  bool reduces = false;     ///< received op output -> output, rather than received -> output
  bool from_input = false;  ///< sent is taken from the input rather than from the output
};

/// What a position sends at most, and how many messages follow one another.
struct Cost {
  int depth = 0, messages = 0, blocks = 0;
};

LOOM_HOST_DEVICE constexpr int log2_floor(int n) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1;
}
LOOM_HOST_DEVICE constexpr int log2_ceil(int n) {
  return n <= 1 ? 0 : log2_floor(n - 1) + 1;
}
constexpr bool needs_power_of_two(Pattern pattern) {
  return pattern == Pattern::kHalvingReduceScatter || pattern == Pattern::kDoublingAllGather;
}
constexpr bool is_one_block(Pattern pattern) {
  return pattern == Pattern::kRecursiveDoublingAllreduce || pattern == Pattern::kOneShotAllreduce ||
         pattern == Pattern::kDirectBroadcast || pattern == Pattern::kDirectReduce;
}
/// Into how many blocks a message falls: one per rank, or it stays whole.
constexpr int block_count(Pattern pattern, int size) {
  return pattern == Pattern::kDissemination ? 0 : is_one_block(pattern) ? 1 : size;
}

/// The k-th of the other positions, in order of rank: direct patterns meet them so, and thus reduce in order
/// of rank.
LOOM_HOST_DEVICE constexpr int other_position(int position, int k) {
  return k < position ? k : k + 1;
}

/// A size that is no power of two: the first 2 * extra positions are pairs, and the odd one of each lets the
/// even one act for both. Who acts is numbered through.
struct Folded {
  int extra, rounds;
  LOOM_HOST_DEVICE constexpr explicit Folded(int size)
      : extra(size - (1 << log2_floor(size))), rounds(log2_floor(size)) {}
  LOOM_HOST_DEVICE constexpr bool acts(int position) const {
    return position >= 2 * extra || position % 2 == 0;
  }
  LOOM_HOST_DEVICE constexpr int number(int position) const {
    return position < 2 * extra ? position / 2 : position - extra;
  }
  LOOM_HOST_DEVICE constexpr int position(int number) const {
    return number < extra ? 2 * number : number + extra;
  }
};

constexpr int step_count(Pattern pattern, int size) {
  switch (pattern) {
    case Pattern::kRecursiveDoublingAllreduce:
      return Folded(size).rounds + (Folded(size).extra > 0 ? 2 : 0);
    case Pattern::kHalvingReduceScatter:
    case Pattern::kDoublingAllGather:
    case Pattern::kBruckAllGather:
    case Pattern::kDissemination:
      return log2_ceil(size);
    case Pattern::kTwoShotAllreduce:
      return 2 * (size - 1);
    default:
      return size - 1;
  }
}

namespace exchange {

constexpr Exchange recursive_doubling(int position, int size, int k) {
  const Folded folded(size);
  constexpr Blocks kWhole{0, 1};
  if (folded.extra > 0) {
    const bool paired = position < 2 * folded.extra, last = k == folded.rounds + 1;
    if (k == 0 || last) {
      if (!paired) return {};
      // In: odd -> even, reduced. Out: even -> odd, copied.
      if ((position % 2 == 1) != last) return {.to = position ^ 1, .sent = kWhole, .received = {}};
      return {.sent = {}, .from = position ^ 1, .received = kWhole, .reduces = !last};
    }
    --k;
  }
  if (!folded.acts(position)) return {};
  const int peer = folded.position(folded.number(position) ^ (1 << k));
  return {.to = peer, .sent = kWhole, .from = peer, .received = kWhole, .reduces = true};
}

/// Positions meet in ever smaller neighbourhoods; each keeps the half of the blocks that its own is in.
constexpr Exchange halving(int position, int size, int k) {
  const int half = size >> (k + 1), peer = position ^ half;
  return {.to = peer,
          .sent = {peer & -half, half},
          .from = peer,
          .received = {position & -half, half},
          .reduces = true};
}

constexpr Exchange doubling(int position, int k) {
  const int held = 1 << k, peer = position ^ held;
  return {.to = peer, .sent = {position & -held, held}, .from = peer, .received = {peer & -held, held}};
}

/// Everybody holds the blocks from its own on, and fetches as many from the one that holds what follows.
constexpr Exchange bruck(int position, int size, int k) {
  const int held = 1 << k, more = held < size - held ? held : size - held;
  return {.to = (position - held + size) % size,
          .sent = {position, more},
          .from = (position + held) % size,
          .received = {(position + held) % size, more}};
}

constexpr Exchange dissemination(int position, int size, int k) {
  const int distance = 1 << k;
  return {.to = (position + distance) % size,
          .sent = {},
          .from = (position - distance + size) % size,
          .received = {}};
}

/// Every position sends the peer the peer's block, and reduces its own.
constexpr Exchange direct_reduce_scatter(int position, int k) {
  const int peer = other_position(position, k);
  return {.to = peer,
          .sent = {peer, 1},
          .from = peer,
          .received = {position, 1},
          .reduces = true,
          .from_input = true};
}
constexpr Exchange direct_all_gather(int position, int k) {
  const int peer = other_position(position, k);
  return {.to = peer, .sent = {position, 1}, .from = peer, .received = {peer, 1}};
}

/// Between the root and one other position in each step.
constexpr Exchange rooted(Pattern pattern, int position, int root, int k) {
  const int other = other_position(root, k);
  if (position != root && position != other) return {};
  const bool to_root = pattern == Pattern::kGather || pattern == Pattern::kDirectReduce;
  const Blocks blocks = is_one_block(pattern) ? Blocks{0, 1} : Blocks{other, 1};
  if ((position == root) == to_root)
    return {.sent = {},
            .from = to_root ? other : root,
            .received = blocks,
            .reduces = pattern == Pattern::kDirectReduce};
  return {.to = to_root ? root : other, .sent = blocks, .received = {}, .from_input = true};
}

}  // namespace exchange

/// How many steps, from the first on, have sends that wait for no other step of theirs: a position hands them
/// all over before it receives anything, and then again as many. 1: every step waits for the one before.
constexpr int independent_steps(Pattern pattern, int size) {
  switch (pattern) {
    case Pattern::kRecursiveDoublingAllreduce:
    case Pattern::kHalvingReduceScatter:
    case Pattern::kDoublingAllGather:
    case Pattern::kBruckAllGather:
    case Pattern::kDissemination:
      return 1;
    default:
      return size > 1 ? size - 1 : 1;
  }
}

/// Step k in [0, step_count) of a position; root matters to rooted patterns alone.
constexpr Exchange exchange_step(Pattern pattern, int position, int size, int k, int root = 0) {
  switch (pattern) {
    case Pattern::kRecursiveDoublingAllreduce:
      return exchange::recursive_doubling(position, size, k);
    case Pattern::kHalvingReduceScatter:
      return exchange::halving(position, size, k);
    case Pattern::kDoublingAllGather:
      return exchange::doubling(position, k);
    case Pattern::kBruckAllGather:
      return exchange::bruck(position, size, k);
    case Pattern::kDissemination:
      return exchange::dissemination(position, size, k);
    case Pattern::kOneShotAllreduce: {
      const int peer = other_position(position, k);
      return {
          .to = peer, .sent = {0, 1}, .from = peer, .received = {0, 1}, .reduces = true, .from_input = true};
    }
    case Pattern::kTwoShotAllreduce:
      return k < size - 1 ? exchange::direct_reduce_scatter(position, k)
                          : exchange::direct_all_gather(position, k - (size - 1));
    case Pattern::kDirectReduceScatter:
      return exchange::direct_reduce_scatter(position, k);
    case Pattern::kDirectAllGather:
      return exchange::direct_all_gather(position, k);
    case Pattern::kPairwiseAllToAll: {
      const int to = (position + 1 + k) % size, from = (position - 1 - k + 2 * size) % size;
      return {.to = to, .sent = {to, 1}, .from = from, .received = {from, 1}, .from_input = true};
    }
    case Pattern::kDirectBroadcast:
    case Pattern::kDirectReduce:
    case Pattern::kGather:
    case Pattern::kScatter:
      return exchange::rooted(pattern, position, root, k);
  }
  return {};
}

/// The table above in numbers.
constexpr Cost cost_of(Pattern pattern, int size) {
  const int others = size - 1, log = log2_ceil(size);
  if (size == 1) return {};
  switch (pattern) {
    case Pattern::kRecursiveDoublingAllreduce: {
      const Folded folded(size);
      const int back = folded.extra > 0 ? 1 : 0;  // an acting position sends the result to its pair
      // Both, folding in and out, lie on one path once more than half of those that act do so for two.
      const int folds = 2 * folded.extra > 1 << folded.rounds ? 2 : back;
      return {folded.rounds + folds, folded.rounds + back, folded.rounds + back};
    }
    case Pattern::kHalvingReduceScatter:
    case Pattern::kDoublingAllGather:
    case Pattern::kBruckAllGather:
      return {log, log, others};
    case Pattern::kDissemination:
      return {log, log, 0};
    case Pattern::kTwoShotAllreduce:
      return {2, 2 * others, 2 * others};
    case Pattern::kDirectReduce:
    case Pattern::kGather:
      return {1, 1, 1};
    default:
      return {1, others, others};
  }
}

}  // namespace loom::device
