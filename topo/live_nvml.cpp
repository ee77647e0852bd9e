// live_nvml.cpp -- NVIDIA's management library, opened when it is there. The declarations follow its
// documented interface.
#include <fmt/format.h>

#include <map>

#include "topo/library.hpp"
#include "topo/live_sources.hpp"
#include "topo/pci_ids.hpp"

namespace loom::topo {
namespace {

using Result = int;  // 0: success
using Device = void*;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct FieldValue {
  unsigned field_id, scope_id;
  long long timestamp, latency_us;
  int value_type;
  Result result;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_unsigned64;
  } value;
};

enum class RemoteType { kGpu = 0, kCpu = 1, kSwitch = 2 };
constexpr unsigned kMostNvLinks = 36;
constexpr unsigned kFieldC2cCount = 170, kFieldC2cMbps = 172;  // NVML_FI_DEV_C2C_LINK_COUNT, ..._GET_MAX_BW

class Nvml {
 public:
  explicit Nvml(const std::string& name) : library_(name) {
    const auto init = library_.function<Result()>("nvmlInit_v2");
    started_ = init != nullptr && by_bus_id_ != nullptr && init() == 0;
  }
  ~Nvml() {
    if (const auto shutdown = library_.function<Result()>("nvmlShutdown"); started_ && shutdown) shutdown();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  bool started() const { return started_; }

  Device device(const BusId& bus_id) const {
    Device device = nullptr;
    return by_bus_id_(bus_id.to_string().c_str(), &device) == 0 ? device : nullptr;
  }
  void describe(Device device, GpuInfo& gpu) const {
    unsigned index = 0;
    if (index_ && index_(device, &index) == 0) gpu.device = static_cast<int>(index);
    int major = 0, minor = 0;
    if (capability_ && capability_(device, &major, &minor) == 0) gpu.compute_capability = 10 * major + minor;
    gpu.nvlinks = nvlinks(device);
    const unsigned count = field(device, kFieldC2cCount), mbps = field(device, kFieldC2cMbps);
    if (count > 0 && mbps > 0) gpu.c2c = {{static_cast<int>(mbps), static_cast<int>(count)}};
  }

 private:
  std::vector<NvLinks> nvlinks(Device device) const {
    std::vector<NvLinks> rows;
    for (unsigned link = 0; state_ != nullptr && link < kMostNvLinks; ++link) {
      int active = 0;
      if (state_(device, link, &active) != 0 || active == 0) continue;
      NvLinks row{.target = {}, .count = 1, .target_class = kClassNvSwitch, .target_seen = false};
      int type = static_cast<int>(RemoteType::kSwitch);
      if (remote_type_) remote_type_(device, link, &type);
      if (type == static_cast<int>(RemoteType::kGpu)) row.target_class = 0x030200;
      if (type == static_cast<int>(RemoteType::kCpu)) row.target_class = kClassCpuBridge;
      PciInfo remote{};
      if (remote_ && remote_(device, link, &remote) == 0)
        if (const auto target = BusId::parse(remote.bus_id)) row.target = *target, row.target_seen = true;
      if (!row.target_seen && row.target_class == 0x030200) continue;  // a GPU that nobody can name
      auto same = rows.begin();
      while (same != rows.end() && (same->target != row.target || same->target_class != row.target_class))
        ++same;
      if (same != rows.end())
        ++same->count;
      else
        rows.push_back(row);
    }
    return rows;
  }

  unsigned field(Device device, unsigned id) const {
    FieldValue value{};
    value.field_id = id;
    return fields_ && fields_(device, 1, &value) == 0 && value.result == 0 ? value.value.as_unsigned : 0;
  }

  Library library_;
  bool started_ = false;
  Result (*by_bus_id_)(const char*, Device*) =
      library_.function<Result(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2");
  Result (*index_)(Device, unsigned*) = library_.function<Result(Device, unsigned*)>("nvmlDeviceGetIndex");
  Result (*capability_)(Device, int*, int*) =
      library_.function<Result(Device, int*, int*)>("nvmlDeviceGetCudaComputeCapability");
  Result (*state_)(Device, unsigned,
                   int*) = library_.function<Result(Device, unsigned, int*)>("nvmlDeviceGetNvLinkState");
  Result (*remote_)(Device, unsigned, PciInfo*) =
      library_.function<Result(Device, unsigned, PciInfo*)>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  Result (*remote_type_)(Device, unsigned, int*) =
      library_.function<Result(Device, unsigned, int*)>("nvmlDeviceGetNvLinkRemoteDeviceType");
  Result (*fields_)(Device, int, FieldValue*) =
      library_.function<Result(Device, int, FieldValue*)>("nvmlDeviceGetFieldValues");
};

}  // namespace

void add_from_nvml(Draft& draft, const std::string& library) {
  const Nvml nvml(library);
  if (!nvml.started()) return;
  for (Node& node : draft.nodes)
    if (auto* gpu = std::get_if<GpuInfo>(&node.info); gpu != nullptr && node.pci)
      if (const Device device = nvml.device(node.pci->bus_id)) nvml.describe(device, *gpu);
}

}  // namespace loom::topo
