// checks.hpp -- what holds for the channels of every job, whatever its nodes and wherever its ranks. Looks at
// the views of all ranks, not at how they were computed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "connect/view.hpp"

namespace loom::connect {

/// The views to look at.
struct Wires {
  std::function<Ring(int channel, int rank)> ring;
  std::function<DoubleTree(int channel, int rank)> tree;
  std::function<NvlsHeads(int rank)> nvls;
  std::function<CollnetChain(int channel, int rank)> collnet_chain;
  std::function<CollnetDirect(int rank)> collnet_direct;
};
/// Those that connect() gives; they refer to `job`.
Wires wires_of(const Job& job);

/// What is wrong, in whole sentences, 20 at most; empty: nothing.
/// * A ring passes every rank once and comes back; previous and next agree; positions count along it.
/// * A tree reaches every rank from its one root, is no deeper than (levels of a binary tree over the nodes)
/// steps, two
///   for each where a pattern spreads children over two GPUs, and the longest chain; parents and children
///   agree.
/// * A node that has children in one tree of a pair has none in the other, save the first of an odd number.
/// * Where rings swap their ports, data enters a node at the port (of equal nodes: at which it left the one
/// before),
///   from each even node to the next.
/// * No port gets more of the agreed channels than its node planned for it, in GB/s each way and, where a
/// node's
///   channels are equal, in number; no channel is faster than a node's own.
/// * Heads: as many on every node, each with trees as above over the nodes. Chains end at the network.
/// Time grows with ranks times channels.
std::vector<std::string> violations(const Job& job, const Wires& wires);
inline std::vector<std::string> violations(const Job& job) {
  return violations(job, wires_of(job));
}

}  // namespace loom::connect
