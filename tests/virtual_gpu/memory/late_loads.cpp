#include "tests/virtual_gpu/memory/late_loads.hpp"

#include <algorithm>

namespace virtual_gpu::memory {

void OpenLoads::add(const Region& region, std::uint64_t address, unsigned thread, bool strong) {
  const std::size_t offset = (address - region.begin) / LateLoads::kBytes * LateLoads::kBytes;
  auto at = std::ranges::find_if(
      loads_, [&](const Load& load) { return load.in == region.late && load.offset == offset; });
  if (at == loads_.end()) at = loads_.insert(at, {region.late, offset, region.this_gpu_only, {}});
  at->before = Threads().set(thread);
  region.late->open(offset, strong);
}

void OpenLoads::meet(const Threads& threads) {
  for (Load& load : loads_)
    if ((load.before & threads).any()) load.before |= threads;
}

void OpenLoads::end(unsigned thread, bool all) {
  std::erase_if(loads_, [&](const Load& load) {
    const bool ends = load.before[thread] && (all || load.this_gpu_only);
    if (ends) load.in->close(load.offset);
    return ends;
  });
}

void OpenLoads::end_all() {
  for (const Load& load : loads_) load.in->close(load.offset);
  loads_.clear();
}

}  // namespace virtual_gpu::memory
