// build_system.cpp -- from what a machine has to its links. The order in which links are made decides ties in
// the order of a node's links, and with them which of equal paths is found first: it is NCCL's.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "topo/bandwidth.hpp"
#include "topo/check.hpp"
#include "topo/pci_ids.hpp"
#include "topo/system_builder.hpp"

namespace loom::topo {
namespace {

std::uint64_t packed_id(const PciFunction& pci) {
  return (std::uint64_t{pci.vendor} << 48) | (std::uint64_t{pci.device} << 32) |
         (std::uint64_t{pci.subsystem_vendor} << 16) | pci.subsystem_device;
}

/// Broadcom's switches of the fourth and fifth generation show one chip as a switch with switches below it.
bool absorbs(const PciFunction& parent, const PciFunction& child) {
  constexpr std::uint64_t kMask = 0xfffffffffffff000;
  constexpr std::uint64_t kGen4 = 0x1000c0101000a000, kGen5Top = 0x1000c03010000000,
                          kGen5Below = 0x1000c03010001000;
  const std::uint64_t above = packed_id(parent) & kMask, below = packed_id(child) & kMask;
  return (above == kGen4 && below == kGen4) || (above == kGen5Top && below == kGen5Below);
}

}  // namespace

NvTarget nv_target_of(const NvLinks& row, bool is_amd) {
  if (row.target_class == kClassCpuBridge) return NvTarget::kCpu;
  if (row.target_class >> 16 == kBaseClassDisplay || (is_amd && row.target_class != kClassNvSwitch))
    return NvTarget::kGpu;
  return NvTarget::kSwitch;
}

SystemBuilder::SystemBuilder(std::vector<Node> nodes, std::vector<std::uint64_t> hosts, Model model) {
  system_.nodes_ = std::move(nodes);
  system_.hosts_ = std::move(hosts);
  system_.model_ = model;
}

SystemWithNotes SystemBuilder::build() {
  put_denied_in_order();
  flatten_broadcom_switches();
  links_of_.resize(system_.nodes_.size());
  for (NodeId id = 0; id < system_.size(); ++id)
    if (const Node& node = system_.node(id); node.pci)
      by_bus_id_.try_emplace({node.host, node.pci->bus_id}, id);
  add_pci_links();
  add_nvlinks();
  add_c2c_links();
  add_peer_switches();
  add_cpu_links();
  put_way_up_last();
  finish();
  for (std::string& text : gap_notes(system_)) note("{}", text);
  return {std::move(system_), std::move(notes_)};
}

void SystemBuilder::put_denied_in_order() {
  for (Node& node : system_.nodes_)
    if (auto* gpu = std::get_if<GpuInfo>(&node.info)) {
      auto& denied = gpu->p2p_denied;
      std::sort(denied.begin(), denied.end());
      denied.erase(std::unique(denied.begin(), denied.end()), denied.end());
    }
}

void SystemBuilder::flatten_broadcom_switches() {
  auto& nodes = system_.nodes_;
  std::vector<NodeId> now(nodes.size());  // where a node's children go; itself unless absorbed
  std::vector<bool> absorbed(nodes.size());
  int count = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    now[i] = static_cast<NodeId>(i);
    Node& node = nodes[i];
    if (node.parent == kNoNode) continue;
    const auto original = static_cast<std::size_t>(node.parent);
    node.parent = now[original];
    // One level: what an absorbed switch brought along stays as it is.
    if (node.kind() != NodeKind::kPciSwitch || nodes[original].kind() != NodeKind::kPciSwitch ||
        absorbed[original])
      continue;
    if (!absorbs(*nodes[original].pci, *node.pci)) continue;
    absorbed[i] = true;
    ++count;
    now[i] = node.parent;
  }
  std::vector<NodeId> renumbered(nodes.size());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (absorbed[i]) continue;
    renumbered[i] = static_cast<NodeId>(kept);
    if (nodes[i].parent != kNoNode) nodes[i].parent = renumbered[static_cast<std::size_t>(nodes[i].parent)];
    if (kept != i) nodes[kept] = std::move(nodes[i]);
    ++kept;
  }
  nodes.resize(kept);
  if (count > 0)
    note(
        "{} PCI switches are parts of the switch chip above them (Broadcom's show one chip as several) and "
        "not kept apart.",
        count);
}

void SystemBuilder::add_pci_links() {
  NodeId split = kNoNode;  // the first of the partitions that are being added
  for (NodeId id = 0; id < system_.size(); ++id) {
    const Node& node = system_.node(id);
    if (node.parent == kNoNode) continue;
    const Node& parent = system_.node(node.parent);
    if (node.kind() == NodeKind::kNet) {
      connect_both(id, node.parent, LinkType::kNet, net_gbps(node.net().speed_mbps));
    } else if (parent.kind() == NodeKind::kGpu || !node.pci) {
      const bool local = node.kind() == NodeKind::kGpu;
      connect_both(id, node.parent, local ? LinkType::kLoc : LinkType::kPci, kLocalGbps);
    } else {
      connect_both(id, node.parent, LinkType::kPci, pci_gbps(*node.pci, system_.model_));
    }
    if (node.kind() != NodeKind::kGpu || !node.gpu().partition) continue;
    if (split == kNoNode || system_.node(split).host != node.host ||
        system_.node(split).pci->bus_id != node.pci->bus_id)
      split = id;
    for (NodeId other = split; other < id; ++other) connect_both(other, id, LinkType::kLoc, kPartitionGbps);
  }
}

void SystemBuilder::add_nvlinks() {
  const NodeId end = system_.size();
  for (NodeId id = 0; id < end; ++id)
    if (system_.node(id).kind() == NodeKind::kGpu) add_nvlinks_of(id);
  if (system_.model_ == Model::kLoom) mirror_one_way_nvlinks();
}

void SystemBuilder::add_nvlinks_of(NodeId gpu) {
  const GpuInfo info = system_.node(gpu).gpu();  // a copy: nodes may be added below
  const float link_gbps =
      info.gcn_arch.empty() ? nvlink_gbps(info.compute_capability) : xgmi_gbps(info.gcn_arch);
  for (const NvLinks& row : info.nvlinks) {
    const float gbps = static_cast<float>(row.count) * link_gbps / static_cast<float>(partitions_of(gpu));
    switch (nv_target_of(row, !info.gcn_arch.empty())) {
      case NvTarget::kCpu:
        connect_both(gpu, cpu_of(gpu), LinkType::kNvl, gbps);
        break;
      case NvTarget::kGpu:
        add_gpu_to_gpu(gpu, row, gbps);
        break;
      case NvTarget::kSwitch: {
        const NodeId nv = nv_switch();
        auto& seen = std::get<NvSwitchInfo>(system_.nodes_[static_cast<std::size_t>(nv)].info).bus_ids;
        if (row.target_seen && row.target_class == kClassNvSwitch &&
            find(system_.node(gpu).host, row.target) == kNoNode && nv_switches_.insert(row.target).second)
          seen.push_back(row.target);
        connect_both(gpu, nv, LinkType::kNvl, gbps);
        break;
      }
    }
  }
}

void SystemBuilder::add_gpu_to_gpu(NodeId gpu, const NvLinks& row, float gbps) {
  const NodeId peer = find(system_.node(gpu).host, row.target);
  if (peer == kNoNode || system_.node(peer).kind() != NodeKind::kGpu) return;  // gaps() tells
  if (peer == gpu) {
    if (system_.model_ == Model::kNccl) connect(gpu, gpu, LinkType::kNvl, gbps);
    return;
  }
  // A split peer shares its links among its partitions.
  const int peer_parts = partitions_of(peer);
  NodeId part = peer;
  for (int i = 0; i < peer_parts; ++i, ++part)
    connect(gpu, part, LinkType::kNvl, gbps / static_cast<float>(peer_parts));
}

/// NCCL stops where only one of two GPUs names the link between them. A link has two ends: the file is
/// incomplete.
void SystemBuilder::mirror_one_way_nvlinks() {
  for (NodeId id = 0; id < system_.size(); ++id) {
    for (std::size_t i = 0; i < links_of_[static_cast<std::size_t>(id)].size(); ++i) {
      const Link link = links_of_[static_cast<std::size_t>(id)][i];
      if (link.type != LinkType::kNvl || system_.node(link.to).kind() != NodeKind::kGpu) continue;
      const auto& back = links_of_[static_cast<std::size_t>(link.to)];
      if (std::any_of(back.begin(), back.end(),
                      [&](const Link& other) { return other.to == id && other.type == LinkType::kNvl; }))
        continue;
      connect(link.to, id, LinkType::kNvl, link.gbps);
    }
  }
}

void SystemBuilder::add_c2c_links() {
  std::map<std::pair<int, BusId>, NodeId> port_of;  // by split GPU
  const NodeId end = system_.size();
  for (NodeId id = 0; id < end; ++id) {
    if (system_.node(id).kind() != NodeKind::kGpu) continue;
    const Node node = system_.node(id);
    for (const C2cLinks& row : node.gpu().c2c) {
      const auto gbps = static_cast<float>(static_cast<double>(row.mbps) * row.count / 1000);
      if (partitions_of(id) == 1) {
        connect_both(id, cpu_of(id), LinkType::kC2c, gbps);
        continue;
      }
      const auto [port, is_new] = port_of.try_emplace({node.host, node.pci->bus_id}, kNoNode);
      if (is_new) {
        port->second = add_node({C2cPortInfo{}, kNoNode, node.host, std::nullopt});
        connect_both(port->second, cpu_of(id), LinkType::kC2c, gbps);
      }
      connect_both(id, port->second, LinkType::kC2c, gbps);
    }
  }
}

void SystemBuilder::add_peer_switches() {
  const NodeId end = system_.size();
  for (NodeId id = 0; id < end; ++id) {
    const auto* info = std::get_if<PciSwitchInfo>(&system_.node(id).info);
    if (info == nullptr) continue;
    for (const BusId& peer_id : info->peers) {
      const NodeId peer = find(system_.node(id).host, peer_id);
      if (peer != kNoNode && peer != id && system_.node(peer).kind() == NodeKind::kPciSwitch)
        connect(id, peer, LinkType::kLoc, kLocalGbps);
    }
  }
}

void SystemBuilder::add_cpu_links() {
  std::vector<std::vector<NodeId>> cpus_of_host(system_.hosts_.size());
  for (NodeId id = 0; id < system_.size(); ++id)
    if (const Node& node = system_.node(id); node.kind() == NodeKind::kCpu)
      cpus_of_host.at(static_cast<std::size_t>(node.host)).push_back(id);
  for (const auto& cpus : cpus_of_host)
    for (const NodeId a : cpus)
      for (const NodeId b : cpus)
        if (a != b) connect(a, b, LinkType::kSys, cpu_gbps(system_.node(a).cpu()));
}

void SystemBuilder::put_way_up_last() {
  for (NodeId id = 0; id < system_.size(); ++id) {
    const Node& node = system_.node(id);
    if (node.parent == kNoNode || node.kind() == NodeKind::kNet) continue;
    auto& links = links_of_[static_cast<std::size_t>(id)];
    const auto up =
        std::find_if(links.begin(), links.end(), [&](const Link& link) { return link.to == node.parent; });
    if (up != links.end()) std::rotate(up, up + 1, links.end());
  }
}

void SystemBuilder::index_nodes() {
  for (auto& ids : system_.by_kind_) ids.clear();
  system_.ranked_gpus_.clear();
  for (NodeId id = 0; id < system_.size(); ++id) {
    const Node& node = system_.node(id);
    system_.by_kind_[static_cast<std::size_t>(node.kind())].push_back(id);
    if (node.kind() == NodeKind::kGpu && node.gpu().rank != kNoRank) system_.ranked_gpus_.push_back(id);
  }
}

void SystemBuilder::finish() {
  index_nodes();
  auto& all = system_.links_;
  for (const auto& links : links_of_) {
    system_.first_link_.push_back(static_cast<LinkId>(all.size()));
    all.insert(all.end(), links.begin(), links.end());
  }
  system_.first_link_.push_back(static_cast<LinkId>(all.size()));

  // By their ends, to find each one's other direction.
  std::vector<LinkId> by_ends(all.size());
  std::iota(by_ends.begin(), by_ends.end(), 0);
  const auto ends = [&](LinkId id) {
    const Link& link = system_.link(id);
    return std::tuple(link.from, link.to, link.type);
  };
  std::sort(by_ends.begin(), by_ends.end(), [&](LinkId a, LinkId b) { return ends(a) < ends(b); });
  for (Link& link : all) {
    const std::tuple back(link.to, link.from, link.type);
    const auto at = std::lower_bound(by_ends.begin(), by_ends.end(), back,
                                     [&](LinkId id, const auto& wanted) { return ends(id) < wanted; });
    if (at != by_ends.end() && ends(*at) == back) link.reverse = *at;
  }
}

NodeId SystemBuilder::add_node(Node node) {
  system_.nodes_.push_back(std::move(node));
  links_of_.emplace_back();
  return system_.size() - 1;
}

/// Links of one type between the same two nodes add up. Faster ones come first.
void SystemBuilder::connect(NodeId from, NodeId to, LinkType type, float gbps) {
  auto& links = links_of_[static_cast<std::size_t>(from)];
  auto at = std::find_if(links.begin(), links.end(),
                         [&](const Link& link) { return link.to == to && link.type == type; });
  if (at == links.end()) at = links.insert(at, {from, to, type, 0, kNoLink});
  at->gbps += gbps;
  for (; at != links.begin() && (at - 1)->gbps < at->gbps; --at) std::iter_swap(at - 1, at);
}

void SystemBuilder::connect_both(NodeId a, NodeId b, LinkType type, float gbps) {
  connect(a, b, type, gbps);
  connect(b, a, type, gbps);
}

NodeId SystemBuilder::cpu_of(NodeId id) const {
  while (system_.node(id).parent != kNoNode) id = system_.node(id).parent;
  return id;
}

NodeId SystemBuilder::nv_switch() {
  if (nv_switch_ == kNoNode) nv_switch_ = add_node({NvSwitchInfo{}, kNoNode, 0, std::nullopt});
  return nv_switch_;
}

int SystemBuilder::partitions_of(NodeId gpu) const {
  const Node& node = system_.node(gpu);
  if (node.kind() != NodeKind::kGpu || !node.gpu().partition) return 1;
  int count = 0;
  for (NodeId id = find(node.host, node.pci->bus_id); id < system_.size(); ++id) {
    const Node& other = system_.node(id);
    if (other.kind() != NodeKind::kGpu || !other.pci || other.host != node.host ||
        other.pci->bus_id != node.pci->bus_id)
      break;
    ++count;
  }
  return count;
}

NodeId SystemBuilder::find(int host, const BusId& bus_id) const {
  const auto entry = by_bus_id_.find({host, bus_id});
  return entry == by_bus_id_.end() ? kNoNode : entry->second;
}

System SystemBuilder::with_ranks(const System& system, const std::vector<int>& rank_of_node) {
  SystemBuilder builder({}, {}, system.model_);
  builder.system_ = system;
  for (const NodeId id : system.of_kind(NodeKind::kGpu))
    std::get<GpuInfo>(builder.system_.nodes_[static_cast<std::size_t>(id)].info).rank =
        rank_of_node[static_cast<std::size_t>(id)];
  builder.index_nodes();
  return std::move(builder.system_);
}

SystemWithNotes build_system(std::vector<Node> nodes, std::vector<std::uint64_t> hosts, Model model) {
  SystemWithNotes built = SystemBuilder(std::move(nodes), std::move(hosts), model).build();
#ifndef NDEBUG
  if (const auto broken = check(built.system); !broken.empty())
    throw Error(ErrorCode::kInternal, "A System is broken: " + broken.front());
#endif
  return built;
}

}  // namespace loom::topo
