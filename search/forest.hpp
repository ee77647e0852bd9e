// forest.hpp -- the fastest that trees of any shape all-gather and reduce-scatter inside a node: every GPU is
// the root of some, which bring what it has to all others (or bring it what all others have for it).
//
// What a GPU has is one of n equal parts of the whole, so that all roots need the same: a column of the
// linear program is a tree of every root. The cheapest trees at given prices are cheapest arborescences, one
// for each root, so the optimum is exact for any number of GPUs. ForestColl (Zhao et al., arXiv 2402.06787)
// packs trees into links whatever way they take; here a hop takes the links that kernels take, and the cut of
// that paper is a bound beside.
#pragma once

#include <utility>
#include <vector>

#include "search/channel_plan.hpp"

namespace loom::search {

struct RootedTree {
  int root = 0;  ///< all are ranks
  std::vector<std::pair<int, int>>
      edges;        ///< each GPU after the one before it; data go from first to second, for reductions back
  double gbps = 0;  ///< of the part that the root has
};

/// Some GPUs, and what the links bring out of them: the others lack a part for each of them.
struct Cut {
  std::vector<int> side;  ///< ranks
  double links_gbps = 0;  ///< out of them together
  double gbps = 0;        ///< nothing all-gathers faster, whatever way data take
};

enum class ForestUse { kAllGather, kReduceScatter };

struct Forest {
  double gbps = 0;        ///< of the whole, all parts together
  double bound_gbps = 0;  ///< no trees over these hops carry more
  Proof proof{};          ///< of that: at these prices a GB/s of the whole costs at least 1
  Cut cut{};              ///< empty where there is one GPU
  std::vector<RootedTree> trees;
};

/// At most `max_trees` for each root; 0: any. The bound is that of any number. Empty where there is one GPU,
/// or some do not reach each other. A pure function: every rank finds the same.
Forest plan_forest(const topo::Paths& paths, ForestUse use = ForestUse::kAllGather, int max_trees = 0);

/// GB/s at which rings of a plan on one node do the same.
double all_gather_gbps(const topo::Paths& paths, const ChannelPlan& rings);

}  // namespace loom::search
