#include "device/cuda/zero_copy_cost.hpp"

#include <algorithm>
#include <cmath>

#include "device/cuda/zero_copy_links.hpp"

namespace loom::device::cuda {
namespace {

constexpr double kBytesPerUs = 1000;  // of one GB/s
/// Of GPUs whose links nobody knows.
constexpr double kSomeGbps = 12;

/// A call beside its bytes (estimates, not measured): its launch, a kernel that waits for nobody, the word
/// that tells its end, and two meetings of the hosts.
constexpr double kCallUs = 14, kHopUs = 1, kSlowHopUs = 2.5;

/// Peak bandwidth of memory, by NVIDIA's data sheets: the smallest of the GPUs of that compute capability.
struct MemoryOf {
  int capability;
  double gbps;
};
constexpr MemoryOf kMemory[] = {{70, 900}, {75, 320},  {80, 1555},  {86, 600},
                                {89, 300}, {90, 3350}, {100, 8000}, {120, 448}};

double memory_gbps_of(int capability) {
  double gbps = 0;
  for (const MemoryOf& of : kMemory)
    if (of.capability <= capability) gbps = of.gbps;
  return gbps;
}

/// Bytes that cross the busiest direction of a rank's links, and that a rank reads and writes in the memory
/// of GPUs, for each byte of the whole message.
struct Traffic {
  double links, memory;
};
Traffic traffic_of(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks, own = 1.0 / ranks;
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kAllGather:
    case Collective::kAllGatherV:
      return {others, 1 + own};
    case Collective::kAllToAll:
      return {others, 2};
    case Collective::kBroadcast:
    case Collective::kReduce:
      return {2 * others, 1 + own};
    default:
      return {2 * others, 2};
  }
}

}  // namespace

GpuSpeeds with_facts(GpuSpeeds known, std::span<const GpuFacts> facts, std::span<const int> hosts) {
  known.sharers = 1;
  known.memory_gbps = 0;
  known.bounces = std::ranges::any_of(facts, &GpuFacts::is_shared_by_others);
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const double gbps = memory_gbps_of(facts[rank].capability);
    if (known.memory_gbps == 0 || gbps < known.memory_gbps) known.memory_gbps = gbps;
    known.sharers = std::max(known.sharers, sharers_of(facts, rank, hosts));
  }
  return known;
}

double memory_us(const GpuSpeeds& speeds, double times, std::size_t bytes) {
  if (speeds.memory_gbps <= 0) return 0;
  return times * speeds.sharers * static_cast<double>(bytes) / (kBytesPerUs * speeds.memory_gbps);
}

double zero_copy_us(const GpuSpeeds& speeds, Collective collective, std::size_t bytes, int ranks) {
  const Traffic traffic = traffic_of(collective, ranks);
  const bool alone = speeds.sharers == ranks;  // with one GPU
  const double link_gbps = speeds.exchange_gbps > 0 ? speeds.exchange_gbps : kSomeGbps,
               link_us = alone ? 0 : traffic.links * static_cast<double>(bytes) / (kBytesPerUs * link_gbps),
               hop_us = alone || speeds.over_nvlink ? kHopUs : kSlowHopUs,
               round_us = std::max(link_us, memory_us(speeds, traffic.memory, bytes));
  if (!speeds.bounces) return kCallUs + hop_us + round_us;
  // In rounds, as many as bounce buffers hold; the CPUs meet in each.
  const double rounds = std::ceil(static_cast<double>(bytes) / ZeroCopyLinks::kBounceBytes);
  return rounds * (kCallUs + hop_us) + round_us + memory_us(speeds, 2 * traffic.memory, bytes);
}

}  // namespace loom::device::cuda
