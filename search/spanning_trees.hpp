// spanning_trees.hpp -- what trees of any shape would carry inside a node: each edge passes what is reduced one way
// and what is broadcast the other way.
#pragma once

#include "search/channel_plan.hpp"

namespace loom::search {

struct TreePacking {
  double gbps = 0;        ///< reduced and broadcast at once, the sum over all trees
  double bound_gbps = 0;  ///< no set of spanning trees carries more
  int trees = 0;
};

/// The fractional optimum, for any number of GPUs: the cheapest tree at given prices is a minimum spanning tree.
/// Stops at `max_rounds`, from where on `bound_gbps` is above `gbps`. Zeros where GPUs do not reach each other.
TreePacking pack_spanning_trees(const topo::Paths& paths, int max_rounds = 400);

/// GB/s at which the rings or chains of `plan`, on one node, all-reduce large data: a ring passes all of it nearly
/// twice, a chain once each way, which the search, as the field, charges one way only.
double all_reduce_gbps(const topo::Paths& paths, const ChannelPlan& plan);

}  // namespace loom::search
