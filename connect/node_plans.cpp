#include "connect/node_plans.hpp"

#include <algorithm>

#include "connect/node_loads.hpp"
#include "topo/bandwidth.hpp"

namespace loom::connect {
namespace {

using search::ChannelPlan;
using search::Pattern;

ChannelPlan plan_of(const topo::Paths& paths, const search::Request& request) {
  ChannelPlan plan = search::find_channels(paths, request);
  const bool needed = request.pattern == Pattern::kRing || family_of(request.pattern) == Family::kTree;
  if (!plan.channels.empty() || !needed || request.nodes == 1) return plan;
  search::Request inside = request;
  inside.nodes = 1;
  plan = search::find_channels(paths, inside);
  const double most = topo::net_gbps(topo::kUnknownNetMbps) / static_cast<double>(plan.channels.size());
  for (search::Channel& channel : plan.channels) channel.inter_gbps = std::min(channel.inter_gbps, most);
  return plan;
}

/// Of the three patterns the one with which an inner node carries most; of equal ones the one with the
/// shortest ways.
ChannelPlan best_tree(const topo::Paths& paths, std::span<const int> ranks, search::Request request) {
  request.pattern = Pattern::kTree;
  ChannelPlan best = plan_of(paths, request);
  if (request.nodes == 1 || ranks.size() == 1) return best;
  Machine machine{&paths, {ranks.begin(), ranks.end()}};
  std::sort(machine.ranks.begin(), machine.ranks.end());
  const auto carried = [&](const ChannelPlan& plan) {
    const NodeSummary summary = summarize(paths.system(), ranks, std::span(&plan, 1));
    return inner_node_gbps(machine, summary.family(Family::kTree));
  };
  double most = carried(best);
  for (const Pattern pattern : {Pattern::kSplitTree, Pattern::kBalancedTree}) {
    request.pattern = pattern;
    ChannelPlan plan = plan_of(paths, request);
    if (const double gbps = carried(plan); gbps > most * (1 + 1e-6)) best = std::move(plan), most = gbps;
  }
  return best;
}

}  // namespace

std::vector<NodePlan> plan_nodes(const topo::System& system, const PlanRequest& request) {
  search::Request search_request;
  search_request.nodes = request.nodes;
  search_request.cross_nic = request.cross_nic;
  search_request.max_channels = request.max_channels;
  search_request.most_gbps = request.most_gbps;
  const search::NodePlans rings = search::find_plans(system, search_request);
  if (rings.parts.size() > 1) search_request.nodes = std::max(2, request.nodes);
  topo::PathRules rules;
  rules.network_inside_host = false;
  std::vector<NodePlan> nodes;
  for (std::size_t i = 0; i < rings.parts.size(); ++i) {
    NodePlan node;
    node.ranks = rings.ranks[i];
    const topo::System part = topo::trimmed_to(system, node.ranks);
    const topo::Paths paths(part, rules);
    node.plans.push_back(rings.parts[i]);
    if (rings.parts[i].channels.empty()) node.plans.back() = plan_of(paths, search_request);
    const auto add = [&](Pattern pattern) {
      search_request.pattern = pattern;
      node.plans.push_back(plan_of(paths, search_request));
    };
    const bool several = node.ranks.size() > 1;
    node.plans.push_back(best_tree(paths, node.ranks, search_request));
    if (several) add(Pattern::kNvls);
    add(Pattern::kCollnetChain);
    if (several) add(Pattern::kCollnetDirect);
    search_request.pattern = Pattern::kRing;
    std::erase_if(node.plans, [](const ChannelPlan& plan) { return plan.channels.empty(); });
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace loom::connect
