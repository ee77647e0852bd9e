#include "tests/virtual_gpu/driver/gpus.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/virtual_gpu/driver/driver.hpp"

namespace virtual_gpu {

Gpus::Gpus()
    : machine_(machine::Machine::from_environment()),
      state_(machine_, machine::variable("VIRTUAL_GPU_STATE")),
      traffic_(machine_, state_),
      gpus_(machine_.gpus()) {
  const auto shared = variable("VIRTUAL_GPU_SHARED");
  const std::uint64_t owner =
      shared ? std::hash<std::string>()(*shared) : static_cast<std::uint64_t>(::getpid());
  for (machine::Gpu& gpu : gpus_) {
    if (!variable("VIRTUAL_GPU_MACHINE")) std::memcpy(gpu.uuid.data(), &owner, sizeof(owner));
    gpu.capability =
        static_cast<int>(number("VIRTUAL_GPU_CAPABILITY", static_cast<std::uint64_t>(gpu.capability)));
    gpu.multiprocessors = static_cast<int>(
        number("VIRTUAL_GPU_MULTIPROCESSORS", static_cast<std::uint64_t>(gpu.multiprocessors)));
    if (variable("VIRTUAL_GPU_MEMORY_MIB")) gpu.memory_bytes = number("VIRTUAL_GPU_MEMORY_MIB", 0) << 20;
  }
  visible_ = machine::visible_gpus(gpus_, std::getenv("CUDA_VISIBLE_DEVICES"));
}

std::optional<std::size_t> Gpus::index_of(const Uuid& uuid) const {
  const auto found = std::ranges::find(gpus_, uuid, &machine::Gpu::uuid);
  if (found == gpus_.end()) return {};
  return static_cast<std::size_t>(found - gpus_.begin());
}

std::optional<int> Gpus::ordinal_of(const Uuid& uuid) const {
  const auto found = std::ranges::find_if(visible_, [&](std::size_t i) { return gpus_[i].uuid == uuid; });
  if (found == visible_.end()) return {};
  return static_cast<int>(found - visible_.begin());
}

bool Gpus::can_access(int from, int to) const {
  if (from == to) return false;
  const machine::Peers peers = machine_.peers(index(from), index(to));
  return peers == machine::Peers::kPcie || peers == machine::Peers::kNvlink;
}

/// GPUs of other processes that have machines of their own are taken for ones on PCIe.
memory::Path Gpus::path(int from, const Uuid& to) const {
  const std::optional<std::size_t> other = index_of(to);
  if (other == index(from)) return memory::Path::kSameGpu;
  return other && machine_.peers(index(from), *other) == machine::Peers::kNvlink ? memory::Path::kNvlink
                                                                                 : memory::Path::kPcie;
}

/// The host's memory is taken for that of the GPU's socket.
void Gpus::count(const Uuid* from, const Uuid* to, std::size_t bytes) {
  const auto gpu = [this](const Uuid* uuid) { return uuid == nullptr ? 0 : index_of(*uuid).value_or(0); };
  const auto place = [&](const Uuid* uuid, const Uuid* other) {
    return uuid != nullptr ? machine::gpu_memory(gpu(uuid)) : machine::host_memory(gpus_[gpu(other)].socket);
  };
  traffic_.add(place(from, to), place(to, from), bytes);
}

}  // namespace virtual_gpu
