// network.cpp -- what network ports read and write of a GPU's memory by themselves (GPUDirect RDMA).
#include <cstring>

#include "tests/virtual_gpu/driver/driver.hpp"

using namespace virtual_gpu;

namespace {

/// What a port has written, as long as it is not visible.
struct OnItsWay {
  AllocationPtr in;
  std::size_t at;
  std::vector<std::byte> data;
};
std::vector<OnItsWay>& all_on_their_way() {
  static std::vector<OnItsWay> all;  // guarded by Driver::mutex
  return all;
}

void take_in(const OnItsWay& write) {
  std::memcpy(write.in->file->data() + write.at, write.data.data(), write.data.size());
  if (memory::WrittenMap* const notes = write.in->file->written()) notes->mark(write.at, write.data.size());
}

/// nullptr: no memory of a device that a port may use.
AllocationPtr found(const Call& call, Address address, std::size_t bytes) {
  const AllocationPtr in = call.driver.memory.holding(address, bytes);
  return in != nullptr && in->kind == Kind::kDevice ? in : nullptr;
}

}  // namespace

EXPORT int cuFlushGPUDirectRDMAWrites(int target, int scope) {
  return enter("cuFlushGPUDirectRDMAWrites", kInContext, [&](Call&) -> Result {
    constexpr int kToOwner = 100, kToAllDevices = 200;
    if (variable("VIRTUAL_GPU_NETWORK") == "never") return kNotSupported;
    if (target != 0 || (scope != kToOwner && scope != kToAllDevices)) return kInvalidValue;
    for (const OnItsWay& write : all_on_their_way()) take_in(write);
    all_on_their_way().clear();
    return kSuccess;
  });
}

EXPORT int virtual_gpu_network_read(std::uint64_t from, void* to, std::size_t bytes) {
  return enter("virtual_gpu_network_read", kNothing, [&](Call& call) -> Result {
    const AllocationPtr in = found(call, from, bytes);
    if (in == nullptr) return say(kInvalidValue, "a port reads what is no device's memory");
    std::memcpy(to, in->at(from), bytes);
    return kSuccess;
  });
}

EXPORT int virtual_gpu_network_write(std::uint64_t to, const void* from, std::size_t bytes) {
  return enter("virtual_gpu_network_write", kNothing, [&](Call& call) -> Result {
    const AllocationPtr in = found(call, to, bytes);
    if (in == nullptr) return say(kInvalidValue, "a port writes to what is no device's memory");
    const auto* const data = static_cast<const std::byte*>(from);
    OnItsWay write{in, static_cast<std::size_t>(to - in->begin), {data, data + bytes}};
    if (variable("VIRTUAL_GPU_NETWORK"))
      all_on_their_way().push_back(std::move(write));
    else
      take_in(write);
    return kSuccess;
  });
}
