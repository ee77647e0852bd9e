// find_plans.cpp -- the whole node, or the parts that talk to each other through the network.
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "search/graph_xml.hpp"
#include "search/path_tables.hpp"
#include "search/search.hpp"
#include "search/together.hpp"
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

/// How many times over the busiest link is taken, 1 at least: each part was planned as if all were its own.
double busiest(const PathTables& tables, const NodePlans& split) {
  std::map<std::string, double> links;  // by name, since each part numbers them anew
  double most = 1;
  for (std::size_t i = 0; i < split.parts.size(); ++i) {
    const topo::Paths& paths = tables.parts()[i]->paths;
    const std::vector<double> loads = link_loads(paths, split.parts[i]);
    const Resources resources(paths.system());
    for (int number = 0; number < resources.size(); ++number) {
      if (loads[static_cast<std::size_t>(number)] <= 0) continue;
      double& load = links[resources.label(number)];
      load += loads[static_cast<std::size_t>(number)];
      most = std::max(most, load / resources.gbps(number));
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
  plans.total_gbps = plans.alone_gbps = 0;
  return plans;
}

}  // namespace

NodePlans plan_parts(const PathTables& tables, const Request& request, double more_than) {
  const auto faster = [&](double gbps) { return more_than < 0 || gbps > more_than * (1 + Search::kSame); };
  NodePlans split;
  std::string absent;
  split.total_gbps = std::numeric_limits<double>::max();
  for (const auto& part : tables.parts()) {
    Search search(part->paths, request_for(tables, *part, request));
    if (!faster(search.at_most_gbps())) return {};
    split.ranks.push_back(part->ranks);
    split.parts.push_back(search.run());
    const ChannelPlan& plan = split.parts.back();
    split.total_gbps = std::min(split.total_gbps, plan.total_gbps);
    if (!faster(plan.total_gbps)) return {};
    if (absent.empty()) absent = plan.absent;
  }
  if (!absent.empty()) return without_channels(std::move(split), absent);
  split.alone_gbps = split.total_gbps;
  if (busiest(tables, split) <= 1 + Search::kSame) return split;
  std::vector<Request> requests;
  for (const auto& part : tables.parts()) requests.push_back(request_for(tables, *part, request));
  split.parts = plan_together(tables.parts(), requests);
  split.total_gbps = std::numeric_limits<double>::max();
  for (const ChannelPlan& plan : split.parts) split.total_gbps = std::min(split.total_gbps, plan.total_gbps);
  return faster(split.total_gbps) ? split : NodePlans{};
}

NodePlans find_plans(const PathTables& tables, const Request& request) {
  NodePlans whole;
  if (const PartOfMachine* all = tables.whole()) {
    whole = {{find_channels(all->paths, request_for(tables, *all, request))}, {all->ranks}};
    whole.total_gbps = whole.alone_gbps = whole.parts[0].total_gbps;
  }
  if (tables.parts().size() < 2) return whole;
  NodePlans split = plan_parts(tables, request, whole.parts.empty() ? -1 : whole.total_gbps);
  return split.parts.empty() ? whole : split;
}

NodePlans find_plans(const topo::System& system, const Request& request, topo::PathRules rules) {
  return find_plans(PathTables(system, rules), request);
}

void prove_bounds(const PathTables& tables, const Request& request, NodePlans& plans) {
  const auto prove = [](ChannelPlan& plan, const ChannelPlan& best) {
    if (best.channels.empty() || best.in_order) return;
    plan.bound_gbps = std::max(plan.total_gbps, best.bound_gbps);
    plan.proof = best.proof;
  };
  const auto asked_of = [&](const ChannelPlan& plan) {
    Request asked = request;
    asked.pattern = plan.pattern;
    asked.nodes = plan.network ? std::max(2, request.nodes) : 1;
    if (plan.limits.cross_nic == 1) asked.cross_nic = 1;
    asked.max_channels = std::max(request.max_channels, static_cast<int>(plan.channels.size()));
    return asked;
  };
  if (plans.parts.size() < 2) {
    for (std::size_t i = 0; i < plans.parts.size(); ++i) {
      const PartOfMachine& part = part_of(tables, plans, i);
      prove(plans.parts[i], find_channels(part.paths, request_for(tables, part, asked_of(plans.parts[i]))));
    }
    return;
  }
  std::size_t most = 0;  // a GPU alone has another pattern than its file's
  for (std::size_t i = 0; i < plans.parts.size(); ++i)
    if (plans.ranks[i].size() > plans.ranks[most].size()) most = i;
  const NodePlans best = plan_parts(tables, asked_of(plans.parts[most]));
  for (std::size_t i = 0; i < plans.parts.size(); ++i)
    for (std::size_t j = 0; j < best.parts.size(); ++j)
      if (best.ranks[j] == plans.ranks[i]) prove(plans.parts[i], best.parts[j]);
}

}  // namespace loom::search
