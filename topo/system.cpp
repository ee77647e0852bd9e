#include "topo/system.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/system_builder.hpp"

namespace loom::topo {

NodeId System::gpu_of_rank(int rank) const {
  for (const NodeId id : ranked_gpus_)
    if (node(id).gpu().rank == rank) return id;
  return kNoNode;
}

std::span<const Link> System::links_of(NodeId id) const {
  const auto first = static_cast<std::size_t>(first_link_[static_cast<std::size_t>(id)]);
  const auto last = static_cast<std::size_t>(first_link_[static_cast<std::size_t>(id) + 1]);
  return std::span(links_).subspan(first, last - first);
}

std::vector<Node> source_nodes(const System& system) {
  std::vector<Node> nodes(system.nodes().begin(), system.nodes().end());
  std::erase_if(nodes, [](const Node& node) {
    return node.kind() == NodeKind::kNvSwitch || node.kind() == NodeKind::kC2cPort;
  });
  return nodes;
}

bool shares_function(const System& system, NodeId gpu) {
  if (gpu == 0) return false;
  const Node &node = system.node(gpu), &before = system.node(gpu - 1);
  return before.kind() == NodeKind::kGpu && before.host == node.host && before.pci && node.pci &&
         before.pci->bus_id == node.pci->bus_id;
}

System trimmed_to(const System& system, std::span<const int> ranks) {
  std::vector<int> rank_of_node(static_cast<std::size_t>(system.size()), kNoRank);
  for (const int rank : ranks) {
    const NodeId gpu = system.gpu_of_rank(rank);
    if (gpu == kNoNode)
      throw Error(ErrorCode::kBadInput, loom::format("No GPU of this machine has rank {}.", rank));
    rank_of_node[static_cast<std::size_t>(gpu)] = rank;
  }
  return SystemBuilder::with_ranks(system, rank_of_node);
}

System with_ports(const System& system, const std::function<bool(const NetInfo&)>& keep) {
  std::vector<Node> nodes;
  std::vector<NodeId> place;  // of each node of the source
  for (Node& node : source_nodes(system)) {
    const bool goes = node.kind() == NodeKind::kNet && !keep(node.net());
    place.push_back(goes ? kNoNode : static_cast<NodeId>(nodes.size()));
    if (goes) continue;
    if (node.parent != kNoNode) node.parent = place[static_cast<std::size_t>(node.parent)];
    nodes.push_back(std::move(node));
  }
  return build_system(std::move(nodes), {system.hosts().begin(), system.hosts().end()}, system.model())
      .system;
}

std::string ucx_name(const NetInfo& net) {
  return net.port > 0 ? loom::format("{}:{}", net.name, net.port) : net.name;
}

std::string_view name_of(NodeKind kind) {
  constexpr std::array<std::string_view, kNodeKindCount> kNames = {"GPU", "PCI switch", "NVSwitch", "CPU",
                                                                   "NIC", "NET",        "C2C port"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(LinkType type) {
  constexpr std::array<std::string_view, 6> kNames = {"LOC", "NVL", "C2C", "PCI", "SYS", "NET"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string_view name_of(Model model) {
  return model == Model::kLoom ? "loom" : "nccl";
}

std::string label_on_host(const System& system, NodeId id) {
  const Node& node = system.node(id);
  const std::string where = node.pci ? loom::format(" {}", node.pci->bus_id.to_string()) : "";
  std::string text;
  switch (node.kind()) {
    case NodeKind::kGpu: {
      const GpuInfo& gpu = node.gpu();
      text = loom::format("{} {}{}", gpu.is_virtual ? "virtual GPU" : "GPU", gpu.device,
                          gpu.partition ? loom::format(".{}", *gpu.partition) : "");
      break;
    }
    case NodeKind::kPciSwitch:
      text = "switch" + where;
      break;
    case NodeKind::kNvSwitch:
      text = "NVSwitch";
      break;
    case NodeKind::kCpu:
      text = loom::format("NUMA {}", node.cpu().numa_id);
      break;
    case NodeKind::kNic:
      text = "NIC" + where;
      break;
    case NodeKind::kNet:
      text = node.net().name.empty() ? loom::format("NET {}", node.net().device) : node.net().name;
      break;
    case NodeKind::kC2cPort:
      text = "C2C port";
      break;
  }
  return text;
}

std::string label(const System& system, NodeId id) {
  const Node& node = system.node(id);
  const bool everywhere = node.kind() == NodeKind::kNvSwitch;
  return label_on_host(system, id) +
         (system.hosts().size() > 1 && !everywhere ? loom::format(" (host {})", node.host) : "");
}

std::string to_string(const System& system) {
  std::string text = loom::format("{} nodes, {} links, {} hosts, model {}\n", system.size(),
                                  system.links().size(), system.hosts().size(), name_of(system.model()));
  for (NodeId id = 0; id < system.size(); ++id) {
    text += loom::format("{}: {}\n", id, label(system, id));
    for (const Link& link : system.links_of(id))
      text += loom::format("  {} {:g} GB/s to {}\n", name_of(link.type), link.gbps, label(system, link.to));
  }
  return text;
}

}  // namespace loom::topo
