// fake_nvidia.cpp -- what CUDA's driver would say of two H100 at 0000:13:00.0 and 0000:14:00.0, with no peer
// access from the first to the second.
//
// The environment makes it fail: LOOM_FAKE_CUDA_ERROR is what its initialisation gives, LOOM_FAKE_GPUS is how
// many of the GPUs it shows.
#include <cstdio>
#include <cstdlib>

namespace {
int from_environment(const char* name, int fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::atoi(value);
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

static bool initialised = false;
EXPORT int cuInit(unsigned) {
  const int error = from_environment("LOOM_FAKE_CUDA_ERROR", 0);
  initialised |= error == 0;
  return error;
}
EXPORT int cuDeviceGetCount(int* count) {
  if (!initialised) return 3;
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
