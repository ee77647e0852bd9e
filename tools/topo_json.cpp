
#include <cmath>

#include "base/format.hpp"
#include "tools/topo_diff.hpp"
#include "tools/topo_views.hpp"

namespace loom::tools {
namespace {

using nlohmann::json;
using namespace loom::topo;

void add_pci(json& out, const PciFunction& pci) {
  out["bus_id"] = pci.bus_id.to_string();
  out["class"] = loom::format("0x{:06x}", pci.class_code);
  out["pci_id"] = loom::format("{:04x}:{:04x}", pci.vendor, pci.device);
  out["subsystem"] = loom::format("{:04x}:{:04x}", pci.subsystem_vendor, pci.subsystem_device);
  out["link_speed"] = pci.link_speed;
  out["link_width"] = pci.link_width;
}

void add_info(json& out, const GpuInfo& gpu) {
  out["device"] = gpu.device;
  if (gpu.rank != kNoRank) out["rank"] = gpu.rank;
  out["virtual"] = gpu.is_virtual;
  if (gpu.is_virtual || gpu.first_cpu != 0) out["first_cpu"] = gpu.first_cpu;
  if (gpu.is_virtual || gpu.cpu_count != 0) out["cpu_count"] = gpu.cpu_count;
  out["compute_capability"] = gpu.compute_capability / 10.0;
  out["gpu_direct"] = gpu.gpu_direct;
  if (gpu.partition) out["partition"] = *gpu.partition;
  if (!gpu.gcn_arch.empty()) out["gcn_arch"] = gpu.gcn_arch;
  if (!gpu.p2p_denied.empty()) out["p2p_denied"] = gpu.p2p_denied;
  for (const NvLinks& row : gpu.nvlinks)
    out["nvlinks"].push_back({{"target", row.target.to_string()},
                              {"target_seen", row.target_seen},
                              {"target_class", loom::format("0x{:06x}", row.target_class)},
                              {"count", row.count}});
  for (const C2cLinks& row : gpu.c2c) out["c2c"].push_back({{"mbps", row.mbps}, {"count", row.count}});
}
void add_info(json& out, const CpuInfo& cpu) {
  out["numa_id"] = cpu.numa_id, out["arch"] = cpu.arch, out["vendor"] = cpu.vendor;
  out["family"] = cpu.family, out["model"] = cpu.model, out["affinity"] = cpu.affinity;
}
void add_info(json& out, const NetInfo& net) {
  out["name"] = net.name, out["device"] = net.device, out["port"] = net.port;
  if (net.speed_mbps > 0) out["speed_mbps"] = net.speed_mbps;
  out["latency_us"] = net.latency_us, out["max_connections"] = net.max_connections;
  out["gpu_direct"] = net.gpu_direct, out["collectives"] = net.collectives;
  out["net"] = net.is_net, out["gin"] = net.is_gin, out["rma"] = net.is_rma;
  if (net.guid) out["guid"] = loom::format("0x{:x}", *net.guid);
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

}  // namespace

double rounded(float gbps) {
  return std::round(static_cast<double>(gbps) * 1000) / 1000;
}

json to_json(const System& system, NodeId id) {
  const Node& node = system.node(id);
  json out{{"id", id}, {"kind", name_of(node.kind())}, {"label", label(system, id)}, {"host", node.host}};
  if (node.parent != kNoNode) out["parent"] = node.parent;
  if (node.pci) add_pci(out, *node.pci);
  std::visit([&](const auto& info) { add_info(out, info); }, node.info);
  return out;
}

json to_json(const System& system) {
  json out{{"model", name_of(system.model())}, {"hosts", system.hosts().size()}};
  for (const std::uint64_t hash : system.hosts()) out["host_hashes"].push_back(loom::format("0x{:x}", hash));
  for (NodeId id = 0; id < system.size(); ++id) out["nodes"].push_back(to_json(system, id));
  for (const Link& link : system.links())
    out["links"].push_back(
        {{"from", link.from}, {"to", link.to}, {"type", name_of(link.type)}, {"gbps", rounded(link.gbps)}});
  return out;
}

std::string show_json(const System& system, const Paths* paths, const std::vector<std::string>& notes) {
  std::string text = json{{"notes", notes}, {"system", to_json(system)}}.dump(2);
  text.resize(text.rfind('\n'));  // without the last brace
  text += ",\n  \"paths\": [";
  if (paths != nullptr) {
    // Written line by line: as values, millions of them would take gigabytes.
    const std::vector<NodeId> ends = matrix_nodes(system);
    const char* separator = "\n";
    for (const NodeId from : ends)
      for (const NodeId to : ends) {
        if (from == to) continue;
        const Path path = paths->between(from, to);
        text +=
            loom::format("{}    {{\"from\": {}, \"to\": {}, \"type\": \"{}\", \"gbps\": {}, \"hops\": {}}}",
                         separator, from, to, name_of(path.type), rounded(path.gbps), path.hops);
        separator = ",\n";
      }
    text += "\n  ";
  }
  return text + "]\n}\n";
}

json to_json(const std::vector<Difference>& differences) {
  constexpr auto change = [](char sign) {
    return sign == '+' ? "added" : sign == '-' ? "removed" : "changed";
  };
  json out = json::array();
  for (const Difference& difference : differences) {
    json one{{"change", change(difference.sign)}, {"text", difference.text}};
    if (!difference.node.empty()) one["node"] = difference.node;
    if (!difference.attribute.empty()) {
      one["attribute"] = difference.attribute;
      one["before"] = difference.before, one["after"] = difference.after;
    }
    out.push_back(std::move(one));
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

}  // namespace loom::tools
