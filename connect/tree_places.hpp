// tree_places.hpp -- where in a node's chain the trees over nodes attach, by pattern.
#pragma once

#include <algorithm>

#include "connect/summary.hpp"

namespace loom::connect {

/// The place in the chain to which the first (0) or second (1) child node sends. The pattern says which GPUs
/// have bandwidth left for it: the first one, the second one, or each for one child.
inline int child_place(search::Pattern pattern, int which, int ranks) {
  int place = 0;
  if (pattern == search::Pattern::kSplitTree) place = 1;
  if (pattern == search::Pattern::kBalancedTree) place = 1 - which;
  return std::min(place, ranks - 1);
}

/// The port through which the rank at `place` reaches other nodes.
inline int port_at(const ChannelSummary& channel, search::Pattern pattern, int place) {
  return pattern == search::Pattern::kTree || place == 0 ? channel.port_in : channel.port_out;
}

}  // namespace loom::connect
