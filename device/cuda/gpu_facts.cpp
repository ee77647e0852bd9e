#include "device/cuda/gpu_facts.hpp"

#include <algorithm>

namespace loom::device::cuda {

int sharers_of(std::span<const GpuFacts> facts, std::size_t rank, std::span<const int> hosts) {
  int sharers = 0;
  for (std::size_t other = 0; other < facts.size(); ++other)
    sharers += facts[other].uuid == facts[rank].uuid && (hosts.empty() || hosts[other] == hosts[rank]);
  return sharers;
}

Sharing sharing_of(std::span<const GpuFacts> facts, int blocks, std::span<const int> hosts) {
  Sharing sharing = Sharing::kNone;
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const GpuFacts& mine = facts[rank];
    const int sharers = sharers_of(facts, rank, hosts);
    if (sharers == 1) continue;
    if (!mine.mps || sharers * blocks > mine.multiprocessors) return Sharing::kTakingTurns;
    sharing = Sharing::kResident;
  }
  return sharing;
}

std::optional<std::vector<std::string>> nvlink_peers_for_ll128(std::span<const GpuFacts> facts,
                                                               std::size_t self) {
  constexpr int kFirstWithWholeLines = 70;
  std::vector<std::string> peers;
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const GpuFacts& other = facts[rank];
    if (other.capability < kFirstWithWholeLines) return {};
    if (rank == self) continue;
    if (other.uuid == facts[self].uuid) return {};
    // Another instance of the same GPU is none of its peers.
    const std::string bus_id = other.bus_id.data();
    if (bus_id.empty() || bus_id == facts[self].bus_id.data()) return {};
    if (std::ranges::find(peers, bus_id) == peers.end()) peers.push_back(bus_id);
  }
  return peers;
}

}  // namespace loom::device::cuda
