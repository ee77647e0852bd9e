// agree.hpp -- one result for nodes that differ: how many channels, how fast, and which of its own channels
// each node uses for which. Pure functions of the summaries, so that every rank comes to the same.
#pragma once

#include <span>
#include <vector>

#include "connect/summary.hpp"

namespace loom::connect {

/// A user's limits. First what is too many is cut, then what is too few is made up for by copies: where the
/// two contradict each other the minimum wins.
struct ChannelLimits {
  int min_channels = 1;
  int max_channels = 32;
};

/// One of the agreed channels on a node.
struct Part {
  int own = 0;      ///< index among the node's own channels
  int copies = 1;   ///< parts that the own channel is cut into; each has that share of its speed
  int partner = 0;  ///< agreed channel that comes in where this one goes out, and back; itself: none
};

/// `family`'s channels as `count` ones, fastest first. Fewer than it has: the fastest. More: the fastest are
/// cut into equal parts again and again. Rings that swap their ports stay together, as neighbours and of
/// equal speed, unless they are cut apart. `family` has channels.
std::vector<Part> spread(const FamilySummary& family, int count);

/// What all nodes have agreed on for a family.
struct Agreed {
  int channels = 0;                           ///< 0: some node has none
  std::vector<float> intra_gbps, inter_gbps;  ///< of each channel: the slowest node's
  topo::PathType type_intra = topo::PathType::kLoc, type_inter = topo::PathType::kLoc;  ///< the worst
  int cross_nic = 0;                       ///< the most of any node
  std::vector<std::vector<Part>> by_kind;  ///< by_kind[k][c]: channel c on a node of kind k
  std::vector<std::vector<int>> heads;     ///< nvls, collnet-direct: by kind, the heads' local indices
  double total_gbps() const;
};

/// For rings, trees and chains: the least number of channels with which the slowest nodes carry most, or not
/// 2 % less, within `limits`. For families with heads: as many heads as the node with the fewest has, one
/// channel for each: those whose channels carry most at their ports together, these first.
Agreed agree(Family family, std::span<const NodeSummary> kinds, const ChannelLimits& limits);

}  // namespace loom::connect
