// live_cuda.cpp -- the CUDA driver, opened when it is there. The declarations follow its documented
// interface.
#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "topo/library.hpp"
#include "topo/live_sources.hpp"
#include "topo/pci_ids.hpp"

namespace loom::topo {
namespace {

using Result = int;                                                                // 0: success
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76, kGpuDirectRdma = 116;  // CUdevice_attribute

class Driver {
 public:
  /// Once initialised it must stay: it has threads, and the application may have it too.
  Driver(const std::string& name, bool initialise)
      : library_(name, true, initialise), initialise_(initialise) {}

  /// The number of devices; negative: `trouble` says why there are none.
  int start(const std::string& name, std::string& trouble) const {
    constexpr const char* kUnused = "The program has not initialised CUDA";
    const auto init = library_.function<Result(unsigned)>("cuInit");
    if (!library_ && !initialise_) return trouble = kUnused, -1;
    if (!library_) return trouble = loom::format("{} is not there", name), -1;
    if (init == nullptr || !get_count_ || !get_ || !bus_id_ || !attribute_)
      return trouble = loom::format("{} lacks functions of the driver's interface", name), -1;
    constexpr Result kNotInitialised = 3, kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE: it works, and lists none
    int count = 0;
    Result error = initialise_ ? init(0) : 0;
    if (error == 0) error = get_count_(&count);
    if (error == kNoDevice) return 0;
    if (error == kNotInitialised && !initialise_) return trouble = kUnused, -1;
    return error == 0 ? count : (trouble = loom::format("CUDA's driver fails with error {}", error), -1);
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
  bool initialise_;
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

/// Plans are for GPUs that programs can use.
void take_ranks_of_unlisted(Draft& draft, const std::vector<GpuInfo*>& listed) {
  int unlisted = 0;
  for (Node& node : draft.nodes) {
    auto* gpu = std::get_if<GpuInfo>(&node.info);
    if (gpu == nullptr || !node.pci || node.pci->vendor != kVendorNvidia ||
        std::find(listed.begin(), listed.end(), gpu) != listed.end())
      continue;
    gpu->rank = kNoRank;
    ++unlisted;
  }
  if (unlisted > 0)
    draft.notes.push_back(loom::format(
        "CUDA lists {} GPUs; {} more that the machine has get no rank (see CUDA_VISIBLE_DEVICES, "
        "and what the "
        "container was given).",
        listed.size(), unlisted));
}

}  // namespace

void add_from_cuda(Draft& draft, const std::string& library, bool initialise) {
  const int present = nvidia_gpus(draft);
  const Driver driver(library, initialise);
  std::string trouble;
  const int count = driver.start(library, trouble);
  if (count < 0) {
    if (present > 0)
      draft.notes.push_back(
          loom::format("{}: whether programs can use the {} NVIDIA GPUs, and each other's memory from "
                       "them, is not known.",
                       trouble, present));
    return;
  }
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
  take_ranks_of_unlisted(draft, gpus);
}

}  // namespace loom::topo
