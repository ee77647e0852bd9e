// exchange_schedule.hpp -- collectives in which every position sends to others straight, in one round or two.
// Pure arithmetic on blocks, as in ring_schedule.hpp; the simulator in the tests proves every pattern for
// every size.
//
// A position's output starts as its input. In a round it sends one block at the most to every other position,
// all before it receives anything; in the next round it sends what it has made of that. n: size; S: bytes of
// the message. Any reduction or broadcast needs log2 n messages that follow one another if each position
// sends one at a time, and an all-reduce at least 2 (n-1)/n S bytes from each position, an all-gather half of
// that.
//
//   pattern                          rounds   sent by the busiest position   good for
//   kOneShotAllreduce                1        (n-1) S                        tiny; hosts, or ranks of one
//   kTwoShotAllreduce                2        2 (n-1)/n S: least             inside a host
//   kDirectAllGather                 1        (n-1)/n S: least               hosts
//   kDirectBroadcast, kDirectReduce  1        (n-1) S, or S                  tiny; hosts
#pragma once

#include "device/reduce/element_types.hpp"

namespace loom::device {

enum class Pattern {
  kOneShotAllreduce,
  kTwoShotAllreduce,
  kDirectAllGather,
  kDirectBroadcast,
  kDirectReduce,
};

/// What one position exchanges with one other; the two halves may go on side by side. A peer of -1: none.
struct Exchange {
  int to = -1, sent = -1;        ///< and the block
  int from = -1, received = -1;  ///< likewise
  bool reduces = false;          ///< received op output -> output, rather than received -> output
};

/// Into how many blocks a message falls: one for each position, or it stays whole.
constexpr int block_count(Pattern pattern, int size) {
  return pattern == Pattern::kTwoShotAllreduce || pattern == Pattern::kDirectAllGather ? size : 1;
}
constexpr int round_count(Pattern pattern) {
  return pattern == Pattern::kTwoShotAllreduce ? 2 : 1;
}

/// The k-th of the other positions, in order of rank: positions meet in that order, and thus reduce in order
/// of rank.
LOOM_HOST_DEVICE constexpr int other_position(int position, int k) {
  return k < position ? k : k + 1;
}

namespace exchange {

/// Every position sends the peer the peer's block, and reduces its own.
constexpr Exchange reduce_scatter(int position, int peer) {
  return {.to = peer, .sent = peer, .from = peer, .received = position, .reduces = true};
}
constexpr Exchange all_gather(int position, int peer) {
  return {.to = peer, .sent = position, .from = peer, .received = peer};
}
/// Between the root and one other position.
constexpr Exchange rooted(bool reduces, int position, int root, int other) {
  if (position != root && position != other) return {};
  const int peer = position == root ? other : root;
  if ((position == root) == reduces) return {.from = peer, .received = 0, .reduces = reduces};
  return {.to = peer, .sent = 0};
}

}  // namespace exchange

/// Exchange k in [0, size - 1) of a position in a round; root matters to rooted patterns alone.
constexpr Exchange exchange_step(Pattern pattern, int round, int position, int k, int root = 0) {
  const int peer = other_position(position, k);
  switch (pattern) {
    case Pattern::kOneShotAllreduce:
      return {.to = peer, .sent = 0, .from = peer, .received = 0, .reduces = true};
    case Pattern::kTwoShotAllreduce:
      return round == 0 ? exchange::reduce_scatter(position, peer) : exchange::all_gather(position, peer);
    case Pattern::kDirectAllGather:
      return exchange::all_gather(position, peer);
    case Pattern::kDirectBroadcast:
    case Pattern::kDirectReduce:
      return exchange::rooted(pattern == Pattern::kDirectReduce, position, root, other_position(root, k));
  }
  return {};
}

}  // namespace loom::device
