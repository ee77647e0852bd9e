// grid.hpp -- the ranks of several hosts as a grid: a ring inside each host, and rails: rings across the
// hosts that join the ranks at the same place of every local ring. A single rail of all ranks is a grid, too.
#pragma once

#include <array>
#include <span>

#include "device/call.h"
#include "device/host/tree_executor.hpp"
#include "device/schedule/tree_schedule.hpp"

namespace loom::device {

/// A rank's links to its parents and children on its rail in the double binary tree over hosts
/// (tree_schedule.hpp), for each of the two trees.
struct DbtLinks {
  static constexpr int kMostNeighbours = 3;
  struct Neighbour {
    int host = kNobody;  ///< place on the rail; kNobody: this entry is unused
    PeerLinks links;
  };
  std::array<std::array<Neighbour, kMostNeighbours>, 2> neighbours;
  FifoShape fifo;

  PeerLinks to(int tree, int host) const {
    for (const Neighbour& neighbour : neighbours[static_cast<std::size_t>(tree)])
      if (host != kNobody && neighbour.host == host) return neighbour.links;
    return {};
  }
};

/// Where a rank stands, and its links.
struct Grid {
  RingLinks local;  ///< inside my host; of size 1 where a host has one rank
  FifoShape local_fifo;
  RingLinks rail;
  FifoShape rail_fifo;
  /// In the communicator: along the rails host after host, each along its local ring.
  std::span<const int> ranks;

  int rank_at(int host, int place) const {
    return ranks[static_cast<std::size_t>(host * local.size + place)];
  }
  /// The rank so many places on; steps >= -size.
  int local_neighbour(int steps) const {
    return rank_at(rail.position, (local.position + steps + local.size) % local.size);
  }
  int rail_neighbour(int steps) const {
    return rank_at((rail.position + steps + rail.size) % rail.size, local.position);
  }
};

/// Broadcast and reduce: a chain along the root's rail, and from each rank of it a chain inside its host. A
/// host's link carries the message once each way at most. Depth h + l - 2 for h hosts of l ranks, and one
/// step more for each further slice.
class RootedExecutor {
 public:
  /// A broadcast or reduce of the whole communicator, whose root is at (root_host, root_place) of the grid.
  RootedExecutor(const Grid& grid, const Call& call, int root_host, int root_place);

  using State = RingExecutor::State;
  /// As TreeExecutor's.
  State advance() { return tree_.advance(); }
  /// The rank that a blocked executor waits for.
  int awaited() const noexcept;

 private:
  static constexpr int kAlongRail = 0, kInside = 1;  // children
  static TreeLinks links_of(const Grid& grid, Collective collective, int root_host, int root_place);

  Grid grid_;
  bool reduces_, on_root_rail_;
  TreeExecutor tree_;
};

}  // namespace loom::device
