#include "component/setup/ports.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "base/format.hpp"
#include "topo/paths.hpp"
#include "topo/place.hpp"
#include "ucx_transport/ports.hpp"

namespace loom {
namespace {

std::string name_of(const topo::UcxPort& port) {
  return port.port > 0 ? loom::format("{}:{}", port.name, port.port) : port.name;
}

/// "mlx5_0" names every port of that device.
bool names(const std::vector<std::string>& list, const std::string& port) {
  return std::ranges::any_of(
      list, [&](const std::string& name) { return name == port || name == port.substr(0, port.find(':')); });
}

/// UCX knows Ethernet's speed no better than the operating system does, and is not asked for it.
bool is_well_known(const topo::UcxPort& port) {
  return port.speed_mbps > 0;
}

/// Those whose ports are the fastest, added up.
std::vector<std::string> fastest_fabrics(const std::vector<topo::UcxPort>& ports) {
  std::map<std::string, double> speeds;
  for (const topo::UcxPort& port : ports) speeds[port.fabric] += port.speed_mbps;
  std::vector<std::string> fastest;
  double most = 0;
  for (const auto& [fabric, speed] : speeds) {
    if (speed > most) fastest.clear();
    if (speed >= most) fastest.push_back(fabric);
    most = std::max(most, speed);
  }
  return fastest;
}

bool is_of(const std::vector<std::string>& fabrics, const topo::UcxPort& port) {
  return std::ranges::count(fabrics, port.fabric) > 0;
}

}  // namespace

PortChoice::PortChoice(std::string_view named, std::vector<topo::UcxPort> known)
    : leaves_out_(named.starts_with('^')), known_(std::move(known)) {
  named.remove_prefix(leaves_out_ ? 1 : 0);
  if (named != "all") named_ = ucx_transport::listed_devices(named);
  std::vector<topo::UcxPort> left = known_;
  std::erase_if(left, [&](const topo::UcxPort& port) { return leaves_out_ && names(named_, name_of(port)); });
  std::erase_if(left, std::not_fn(is_well_known));
  fabrics_ = fastest_fabrics(left);
}

bool PortChoice::may_plan(const std::string& port) const {
  if (names(named_, port)) return !leaves_out_;
  if (are_named()) return false;
  return std::ranges::any_of(known_, [&](const topo::UcxPort& known) {
    return is_well_known(known) && is_of(fabrics_, known) && name_of(known) == port;
  });
}

bool PortChoice::may_use(const std::string& port) const {
  return may_plan(port) && (known_.empty() || std::ranges::any_of(known_, [&](const topo::UcxPort& known) {
                              return name_of(known) == port;
                            }));
}

bool PortChoice::reaches_gpus(const std::string& port) const {
  return std::ranges::any_of(
      known_, [&](const topo::UcxPort& known) { return known.gpu_direct && name_of(known) == port; });
}

topo::System PortChoice::planned(const topo::System& machine, bool described) const {
  if (described && named_.empty()) return machine;
  const auto may = [&](const topo::NetInfo& net) {
    const std::string port = topo::ucx_name(net);
    return described && leaves_out_ ? !names(named_, port) : may_plan(port);
  };
  const bool any = std::ranges::any_of(machine.of_kind(topo::NodeKind::kNet),
                                       [&](topo::NodeId port) { return may(machine.node(port).net()); });
  return any ? topo::with_ports(machine, may) : machine;
}

std::vector<std::string> ports_near(const topo::System& machine, std::span<const topo::Place> places,
                                    std::size_t self) {
  // GPUs share ports by their number: those of one NUMA node are to follow each other.
  std::vector<int> ranks(places.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto place_of = [&](int rank) { return places[static_cast<std::size_t>(rank)]; };
  std::ranges::stable_sort(ranks, {}, [&](int rank) { return place_of(rank).numa_node; });
  std::vector<topo::Place> sorted;
  std::ranges::transform(ranks, std::back_inserter(sorted), place_of);
  const topo::System system = topo::with_virtual_gpus(machine, sorted, ranks);
  const auto mine = std::ranges::find_if(system.gpus(), [&](topo::NodeId gpu) {
    return static_cast<std::size_t>(system.node(gpu).gpu().rank) == self;
  });
  std::vector<std::string> ports;
  for (const topo::NodeId port : topo::Paths(system).local_nets(*mine))
    ports.push_back(topo::ucx_name(system.node(port).net()));
  return ports;
}

std::string nearest_ports(std::vector<topo::UcxPort> known, std::span<const topo::Place> places,
                          std::size_t self) {
  std::erase_if(known, std::not_fn(is_well_known));
  if (known.size() < 2) return {};
  std::erase_if(
      known, [fabrics = fastest_fabrics(known)](const topo::UcxPort& port) { return !is_of(fabrics, port); });
  if (known.size() == 1) return name_of(known.front());
  const std::vector<std::string> nearest =
      ports_near(topo::discover({.ucx_ports = known}).system, places, self);
  // In one order on all ranks, for the first of one sends to the first of another.
  std::vector<std::string> ports;
  for (const topo::UcxPort& port : known)
    if (std::string name = name_of(port); std::ranges::count(nearest, name) > 0)
      ports.push_back(std::move(name));
  std::ranges::sort(ports);
  return loom::join(ports, ",");
}

}  // namespace loom
