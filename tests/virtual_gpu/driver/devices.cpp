// devices.cpp -- initialisation, devices, and what the driver says of itself.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/format.hpp"
#include "tests/virtual_gpu/driver/driver.hpp"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

using namespace virtual_gpu;

namespace {

/// For all threads of this process, for ever. Yama itself refuses it with the same error.
void refuse_pidfd_getfd() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = 4, .filter = filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
    std::perror("virtual GPU: VIRTUAL_GPU_NO_PIDFD");
}

struct Attribute {
  int which;  ///< CUdevice_attribute
  int value;
};
/// Those that do not depend on the GPU or on variables.
// clang-format off
constexpr Attribute kAttributes[] = {
    {1, kMostThreadsOfBlock}, {2, kMostThreadsOfBlock}, {3, kMostThreadsOfBlock}, {4, 64},  // also x, y, z
    {5, 0x7fffffff}, {6, 65535}, {7, 65535},                       // blocks of a grid: x, y, z
    {8, kSharedOfBlock}, {81, kShared}, {97, kMostSharedOfBlock}, {111, kReservedShared},
    {9, 65536}, {10, kWarp}, {11, 0x7fffffff},                     // constant memory, warp, pitch
    {12, kRegisters}, {82, kRegisters}, {39, kMostThreads}, {106, kMostBlocks},
    {13, 1980000}, {36, 2619000}, {37, 5120}, {38, 50 << 20},      // clocks, memory bus, L2 cache
    {17, 0}, {18, 0}, {20, 0}, {35, 0},                            // time limit, integrated, mode, TCC
    {19, 1}, {31, 1}, {32, 1}, {40, 3}, {41, 1},                   // mapped host memory ... unified addresses
    {78, 1}, {79, 1}, {80, 1}, {83, 1}, {84, 0}, {85, 0}, {86, 0}, {87, 2},
    {88, 0}, {89, 1}, {90, 1}, {91, 1}, {100, 0}, {101, 0},        // the host's memory, managed memory
    {92, 0}, {93, 0}, {94, 0}, {122, 1}, {123, 1},                 // words in streams: older and newer forms
    {95, 1}, {96, 0}, {98, 1}, {99, 1}, {113, 1},
    {110, 1}, {115, 1}, {116, 1}, {119, 1},                        // pools, GPUDirect RDMA
    {124, 0}, {132, 0}, {134, 0},                                  // DMA buffers, multicast, NUMA node
};
// clang-format on

std::optional<int> attribute(const machine::Gpu& gpu, int which) {
  const auto from_environment = [](const char* name) -> std::optional<int> {
    if (!variable(name)) return {};
    return static_cast<int>(number(name, 0));
  };
  switch (which) {
    case 16:
      return gpu.multiprocessors;
    case 33:
      return static_cast<int>(gpu.bus_id.bus);
    case 34:
      return static_cast<int>(gpu.bus_id.device);
    case 50:
      return static_cast<int>(gpu.bus_id.domain);
    case 75:
      return gpu.capability / 10;
    case 76:
      return gpu.capability % 10;
    case 102:  // virtual memory, and its files
    case 103:
      return from_environment("VIRTUAL_GPU_VIRTUAL_MEMORY");
    case 117:  // how what the network has written becomes visible: when told to, or in its order
      return variable("VIRTUAL_GPU_NETWORK") != "never";
    case 118:
      return variable("VIRTUAL_GPU_NETWORK") ? 0 : 200;
    case 125:
      return variable("VIRTUAL_GPU_NO_IPC") != "attribute";
    case 133:
      return from_environment("VIRTUAL_GPU_MPS");
  }
  const auto* const found = std::ranges::find(kAttributes, which, &Attribute::which);
  return found == std::end(kAttributes) ? std::nullopt : std::optional(found->value);
}

/// Of a device, with an existing place for the answer.
template <class Body>
Result of_device(const char* function, const void* out, Ordinal device, Body&& body) {
  return enter(function, kNothing, [&](Call& call) -> Result {
    if (out == nullptr) return kInvalidValue;
    if (!call.driver.is_device(device)) return kInvalidDevice;
    return body((*call.driver.gpus)[device]);
  });
}

}  // namespace

EXPORT int cuInit(unsigned flags) {
  Driver& d = driver();
  if (flags != 0) return kInvalidValue;
  if (d.process != 0 && d.process != ::getpid()) return kNotInitialized;  // a child of fork
  const std::lock_guard lock(d.mutex);
  if (const Result failure = d.fails("cuInit"); failure != kSuccess) return failure;
  if (d.process != 0) return kSuccess;
  try {
    d.gpus.emplace();
    d.multiprocessors.clear();
    for (Ordinal device = 0; device < d.count(); ++device)
      d.multiprocessors.push_back(std::make_unique<Multiprocessors>(
          (*d.gpus)[device].multiprocessors, d.gpus->residents(device), number("VIRTUAL_GPU_MPS", 0) != 0));
  } catch (const machine::Error& error) {
    std::fprintf(stderr, "virtual GPU: %s\n", error.what());
    return kNoDevice;
  }
  if (d.gpus->size() == 0) return kNoDevice;
  d.primary.resize(d.gpus->size());
  d.used.resize(d.gpus->size());
  if (number("VIRTUAL_GPU_NO_PIDFD", 0) != 0) refuse_pidfd_getfd();
  d.process = ::getpid();
  std::atexit([] {
    if (driver().process == ::getpid()) driver().gpus->leave();
  });
  return kSuccess;
}
EXPORT int cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = static_cast<int>(number("VIRTUAL_GPU_DRIVER_VERSION", 13000));
  return kSuccess;
}

EXPORT int cuDeviceGetCount(int* count) {
  return enter("cuDeviceGetCount", kNothing, [&](Call& call) -> Result {
    if (count == nullptr) return kInvalidValue;
    *count = call.driver.count();
    return kSuccess;
  });
}
EXPORT int cuDeviceGet(Ordinal* out, int ordinal) {
  return of_device("cuDeviceGet", out, ordinal, [&](const machine::Gpu&) -> Result {
    *out = ordinal;
    return kSuccess;
  });
}
EXPORT int cuDeviceGetName(char* name, int bytes, Ordinal device) {
  return of_device("cuDeviceGetName", name, device, [&](const machine::Gpu& gpu) -> Result {
    std::snprintf(name, static_cast<std::size_t>(bytes), "%s", gpu.name.c_str());
    return kSuccess;
  });
}
EXPORT int cuDeviceGetUuid_v2(std::byte* out, Ordinal device) {
  return of_device("cuDeviceGetUuid", out, device, [&](const machine::Gpu& gpu) -> Result {
    std::memcpy(out, gpu.uuid.data(), gpu.uuid.size());
    return kSuccess;
  });
}
EXPORT int cuDeviceGetUuid(std::byte* out, Ordinal device) {
  return cuDeviceGetUuid_v2(out, device);
}
EXPORT int cuDeviceTotalMem_v2(std::size_t* out, Ordinal device) {
  return of_device("cuDeviceTotalMem", out, device, [&](const machine::Gpu& gpu) -> Result {
    *out = gpu.memory_bytes;
    return kSuccess;
  });
}
EXPORT int cuDeviceGetAttribute(int* out, int which, Ordinal device) {
  return of_device("cuDeviceGetAttribute", out, device, [&](const machine::Gpu& gpu) -> Result {
    const std::optional<int> value = attribute(gpu, which);
    if (!value) return kInvalidValue;  // the driver does not know it
    *out = *value;
    return kSuccess;
  });
}
EXPORT int cuDeviceGetPCIBusId(char* out, int bytes, Ordinal device) {
  return of_device("cuDeviceGetPCIBusId", out, device, [&](const machine::Gpu& gpu) -> Result {
    const std::string id =
        loom::format("{:04X}:{:02X}:{:02X}.0", gpu.bus_id.domain, gpu.bus_id.bus, gpu.bus_id.device);
    if (bytes <= static_cast<int>(id.size())) return kInvalidValue;
    std::strcpy(out, id.c_str());
    return kSuccess;
  });
}
EXPORT int cuDeviceGetByPCIBusId(Ordinal* out, const char* id) {
  return enter("cuDeviceGetByPCIBusId", kNothing, [&](Call& call) -> Result {
    if (out == nullptr || id == nullptr) return kInvalidValue;
    const auto wanted = machine::BusId::parse(id);
    if (!wanted) return kInvalidValue;
    for (*out = 0; *out < call.driver.count(); ++*out)
      if ((*call.driver.gpus)[*out].bus_id == *wanted) return kSuccess;
    return kInvalidDevice;
  });
}
