#include "search/path_tables.hpp"

#include <algorithm>
#include <tuple>

namespace loom::search {
namespace {

std::vector<int> ranks_of(const topo::System& system) {
  std::vector<int> ranks;
  for (const topo::NodeId gpu : system.gpus()) ranks.push_back(system.node(gpu).gpu().rank);
  return ranks;
}

/// What the network gives a GPU: the best of its ports, 0 without any.
double port_gbps(const topo::Paths& paths, topo::NodeId gpu) {
  double best = 0;
  for (const topo::NodeId net : paths.system().of_kind(topo::NodeKind::kNet))
    if (const topo::Path path = paths.between(gpu, net); path.type < topo::PathType::kNet)
      best = std::max(best, static_cast<double>(path.gbps));
  return best;
}

using Gpus = std::vector<topo::NodeId>;

std::vector<std::vector<int>> ranks_of(const topo::System& system, const std::vector<Gpus>& groups) {
  std::vector<std::vector<int>> ranks(groups.size());
  std::vector<bool> done(groups.size(), false);
  std::vector<std::vector<int>> in_order;  // of their first GPUs
  for (const topo::NodeId gpu : system.gpus())
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (std::find(groups[i].begin(), groups[i].end(), gpu) != groups[i].end())
        ranks[i].push_back(system.node(gpu).gpu().rank);
  for (const topo::NodeId gpu : system.gpus())
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (!done[i] && ranks[i].front() == system.node(gpu).gpu().rank) {
        done[i] = true;
        in_order.push_back(ranks[i]);
      }
  return in_order;
}

/// The GPUs in groups within which paths lead from each to each, whatever the order in which they are listed.
std::vector<Gpus> connected(const topo::Paths& paths) {
  std::vector<Gpus> groups;
  Gpus left(paths.system().gpus().begin(), paths.system().gpus().end());
  while (!left.empty()) {
    Gpus& group = groups.emplace_back(1, left.front());
    left.erase(left.begin());
    for (std::size_t i = 0; i < group.size(); ++i)
      for (auto gpu = left.begin(); gpu != left.end();) {
        if (paths.between(group[i], *gpu).type >= topo::PathType::kNet) {
          ++gpu;
          continue;
        }
        group.push_back(*gpu);
        gpu = left.erase(gpu);
      }
  }
  return groups;
}

/// The GPUs in groups within which every pair is joined by more than the network gives both. GPUs with most
/// such neighbours choose first, so that one which is badly connected stays alone; of those with as many, the
/// ones with the lower numbers on their host, so that groups are the same wherever a GPU is listed.
std::vector<Gpus> faster_than_network(const topo::Paths& paths) {
  const Gpus gpus(paths.system().gpus().begin(), paths.system().gpus().end());
  const std::size_t count = gpus.size();
  std::vector<double> ports;
  for (const topo::NodeId gpu : gpus) ports.push_back(port_gbps(paths, gpu));
  const auto joined = [&](std::size_t i, std::size_t j) {
    const topo::Path to = paths.between(gpus[i], gpus[j]), back = paths.between(gpus[j], gpus[i]);
    return std::max(to.type, back.type) < topo::PathType::kNet &&
           std::min(to.gbps, back.gbps) >= std::min(ports[i], ports[j]);
  };
  std::vector<std::tuple<int, int, int, std::size_t>> order;  // strangers; host, device; place
  for (std::size_t i = 0; i < count; ++i) {
    int strangers = 0;
    for (std::size_t j = 0; j < count; ++j) strangers += i != j && !joined(i, j) ? 1 : 0;
    const topo::Node& gpu = paths.system().node(gpus[i]);
    order.emplace_back(strangers, gpu.host, gpu.gpu().device, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::vector<std::size_t>> places;
  for (const auto& [strangers, host, device, gpu] : order) {
    const std::size_t i = gpu;  // lambdas of clang 14 capture no structured binding
    const auto group = std::find_if(places.begin(), places.end(), [&](const auto& members) {
      return std::all_of(members.begin(), members.end(), [&](std::size_t j) { return joined(i, j); });
    });
    (group == places.end() ? places.emplace_back() : *group).push_back(i);
  }
  std::vector<Gpus> groups;
  for (const auto& members : places) {
    groups.emplace_back();
    for (const std::size_t i : members) groups.back().push_back(gpus[i]);
  }
  return groups;
}

}  // namespace

PartOfMachine::PartOfMachine(topo::System taking_part, topo::PathRules rules)
    : system(std::move(taking_part)), paths(system, rules), ranks(ranks_of(system)) {}

PathTables::PathTables(const topo::System& system, topo::PathRules rules) {
  topo::PathRules direct = rules;
  direct.network_inside_host = false;
  auto whole = std::make_unique<PartOfMachine>(system, direct);
  const bool avoids = rules.network_inside_host && !system.of_kind(topo::NodeKind::kNet).empty();
  const std::vector<Gpus> reachable = connected(whole->paths);
  if (const auto groups = avoids ? faster_than_network(whole->paths) : reachable; groups.size() > 1)
    for (const std::vector<int>& ranks : ranks_of(system, groups))
      parts_.push_back(std::make_unique<PartOfMachine>(topo::trimmed_to(system, ranks), direct));
  if (reachable.size() == 1) whole_ = std::move(whole);
}

}  // namespace loom::search
