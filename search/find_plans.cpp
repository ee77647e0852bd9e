// find_plans.cpp -- the whole node, or the parts that talk to each other through the network.
#include <algorithm>
#include <map>
#include <utility>

#include "search/graph_xml.hpp"
#include "search/path_tables.hpp"
#include "search/search.hpp"
#include "search/validate.hpp"

namespace loom::search {
namespace {

/// What the search of `part`, the whole machine or one of its parts, is asked. Where a machine may be split,
/// half of the steps are for the whole. Parts talk to each other through their ports.
Request request_for(const PathTables& tables, const PartOfMachine& part, Request request) {
  if (tables.parts().size() < 2) return request;
  std::size_t gpus = 0;
  for (const auto& other : tables.parts()) gpus += other->ranks.size();
  const std::int64_t half = steps_for(request, gpus) / 2;
  request.max_steps = half;
  if (&part == tables.whole()) return request;
  request.max_steps = std::max<std::int64_t>(
      1, half * static_cast<std::int64_t>(part.ranks.size()) / static_cast<std::int64_t>(gpus));
  request.nodes = std::max(2, request.nodes);
  return request;
}

/// How many times over the busiest link is taken where all parts are as fast as the slowest, 1 at least: each
/// was planned as if ports were its own.
double busiest(const PathTables& tables, const NodePlans& split) {
  std::map<std::string, std::pair<double, double>> links;  // by name, since each part numbers them anew
  double most = 1;
  for (std::size_t i = 0; i < split.parts.size(); ++i) {
    const topo::Paths& paths = tables.parts()[i]->paths;
    const std::vector<double> loads = link_loads(paths, split.parts[i]);
    const double share = split.total_gbps / std::max(split.parts[i].total_gbps, split.total_gbps);
    for (std::size_t link = 0; link < loads.size(); ++link) {
      if (loads[link] <= 0) continue;
      const Resource resource{paths.system().links()[link].gbps, static_cast<topo::LinkId>(link)};
      auto& [load, gbps] = links[label(paths.system(), resource)];
      load += loads[link] * share;
      gbps = resource.gbps;
      most = std::max(most, load / gbps);
    }
  }
  return most;
}

/// Every part without channels, because one of them has none.
NodePlans without_channels(NodePlans plans, const std::string& reason) {
  for (ChannelPlan& plan : plans.parts) {
    ChannelPlan none;
    none.pattern = plan.pattern;
    none.network = plan.network;
    none.absent = reason;
    plan = std::move(none);
  }
  plans.total_gbps = 0;
  return plans;
}

}  // namespace

NodePlans find_plans(const PathTables& tables, const Request& request) {
  NodePlans whole;
  if (const PartOfMachine* all = tables.whole()) {
    whole = {{find_channels(all->paths, request_for(tables, *all, request))}, {all->ranks}, 0};
    whole.total_gbps = whole.parts[0].total_gbps;
  }
  if (tables.parts().size() < 2) return whole;
  const auto faster = [&](double gbps) {
    return whole.parts.empty() || gbps > whole.total_gbps * (1 + Search::kSame);
  };
  NodePlans split;
  std::string absent;
  for (const auto& part : tables.parts()) {
    Search search(part->paths, request_for(tables, *part, request));
    if (!faster(search.at_most_gbps())) return whole;
    split.ranks.push_back(part->ranks);
    split.parts.push_back(search.run());
    const ChannelPlan& plan = split.parts.back();
    split.total_gbps =
        split.parts.size() == 1 ? plan.total_gbps : std::min(split.total_gbps, plan.total_gbps);
    if (!faster(plan.total_gbps)) return whole;
    if (absent.empty()) absent = plan.absent;
  }
  if (!absent.empty()) return without_channels(std::move(split), absent);
  return faster(split.total_gbps / busiest(tables, split)) ? split : whole;
}

NodePlans find_plans(const topo::System& system, const Request& request, topo::PathRules rules) {
  return find_plans(PathTables(system, rules), request);
}

void prove_bounds(const PathTables& tables, const Request& request, NodePlans& plans) {
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    ChannelPlan& plan = plans.parts[i];
    const PartOfMachine& part = part_of(tables, plans, i);
    Request asked = request_for(tables, part, request);
    asked.pattern = plan.pattern;
    asked.nodes = plan.network ? std::max(2, request.nodes) : 1;
    if (plan.limits.cross_nic == 1) asked.cross_nic = 1;
    asked.max_channels = std::max(request.max_channels, static_cast<int>(plan.channels.size()));
    const ChannelPlan best = find_channels(part.paths, asked);
    if (!best.channels.empty() && !best.in_order)
      plan.bound_gbps = std::max(plan.total_gbps, best.bound_gbps);
  }
}

}  // namespace loom::search
