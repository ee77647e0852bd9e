#include "topo/rank_gpus.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/format.hpp"
#include "topo/draft.hpp"

namespace loom::topo {
namespace {

GpuInfo& gpu_of(Draft& draft, NodeId id) {
  return std::get<GpuInfo>(draft.node(id).info);
}

Draft draft_of(const System& system) {
  return {
      .nodes = source_nodes(system), .hosts = {system.hosts().begin(), system.hosts().end()}, .notes = {}};
}

/// The nodes of a function, in order: a GPU and its partitions or further ranks, or a switch.
std::vector<NodeId> at(const Draft& draft, const BusId& bus_id) {
  std::vector<NodeId> found;
  for (std::size_t id = 0; id < draft.nodes.size(); ++id)
    if (draft.nodes[id].pci && draft.nodes[id].pci->bus_id == bus_id)
      found.push_back(static_cast<NodeId>(id));
  return found;
}

std::vector<NodeId> gpus_at(const Draft& draft, const BusId& bus_id) {
  std::vector<NodeId> found = at(draft, bus_id);
  std::erase_if(
      found, [&](NodeId id) { return draft.nodes[static_cast<std::size_t>(id)].kind() != NodeKind::kGpu; });
  return found;
}

/// Devices by bus id, for they are counted anew on each machine.
void deny(Draft& draft, NodeId gpu, std::span<const BusId> denied) {
  for (const BusId& bus_id : denied)
    for (const NodeId peer : gpus_at(draft, bus_id))
      gpu_of(draft, gpu).p2p_denied.push_back(gpu_of(draft, peer).device);
}

/// A GPU, or an instance of one, and who has it.
struct Device {
  RankGpu gpu;  ///< as its lowest rank says
  std::vector<int> ranks;
};

/// In order of their lowest ranks.
std::vector<Device> devices_of(std::span<const RankGpu> gpus) {
  std::vector<RankGpu> sorted(gpus.begin(), gpus.end());
  std::ranges::sort(sorted, {}, &RankGpu::rank);
  std::vector<Device> devices;
  for (RankGpu& gpu : sorted) {
    const auto same = std::ranges::find_if(devices, [&](const Device& device) {
      return device.gpu.bus_id == gpu.bus_id && device.gpu.uuid == gpu.uuid;
    });
    if (same != devices.end()) {
      same->ranks.push_back(gpu.rank);
      same->gpu.denied.insert(same->gpu.denied.end(), gpu.denied.begin(), gpu.denied.end());
      continue;
    }
    const int rank = gpu.rank;
    devices.push_back({std::move(gpu), {rank}});
  }
  return devices;
}

class Seating {
 public:
  explicit Seating(const System& machine) : draft_(draft_of(machine)) {
    for (Node& node : draft_.nodes)
      if (auto* gpu = std::get_if<GpuInfo>(&node.info)) gpu->rank = kNoRank;
  }

  void seat(const Device& device) {
    const NodeId id = node_for(device);
    GpuInfo& gpu = gpu_of(draft_, id);
    if (gpu.rank == kNoRank) gpu.rank = device.ranks.front();
    gpu.gpu_direct = device.gpu.gpu_direct.value_or(gpu.gpu_direct);
    if (gpu.compute_capability == 0) gpu.compute_capability = device.gpu.compute_capability;
    if (device.gpu.compute_capability != 0 && gpu.compute_capability != device.gpu.compute_capability)
      draft_.notes.push_back(loom::format("{} has compute capability {}, the driver of rank {} says {}.",
                                          device.gpu.bus_id.to_string(), gpu.compute_capability,
                                          device.ranks.front(), device.gpu.compute_capability));
    auto& ranks = ranks_[gpu.rank];
    ranks.insert(ranks.end(), device.ranks.begin(), device.ranks.end());
  }

  MachineOfRanks finish(std::span<const Device> devices, Model model) {
    for (const Device& device : devices)
      for (const NodeId gpu : gpus_at(draft_, device.gpu.bus_id)) deny(draft_, gpu, device.gpu.denied);
    sort_depth_first(draft_);
    // What building says of the machine was said when it was read.
    MachineOfRanks seated{build_system(draft_.nodes, draft_.hosts, model).system, {}, draft_.notes};
    for (auto& [lowest, ranks] : ranks_) {
      std::ranges::sort(ranks);
      seated.sharers.push_back(std::move(ranks));
    }
    return seated;
  }

 private:
  NodeId node_for(const Device& device) {
    std::vector<NodeId> nodes = gpus_at(draft_, device.gpu.bus_id);
    if (nodes.empty()) return add(device);
    const auto turn = static_cast<std::size_t>(instances_[device.gpu.bus_id]++);
    if (!gpu_of(draft_, nodes.front()).partition) return nodes.front();
    return nodes[turn % nodes.size()];
  }

  NodeId add(const Device& device) {
    const NodeId cpu = cpu_with(draft_, kNoNuma);
    draft_.notes.push_back(
        loom::format("This machine has no GPU {}, which {} {} {}: it is taken to be at NUMA node {}, and its "
                     "NVLinks are not known.",
                     device.gpu.bus_id.to_string(), device.ranks.size() == 1 ? "rank" : "ranks",
                     loom::join(device.ranks, ", "), device.ranks.size() == 1 ? "has" : "have",
                     draft_.node(cpu).cpu().numa_id));
    ++instances_[device.gpu.bus_id];
    return add_gpu(draft_, device.gpu.bus_id, cpu);
  }

  Draft draft_;
  std::map<BusId, int> instances_;         // seated so far
  std::map<int, std::vector<int>> ranks_;  // by the lowest of them
};

/// Puts the GPU of `seen` into the draft, with the switches above it up to what both know.
NodeId bring(Draft& draft, const Draft& seen, NodeId gpu) {
  const auto theirs = [&](NodeId id) -> const Node& { return seen.nodes[static_cast<std::size_t>(id)]; };
  std::vector<NodeId> way = {gpu};
  NodeId parent = kNoNode, above = theirs(gpu).parent;
  for (; parent == kNoNode && theirs(above).pci; above = theirs(above).parent) {
    const std::vector<NodeId> same = at(draft, theirs(above).pci->bus_id);
    if (same.empty())
      way.push_back(above);
    else
      parent = same.front();
  }
  if (parent == kNoNode) parent = cpu_with(draft, theirs(above).cpu().numa_id);
  for (auto id = way.rbegin(); id != way.rend(); ++id) {
    Node node = theirs(*id);
    if (*id == gpu) {
      parent = add_gpu(draft, node.pci->bus_id, parent);
      draft.node(parent).pci = node.pci;
      break;
    }
    node.parent = parent, node.host = 0;
    parent = draft.add(std::move(node));
  }
  return parent;
}

}  // namespace

MachineOfRanks with_rank_gpus(const System& machine, std::span<const RankGpu> gpus) {
  const std::vector<Device> devices = devices_of(gpus);
  Seating seating(machine);
  for (const Device& device : devices) seating.seat(device);
  return seating.finish(devices, machine.model());
}

System with_gpu_of(const System& machine, const System& view, const BusId& bus_id) {
  const Draft seen = draft_of(view);
  const std::vector<NodeId> found = gpus_at(seen, bus_id);
  if (found.empty()) return machine;
  Draft draft = draft_of(machine);
  std::vector<NodeId> known = gpus_at(draft, bus_id);
  if (known.empty()) known = {bring(draft, seen, found.front())};
  const GpuInfo& theirs = std::get<GpuInfo>(seen.nodes[static_cast<std::size_t>(found.front())].info);
  std::vector<BusId> denied;
  for (const Node& node : seen.nodes)
    if (node.kind() == NodeKind::kGpu && node.pci &&
        std::ranges::binary_search(theirs.p2p_denied, node.gpu().device))
      denied.push_back(node.pci->bus_id);
  for (const NodeId id : known) {
    GpuInfo& mine = gpu_of(draft, id);
    mine.compute_capability = theirs.compute_capability;
    mine.gpu_direct = theirs.gpu_direct;
    mine.gcn_arch = theirs.gcn_arch;
    mine.nvlinks = theirs.nvlinks;
    mine.c2c = theirs.c2c;
    deny(draft, id, denied);
  }
  sort_depth_first(draft);
  return build_system(std::move(draft.nodes), std::move(draft.hosts), machine.model()).system;
}

}  // namespace loom::topo
