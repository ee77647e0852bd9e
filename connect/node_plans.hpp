// node_plans.hpp -- the searches for all families of channels of one machine, as the nodes that it makes.
#pragma once

#include <vector>

#include "connect/summary.hpp"
#include "search/path_tables.hpp"

namespace loom::connect {

struct NodePlan {
  std::vector<int> ranks;                  ///< of the System
  std::vector<search::ChannelPlan> plans;  ///< rings and trees always; the others where the machine has them
};

struct PlanRequest {
  int nodes = 1;  ///< of the job, this machine's own among them
  int cross_nic = 2;
  int max_channels = 32;
  double most_gbps = 0;  ///< of one channel; see search::Request
};

/// The rings or trees of a machine that is one node, as plan_nodes() makes them.
search::ChannelPlan plan_whole(const search::PartOfMachine& machine, Family family,
                               const PlanRequest& request);

/// Usually one node. Several where the rings through the machine are faster if parts of it talk through the
/// network; the other families follow the rings. On a machine without ports a job of several nodes gets the
/// channels of one node, at the speed that is assumed of unknown ports.
/// Of the tree patterns it is the one with which an inner node carries most (inner_node_gbps).
std::vector<NodePlan> plan_nodes(const topo::System& system, const PlanRequest& request);

}  // namespace loom::connect
