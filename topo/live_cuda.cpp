// live_cuda.cpp -- the CUDA driver, opened when it is there. The declarations follow its documented
// interface.
#include <array>

#include "topo/library.hpp"
#include "topo/live_sources.hpp"

namespace loom::topo {
namespace {

using Result = int;                                                                // 0: success
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76, kGpuDirectRdma = 116;  // CUdevice_attribute

class Driver {
 public:
  explicit Driver(const std::string& name) : library_(name) {}

  bool start() {
    const auto init = library_.function<Result(unsigned)>("cuInit");
    return init != nullptr && get_count_ && get_ && bus_id_ && attribute_ && init(0) == 0;
  }
  int device_count() const {
    int count = 0;
    return get_count_(&count) == 0 ? count : 0;
  }
  std::optional<BusId> bus_id(int index) const {
    std::array<char, 32> text{};
    int device = 0;
    if (get_(&device, index) != 0 || bus_id_(text.data(), static_cast<int>(text.size()) - 1, device) != 0)
      return std::nullopt;
    return BusId::parse(text.data());
  }
  int attribute(int index, int which) const {
    int device = 0, value = 0;
    return get_(&device, index) == 0 && attribute_(&value, which, device) == 0 ? value : 0;
  }
  bool may_access(int index, int peer) const {
    int device = 0, other = 0, yes = 0;
    if (can_access_ == nullptr || get_(&device, index) != 0 || get_(&other, peer) != 0) return true;
    return can_access_(&yes, device, other) != 0 || yes != 0;
  }

 private:
  Library library_;
  Result (*get_count_)(int*) = library_.function<Result(int*)>("cuDeviceGetCount");
  Result (*get_)(int*, int) = library_.function<Result(int*, int)>("cuDeviceGet");
  Result (*bus_id_)(char*, int, int) = library_.function<Result(char*, int, int)>("cuDeviceGetPCIBusId");
  Result (*attribute_)(int*, int, int) = library_.function<Result(int*, int, int)>("cuDeviceGetAttribute");
  Result (*can_access_)(int*, int, int) = library_.function<Result(int*, int, int)>("cuDeviceCanAccessPeer");
};

GpuInfo* gpu_at(Draft& draft, const std::optional<BusId>& bus_id) {
  for (Node& node : draft.nodes)
    if (bus_id && node.pci && node.pci->bus_id == *bus_id)
      if (auto* gpu = std::get_if<GpuInfo>(&node.info)) return gpu;
  return nullptr;
}

}  // namespace

void add_from_cuda(Draft& draft, const std::string& library) {
  Driver driver(library);
  if (!driver.start()) return;
  const int count = driver.device_count();
  std::vector<GpuInfo*> gpus;  // by CUDA's index
  for (int i = 0; i < count; ++i) {
    gpus.push_back(gpu_at(draft, driver.bus_id(i)));
    if (gpus.back() == nullptr) continue;
    gpus.back()->compute_capability =
        10 * driver.attribute(i, kCapabilityMajor) + driver.attribute(i, kCapabilityMinor);
    gpus.back()->gpu_direct = driver.attribute(i, kGpuDirectRdma) != 0;
  }
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < count; ++j) {
      const auto *gpu = gpus[static_cast<std::size_t>(i)], *peer = gpus[static_cast<std::size_t>(j)];
      if (i == j || gpu == nullptr || peer == nullptr || driver.may_access(i, j)) continue;
      gpus[static_cast<std::size_t>(i)]->p2p_denied.push_back(peer->device);
    }
}

}  // namespace loom::topo
