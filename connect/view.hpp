// view.hpp -- a job's channels as one rank sees them. Each is computed from the job in a time that does not
// grow with the number of ranks (rings: with its logarithm where nodes differ in size).
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "connect/job.hpp"

namespace loom::connect {

inline constexpr int kNobody = -1;
inline constexpr int kNetwork = -2;  ///< the network itself, where it reduces

/// A ring as one of its ranks sees it. Data flows from previous to this rank to next.
struct Ring {
  int position = 0;  ///< mine, in [0, size)
  int size = 1;
  int previous = 0;  ///< rank in the communicator; my own where size is 1
  int next = 0;
  int port_in = kNoPort;   ///< of my node, where previous is on another; kNoPort too where no port is known
  int port_out = kNoPort;  ///< the same for next
};

/// My place in one tree. Data is reduced from the children to the parent, and comes back.
struct TreeLinks {
  int parent = kNobody;  ///< kNobody: the root
  int child_count = 0;
  std::array<int, 3> children = {kNobody, kNobody, kNobody};  ///< on my node first
  void add_child(int rank) { children[static_cast<std::size_t>(child_count++)] = rank; }
};

/// The two trees of a channel, each for half of its data. A node that is inside one of them is a leaf of the
/// other, save the first of an odd number.
struct DoubleTree {
  std::array<TreeLinks, 2> trees;
  int port = kNoPort;  ///< of my node, if I talk to another one
};

/// Multicast: each head reduces its share for its node; the heads of one number on all nodes form two trees.
struct NvlsHeads {
  std::vector<int> heads;          ///< ranks on my node, by head number; empty: no multicast in this job
  int mine = kNobody;              ///< my head number
  std::array<TreeLinks, 2> trees;  ///< over the nodes; of a head only
};

/// A chain towards the network that reduces.
struct CollnetChain {
  int up = kNetwork;  ///< kNetwork: I am the node's head
  int down = kNobody;
};

/// Every head of a node exchanges with all ranks of the node, and with the network.
struct CollnetDirect {
  std::vector<int> heads;  ///< ranks on my node; empty: none in this job
  int mine = kNobody;      ///< my head number
  std::vector<int> up;  ///< the other heads, beginning behind my own turn so that not all send to one at once
  std::vector<int> down;  ///< a head's: the other ranks of the node
};

/// `channel` is one of job.agreed(...).channels, `rank` one of job.ranks().
Ring ring_of(const Job& job, int channel, int rank);
DoubleTree tree_of(const Job& job, int channel, int rank);
CollnetChain collnet_chain_of(const Job& job, int channel, int rank);
NvlsHeads nvls_of(const Job& job, int rank);
CollnetDirect collnet_direct_of(const Job& job, int rank);

/// The rank at a position of a ring. All together are its order; nobody needs to store it.
int rank_at(const Job& job, int channel, int position);
/// The whole ring, beginning with `first`: ranks in the order in which data passes them.
std::vector<int> ring_order(const Job& job, int channel, int first);

/// All channels of a rank.
struct View {
  int rank = 0;
  std::vector<Ring> rings;
  std::vector<DoubleTree> trees;
  NvlsHeads nvls;
  std::vector<CollnetChain> collnet_chains;
  CollnetDirect collnet_direct;
};
View connect(const Job& job, int rank);

/// The rings that executors over hosts go by, all of the first channel.
///   local: the ranks of my node.
///   rail:  one rank of every node, the one at my position of its local ring. Only where all nodes have
///   equally many
///          ranks and there are at least two; `local` and `rail` then span the communicator as a grid.
///   flat:  all ranks, node after node. Only where there are at least two nodes and no rails.
struct Wiring {
  Shape shape;
  Ring local;
  std::optional<Ring> rail;
  std::optional<Ring> flat;
};
/// Throws Error (kInternal) if the job has no such rank or no ring.
Wiring wire(const Job& job, int rank);

}  // namespace loom::connect
