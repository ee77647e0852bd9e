#include "topo/place.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/format.hpp"
#include "topo/cpu_mask.hpp"
#include "topo/draft.hpp"

namespace loom::topo {
namespace {

Node virtual_gpu(const Place& place, int rank, int device, NodeId cpu) {
  GpuInfo gpu;
  gpu.device = device, gpu.rank = rank, gpu.is_virtual = true;
  gpu.first_cpu = place.first_cpu, gpu.cpu_count = place.cpu_count;
  return {std::move(gpu), cpu, 0, std::nullopt};
}

}  // namespace

std::vector<Host> hosts_of(std::span<const Place> places) {
  struct Members {
    std::vector<Place> places;
    std::vector<int> ranks;
  };
  std::vector<Members> hosts;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> index_of;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const HostId& id = places[rank].host;
    const auto [entry, is_new] = index_of.try_emplace({id.high, id.low}, hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[entry->second].places.push_back(places[rank]);
    hosts[entry->second].ranks.push_back(static_cast<int>(rank));
  }
  std::vector<Host> result;
  for (const Members& host : hosts) result.push_back(host_of(host.places, host.ranks));
  return result;
}

Host host_of(std::span<const Place> places, std::span<const int> ranks) {
  // In order of their first CPUs, whatever the ranks are called.
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return places[i].first_cpu; });
  std::map<int, NodeId> cpu_of;  // by NUMA node
  for (const Place& place : places) cpu_of[place.numa_node] = kNoNode;
  Draft draft{.nodes = {}, .hosts = {0}, .notes = {}};
  for (auto& [numa_id, cpu] : cpu_of) {
    CpuInfo info;
    info.numa_id = numa_id;
    cpu = draft.add({std::move(info), kNoNode, 0, std::nullopt});
  }
  int device = 0;
  for (const std::size_t i : order)
    draft.add(virtual_gpu(places[i], ranks[i], device++, cpu_of[places[i].numa_node]));
  sort_depth_first(draft);
  return {places.front().host, build(std::move(draft), Model::kLoom).system};
}

System with_virtual_gpus(const System& system, std::span<const Place> places, std::span<const int> ranks) {
  Draft draft{.nodes = {}, .hosts = {system.hosts().begin(), system.hosts().end()}, .notes = {}};
  std::vector<NodeId> now(static_cast<std::size_t>(system.size()), kNoNode);
  std::map<int, NodeId> cpu_of;
  for (NodeId id = 0; id < system.size(); ++id) {
    Node node = system.node(id);
    const NodeKind kind = node.kind();
    if (kind == NodeKind::kGpu || kind == NodeKind::kNvSwitch || kind == NodeKind::kC2cPort) continue;
    if (node.parent != kNoNode) node.parent = now[static_cast<std::size_t>(node.parent)];
    const NodeId added = now[static_cast<std::size_t>(id)] = draft.add(std::move(node));
    if (kind == NodeKind::kCpu && draft.node(added).host == 0)
      cpu_of.try_emplace(draft.node(added).cpu().numa_id, added);
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto cpu = cpu_of.find(places[i].numa_node);
    const NodeId parent = cpu != cpu_of.end() ? cpu->second : cpu_of.begin()->second;
    draft.add(virtual_gpu(places[i], ranks[i], static_cast<int>(i), parent));
  }
  sort_depth_first(draft);
  return build(std::move(draft), system.model()).system;
}

std::vector<std::string> placement_notes(const System& system, std::span<const Place> places,
                                         std::span<const int> ranks) {
  std::vector<std::string> notes;
  const std::size_t gpus = system.of_kind(NodeKind::kGpu).size();
  if (gpus > 0)
    notes.push_back(
        loom::format("For calls on host memory each rank is a virtual GPU at its NUMA node; its {} {} for "
                     "calls on GPUs alone.",
                     gpus, gpus == 1 ? "GPU counts" : "GPUs count"));
  std::map<int, std::vector<int>> cpus_of_numa;
  for (const NodeId id : system.of_kind(NodeKind::kCpu))
    cpus_of_numa.try_emplace(system.node(id).cpu().numa_id, cpus_of(system.node(id).cpu().affinity));
  std::map<int, std::vector<int>> lost, elsewhere;  // ranks by NUMA node
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto known = cpus_of_numa.find(places[i].numa_node);
    if (known == cpus_of_numa.end())
      lost[places[i].numa_node].push_back(ranks[i]);
    else if (const auto& cpus = known->second;
             !cpus.empty() && !std::binary_search(cpus.begin(), cpus.end(), places[i].first_cpu))
      elsewhere[places[i].numa_node].push_back(ranks[i]);
  }
  const auto who = [](const std::vector<int>& some) {
    return loom::format("{} {}", some.size() == 1 ? "rank" : "ranks", loom::join(some, ", "));
  };
  for (const auto& [numa, some] : lost)
    notes.push_back(
        loom::format("It has no NUMA node {}, where {} may run: its first is taken.", numa, who(some)));
  for (const auto& [numa, some] : elsewhere)
    notes.push_back(
        loom::format("The CPUs of its NUMA node {} are not those that {} may run on.", numa, who(some)));
  return notes;
}

bool oversubscribed(const System& system) {
  // Ranks with the same binding share its CPUs; different bindings are taken to be disjoint, as launchers
  // make them.
  std::map<std::pair<int, int>, int> ranks_by_binding;
  for (const NodeId id : system.gpus()) {
    const GpuInfo& gpu = system.node(id).gpu();
    if (gpu.is_virtual) ++ranks_by_binding[{gpu.first_cpu, gpu.cpu_count}];
  }
  return std::any_of(ranks_by_binding.begin(), ranks_by_binding.end(),
                     [](const auto& entry) { return entry.second > entry.first.second; });
}

}  // namespace loom::topo
