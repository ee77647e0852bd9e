#include "connect/node_plans.hpp"

#include <algorithm>
#include <limits>

#include "connect/node_loads.hpp"
#include "search/graph_xml.hpp"
#include "search/path_tables.hpp"
#include "topo/bandwidth.hpp"

namespace loom::connect {
namespace {

using search::ChannelPlan;
using search::Pattern;

/// The plans of one machine: of all its GPUs, or of the parts that it is split into.
class Planner {
 public:
  Planner(const search::PathTables& tables, const search::NodePlans& rings, const search::Request& request)
      : tables_(&tables), request_(request) {
    for (std::size_t i = 0; i < rings.parts.size(); ++i) parts_.push_back(&search::part_of(tables, rings, i));
  }
  /// Of a machine that is not split.
  Planner(const search::PartOfMachine& whole, const search::Request& request)
      : request_(request), parts_{&whole} {}

  const search::PartOfMachine& part(std::size_t i) const { return *parts_[i]; }
  std::vector<ChannelPlan> of(Pattern pattern) const;
  std::vector<ChannelPlan> best_trees() const;
  /// A plan without ports, which assumes one of unknown speed.
  ChannelPlan inside(std::size_t part, Pattern pattern) const;

 private:
  bool is_split() const { return parts_.size() > 1; }

  const search::PathTables* tables_ = nullptr;
  search::Request request_;
  std::vector<const search::PartOfMachine*> parts_;
};

ChannelPlan Planner::inside(std::size_t part, Pattern pattern) const {
  search::Request request = request_;
  request.pattern = pattern;
  request.nodes = 1;
  ChannelPlan plan = search::find_channels(parts_[part]->paths, request);
  const double most = topo::net_gbps(topo::kUnknownNetMbps) / static_cast<double>(plan.channels.size());
  for (search::Channel& channel : plan.channels) channel.inter_gbps = std::min(channel.inter_gbps, most);
  return plan;
}

std::vector<ChannelPlan> Planner::of(Pattern pattern) const {
  search::Request request = request_;
  request.pattern = pattern;
  std::vector<ChannelPlan> plans = is_split() ? search::plan_parts(*tables_, request).parts
                                              : std::vector{search::find_channels(parts_[0]->paths, request)};
  const bool needed = pattern == Pattern::kRing || family_of(pattern) == Family::kTree;
  for (std::size_t i = 0; i < plans.size(); ++i)
    if (plans[i].channels.empty() && needed && request.nodes > 1) plans[i] = inside(i, pattern);
  return plans;
}

/// Of the three patterns the one with which an inner node, or the slowest part of one, carries most; of equal
/// ones the one with the shortest ways.
std::vector<ChannelPlan> Planner::best_trees() const {
  std::vector<ChannelPlan> best = of(Pattern::kTree);
  if (request_.nodes == 1 || (!is_split() && parts_[0]->ranks.size() == 1)) return best;
  const auto carried = [&](const std::vector<ChannelPlan>& plans) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < plans.size(); ++i) {
      Machine machine{&parts_[i]->paths, parts_[i]->ranks};
      const NodeSummary summary = summarize(parts_[i]->system, machine.ranks, std::span(&plans[i], 1));
      std::sort(machine.ranks.begin(), machine.ranks.end());
      least = std::min(least, inner_node_gbps(machine, summary.family(Family::kTree)));
    }
    return least;
  };
  double most = carried(best);
  for (const Pattern pattern : {Pattern::kSplitTree, Pattern::kBalancedTree}) {
    std::vector<ChannelPlan> plans = of(pattern);
    if (const double gbps = carried(plans); gbps > most * (1 + 1e-6)) best = std::move(plans), most = gbps;
  }
  return best;
}

search::Request to_search(const PlanRequest& request) {
  search::Request search_request;
  search_request.nodes = request.nodes;
  search_request.cross_nic = request.cross_nic;
  search_request.max_channels = request.max_channels;
  search_request.most_gbps = request.most_gbps;
  return search_request;
}

}  // namespace

search::ChannelPlan plan_whole(const search::PartOfMachine& machine, Family family,
                               const PlanRequest& request) {
  const Planner planner(machine, to_search(request));
  return (family == Family::kRing ? planner.of(Pattern::kRing) : planner.best_trees()).front();
}

std::vector<NodePlan> plan_nodes(const topo::System& system, const PlanRequest& request) {
  search::Request search_request = to_search(request);
  // A host that is alone has nobody to reach through its ports.
  topo::PathRules rules;
  rules.network_inside_host = request.nodes > 1 || system.hosts().size() > 1;
  const search::PathTables tables(system, rules);
  const search::NodePlans rings = search::find_plans(tables, search_request);
  if (rings.parts.size() > 1) search_request.nodes = std::max(2, request.nodes);
  const Planner planner(tables, rings, search_request);
  std::vector<NodePlan> nodes;
  for (std::size_t i = 0; i < rings.parts.size(); ++i) {
    nodes.push_back({rings.ranks[i], {rings.parts[i]}});
    if (rings.parts[i].channels.empty() && search_request.nodes > 1)
      nodes.back().plans.back() = planner.inside(i, Pattern::kRing);
  }
  const auto add = [&](std::vector<ChannelPlan> plans, bool to_single) {
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (to_single || nodes[i].ranks.size() > 1) nodes[i].plans.push_back(std::move(plans[i]));
  };
  add(planner.best_trees(), true);
  add(planner.of(Pattern::kNvls), false);
  add(planner.of(Pattern::kCollnetChain), true);
  add(planner.of(Pattern::kCollnetDirect), false);
  for (NodePlan& node : nodes)
    std::erase_if(node.plans, [](const ChannelPlan& plan) { return plan.channels.empty(); });
  return nodes;
}

}  // namespace loom::connect
