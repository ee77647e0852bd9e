// nvml.cpp -- libnvidia-ml.so.1 for the virtual GPUs: answers from the machine, as NVIDIA's documentation has
// it, to those who ask which GPUs there are and what NVLink and P2P join. NVML knows nothing of
// CUDA_VISIBLE_DEVICES; its order is that of the file's "dev".
//
// VIRTUAL_GPU_FAIL=F:N:E,...: the call of function F (without _v2) after N more of it, and all that follow,
// fail with error E. It counts anew each time that NVML is initialised, and so is the machine read.
#include "tests/virtual_gpu/nvml/nvml_interface.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "tests/virtual_gpu/machine/machine.hpp"

using namespace virtual_gpu::nvml;
namespace machine = virtual_gpu::machine;

namespace {

/// The far end of an NVLink.
struct FarEnd {
  machine::NvLinks::To to;
  std::string target;
};

struct Failure {
  int after;
  Result error;
};

struct Nvml {
  explicit Nvml(machine::Machine the_machine) : machine(std::move(the_machine)) {
    for (const machine::Gpu& gpu : machine.gpus()) far_ends.push_back(far_ends_of(gpu));
  }

  static std::vector<FarEnd> far_ends_of(const machine::Gpu& gpu) {
    std::vector<FarEnd> ends;
    const auto ports = static_cast<std::size_t>(machine::nvlink_ports(gpu.capability));
    for (const machine::NvLinks& row : gpu.nvlinks)
      for (int i = 0; i < row.count && ends.size() < ports; ++i) ends.push_back({row.to, row.target});
    return ends;
  }

  machine::Machine machine;
  std::vector<std::vector<FarEnd>> far_ends;  ///< by GPU
};

struct Library {
  std::mutex mutex;
  int references = 0;
  std::optional<Nvml> nvml;
  std::map<std::string, Failure> failures;
};
Library& library() {
  static Library the_library;
  return the_library;
}

std::map<std::string, Failure> read_failures(const std::string& text) {
  std::map<std::string, Failure> failures;
  std::istringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    char function[64];
    Failure failure{};
    if (std::sscanf(entry.c_str(), "%63[^:]:%d:%d", function, &failure.after, &failure.error) != 3)
      throw machine::Error(loom::format("VIRTUAL_GPU_FAIL has '{}': write FUNCTION:AFTER:ERROR.", entry));
    failures[function] = failure;
  }
  return failures;
}

/// What was asked for by VIRTUAL_GPU_FAIL.
Result failure_of(const char* function) {
  const auto found = library().failures.find(function);
  if (found == library().failures.end() || found->second.after-- > 0) return kSuccess;
  found->second.after = 0;
  return found->second.error;
}

template <class Body>
Result enter(const char* function, Body&& body) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  if (!lib.nvml) return kUninitialized;
  if (const Result failure = failure_of(function); failure != kSuccess) return failure;
  return body(*lib.nvml);
}

std::optional<std::size_t> index_of(const Nvml& nvml, Device device) {
  for (std::size_t i = 0; i < nvml.machine.gpus().size(); ++i)
    if (&nvml.machine.gpus()[i] == device) return i;
  return std::nullopt;
}
Device handle(const Nvml& nvml, std::size_t index) {
  return const_cast<machine::Gpu*>(&nvml.machine.gpus()[index]);
}

/// Of a GPU, with an existing place for the answer.
template <class Body>
Result of_gpu(const char* function, Device device, const void* out, Body&& body) {
  return enter(function, [&](const Nvml& nvml) -> Result {
    const auto index = index_of(nvml, device);
    return index && out != nullptr ? body(nvml, *index) : kInvalidArgument;
  });
}
/// Of one of its NVLinks.
template <class Body>
Result of_link(const char* function, Device device, unsigned link, const void* out, Body&& body) {
  return of_gpu(function, device, out, [&](const Nvml& nvml, std::size_t index) -> Result {
    const std::vector<FarEnd>& ends = nvml.far_ends[index];
    if (ends.empty()) return link < kMostNvLinks ? kNotSupported : kInvalidArgument;
    return link < ends.size() ? body(nvml.machine.gpus()[index], ends[link]) : kInvalidArgument;
  });
}

/// The first GPU that is so.
template <class Matches>
Result find(const char* function, const void* asked, Device* out, Matches&& matches) {
  return enter(function, [&](const Nvml& nvml) -> Result {
    if (asked == nullptr || out == nullptr) return kInvalidArgument;
    const auto& gpus = nvml.machine.gpus();
    const auto found = std::find_if(gpus.begin(), gpus.end(), matches);
    if (found == gpus.end()) return kNotFound;
    *out = handle(nvml, static_cast<std::size_t>(found - gpus.begin()));
    return kSuccess;
  });
}

Result put(const std::string& text, char* out, unsigned bytes) {
  if (bytes <= text.size()) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}
/// Drivers write what they hide in other lengths; that is passed on as it is.
void put_bus_id(const std::string& target, PciInfo& out) {
  std::string text = target, legacy = target;
  if (const auto id = machine::BusId::parse(target)) {
    out.domain = id->domain, out.bus = id->bus, out.device = id->device;
    text = loom::format("{:08X}:{:02X}:{:02X}.0", id->domain, id->bus, id->device);
    legacy = loom::format("{:04X}:{:02X}:{:02X}.0", id->domain, id->bus, id->device);
  }
  std::snprintf(out.bus_id, sizeof(out.bus_id), "%s", text.c_str());
  std::snprintf(out.bus_id_legacy, sizeof(out.bus_id_legacy), "%s", legacy.c_str());
}

Result field(const Nvml& nvml, std::size_t index, FieldValue& value) {
  const machine::Gpu& gpu = nvml.machine.gpus()[index];
  std::vector<const machine::C2cLinks*> c2c;
  for (const machine::C2cLinks& row : gpu.c2c)
    for (int i = 0; i < row.count; ++i) c2c.push_back(&row);
  const auto answer = [&](unsigned number) {
    value.value_type = kUnsignedInt;
    value.value.as_unsigned = number;
    return kSuccess;
  };
  const std::size_t links = nvml.far_ends[index].size();
  switch (value.field_id) {
    case kFieldNvLinkCount:
      return answer(static_cast<unsigned>(links));
    case kFieldNvLinkMbps:
      return links == 0 ? kNotSupported
                        : answer(static_cast<unsigned>(1000 * machine::nvlink_gbps(gpu.capability)));
    case kFieldC2cCount:
      return c2c.empty() ? kNotSupported : answer(static_cast<unsigned>(c2c.size()));
    case kFieldC2cStatus:
    case kFieldC2cMbps:
      if (c2c.empty()) return kNotSupported;
      if (value.scope_id >= c2c.size()) return kInvalidArgument;
      return answer(value.field_id == kFieldC2cStatus ? c2c[value.scope_id]->active
                                                      : static_cast<unsigned>(c2c[value.scope_id]->mbps));
    default:
      return kNotSupported;
  }
}

int p2p_status(machine::Peers peers, P2pIndex index) {
  const bool by_nvlink_alone = index == P2pIndex::kNvLink || index == P2pIndex::kAtomics;
  switch (peers) {
    case machine::Peers::kNvlink:
      return kP2pOk;
    case machine::Peers::kPcie:
      return by_nvlink_alone ? kP2pNotSupported : kP2pOk;
    case machine::Peers::kNone:
      return kP2pOk;  // of a GPU with itself
    case machine::Peers::kNoneByChipset:
      return by_nvlink_alone ? kP2pNotSupported : kP2pNotByChipset;
    case machine::Peers::kNoneBySocket:
      return by_nvlink_alone ? kP2pNotSupported : kP2pNotBySocket;
  }
  return kP2pUnknown;
}

}  // namespace

EXPORT Result nvmlInit_v2() {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  try {
    if (lib.references == 0) lib.failures = read_failures(machine::variable("VIRTUAL_GPU_FAIL"));
    if (const Result failure = failure_of("nvmlInit"); failure != kSuccess) return failure;
    if (lib.references == 0) lib.nvml.emplace(machine::Machine::from_environment());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "virtual GPU: %s\n", error.what());
    return kDriverNotLoaded;
  }
  ++lib.references;
  return kSuccess;
}
EXPORT Result nvmlInit() {
  return nvmlInit_v2();
}
EXPORT Result nvmlInitWithFlags(unsigned) {
  return nvmlInit_v2();
}
EXPORT Result nvmlShutdown() {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  if (lib.references == 0) return kUninitialized;
  if (--lib.references == 0) lib.nvml.reset();
  return kSuccess;
}

EXPORT Result nvmlDeviceGetCount_v2(unsigned* count) {
  return enter("nvmlDeviceGetCount", [&](const Nvml& nvml) -> Result {
    if (count == nullptr) return kInvalidArgument;
    *count = static_cast<unsigned>(nvml.machine.gpus().size());
    return kSuccess;
  });
}
EXPORT Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  return enter("nvmlDeviceGetHandleByIndex", [&](const Nvml& nvml) -> Result {
    if (out == nullptr || index >= nvml.machine.gpus().size()) return kInvalidArgument;
    *out = handle(nvml, index);
    return kSuccess;
  });
}
EXPORT Result nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device* out) {
  const auto asked = machine::BusId::parse(bus_id == nullptr ? "" : bus_id);
  return find("nvmlDeviceGetHandleByPciBusId", bus_id, out,
              [&](const machine::Gpu& gpu) { return gpu.bus_id == asked; });
}
EXPORT Result nvmlDeviceGetHandleByUUID(const char* uuid, Device* out) {
  return find("nvmlDeviceGetHandleByUUID", uuid, out,
              [&](const machine::Gpu& gpu) { return machine::to_string(gpu.uuid) == uuid; });
}

EXPORT Result nvmlDeviceGetIndex(Device device, unsigned* out) {
  return of_gpu("nvmlDeviceGetIndex", device, out, [&](const Nvml&, std::size_t index) {
    *out = static_cast<unsigned>(index);
    return kSuccess;
  });
}
EXPORT Result nvmlDeviceGetName(Device device, char* out, unsigned bytes) {
  return of_gpu("nvmlDeviceGetName", device, out, [&](const Nvml& nvml, std::size_t index) {
    return put(nvml.machine.gpus()[index].name, out, bytes);
  });
}
EXPORT Result nvmlDeviceGetUUID(Device device, char* out, unsigned bytes) {
  return of_gpu("nvmlDeviceGetUUID", device, out, [&](const Nvml& nvml, std::size_t index) {
    return put(machine::to_string(nvml.machine.gpus()[index].uuid), out, bytes);
  });
}
EXPORT Result nvmlDeviceGetPciInfo_v3(Device device, PciInfo* out) {
  return of_gpu("nvmlDeviceGetPciInfo", device, out, [&](const Nvml& nvml, std::size_t index) {
    const machine::Gpu& gpu = nvml.machine.gpus()[index];
    *out = {};
    put_bus_id(gpu.bus_id.to_string(), *out);
    out->device_id = gpu.device_id << 16 | gpu.vendor_id;
    out->subsystem_id = gpu.subsystem_id;
    return kSuccess;
  });
}
EXPORT Result nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  return of_gpu("nvmlDeviceGetCudaComputeCapability", device, minor == nullptr ? nullptr : major,
                [&](const Nvml& nvml, std::size_t index) {
                  *major = nvml.machine.gpus()[index].capability / 10;
                  *minor = nvml.machine.gpus()[index].capability % 10;
                  return kSuccess;
                });
}
/// Off, where there is such a thing.
EXPORT Result nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  return of_gpu("nvmlDeviceGetMigMode", device, pending == nullptr ? nullptr : current,
                [&](const Nvml& nvml, std::size_t index) -> Result {
                  const int capability = nvml.machine.gpus()[index].capability;
                  if (capability != 80 && capability != 90 && capability != 100) return kNotSupported;
                  *current = *pending = 0;
                  return kSuccess;
                });
}

EXPORT Result nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* active) {
  return of_link("nvmlDeviceGetNvLinkState", device, link, active, [&](const machine::Gpu&, const FarEnd&) {
    *active = 1;
    return kSuccess;
  });
}
EXPORT Result nvmlDeviceGetNvLinkVersion(Device device, unsigned link, unsigned* out) {
  return of_link("nvmlDeviceGetNvLinkVersion", device, link, out,
                 [&](const machine::Gpu& gpu, const FarEnd&) {
                   *out = static_cast<unsigned>(machine::nvlink_version(gpu.capability));
                   return kSuccess;
                 });
}
EXPORT Result nvmlDeviceGetNvLinkCapability(Device device, unsigned link, int capability, unsigned* out) {
  return of_link("nvmlDeviceGetNvLinkCapability", device, link, out,
                 [&](const machine::Gpu&, const FarEnd& end) -> Result {
                   const bool to_memory_of_host = end.to == machine::NvLinks::To::kProcessor;
                   switch (static_cast<NvLinkCapability>(capability)) {
                     case NvLinkCapability::kPeers:
                     case NvLinkCapability::kPeerAtomics:
                       *out = !to_memory_of_host;
                       return kSuccess;
                     case NvLinkCapability::kHost:
                     case NvLinkCapability::kHostAtomics:
                       *out = to_memory_of_host;
                       return kSuccess;
                     case NvLinkCapability::kSliBridge:
                       *out = 0;
                       return kSuccess;
                     case NvLinkCapability::kValid:
                       *out = 1;
                       return kSuccess;
                   }
                   return kInvalidArgument;
                 });
}
EXPORT Result nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, int* out) {
  return of_link("nvmlDeviceGetNvLinkRemoteDeviceType", device, link, out,
                 [&](const machine::Gpu&, const FarEnd& end) {
                   *out = end.to == machine::NvLinks::To::kGpu      ? kRemoteGpu
                          : end.to == machine::NvLinks::To::kSwitch ? kRemoteSwitch
                                                                    : kRemoteProcessor;
                   return kSuccess;
                 });
}
EXPORT Result nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo* out) {
  return of_link("nvmlDeviceGetNvLinkRemotePciInfo", device, link, out,
                 [&](const machine::Gpu&, const FarEnd& end) {
                   *out = {};
                   put_bus_id(end.target, *out);
                   return kSuccess;
                 });
}
EXPORT Result nvmlDeviceGetP2PStatus(Device from, Device to, int index, int* out) {
  return of_gpu("nvmlDeviceGetP2PStatus", from, out, [&](const Nvml& nvml, std::size_t a) -> Result {
    const auto b = index_of(nvml, to);
    if (!b || index < 0 || index >= static_cast<int>(P2pIndex::kUnknown)) return kInvalidArgument;
    *out = p2p_status(nvml.machine.peers(a, *b), static_cast<P2pIndex>(index));
    return kSuccess;
  });
}
/// Each value has a result of its own.
EXPORT Result nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
  return of_gpu("nvmlDeviceGetFieldValues", device, values,
                [&](const Nvml& nvml, std::size_t index) -> Result {
                  if (count < 1) return kInvalidArgument;
                  for (FieldValue* value = values; value < values + count; ++value)
                    value->result = field(nvml, index, *value);
                  return kSuccess;
                });
}

/// Also before initialisation.
EXPORT const char* nvmlErrorString(Result result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case 4:
      return "Insufficient Permissions";
    case 5:
      return "Already Initialized";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case 8:
      return "Insufficient External Power";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case 10:
      return "Timeout";
    case 11:
      return "Interrupt Request Issue";
    case 12:
      return "NVML Shared Library Not Found";
    case 13:
      return "Function Not Found";
    case 14:
      return "Corrupted infoROM";
    case 15:
      return "GPU is lost";
    case 16:
      return "GPU requires restart";
    case 17:
      return "The operating system has blocked the request.";
    case 18:
      return "RM has detected an NVML/RM version mismatch.";
    case 19:
      return "In use by another client";
    case 20:
      return "Insufficient Memory";
    default:
      return "Unknown Error";
  }
}

// The first versions of these are the same.
EXPORT Result nvmlDeviceGetCount(unsigned* count) {
  return nvmlDeviceGetCount_v2(count);
}
EXPORT Result nvmlDeviceGetHandleByIndex(unsigned index, Device* out) {
  return nvmlDeviceGetHandleByIndex_v2(index, out);
}
EXPORT Result nvmlDeviceGetHandleByPciBusId(const char* bus_id, Device* out) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus_id, out);
}
