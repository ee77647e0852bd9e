// shape.hpp -- which ranks a channel's links join. Host code.
#pragma once

#include <vector>

#include "device/steps/channel.hpp"

namespace loom::device::steps {

/// What all ranks know of a channel: a ring, trees and a grid that have nothing to do with each other but
/// their number. A call goes by the first so many channels, which must all have its kind of links.
struct ChannelShape {
  std::vector<int> ring = {};  ///< ranks in the order in which data passes them. Empty: none
  std::vector<int> trees[kTrees] =
      {};                      ///< by rank its parent, kNobody of the root. Empty: none; the second last
  std::vector<int> grid = {};  ///< ranks, row by row. Empty: none
  int columns = 0;
  unsigned weight = 1, tree_weight = 1, grid_weight = 1;  ///< of the ring, of the trees, of the grid

  /// Links of every two ranks are in all channels, as far as the form has any.
  bool has(LinkKind kind) const {
    if (kind == LinkKind::kPairwise || kind == LinkKind::kExchange) return true;
    return !(kind == LinkKind::kRing ? ring : kind == LinkKind::kGrid ? grid : trees[0]).empty();
  }
  /// How much of a message goes by such links, against those of other channels.
  unsigned weight_of(LinkKind kind) const;
  /// Throws Error (kInternal), which names channel `channel`, if the ring or the grid is not all of so many
  /// ranks, or a tree no tree of them with up to kMostChildren children.
  void check(int ranks, int channel) const;
  /// Makes each host a row, in the order of the ring, if there is one and several hosts have equally many
  /// ranks, two or more. hosts: by rank; empty: all are on one.
  void add_grid(const std::vector<int>& hosts);
};

/// Rings in order of rank and one such chain as a tree, of equal weights; and grids, where there may be any.
std::vector<ChannelShape> plain_channels(int ranks, int channels, const std::vector<int>& hosts = {});

}  // namespace loom::device::steps
