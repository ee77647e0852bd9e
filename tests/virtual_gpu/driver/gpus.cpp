#include "tests/virtual_gpu/driver/gpus.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/virtual_gpu/driver/driver.hpp"

namespace virtual_gpu {

Gpus::Gpus()
    : machine_(machine::Machine::from_environment()),
      state_(machine_, machine::state_file(machine_)),
      traffic_(machine_, state_),
      gpus_(machine_.gpus()) {
  if (machine::keeps_time()) clock_.emplace(machine_, state_);
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
  counts_own_ = std::getenv("VIRTUAL_GPU_OWN_TRAFFIC") != nullptr;
}

/// Threads of the driver may still count.
void Gpus::leave() {
  try {
    machine::leave(machine_, state_);
  } catch (const machine::Error& error) {
    std::fprintf(stderr, "virtual GPU: %s\n", error.what());
  }
}

std::optional<std::uint64_t> Gpus::carried(std::string_view from, std::string_view to) const {
  const auto& links = machine_.links();
  const auto link = std::ranges::find_if(
      links, [&](const machine::Link& each) { return each.from == from && each.to == to; });
  if (link == links.end()) return {};
  for (const machine::TrafficReport::Row& row : traffic_.report().rows)
    if (row.link == static_cast<std::size_t>(link - links.begin())) return row.bytes;
  return 0;
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

std::optional<machine::Place> Gpus::place_of(const Uuid* memory, std::size_t user) const {
  if (memory == nullptr) return machine::host_memory(gpus_[user].socket);
  const std::optional<std::size_t> gpu = index_of(*memory);
  return gpu ? std::optional(machine::gpu_memory(*gpu)) : std::nullopt;
}

/// Where a GPU of another machine takes part, no link here is known to carry it.
std::atomic<std::uint64_t>& Gpus::counter(std::optional<machine::Place> from,
                                          std::optional<machine::Place> to) {
  return from && to ? traffic_.counter(*from, *to) : traffic_.elsewhere();
}

machine::Ns Gpus::moved(std::optional<machine::Place> from, std::optional<machine::Place> to,
                        std::size_t bytes, double share, machine::Ns begin) {
  counter(from, to).fetch_add(bytes, std::memory_order_relaxed);
  if (!clock_ || !from || !to) return begin;
  const std::size_t source = machine_.index_of(*from), target = machine_.index_of(*to);
  const machine::Ns least = static_cast<double>(bytes) / (machine_.route(source, target).gbps * share);
  return std::max(clock_->carry(source, target, bytes, begin), begin + least) +
         clock_->latency(source, target);
}

machine::Ns Gpus::copy(const Uuid* from, const Uuid* to, std::size_t bytes, double share, machine::Ns begin) {
  const Uuid* const gpu = from != nullptr ? from : to;
  const std::size_t user = gpu == nullptr ? 0 : index_of(*gpu).value_or(0);
  return moved(place_of(from, user), place_of(to, user), bytes, share, begin);
}

machine::Ns Gpus::fill(int by, const Uuid* to, std::size_t bytes, machine::Ns begin) {
  return moved(machine::gpu(index(by)), place_of(to, index(by)), bytes, 1, begin);
}

std::size_t Gpus::place_of_memory(const Uuid* memory, int user) const {
  const std::optional<machine::Place> place = place_of(memory, index(user));
  return place ? machine_.index_of(*place) : memory::Region::kNowhere;
}

void Gpus::count_in(memory::Region& region, int by, const Uuid* of) {
  if (of != nullptr && *of == (*this)[by].uuid && !counts_own_) return;
  const machine::Place user = machine::gpu(index(by));
  const std::optional<machine::Place> memory = place_of(of, user.index);
  region.loaded = &counter(memory, user);
  region.stored = &counter(user, memory);
}

}  // namespace virtual_gpu
