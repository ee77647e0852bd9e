// exchange_schedule.hpp -- collectives in which positions send straight to each other, in one round or two.
// Pure arithmetic on blocks, as in ring_schedule.hpp; the simulator in the tests checks every pattern for
// every size.
//
// A position's output starts as its input. In a round it sends at most one block to every other position, all
// before it receives anything; in the next round it sends from its output. n: size; S: bytes of the message.
// If each position sends one message at a time, any reduction or broadcast needs log2 n messages in sequence.
// An all-reduce needs at least 2 (n-1)/n S bytes from each position, an all-gather half of that.
//
//   pattern                          rounds   sent by the busiest position   good for
//   kOneShotAllreduce                1        (n-1) S                        tiny; hosts, or ranks of one
//   kTwoShotAllreduce                2        2 (n-1)/n S: least             inside a host
//   kLinearAllGather                 1        (n-1)/n S: least               hosts
//   kLinearBroadcast, kLinearReduce  1        (n-1) S, or S                  tiny; hosts
#pragma once

#include "device/reduce/element_types.hpp"

namespace loom::device {

enum class Pattern {
  kOneShotAllreduce,
  kTwoShotAllreduce,
  kLinearAllGather,
  kLinearBroadcast,
  kLinearReduce,
};

/// What one position exchanges with one other; the two directions are independent. A peer of -1: none.
struct Exchange {
  int to = -1, sent = -1;        ///< and the block
  int from = -1, received = -1;  ///< likewise
  bool reduces = false;          ///< received op output -> output, rather than received -> output
};

/// How many blocks a message has: one for each position, or one in all.
constexpr int block_count(Pattern pattern, int size) {
  return pattern == Pattern::kTwoShotAllreduce || pattern == Pattern::kLinearAllGather ? size : 1;
}
constexpr int round_count(Pattern pattern) {
  return pattern == Pattern::kTwoShotAllreduce ? 2 : 1;
}

/// The k-th of the other positions, in order of rank: positions exchange in that order, and thus reduce in
/// order of rank.
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
    case Pattern::kLinearAllGather:
      return exchange::all_gather(position, peer);
    case Pattern::kLinearBroadcast:
    case Pattern::kLinearReduce:
      return exchange::rooted(pattern == Pattern::kLinearReduce, position, root, other_position(root, k));
  }
  return {};
}

}  // namespace loom::device
