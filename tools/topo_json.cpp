#include <fmt/format.h>

#include <cmath>
#include <map>

#include "tools/topo_views.hpp"

namespace loom::tools {
namespace {

using nlohmann::json;
using namespace loom::topo;

/// As printed: 123.6, not 123.5999984741211.
double rounded(float gbps) {
  return std::round(static_cast<double>(gbps) * 1000) / 1000;
}

void add_pci(json& out, const PciFunction& pci) {
  out["bus_id"] = pci.bus_id.to_string();
  out["class"] = fmt::format("0x{:06x}", pci.class_code);
  out["id"] = fmt::format("{:04x}:{:04x}", pci.vendor, pci.device);
  out["link_speed"] = pci.link_speed;
  out["link_width"] = pci.link_width;
}

void add_info(json& out, const GpuInfo& gpu) {
  out["device"] = gpu.device;
  if (gpu.rank != kNoRank) out["rank"] = gpu.rank;
  if (gpu.is_virtual) {
    out["virtual"] = true, out["first_cpu"] = gpu.first_cpu, out["cpu_count"] = gpu.cpu_count;
    return;
  }
  out["compute_capability"] = gpu.compute_capability / 10.0;
  out["gpu_direct"] = gpu.gpu_direct;
  if (gpu.partition) out["partition"] = *gpu.partition;
  if (!gpu.gcn_arch.empty()) out["gcn_arch"] = gpu.gcn_arch;
  if (!gpu.p2p_denied.empty()) out["p2p_denied"] = gpu.p2p_denied;
}
void add_info(json& out, const CpuInfo& cpu) {
  out["numa_id"] = cpu.numa_id, out["arch"] = cpu.arch, out["vendor"] = cpu.vendor;
  out["family"] = cpu.family, out["model"] = cpu.model, out["affinity"] = cpu.affinity;
}
void add_info(json& out, const NetInfo& net) {
  out["name"] = net.name, out["device"] = net.device, out["port"] = net.port;
  out["speed_mbps"] = net.speed_mbps, out["latency_us"] = net.latency_us,
  out["max_connections"] = net.max_connections;
  out["gpu_direct"] = net.gpu_direct, out["collectives"] = net.collectives;
  if (net.guid) out["guid"] = fmt::format("0x{:x}", *net.guid);
  if (net.rail) out["rail"] = *net.rail;
  if (net.plane) out["plane"] = *net.plane;
}
void add_info(json& out, const NvSwitchInfo& nv) {
  for (const BusId& id : nv.bus_ids) out["bus_ids"].push_back(id.to_string());
}
void add_info(json& out, const PciSwitchInfo& pci_switch) {
  for (const BusId& id : pci_switch.peers) out["peers"].push_back(id.to_string());
}
void add_info(json&, const NicInfo&) {}
void add_info(json&, const C2cPortInfo&) {}

/// Names nodes across Systems: by what they are, not by their number.
std::map<std::string, NodeId> by_label(const System& system) {
  std::map<std::string, NodeId> nodes;
  for (NodeId id = 0; id < system.size(); ++id) {
    std::string name = label(system, id);
    for (int copy = 2; nodes.contains(name); ++copy) name = fmt::format("{} #{}", label(system, id), copy);
    nodes[name] = id;
  }
  return nodes;
}

json node_json(const System& system, NodeId id) {
  const Node& node = system.node(id);
  json out{{"id", id}, {"kind", name_of(node.kind())}, {"label", label(system, id)}, {"host", node.host}};
  if (node.parent != kNoNode) out["parent"] = node.parent;
  if (node.pci) add_pci(out, *node.pci);
  std::visit([&](const auto& info) { add_info(out, info); }, node.info);
  return out;
}

}  // namespace

json to_json(const System& system) {
  json out{{"model", name_of(system.model())}, {"hosts", system.hosts().size()}};
  for (NodeId id = 0; id < system.size(); ++id) out["nodes"].push_back(node_json(system, id));
  for (const Link& link : system.links())
    out["links"].push_back(
        {{"from", link.from}, {"to", link.to}, {"type", name_of(link.type)}, {"gbps", rounded(link.gbps)}});
  return out;
}

json to_json(const Paths& paths) {
  const System& system = paths.system();
  json out = json::array();
  for (const NodeId from : system.gpus()) {
    for (const NodeKind kind : {NodeKind::kGpu, NodeKind::kNet})
      for (const NodeId to : kind == NodeKind::kGpu ? system.gpus() : system.of_kind(kind)) {
        if (from == to) continue;
        const Path path = paths.between(from, to);
        out.push_back({{"from", from},
                       {"to", to},
                       {"type", name_of(path.type)},
                       {"gbps", rounded(path.gbps)},
                       {"hops", path.hops}});
      }
  }
  return out;
}

json to_json(const System& system, const std::vector<Finding>& findings) {
  json out = json::array();
  for (const Finding& finding : findings) {
    json one{{"severity", finding.severity == Severity::kWarning ? "warning" : "hint"},
             {"what", finding.what},
             {"cost", finding.cost}};
    if (finding.node != kNoNode) one["node"] = finding.node, one["label"] = label(system, finding.node);
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<std::string> differences(const System& a, const System& b) {
  std::vector<std::string> lines;
  const auto nodes_a = by_label(a), nodes_b = by_label(b);
  const auto has_parent = [](const System& s, NodeId id) {
    return s.node(id).parent == kNoNode ? "nothing" : label(s, s.node(id).parent);
  };
  for (const auto& [name, id] : nodes_a) {
    const auto other = nodes_b.find(name);
    if (other == nodes_b.end()) {
      lines.push_back(fmt::format("- {}", name));
      continue;
    }
    json before = node_json(a, id), after = node_json(b, other->second);
    for (const char* number : {"id", "parent"}) before.erase(number), after.erase(number);
    for (const auto& [key, value] : before.items())
      if (!after.contains(key) || after[key] != value)
        lines.push_back(fmt::format("~ {}: {} is {}, was {}", name, key,
                                    after.contains(key) ? after[key].dump() : "absent", value.dump()));
    for (const auto& [key, value] : after.items())
      if (!before.contains(key))
        lines.push_back(fmt::format("~ {}: {} is {}, was absent", name, key, value.dump()));
    if (has_parent(a, id) != has_parent(b, other->second))
      lines.push_back(fmt::format("~ {}: hangs below {}, was below {}", name, has_parent(b, other->second),
                                  has_parent(a, id)));
    std::map<std::string, float> links_a, links_b;
    for (const Link& link : a.links_of(id))
      links_a[fmt::format("{} to {}", name_of(link.type), label(a, link.to))] += link.gbps;
    for (const Link& link : b.links_of(other->second))
      links_b[fmt::format("{} to {}", name_of(link.type), label(b, link.to))] += link.gbps;
    for (const auto& [to, gbps] : links_a)
      if (!links_b.contains(to))
        lines.push_back(fmt::format("~ {}: no {}, was {:g} GB/s", name, to, gbps));
      else if (links_b[to] != gbps)
        lines.push_back(fmt::format("~ {}: {} has {:g} GB/s, was {:g}", name, to, links_b[to], gbps));
    for (const auto& [to, gbps] : links_b)
      if (!links_a.contains(to)) lines.push_back(fmt::format("~ {}: {} of {:g} GB/s is new", name, to, gbps));
  }
  for (const auto& [name, id] : nodes_b)
    if (!nodes_a.contains(name)) lines.push_back(fmt::format("+ {}", name));
  return lines;
}

}  // namespace loom::tools
