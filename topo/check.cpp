// check.cpp -- the invariants of a System, each stated once.
#include "topo/check.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "base/format.hpp"

namespace loom::topo {
namespace {

class Checker {
 public:
  explicit Checker(const System& system) : system_(system) {}

  std::vector<std::string> run() {
    for (NodeId id = 0; id < system_.size(); ++id) {
      check_parent(id);
      check_node(id);
      check_order_of_links(id);
    }
    for (const Link& link : system_.links()) check_link(link);
    check_ids();
    return std::move(broken_);
  }

 private:
  template <class... Args>
  void expect(bool holds, NodeId id, FormatString<Args...> text, Args&&... args) {
    if (!holds)
      broken_.push_back(loom::format("node {} ({}): ", id, label(system_, id)) +
                        loom::format(text, std::forward<Args>(args)...));
  }

  void check_parent(NodeId id) {
    const Node& node = system_.node(id);
    const bool is_root = node.kind() == NodeKind::kCpu || node.kind() == NodeKind::kNvSwitch ||
                         node.kind() == NodeKind::kC2cPort;
    expect(is_root == (node.parent == kNoNode), id, "exactly CPUs, NVSwitches and C2C ports have no parent");
    expect(node.host >= 0 && node.host < static_cast<int>(system_.hosts().size()), id,
           "its host {} does not exist", node.host);
    if (is_root || node.parent == kNoNode) return;
    if (node.parent < 0 || node.parent >= id)
      return expect(false, id, "its parent {} does not come before it", node.parent);
    const Node& parent = system_.node(node.parent);
    expect(parent.host == node.host, id, "its parent is on another host");
    const bool in_tree = parent.kind() == NodeKind::kCpu || parent.kind() == NodeKind::kPciSwitch;
    switch (node.kind()) {
      case NodeKind::kNet:
        expect(parent.kind() == NodeKind::kNic, id, "a port's parent is a NIC");
        break;
      case NodeKind::kGpu:
        expect(in_tree ||
                   (parent.kind() == NodeKind::kGpu && node.gpu().nvlinks.empty() && node.gpu().c2c.empty()),
               id, "a GPU's parent is a CPU, a switch, or the GPU that it shares, which has all links");
        break;
      default:
        expect(in_tree, id, "its parent is a CPU or a switch");
    }
    if (node.kind() == NodeKind::kPciSwitch) expect(node.pci.has_value(), id, "a switch has a bus id");
  }

  void check_node(NodeId id) {
    const Node& node = system_.node(id);
    if (node.pci)
      expect(node.pci->link_width >= 0 && node.pci->link_width <= 255, id, "its PCI link has {} lanes",
             node.pci->link_width);
    if (node.kind() == NodeKind::kGpu) {
      for (const NvLinks& row : node.gpu().nvlinks)
        expect(row.count > 0, id, "it has {} NVLinks to a target", row.count);
      for (const C2cLinks& row : node.gpu().c2c)
        expect(row.count > 0 && row.mbps > 0, id, "it has {} C2C links of {} MB/s", row.count, row.mbps);
      const std::vector<int>& denied = node.gpu().p2p_denied;
      expect(std::adjacent_find(denied.begin(), denied.end(), std::greater_equal<>()) == denied.end(), id,
             "the devices that it may not access are not in order");
      expect(!node.gpu().is_virtual || node.gpu().cpu_count > 0, id, "a virtual GPU has CPUs");
    }
    if (node.kind() == NodeKind::kNet)
      expect(std::isfinite(node.net().speed_mbps) && node.net().speed_mbps >= 0, id, "its speed is {}",
             node.net().speed_mbps);
  }

  void check_order_of_links(NodeId id) {
    const auto links = system_.links_of(id);
    for (std::size_t i = 0; i < links.size(); ++i) {
      expect(links[i].from == id, id, "one of its links begins elsewhere");
      // The last may be the way up, and slower or faster than the rest.
      if (i > 0 && i + 1 < links.size())
        expect(links[i - 1].gbps >= links[i].gbps, id, "its links are not in order of bandwidth");
    }
  }

  void check_link(const Link& link) {
    const NodeId from = link.from;
    if (link.to < 0 || link.to >= system_.size())
      return expect(false, from, "a link leads to node {}", link.to);
    const auto kind = [&](NodeId id) { return system_.node(id).kind(); };
    expect(std::isfinite(link.gbps) && link.gbps > 0, from, "a link has {} GB/s", link.gbps);
    expect(seen_.insert({from, link.to, link.type}).second, from, "two links of one type lead to node {}",
           link.to);
    const bool loop = from == link.to;
    expect(!loop || system_.model() == Model::kNccl, from, "a link leads to itself");
    if (link.reverse == kNoLink) {
      expect(system_.model() == Model::kNccl || link.type == LinkType::kLoc, from,
             "a link to node {} has no way back", link.to);
    } else {
      const Link& back = system_.link(link.reverse);
      expect(back.from == link.to && back.to == from && back.type == link.type, from,
             "the way back from node {} is another link", link.to);
    }
    switch (link.type) {
      case LinkType::kSys:
        expect(kind(from) == NodeKind::kCpu && kind(link.to) == NodeKind::kCpu &&
                   system_.node(from).host == system_.node(link.to).host,
               from, "SYS joins NUMA nodes of one host");
        break;
      case LinkType::kNet:
        expect((kind(from) == NodeKind::kNet) != (kind(link.to) == NodeKind::kNet), from,
               "NET joins a NIC and a port");
        break;
      case LinkType::kPci:
        expect(system_.node(from).parent == link.to || system_.node(link.to).parent == from, from,
               "PCI joins a parent and a child");
        break;
      case LinkType::kNvl:
        expect(kind(from) == NodeKind::kGpu || kind(link.to) == NodeKind::kGpu, from,
               "an NVLink has a GPU at one end");
        break;
      case LinkType::kLoc:
      case LinkType::kC2c:
        break;
    }
  }

  void check_ids() {
    std::set<int> ranks;
    std::map<std::tuple<int, BusId, int, NodeId>, NodeId> functions;
    std::set<std::pair<int, int>> numa_nodes;
    for (NodeId id = 0; id < system_.size(); ++id) {
      const Node& node = system_.node(id);
      if (node.kind() == NodeKind::kGpu && node.gpu().rank != kNoRank)
        expect(node.gpu().rank >= 0 && ranks.insert(node.gpu().rank).second, id,
               "rank {} is negative, or another GPU's too", node.gpu().rank);
      const bool shares = node.parent != kNoNode && system_.node(node.parent).kind() == NodeKind::kGpu;
      const int part = node.kind() == NodeKind::kGpu ? node.gpu().partition.value_or(-1) : -1;
      if (node.pci && !shares && node.kind() != NodeKind::kPciSwitch)  // files with one switch twice exist
        expect(functions.insert({{node.host, node.pci->bus_id, part, kNoNode}, id}).second, id,
               "bus id {} is another node's too", node.pci->bus_id.to_string());
      if (node.kind() == NodeKind::kCpu)
        expect(numa_nodes.insert({node.host, node.cpu().numa_id}).second, id,
               "its NUMA id {} is another node's too", node.cpu().numa_id);
    }
  }

  const System& system_;
  std::vector<std::string> broken_;
  std::set<std::tuple<NodeId, NodeId, LinkType>> seen_;
};

}  // namespace

std::vector<std::string> check(const System& system) {
  return Checker(system).run();
}

}  // namespace loom::topo
