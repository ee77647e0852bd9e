// memory.cpp -- memory of the fake's devices, and of other processes; whose an address is.
#include <fcntl.h>

#include <algorithm>
#include <string>

#include "tests/fake_cuda/fake_driver.hpp"

using namespace fake_cuda;

namespace {

/// Maps a file twice, and closes it when that fails.
int add(Driver& d, std::uint64_t* out, int file, std::size_t bytes, Kind kind) {
  const int access = kind == Kind::kManaged || kind == Kind::kHost ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* const at = ::mmap(nullptr, bytes, access, MAP_SHARED, file, 0);
  void* const alias = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED || alias == MAP_FAILED) {
    ::close(file);
    return kNoMemory;
  }
  auto* const address = static_cast<std::byte*>(at);
  d.allocations[address] = {address,           static_cast<std::byte*>(alias), bytes, kind,
                            current_context(), current_context()->device,      file};
  ++d.counts.allocations;
  *out = reinterpret_cast<std::uint64_t>(at);
  return 0;
}

int allocate(std::uint64_t* out, std::size_t bytes, Kind kind) {
  if (current_context() == nullptr) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  bytes = (bytes + 4095) / 4096 * 4096;
  const int file = ::memfd_create("fake_cuda", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return kNoMemory;
  return add(driver(), out, file, bytes, kind);
}

/// What a CUipcMemHandle of the fake says; which passes by value.
struct IpcHandle {
  std::int64_t pid;
  int file;
  std::size_t bytes;
  std::byte rest[64 - 24];
};
static_assert(sizeof(IpcHandle) == 64);

}  // namespace

EXPORT int cuMemAlloc_v2(std::uint64_t* out, std::size_t bytes) {
  LOCK("cuMemAlloc");
  return allocate(out, bytes, Kind::kDevice);
}
EXPORT int cuMemAllocManaged(std::uint64_t* out, std::size_t bytes, unsigned) {
  LOCK("cuMemAllocManaged");
  return allocate(out, bytes, Kind::kManaged);
}
EXPORT int cuMemAllocAsync(std::uint64_t* out, std::size_t bytes, void*) {
  LOCK("cuMemAllocAsync");
  return allocate(out, bytes, Kind::kPool);
}
EXPORT int cuMemHostAlloc(void** out, std::size_t bytes, unsigned) {
  LOCK("cuMemHostAlloc");
  std::uint64_t address;
  const int error = allocate(&address, bytes, Kind::kHost);
  if (error == 0) *out = pointer(address);
  return error;
}
EXPORT int cuMemFree_v2(std::uint64_t address) {
  LOCK("cuMemFree");
  const auto found = d.allocations.find(static_cast<std::byte*>(pointer(address)));
  if (found == d.allocations.end() || found->second.kind == Kind::kVirtual) return kInvalidValue;
  d.run_all();
  d.unmap(found->second);
  d.allocations.erase(found);
  return 0;
}
EXPORT int cuMemFreeHost(void* address) {
  return cuMemFree_v2(reinterpret_cast<std::uint64_t>(address));
}

EXPORT int cuPointerGetAttributes(unsigned number, const int* attributes, void** values,
                                  std::uint64_t address) {
  LOCK("cuPointerGetAttributes");
  ++d.counts.looks;
  const Allocation* const in = d.holding(pointer(address));
  for (unsigned i = 0; i < number; ++i) {
    switch (attributes[i]) {
      case 1:
        *static_cast<void**>(values[i]) = in == nullptr || in->kind == Kind::kPool ? nullptr : in->context;
        break;
      case 2:
        *static_cast<unsigned*>(values[i]) = in == nullptr ? 0U : in->kind == Kind::kHost ? 1U : 2U;
        break;
      case 8:  // one byte or four? Callers must be ready for either.
        *static_cast<bool*>(values[i]) = in != nullptr && in->kind == Kind::kManaged;
        break;
      case 9:
        *static_cast<int*>(values[i]) = in == nullptr ? -2 : in->device;
        break;
      default:
        return kInvalidValue;
    }
  }
  return 0;
}

EXPORT int cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  LOCK("cuMemHostRegister");
  if (current_context() == nullptr) return kInvalidContext;
  auto* const at = static_cast<std::byte*>(memory);
  if (!d.registered.emplace(at, std::pair(bytes, current_context())).second) return kAlreadyRegistered;
  d.counts.registered += bytes;
  d.counts.most_registered = std::max(d.counts.most_registered, d.counts.registered);
  return 0;
}
EXPORT int cuMemHostUnregister(void* memory) {
  LOCK("cuMemHostUnregister");
  const auto found = d.registered.find(static_cast<std::byte*>(memory));
  if (found == d.registered.end()) return kNotRegistered;
  if (current_context() == nullptr) return kInvalidContext;
  d.counts.registered -= found->second.first;
  d.registered.erase(found);
  return 0;
}

EXPORT int cuIpcGetMemHandle(IpcHandle* handle, std::uint64_t address) {
  LOCK("cuIpcGetMemHandle");
  if (no_ipc("get")) return kNotSupported;
  const Allocation* const in = d.holding(pointer(address));
  if (in == nullptr || in->kind != Kind::kDevice) return kInvalidValue;
  *handle = {::getpid(), in->file, in->bytes, {}};
  return 0;
}
EXPORT int cuIpcOpenMemHandle_v2(std::uint64_t* out, IpcHandle handle, unsigned) {
  LOCK("cuIpcOpenMemHandle");
  if (no_ipc("open")) return kNotSupported;
  if (current_context() == nullptr || handle.pid == ::getpid()) return kInvalidContext;
  const std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return kInvalidHandle;
  return add(d, out, file, handle.bytes, Kind::kPeer);
}
EXPORT int cuIpcCloseMemHandle(std::uint64_t address) {
  LOCK("cuIpcCloseMemHandle");
  const auto found = d.allocations.find(static_cast<std::byte*>(pointer(address)));
  if (found == d.allocations.end() || found->second.kind != Kind::kPeer) return kInvalidValue;
  d.run_all();
  d.unmap(found->second);
  d.allocations.erase(found);
  return 0;
}
