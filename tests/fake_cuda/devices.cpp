// devices.cpp -- the fake's devices and their contexts, and what tests may ask it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fake_cuda/fake_driver.hpp"

namespace fake_cuda {

thread_local std::vector<Context*> current;

Driver& driver() {
  static auto* const the_driver = new Driver;
  return *the_driver;
}

bool no_ipc(const std::string& where) {
  const char* const text = std::getenv("FAKE_CUDA_NO_IPC");
  return text != nullptr && text == where;
}

}  // namespace fake_cuda

using namespace fake_cuda;

EXPORT int cuInit(unsigned) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  d.initialised = true;
  return 0;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  LOCK("cuDevicePrimaryCtxGetState");
  *flags = 0;
  *active = d.primary[device] != nullptr;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(Context** out, int device) {
  LOCK("cuDevicePrimaryCtxRetain");
  if (d.primary[device] == nullptr) d.alive.insert(d.primary[device] = new Context{device});
  ++d.primary[device]->retained;
  *out = d.primary[device];
  return 0;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  LOCK("cuDevicePrimaryCtxRelease");
  if (d.primary[device] == nullptr) return kInvalidContext;
  --d.primary[device]->retained;
  return 0;
}
/// All that the context has is gone; its address is not used again.
EXPORT int cuDevicePrimaryCtxReset_v2(int device) {
  LOCK("cuDevicePrimaryCtxReset");
  Context* const context = d.primary[device];
  d.run_all();
  for (auto it = d.allocations.begin(); it != d.allocations.end();) {
    if (it->second.context != context) {
      ++it;
      continue;
    }
    d.unmap(it->second);
    it = d.allocations.erase(it);
  }
  for (auto it = d.registered.begin(); it != d.registered.end();) {
    const bool gone = it->second.second == context;
    if (gone) d.counts.registered -= it->second.first;
    it = gone ? d.registered.erase(it) : std::next(it);
  }
  d.alive.erase(context);
  d.ended.push_back(context);
  d.primary[device] = nullptr;
  return 0;
}

EXPORT int cuCtxPushCurrent_v2(Context* context) {
  LOCK("cuCtxPushCurrent");
  if (!d.alive.contains(context)) return kInvalidContext;
  current.push_back(context);
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(Context** out) {
  LOCK("cuCtxPopCurrent");
  if (current.empty()) return kInvalidContext;
  *out = current.back();
  current.pop_back();
  return 0;
}

EXPORT int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
EXPORT int cuDeviceGetName(char* name, int bytes, int) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "no GPU");
  return 0;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
/// A number in the environment; what is not set the driver does not know of.
static int number(int* value, const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return kInvalidValue;
  *value = std::atoi(text);
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  LOCK("cuDeviceGetAttribute");
  switch (attribute) {
    case 16:
      if (number(value, "FAKE_CUDA_MULTIPROCESSORS") != 0) *value = 132;
      return 0;
    case 102:
    case 103:
      return number(value, "FAKE_CUDA_VIRTUAL_MEMORY");
    case 125:
      *value = !no_ipc("attribute");
      return 0;
    case 133:
      return number(value, "FAKE_CUDA_MPS");
    default:
      return kInvalidValue;
  }
}
/// Each process has a GPU of its own, unless FAKE_CUDA_SHARED is set.
EXPORT int cuDeviceGetUuid_v2(std::byte* uuid, int) {
  std::memset(uuid, 0, 16);
  const pid_t owner = std::getenv("FAKE_CUDA_SHARED") != nullptr ? 1 : ::getpid();
  std::memcpy(uuid, &owner, sizeof(owner));
  return 0;
}

EXPORT int cuGetErrorString(int error, const char** text) {
  *text = error == kNoMemory ? "out of memory" : "a failure that was asked for";
  return 0;
}

EXPORT void fake_cuda_read(FakeCudaCounts* counts) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  *counts = d.counts;
}
EXPORT void fake_cuda_fail(const char* function, int after, int error) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (error == 0)
    d.failures.erase(function);
  else
    d.failures[function] = {after, error};
}
