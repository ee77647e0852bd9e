#include "topo/system.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace loom::topo {

bool System::oversubscribed() const {
  // Ranks with the same binding share its CPUs; different bindings are taken to be disjoint, as launchers make them.
  std::map<std::pair<int, int>, int> ranks_by_binding;
  for (const Gpu& gpu : gpus) ++ranks_by_binding[{gpu.first_cpu, gpu.cpu_count}];
  return std::any_of(ranks_by_binding.begin(), ranks_by_binding.end(),
                     [](const auto& entry) { return entry.second > entry.first.second; });
}

std::vector<System> hosts_of(std::span<const Place> places) {
  std::vector<System> hosts;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> index_of;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const Place& place = places[rank];
    const auto [entry, is_new] = index_of.try_emplace({place.host.high, place.host.low}, hosts.size());
    if (is_new) hosts.push_back({place.host, {}});
    hosts[entry->second].gpus.push_back(
        {static_cast<int>(rank), place.numa_node, place.first_cpu, place.cpu_count});
  }
  return hosts;
}

}  // namespace loom::topo
