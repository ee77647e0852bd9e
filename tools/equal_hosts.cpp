#include "tools/equal_hosts.hpp"

#include "base/format.hpp"
#include "tools/words.hpp"

namespace loom::tools {

using namespace loom::topo;

namespace {

/// A host without what distinguishes it from an equal one.
struct Shape {
  std::vector<Node> nodes;  // parents by their place in the host
  std::vector<Link> links;  // the same; to kNoNode: to something that hosts share
  friend bool operator==(const Shape&, const Shape&) = default;
};

void forget_ids(Node& node) {
  node.host = 0;
  if (node.pci) node.pci->bus_id = {};
  if (auto* net = std::get_if<NetInfo>(&node.info)) net->guid.reset();
  if (auto* pci_switch = std::get_if<PciSwitchInfo>(&node.info))
    pci_switch->peers.clear();  // links have them
  if (auto* gpu = std::get_if<GpuInfo>(&node.info)) {
    gpu->nvlinks.clear();  // the same
    if (gpu->rank != kNoRank) gpu->rank = 0;
  }
}

std::vector<Shape> shapes_of(const System& system) {
  std::vector<Shape> shapes(system.hosts().size());
  std::vector<NodeId> place(static_cast<std::size_t>(system.size()), kNoNode);
  const auto shared = [&](NodeId id) { return system.node(id).kind() == NodeKind::kNvSwitch; };
  for (NodeId id = 0; id < system.size(); ++id) {
    if (shared(id)) continue;
    Node node = system.node(id);
    auto& nodes = shapes[static_cast<std::size_t>(node.host)].nodes;
    place[static_cast<std::size_t>(id)] = static_cast<NodeId>(nodes.size());
    forget_ids(node);
    if (node.parent != kNoNode) node.parent = place[static_cast<std::size_t>(node.parent)];
    nodes.push_back(std::move(node));
  }
  for (const Link& link : system.links())
    if (!shared(link.from))
      shapes[static_cast<std::size_t>(system.node(link.from).host)].links.push_back(
          {place[static_cast<std::size_t>(link.from)], place[static_cast<std::size_t>(link.to)], link.type,
           link.gbps, kNoLink});
  return shapes;
}

/// "1-17", "1-3,5".
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += loom::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += loom::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::vector<EqualHosts> equal_hosts(const System& system) {
  const std::vector<Shape> shapes = shapes_of(system);
  std::vector<EqualHosts> groups;
  for (std::size_t host = 0; host < shapes.size(); ++host) {
    EqualHosts* like = nullptr;
    for (EqualHosts& group : groups)
      if (like == nullptr && shapes[static_cast<std::size_t>(group.first)] == shapes[host]) like = &group;
    if (like != nullptr)
      like->others.push_back(static_cast<int>(host));
    else
      groups.push_back({static_cast<int>(host), {}});
  }
  return groups;
}

std::vector<EqualHosts> single_hosts(const System& system) {
  std::vector<EqualHosts> groups(system.hosts().size());
  for (std::size_t host = 0; host < groups.size(); ++host) groups[host].first = static_cast<int>(host);
  return groups;
}

std::string heading(const EqualHosts& hosts) {
  if (hosts.others.empty()) return loom::format("host {}", hosts.first);
  return loom::format("host {}, and {} like it: {}", hosts.first, counted(hosts.others.size(), "host"),
                      ranges(hosts.others));
}

}  // namespace loom::tools
