#include "connect/node_loads.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "connect/tree_places.hpp"
#include "search/hop_table.hpp"
#include "topo/bandwidth.hpp"

namespace loom::connect {
namespace {

constexpr double kBytesPerUs = 1000;  // of one GB/s

}  // namespace

NodeLoads::NodeLoads(const Machine& machine, const Costs& costs)
    : machine_(&machine), resources_(machine.paths->system()), costs_(costs) {
  for (int number = 0; number < resources_.size(); ++number) gbps_.push_back(resources_.gbps(number));
  gbps_.insert(gbps_.end(), 2, static_cast<double>(topo::net_gbps(topo::kUnknownNetMbps)));
  if (costs.cpu_gbps > 0) gbps_.insert(gbps_.end(), machine.ranks.size(), costs.cpu_gbps);
  load_.resize(gbps_.size());
}

int NodeLoads::add(End from, End to, double bytes) {
  const topo::System& system = machine_->paths->system();
  std::vector<std::size_t> links;
  for (const End& end : {from, to}) {
    if (end.is_port || costs_.cpu_gbps == 0) continue;
    links.push_back(first_cpu() + static_cast<std::size_t>(end.index));
    load_[links.back()] += bytes;
  }
  if (from.is_port || to.is_port) bytes /= costs_.net_efficiency;
  const auto node = [&](End end) {
    return end.is_port ? system.of_kind(topo::NodeKind::kNet)[static_cast<std::size_t>(end.index)]
                       : system.gpu_of_rank(machine_->ranks[static_cast<std::size_t>(end.index)]);
  };
  if ((from.is_port && from.index == kNoPort) || (to.is_port && to.index == kNoPort)) {
    links.push_back(first_cpu() - (to.is_port ? 2 : 1));
    load_[links.back()] += bytes;
  } else {
    for (const auto& [number, factor] : search::charges(*machine_->paths, node(from), node(to))) {
      links.push_back(static_cast<std::size_t>(number));
      load_[links.back()] += bytes * factor;
    }
  }
  flows_.push_back(std::move(links));
  return static_cast<int>(flows_.size()) - 1;
}

std::size_t NodeLoads::first_cpu() const {
  return static_cast<std::size_t>(resources_.size()) + 2;
}

double NodeLoads::us_of(std::size_t link) const {
  return load_[link] / (kBytesPerUs * std::max(gbps_[link], 1e-3));
}

double NodeLoads::us(int flow) const {
  double most = 0;
  for (const std::size_t link : flows_[static_cast<std::size_t>(flow)]) most = std::max(most, us_of(link));
  return most;
}

double NodeLoads::busiest_us() const {
  double most = 0;
  for (std::size_t link = 0; link < load_.size(); ++link) most = std::max(most, us_of(link));
  return most;
}

std::string NodeLoads::busiest() const {
  std::size_t busiest = 0;
  for (std::size_t link = 1; link < load_.size(); ++link)
    if (us_of(link) > us_of(busiest)) busiest = link;
  if (us_of(busiest) == 0) return "no link";
  if (busiest >= first_cpu()) return loom::format("a rank's CPU, {:g} GB/s", gbps_[busiest]);
  if (busiest + 2 >= first_cpu()) return loom::format("a port of unknown speed, {:g} GB/s", gbps_[busiest]);
  return loom::format("{}, {:g} GB/s", resources_.label(static_cast<int>(busiest)), gbps_[busiest]);
}

void add_tree_flows(NodeLoads& loads, search::Pattern pattern, const ChannelSummary& channel, int roles,
                    double bytes, bool up, bool down) {
  const auto both_ways = [&](End below, End above) {
    if (up) loads.add(below, above, bytes);
    if (down) loads.add(above, below, bytes);
  };
  for (std::size_t i = 1; i < channel.order.size(); ++i)
    both_ways(End::rank(channel.order[i]), End::rank(channel.order[i - 1]));
  if (roles & kHasParent) both_ways(End::rank(channel.order[0]), End::port(port_at(channel, pattern, 0)));
  for (const int which : {0, 1}) {
    const int place = child_place(pattern, which, static_cast<int>(channel.order.size()));
    if (roles & (which == 0 ? kHasFirstChild : kHasSecondChild))
      both_ways(End::port(port_at(channel, pattern, place)),
                End::rank(channel.order[static_cast<std::size_t>(place)]));
  }
}

double inner_node_gbps(const Machine& machine, const FamilySummary& trees) {
  NodeLoads loads(machine);
  double promised = 0;
  for (const ChannelSummary& channel : trees.channels) promised += static_cast<double>(channel.inter_gbps);
  for (const ChannelSummary& channel : trees.channels)
    for (const int roles : {kHasParent | kHasFirstChild | kHasSecondChild, static_cast<int>(kHasParent)})
      add_tree_flows(loads, trees.pattern, channel, roles,
                     kBytesPerUs * static_cast<double>(channel.inter_gbps) / 4, true, true);
  // The ports of an inner node pass the message twice each way: at `promised` that is one microsecond's
  // worth.
  const double us = loads.busiest_us();
  return us > 0 ? promised / us : promised;
}

}  // namespace loom::connect
