// gaps.cpp -- what a description leaves out, or contradicts itself in, and what build_system makes of it.
#include <map>
#include <set>
#include <tuple>

#include "base/format.hpp"
#include "topo/bandwidth.hpp"
#include "topo/check.hpp"
#include "topo/system_builder.hpp"

namespace loom::topo {
namespace {

class Gaps {
 public:
  explicit Gaps(const System& system) : system_(system) {
    for (NodeId id = 0; id < system.size(); ++id) {
      const Node& node = system.node(id);
      if (!node.pci) continue;
      by_bus_id_.try_emplace({node.host, node.pci->bus_id}, id);
      if (const auto* gpu = std::get_if<GpuInfo>(&node.info))
        for (const NvLinks& row : gpu->nvlinks)
          if (leads_to_gpu(*gpu, row)) named_.insert({node.host, node.pci->bus_id, row.target});
    }
  }

  std::vector<Finding> run() {
    for (NodeId id = 0; id < system_.size(); ++id) {
      const Node& node = system_.node(id);
      const bool shares = node.parent != kNoNode && system_.node(node.parent).kind() == NodeKind::kGpu;
      if (node.pci && !shares) look_at_pci_link(id, *node.pci);
      if (const auto* net = std::get_if<NetInfo>(&node.info)) look_at_port(id, *net);
      if (const auto* gpu = std::get_if<GpuInfo>(&node.info)) look_at_nvlinks(id, *gpu);
      if (const auto* pci_switch = std::get_if<PciSwitchInfo>(&node.info)) look_at_peers(id, *pci_switch);
    }
    return std::move(findings_);
  }

 private:
  void add(NodeId node, std::string what, std::string cost) {
    findings_.push_back({Severity::kWarning, node, std::move(what), std::move(cost)});
  }

  static bool leads_to_gpu(const GpuInfo& gpu, const NvLinks& row) {
    return nv_target_of(row, !gpu.gcn_arch.empty()) == NvTarget::kGpu;
  }

  NodeId find(int host, const BusId& bus_id) const {
    const auto entry = by_bus_id_.find({host, bus_id});
    return entry == by_bus_id_.end() ? kNoNode : entry->second;
  }

  void look_at_pci_link(NodeId id, const PciFunction& pci) {
    const bool speed = pci_lane_gbit(pci.link_speed, system_.model()).has_value(), width = width_known(pci);
    if (speed && width) return;
    const std::string cost =
        loom::format("{:g} GB/s is assumed; give link_speed and link_width.", pci_gbps(pci, system_.model()));
    if (!speed && !width)
      add(id,
          loom::format("Its PCI link's speed \"{}\" and width {} say too little.", pci.link_speed,
                       pci.link_width),
          cost);
    else if (!speed)
      add(id, loom::format("Its PCI link's speed \"{}\" says too little.", pci.link_speed), cost);
    else if (pci.link_width == 0)
      add(id, "Its PCI link's width is not known.", cost);
    else
      add(id, loom::format("Its PCI link's width is {}, more than PCI has.", pci.link_width), cost);
  }

  void look_at_port(NodeId id, const NetInfo& net) {
    if (net.speed_mbps > 0) return;
    add(id, "Its speed is not known.",
        loom::format(
            "{:g} Gbit/s is assumed; give it in a topology file (NCCL's: attribute 'speed', Mbit/s).",
            kUnknownNetMbps / 1000));
  }

  void look_at_nvlinks(NodeId id, const GpuInfo& gpu) {
    const Node& node = system_.node(id);
    for (const NvLinks& row : gpu.nvlinks) {
      if (!node.pci || !leads_to_gpu(gpu, row)) continue;
      const NodeId peer = find(node.host, row.target);
      if (peer == kNoNode || system_.node(peer).kind() != NodeKind::kGpu)
        add(id, loom::format("Its NVLinks to {} lead to no GPU of its host.", row.target.to_string()),
            "They are left out.");
      else if (row.target == node.pci->bus_id)
        add(id, loom::format("{} of its NVLinks lead to itself.", row.count), "They carry nothing.");
      else if (!named_.contains({node.host, row.target, node.pci->bus_id}))
        add(id, loom::format("It names NVLinks to {}, which names none back.", label(system_, peer)),
            system_.model() == Model::kLoom ? "They are taken to work both ways."
                                            : "There is no way back; NCCL refuses such a file.");
    }
  }

  void look_at_peers(NodeId id, const PciSwitchInfo& pci_switch) {
    for (const BusId& target : pci_switch.peers) {
      const NodeId peer = find(system_.node(id).host, target);
      if (peer == kNoNode || peer == id || system_.node(peer).kind() != NodeKind::kPciSwitch)
        add(id, loom::format("Its direct link to {} leads to no other switch.", target.to_string()),
            "It is left out.");
    }
  }

  const System& system_;
  std::map<std::pair<int, BusId>, NodeId> by_bus_id_;
  std::set<std::tuple<int, BusId, BusId>> named_;  // NVLinks between GPUs: host, from, to
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> gaps(const System& system) {
  return Gaps(system).run();
}

std::vector<FindingGroup> grouped(const std::vector<Finding>& findings) {
  std::vector<FindingGroup> groups;
  std::map<std::tuple<Severity, std::string, std::string>, std::size_t> group_of;
  for (const Finding& finding : findings) {
    const auto [entry, is_new] =
        group_of.try_emplace({finding.severity, finding.what, finding.cost}, groups.size());
    if (is_new) groups.push_back({finding, {}});
    groups[entry->second].nodes.push_back(finding.node);
  }
  return groups;
}

std::vector<std::string> gap_notes(const System& system) {
  std::vector<std::string> notes;
  for (const FindingGroup& group : grouped(gaps(system))) {
    const std::string more =
        group.nodes.size() == 1 ? "" : loom::format(" and {} more, each", group.nodes.size() - 1);
    notes.push_back(loom::format("{}{}: {} {}", label(system, group.nodes.front()), more, group.first.what,
                                 group.first.cost));
  }
  return notes;
}

}  // namespace loom::topo
