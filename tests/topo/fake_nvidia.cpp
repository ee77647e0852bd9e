// fake_nvidia.cpp -- what CUDA's driver and NVML would say of two H100 at 0000:13:00.0 and 0000:14:00.0:
// eighteen NVLinks each, four of them to the other GPU, the rest to a switch that the driver hides; ten C2C
// links, one of which is down; and no peer access from the first GPU to the second.
//
// The environment makes them fail: LOOM_FAKE_CUDA_ERROR and LOOM_FAKE_NVML_ERROR are what their
// initialisation gives, LOOM_FAKE_GPUS is how many of the GPUs they show.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
int from_environment(const char* name, int fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::atoi(value);
}
int index_of(const void* device) {
  return static_cast<int>(reinterpret_cast<long>(device)) - 1;
}
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct FieldValue {
  unsigned field_id, scope_id;
  long long timestamp, latency_us;
  int value_type, result;
  union {
    double as_double;
    unsigned as_unsigned;
  } value;
};
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cuInit(unsigned) {
  return from_environment("LOOM_FAKE_CUDA_ERROR", 0);
}
EXPORT int cuDeviceGetCount(int* count) {
  return *count = from_environment("LOOM_FAKE_GPUS", 2), 0;
}
EXPORT int cuDeviceGet(int* device, int index) {
  return *device = index, 0;
}
EXPORT int cuDeviceGetPCIBusId(char* text, int size, int device) {
  return std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", 0x13 + device) > 0 ? 0 : 1;
}
EXPORT int cuDeviceGetAttribute(int* value, int which, int) {
  return *value = which == 75 ? 9 : which == 116 ? 1 : 0, 0;
}
EXPORT int cuDeviceCanAccessPeer(int* yes, int device, int peer) {
  return *yes = !(device == 0 && peer == 1), 0;
}

EXPORT int nvmlInit_v2() {
  return from_environment("LOOM_FAKE_NVML_ERROR", 0);
}
EXPORT int nvmlShutdown() {
  return 0;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  const int index = std::strcmp(bus_id, "0000:13:00.0") == 0   ? 0
                    : std::strcmp(bus_id, "0000:14:00.0") == 0 ? 1
                                                               : -1;
  return *device = reinterpret_cast<void*>(static_cast<long>(index + 1)),
         index < 0 || index >= from_environment("LOOM_FAKE_GPUS", 2);
}
EXPORT int nvmlDeviceGetIndex(void* device, unsigned* index) {
  return *index = static_cast<unsigned>(index_of(device)), 0;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  return *major = 9, *minor = 0, 0;
}
EXPORT int nvmlDeviceGetNvLinkState(void*, unsigned link, int* active) {
  return *active = link < 18, link >= 18;
}
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned link, int* type) {
  return *type = link < 4 ? 0 : 2, 0;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* info) {
  std::snprintf(info->bus_id, sizeof info->bus_id,
                link < 4        ? "00000000:%02X:00.0"
                : link % 2 == 0 ? "ffffffff:ff:ff.0"
                                : "fffffff:ff:ff.0",
                0x14 - index_of(device));
  return 0;
}
EXPORT int nvmlDeviceGetFieldValues(void*, int count, FieldValue* values) {
  constexpr unsigned kCount = 170, kStatus = 171;
  for (int i = 0; i < count; ++i) {
    const unsigned id = values[i].field_id;
    values[i].result = 0;
    values[i].value.as_unsigned = id == kCount ? 10 : id == kStatus ? values[i].scope_id != 3 : 44712;
  }
  return 0;
}
