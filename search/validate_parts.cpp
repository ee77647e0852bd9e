// validate_parts.cpp -- the parts of a machine at the same time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include "base/format.hpp"
#include "search/graph_xml.hpp"
#include "search/resources.hpp"
#include "search/validate.hpp"
#include "topo/bandwidth.hpp"

namespace loom::search {
namespace {

constexpr double kSlackGbps = 1e-3, kSlackShare = 1e-6, kBoundShare = 1e-5;

/// What several parts take of one thing.
struct Shared {
  double gbps = 0, limit = std::numeric_limits<double>::infinity();
  int parts = 0;
  bool is_too_much() const { return parts > 1 && gbps > limit * (1 + kSlackShare) + kSlackGbps; }
};

using Cable = std::pair<std::uint64_t, int>;  // guid of the ASIC, port

/// What comes in at the ports of cables: all that a plan's channels carry there.
std::map<Cable, double> received(const topo::System& system, const ChannelPlan& plan) {
  std::map<Cable, double> cables;
  for (const Channel& channel : plan.channels) {
    if (plan.in_order || channel.nets.empty()) continue;
    const topo::NetInfo& in = system.node(channel.nets[0]).net();
    if (in.guid) cables[{*in.guid, in.port}] += channel.inter_gbps;
  }
  return cables;
}

}  // namespace

std::vector<std::string> overloads(const PathTables& tables, const NodePlans& plans) {
  if (plans.parts.size() < 2) return {};
  const topo::System& system = part_of(tables, plans, 0).system;  // all number nodes and links alike
  const Resources resources(system);
  std::vector<Shared> shared(static_cast<std::size_t>(resources.size()));
  std::map<Cable, Shared> cables;
  for (const topo::NodeId id : system.of_kind(topo::NodeKind::kNet)) {
    const topo::NetInfo& net = system.node(id).net();
    if (!net.guid) continue;
    double& limit = cables[{*net.guid, net.port}].limit;
    limit = std::min(limit, static_cast<double>(topo::net_gbps(net.speed_mbps)));
  }
  const auto add = [](Shared& to, double gbps) {
    if (gbps > 0) to.gbps += gbps, ++to.parts;
  };
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    const std::vector<double> loads = link_loads(part_of(tables, plans, i).paths, plans.parts[i]);
    for (std::size_t number = 0; number < loads.size(); ++number) add(shared[number], loads[number]);
    for (const auto& [cable, gbps] : received(system, plans.parts[i])) add(cables[cable], gbps);
  }
  std::vector<std::string> found;
  for (int number = 0; number < resources.size(); ++number) {
    Shared& entry = shared[static_cast<std::size_t>(number)];
    entry.limit = resources.gbps(number);
    if (entry.is_too_much())
      found.push_back(loom::format("{} has {:g} GB/s; {} parts together take {:g}.", resources.label(number),
                                   entry.limit, entry.parts, entry.gbps));
  }
  for (const auto& [cable, entry] : cables)
    if (entry.is_too_much())
      found.push_back(loom::format("Ports of ASIC {:#x} receive {:g} GB/s in {} parts together, of {:g}.",
                                   cable.first, entry.gbps, entry.parts, entry.limit));
  return found;
}

std::vector<std::string> violations(const PathTables& tables, const NodePlans& plans) {
  if (plans.parts.empty()) return {};
  std::vector<std::string> found;
  std::set<int> ranks;
  double least = std::numeric_limits<double>::infinity(), bound = least;
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    const ChannelPlan& plan = plans.parts[i];
    const std::string where = plans.parts.size() > 1 ? loom::format("part {}: ", i + 1) : "";
    for (const std::string& line : violations(part_of(tables, plans, i).paths, plan))
      found.push_back(where + line);
    for (const int rank : plans.ranks[i])
      if (!ranks.insert(rank).second)
        found.push_back(loom::format("{}rank {} is in two parts.", where, rank));
    least = std::min(least, plan.total_gbps);
    bound = std::min(bound, plan.bound_gbps);
  }
  for (std::string& line : overloads(tables, plans)) found.push_back(std::move(line));
  if (std::abs(least - plans.total_gbps) > kSlackGbps + kSlackShare * least)
    found.push_back(
        loom::format("The slowest part carries {} GB/s, the total says {}.", least, plans.total_gbps));
  if (plans.total_gbps > bound * (1 + kBoundShare) + kSlackGbps)
    found.push_back(loom::format("All parts carry {} GB/s at the same time, above the bound of {}.",
                                 plans.total_gbps, bound));
  return found;
}

}  // namespace loom::search
