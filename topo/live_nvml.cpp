// live_nvml.cpp -- NVIDIA's management library, opened when it is there. The declarations follow its
// documented interface.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "topo/library.hpp"
#include "topo/live_sources.hpp"
#include "topo/nvlink_peers.hpp"
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
constexpr unsigned kNvLinksAsked = 36, kMostC2cLinks = 64;
constexpr unsigned kFieldC2cCount = 170, kFieldC2cStatus = 171,
                   kFieldC2cMbps = 172;      // NVML_FI_DEV_C2C_LINK_...
constexpr int kP2pByNvlink = 2, kP2pOk = 0;  // NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK

class Nvml {
 public:
  explicit Nvml(const std::string& name) : library_(name) {
    const auto init = library_.function<Result()>("nvmlInit_v2");
    if (!library_)
      trouble_ = loom::format("{} is not there", name);
    else if (init == nullptr || by_bus_id_ == nullptr)
      trouble_ = loom::format("{} lacks functions of NVML's interface", name);
    else if (const Result error = init(); error != 0)
      trouble_ = loom::format("NVML fails with error {}", error);
    else
      started_ = true;
  }
  ~Nvml() {
    if (const auto shutdown = library_.function<Result()>("nvmlShutdown"); started_ && shutdown) shutdown();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  bool started() const { return started_; }
  /// Why it is not started.
  const std::string& trouble() const { return trouble_; }

  Device device(const BusId& bus_id) const {
    Device device = nullptr;
    return by_bus_id_(bus_id.to_string().c_str(), &device) == 0 ? device : nullptr;
  }
  bool joins_by_nvlink(Device from, Device to) const {
    int status = kP2pOk + 1;
    return p2p_status_ && p2p_status_(from, to, kP2pByNvlink, &status) == 0 && status == kP2pOk;
  }
  /// NVML does not know, or the two may read and write each other's memory.
  bool may_access(Device device, Device peer) const {
    constexpr int kRead = 0, kWrite = 1, kUnknown = 6;  // NVML_P2P_CAPS_INDEX_..., NVML_P2P_STATUS_UNKNOWN
    for (const int index : {kRead, kWrite})
      if (int status = kP2pOk; p2p_status_ && p2p_status_(device, peer, index, &status) == 0 &&
                               status != kP2pOk && status != kUnknown)
        return false;
    return true;
  }
  void describe(Device device, GpuInfo& gpu) const {
    unsigned index = 0;
    if (index_ && index_(device, &index) == 0) gpu.device = static_cast<int>(index);
    int major = 0, minor = 0;
    if (capability_ && capability_(device, &major, &minor) == 0) gpu.compute_capability = 10 * major + minor;
    gpu.nvlinks = nvlinks(device);
    gpu.c2c = c2c(device);
  }

 private:
  std::vector<NvLinks> nvlinks(Device device) const {
    std::vector<NvLinks> rows;
    for (unsigned link = 0; state_ != nullptr && link < kNvLinksAsked; ++link) {
      int active = 0;
      if (state_(device, link, &active) != 0 || active == 0) continue;
      NvLinks row{.target = {}, .count = 1, .target_class = kClassNvSwitch, .target_seen = false};
      int type = static_cast<int>(RemoteType::kSwitch);
      if (remote_type_) remote_type_(device, link, &type);
      if (type == static_cast<int>(RemoteType::kGpu)) row.target_class = kClassGpu3d;
      if (type == static_cast<int>(RemoteType::kCpu)) row.target_class = kClassCpuBridge;
      PciInfo remote{};
      // All ones stand for what the driver hides.
      constexpr std::string_view kHidden = "fffffff";
      if (remote_ && remote_(device, link, &remote) == 0 &&
          !std::string_view(remote.bus_id).starts_with(kHidden))
        if (const auto target = BusId::parse(remote.bus_id)) row.target = *target, row.target_seen = true;
      if (!row.target_seen && row.target_class == kClassGpu3d) continue;  // a GPU that nobody can name
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

  /// Those that work; a link whose state NVML does not tell counts as working.
  std::vector<C2cLinks> c2c(Device device) const {
    std::vector<C2cLinks> rows;
    const unsigned count = std::min(field(device, kFieldC2cCount).value_or(0), kMostC2cLinks);
    for (unsigned link = 0; link < count; ++link) {
      const auto mbps = static_cast<int>(field(device, kFieldC2cMbps, link).value_or(0));
      if (mbps <= 0 || field(device, kFieldC2cStatus, link).value_or(1) == 0) continue;
      const auto same =
          std::find_if(rows.begin(), rows.end(), [&](const C2cLinks& row) { return row.mbps == mbps; });
      if (same != rows.end())
        ++same->count;
      else
        rows.push_back({mbps, 1});
    }
    return rows;
  }

  /// `link`: which of several, for fields that have one value per link.
  std::optional<unsigned> field(Device device, unsigned id, unsigned link = 0) const {
    FieldValue value{};
    value.field_id = id, value.scope_id = link;
    const bool known = fields_ && fields_(device, 1, &value) == 0 && value.result == 0;
    return known ? std::optional(value.value.as_unsigned) : std::nullopt;
  }

  Library library_;
  bool started_ = false;
  std::string trouble_;
  Result (*by_bus_id_)(const char*, Device*) =
      library_.function<Result(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2");
  Result (*index_)(Device, unsigned*) = library_.function<Result(Device, unsigned*)>("nvmlDeviceGetIndex");
  Result (*capability_)(Device, int*, int*) =
      library_.function<Result(Device, int*, int*)>("nvmlDeviceGetCudaComputeCapability");
  Result (*p2p_status_)(Device, Device, int, int*) =
      library_.function<Result(Device, Device, int, int*)>("nvmlDeviceGetP2PStatus");
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

std::vector<BusId> add_from_nvml(Draft& draft, const std::string& library) {
  const int present = nvidia_gpus(draft);
  if (present == 0) return {};
  const Nvml nvml(library);
  const auto note_gap = [&](const std::string& why, std::size_t gpus) {
    draft.notes.push_back(loom::format(
        "{}: NVLinks and C2C links of {} GPUs are not known; give a topology file if they have any.", why,
        gpus));
  };
  if (!nvml.started())
    return note_gap(nvml.trouble(), static_cast<std::size_t>(present)), std::vector<BusId>();
  std::vector<BusId> hidden;
  std::vector<std::pair<Device, GpuInfo*>> seen;
  for (Node& node : draft.nodes) {
    auto* gpu = std::get_if<GpuInfo>(&node.info);
    if (gpu == nullptr || !node.pci || node.pci->vendor != kVendorNvidia) continue;
    if (const Device device = nvml.device(node.pci->bus_id)) {
      nvml.describe(device, *gpu);
      seen.emplace_back(device, gpu);
    } else {
      hidden.push_back(node.pci->bus_id);
    }
  }
  for (const auto& [device, gpu] : seen)
    for (const auto& [peer_device, peer] : seen)
      if (gpu != peer && !nvml.may_access(device, peer_device)) gpu->p2p_denied.push_back(peer->device);
  if (!hidden.empty()) note_gap("NVML does not show every GPU of this machine", hidden.size());
  return hidden;
}

bool reaches_all_by_nvlink(const std::string& gpu, std::span<const std::string> others,
                           const std::string& library) {
  const Nvml nvml(library);
  const auto device = [&](const std::string& text) {
    const std::optional<BusId> id = nvml.started() ? BusId::parse(text) : std::nullopt;
    return id ? nvml.device(*id) : nullptr;
  };
  const Device from = device(gpu);
  return from != nullptr && std::ranges::all_of(others, [&](const std::string& other) {
           const Device to = device(other);
           return to != nullptr && nvml.joins_by_nvlink(from, to);
         });
}

}  // namespace loom::topo
