// find_plans.cpp -- the whole node, or the parts that talk to each other through the network.
#include <algorithm>
#include <limits>
#include <utility>

#include "search/beside_nccl.hpp"
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
  const std::int64_t half = std::max<std::int64_t>(1, steps_for(request, gpus) / 2);
  request.max_steps = half;
  if (&part == tables.whole()) return request;
  request.max_steps = std::max<std::int64_t>(
      1, half * static_cast<std::int64_t>(part.ranks.size()) / static_cast<std::int64_t>(gpus));
  request.nodes = std::max(2, request.nodes);
  return request;
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
  plans.total_gbps = plans.alone_gbps = plans.alone_bound_gbps = 0;
  return plans;
}

/// While the others are silent.
void add_alone(NodePlans& plans, const ChannelPlan& plan) {
  const bool first = plans.parts.empty();
  const double gbps = by_one_channel_a_head(plan);
  plans.alone_gbps = first ? gbps : std::min(plans.alone_gbps, gbps);
  plans.alone_bound_gbps = first ? plan.bound_gbps : std::min(plans.alone_bound_gbps, plan.bound_gbps);
}

double slowest_of(const std::vector<ChannelPlan>& parts) {
  double least = std::numeric_limits<double>::max();
  for (const ChannelPlan& plan : parts) least = std::min(least, plan.total_gbps);
  return least;
}

}  // namespace

NodePlans plan_parts(const PathTables& tables, const Request& request, double more_than) {
  const auto faster = [&](double gbps) { return more_than < 0 || gbps > more_than * (1 + Search::kSame); };
  NodePlans split;
  std::string absent;
  for (const auto& part : tables.parts()) {
    Search search(part->paths, request_for(tables, *part, request));
    if (!faster(search.at_most_gbps())) return {};
    ChannelPlan plan = search.run();
    if (!faster(plan.total_gbps)) return {};
    if (absent.empty()) absent = plan.absent;
    add_alone(split, plan);
    split.ranks.push_back(part->ranks);
    split.parts.push_back(std::move(plan));
  }
  if (!absent.empty()) return without_channels(std::move(split), absent);
  if (!overloads(tables, split).empty()) {
    std::vector<Request> requests;
    for (const auto& part : tables.parts()) requests.push_back(request_for(tables, *part, request));
    plan_together(tables.parts(), requests, split.parts);
  }
  split.total_gbps = slowest_of(split.parts);
  return faster(split.total_gbps) ? split : NodePlans{};
}

NodePlans find_plans(const PathTables& tables, const Request& request) {
  NodePlans whole;
  if (const PartOfMachine* all = tables.whole()) {
    ChannelPlan plan = find_channels(all->paths, request_for(tables, *all, request));
    add_alone(whole, plan);
    whole.total_gbps = plan.total_gbps;
    whole.parts.push_back(std::move(plan));
    whole.ranks.push_back(all->ranks);
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
    plan.bound_gbps = best.bound_gbps;
    plan.proof = best.proof;
  };
  std::size_t most = 0;  // of parts' channels; a GPU alone has another pattern than its file's
  int channels = request.max_channels;
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    if (plans.ranks[i].size() > plans.ranks[most].size()) most = i;
    channels = std::max(channels, static_cast<int>(plans.parts[i].channels.size()));
  }
  const auto asked_of = [&](const ChannelPlan& plan) {
    Request asked = request;
    asked.pattern = plan.pattern;
    asked.nodes = plan.network ? std::max(2, request.nodes) : 1;
    if (plan.limits.cross_nic == 1) asked.cross_nic = 1;
    asked.max_channels = channels;
    return asked;
  };
  const auto prove_alone = [&](std::size_t i) {
    const PartOfMachine& part = part_of(tables, plans, i);
    prove(plans.parts[i], find_channels(part.paths, request_for(tables, part, asked_of(plans.parts[i]))));
  };
  NodePlans best;  // of all parts at the same time, if all are there
  if (plans.parts.size() > 1 && plans.parts.size() == tables.parts().size())
    best = plan_parts(tables, asked_of(plans.parts[most]));
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    const auto same = std::find(best.ranks.begin(), best.ranks.end(), plans.ranks[i]);
    if (same == best.ranks.end()) {
      prove_alone(i);
      continue;
    }
    // What all carry together does not bound a part that is faster than the slowest.
    const ChannelPlan& together = best.parts[static_cast<std::size_t>(same - best.ranks.begin())];
    const bool bounds_it =
        !together.proof.together || plans.parts[i].total_gbps <= plans.total_gbps * (1 + Search::kSame);
    if (bounds_it)
      prove(plans.parts[i], together);
    else
      prove_alone(i);
  }
}

}  // namespace loom::search
