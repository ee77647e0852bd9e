#include "device/cuda/gpu_facts.hpp"

#include <algorithm>

namespace loom::device::cuda {

Sharing sharing_of(std::span<const GpuFacts> facts, int blocks) {
  Sharing sharing = Sharing::kNone;
  for (const GpuFacts& mine : facts) {
    const auto sharers =
        std::ranges::count_if(facts, [&](const GpuFacts& other) { return other.uuid == mine.uuid; });
    if (sharers == 1) continue;
    if (!mine.mps || sharers * blocks > mine.multiprocessors) return Sharing::kTakingTurns;
    sharing = Sharing::kResident;
  }
  return sharing;
}

}  // namespace loom::device::cuda
