// checks.hpp -- what holds for the channels of every job, whatever its nodes and wherever its ranks. Looks at
// the views of all ranks, not at how they were computed; and at what the nodes planned and agreed on, to
// compare.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "connect/view.hpp"

namespace loom::connect {

/// The views to look at.
struct Wires {
  std::function<Ring(int channel, int rank)> ring;
  std::function<int(int channel, int position)> rank_at;  ///< of a ring; asked for positions in it only
  std::function<DoubleTree(int channel, int rank)> tree;
  std::function<NvlsHeads(int rank)> nvls;
  std::function<CollnetChain(int channel, int rank)> collnet_chain;
  std::function<CollnetDirect(int rank)> collnet_direct;
};
/// Those that connect() gives; they refer to `job`.
Wires wires_of(const Job& job);

/// What is wrong, in whole sentences, 20 at most; empty: nothing.
/// * A ring passes every rank once and comes back; previous and next agree; positions count along it.
/// * A tree reaches every rank from its one root, and parents and children agree. It is no deeper than the
/// levels
///   of a binary tree over the nodes (twice as many where a pattern spreads children over two GPUs) and the
///   longest chain.
/// * A node that has children in one tree of a pair has none in the other, save the first of an odd number.
/// * Where rings swap their ports, data enters a node at the port (of equal nodes: at which it left the one
///   before), from each even node to the next.
/// * No port gets more of the agreed channels of rings and trees than its node planned for it, in GB/s each
/// way
///   and, where a node's channels are equal, in number; ports are the node's. All channels together promise
///   no more than any node planned.
/// * Heads are different ranks of their node, as many on every node, and all its ranks know the same. Those
/// of
///   multicast have trees as above over the nodes; those of collnet-direct exchange with all ranks of the
///   node.
/// * A collnet chain has one head on each node and reaches all its ranks.
/// Time grows with ranks times channels.
std::vector<std::string> violations(const Job& job, const Wires& wires);
inline std::vector<std::string> violations(const Job& job) {
  return violations(job, wires_of(job));
}

}  // namespace loom::connect
