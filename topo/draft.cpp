#include "topo/draft.hpp"

#include <algorithm>

#include "topo/pci_ids.hpp"

namespace loom::topo {

NodeId Draft::add(Node node) {
  nodes.push_back(std::move(node));
  return static_cast<NodeId>(nodes.size()) - 1;
}

void sort_depth_first(Draft& draft) {
  std::vector<std::vector<NodeId>> children(draft.nodes.size());
  std::vector<NodeId> stack, now(draft.nodes.size());
  for (NodeId id = static_cast<NodeId>(draft.nodes.size()) - 1; id >= 0; --id) {
    const NodeId parent = draft.node(id).parent;
    (parent == kNoNode ? stack : children[static_cast<std::size_t>(parent)]).push_back(id);
  }
  std::vector<Node> sorted;
  sorted.reserve(draft.nodes.size());
  while (!stack.empty()) {
    const auto id = static_cast<std::size_t>(stack.back());
    stack.pop_back();
    const Node& next = draft.nodes[id];
    if (next.kind() == NodeKind::kNic && !next.pci && children[id].empty()) continue;
    now[id] = static_cast<NodeId>(sorted.size());
    Node node = std::move(draft.nodes[id]);
    if (node.parent != kNoNode) node.parent = now[static_cast<std::size_t>(node.parent)];
    sorted.push_back(std::move(node));
    stack.insert(stack.end(), children[id].begin(), children[id].end());
  }
  draft.nodes = std::move(sorted);
}

NodeId cpu_with(Draft& draft, int numa_id) {
  NodeId first = kNoNode;
  for (std::size_t id = 0; id < draft.nodes.size(); ++id) {
    if (draft.nodes[id].kind() != NodeKind::kCpu) continue;
    if (draft.nodes[id].cpu().numa_id == numa_id) return static_cast<NodeId>(id);
    if (first == kNoNode) first = static_cast<NodeId>(id);
  }
  return first != kNoNode ? first : draft.add({CpuInfo{}, kNoNode, 0, std::nullopt});
}

NodeId add_gpu(Draft& draft, const BusId& bus_id, NodeId parent) {
  GpuInfo gpu;
  for (const Node& node : draft.nodes)
    if (node.kind() == NodeKind::kGpu) gpu.device = std::max(gpu.device, node.gpu().device + 1);
  PciFunction pci;
  pci.bus_id = bus_id, pci.class_code = kClassGpu3d, pci.vendor = kVendorNvidia;
  return draft.add({std::move(gpu), parent, 0, std::move(pci)});
}

void erase_leaves(Draft& draft, const std::vector<bool>& gone) {
  std::vector<NodeId> now(draft.nodes.size(), kNoNode);
  std::vector<Node> kept;
  for (std::size_t id = 0; id < draft.nodes.size(); ++id) {
    if (gone[id]) continue;
    Node node = std::move(draft.nodes[id]);
    if (node.parent != kNoNode) node.parent = now[static_cast<std::size_t>(node.parent)];
    now[id] = static_cast<NodeId>(kept.size());
    kept.push_back(std::move(node));
  }
  draft.nodes = std::move(kept);
}

bool number_gpus(Draft& draft) {
  std::vector<GpuInfo*> gpus;
  for (Node& node : draft.nodes)
    if (auto* gpu = std::get_if<GpuInfo>(&node.info)) gpus.push_back(gpu);
  if (gpus.empty() ||
      std::any_of(gpus.begin(), gpus.end(), [](const GpuInfo* gpu) { return gpu->rank != kNoRank; }))
    return false;
  int rank = 0;
  for (GpuInfo* gpu : gpus) gpu->rank = rank++;
  return true;
}

int nvidia_gpus(const Draft& draft) {
  return static_cast<int>(std::count_if(draft.nodes.begin(), draft.nodes.end(), [](const Node& node) {
    return node.kind() == NodeKind::kGpu && node.pci && node.pci->vendor == kVendorNvidia;
  }));
}

SystemWithNotes build(Draft draft, Model model) {
  SystemWithNotes built = build_system(std::move(draft.nodes), std::move(draft.hosts), model);
  built.notes.insert(built.notes.begin(), draft.notes.begin(), draft.notes.end());
  return built;
}

}  // namespace loom::topo
