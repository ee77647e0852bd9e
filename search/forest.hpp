// forest.hpp -- the fastest that trees of any shape all-gather and reduce-scatter: every GPU is the root of
// some, which bring what it has to all others (or bring it what all others have for it).
//
// What a GPU has is one of n equal parts of the whole, so that all roots need the same: a column of the
// linear program is a tree of every root. The cheapest trees at given prices are cheapest arborescences, one
// for each root, so the optimum is exact for any number of GPUs. Several nodes are alike: their trees are
// those of one node, moved on, so that node's roots and links stand for all. Of more than three nodes the
// third stands for all others, whatever their number. ForestColl (Zhao et al., arXiv
// 2402.06787) packs trees into links whatever way they take; here a hop takes the links that kernels take,
// and the cut of that paper is a bound beside.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "search/channel_plan.hpp"

namespace loom::search {

/// Nodes of which trees and cuts tell, at the most: the last one stands for all others, which are reached
/// alike.
inline constexpr int kMostNodesTold = 3;
inline constexpr int kMostPlaces = 256;  ///< GPUs of these

/// A GPU of one of several nodes that are alike.
struct Place {
  int node = 0, rank = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};

struct TreeEdge {
  Place from, to;  ///< data go this way; for reductions back
  /// Between nodes: the ports that they leave and enter by (for reductions back); inside a node kNoNode.
  topo::NodeId out = topo::kNoNode, in = topo::kNoNode;
};

struct RootedTree {
  int root = 0;                 ///< rank, of node 0
  std::vector<TreeEdge> edges;  ///< each GPU after the one before it
  double gbps = 0;              ///< of the part that the root has
};

/// Some GPUs, and what the links bring out of them: the others lack a part for each of them.
struct Cut {
  std::vector<Place> side;  ///< node 1 stands for all but node 0
  int gpus = 0;             ///< on this side
  double links_gbps = 0;    ///< out of them together
  double gbps = 0;          ///< nothing all-gathers faster, whatever way data take
};

enum class ForestUse { kAllGather, kReduceScatter };

struct ForestRequest {
  ForestUse use = ForestUse::kAllGather;
  int nodes = 1;      ///< like this one
  int cross_nic = 1;  ///< 0: data leave and enter nodes by ports of one rail; else by any two of one plane
  int max_trees = 0;  ///< for each root; 0: any. The bound is that of any number
  std::int64_t most_steps = 4'000'000'000;  ///< of the search, and of that for the cut
};

struct Forest {
  double gbps = 0;        ///< of the whole, all parts together
  double bound_gbps = 0;  ///< no trees over these hops carry more
  Proof proof{};  ///< of that: at these prices, the same on every node, a GB/s of the whole costs at least 1
                  ///< of a node's
  Cut cut{};      ///< empty where there is one GPU
  std::vector<RootedTree> trees;  ///< of node 0's roots; those of node k are the same, k nodes on
  std::string absent{};           ///< where there are none: why

  /// By trees or cut, whichever proves more.
  double at_most() const { return cut.gpus > 0 ? std::min(bound_gbps, cut.gbps) : bound_gbps; }
};

/// Absent where there is one GPU, or some do not reach each other. Throws Error (kBadInput) for too many
/// GPUs. A pure function: every rank finds the same.
Forest plan_forest(const topo::Paths& paths, const ForestRequest& request = {});

/// GB/s at which rings do the same: of a plan on one node, or on so many.
double all_gather_gbps(const topo::Paths& paths, const ChannelPlan& rings, int nodes = 1);

}  // namespace loom::search
