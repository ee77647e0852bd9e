// virtual_memory.cpp -- virtual memory management of the fake: allocations, addresses and the mapping of one
// at the other are three things, and a mapping outlives the handle of what it maps. Strict about what CUDA's
// documentation asks for.
#include <fcntl.h>
#include <sys/stat.h>

#include <iterator>

#include "device/cuda/driver_interface.hpp"
#include "tests/fake_cuda/fake_driver.hpp"

using namespace fake_cuda;
using namespace loom::device::cuda;

namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20;  // as GPUs have it

bool is_right(const MemoryLocation& location) {
  return location.type == kDeviceLocation && (location.id == 0 || location.id == 1);
}
bool is_right(const AllocationProperties& properties) {
  return properties.type == kPinnedAllocation && properties.handle_types == kFileDescriptorHandle &&
         is_right(properties.location) && properties.of_windows == nullptr;
}
/// A handle for a file, which it closes.
int add(fake_cuda::Driver& d, AllocationHandle* out, int file, std::size_t bytes, int device) {
  *out = ++d.last_handle;
  d.handles[*out] = {file, bytes, device};
  ++d.counts.handles;
  return 0;
}
int duplicate(int file) {
  return ::fcntl(file, F_DUPFD_CLOEXEC, 0);
}
/// The mapping of exactly these addresses.
auto mapping_of(fake_cuda::Driver& d, std::uint64_t address, std::size_t bytes) {
  const auto found = d.allocations.find(static_cast<std::byte*>(pointer(address)));
  const bool right =
      found != d.allocations.end() && found->second.kind == Kind::kVirtual && found->second.bytes == bytes;
  return right ? found : d.allocations.end();
}

}  // namespace

EXPORT int cuMemGetAllocationGranularity(std::size_t* unit, const AllocationProperties* properties,
                                         int which) {
  LOCK("cuMemGetAllocationGranularity");
  if (!is_right(*properties) || which != kMinimumGranularity) return kInvalidValue;
  *unit = kUnit;
  return 0;
}

EXPORT int cuMemCreate(AllocationHandle* out, std::size_t bytes, const AllocationProperties* properties,
                       unsigned long long flags) {
  LOCK("cuMemCreate");
  if (!is_right(*properties) || bytes == 0 || bytes % kUnit != 0 || flags != 0) return kInvalidValue;
  const int file = ::memfd_create("fake_cuda_virtual", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return kNoMemory;
  return add(d, out, file, bytes, properties->location.id);
}
EXPORT int cuMemRelease(AllocationHandle handle) {
  LOCK("cuMemRelease");
  const auto found = d.handles.find(handle);
  if (found == d.handles.end()) return kInvalidValue;
  ::close(found->second.file);
  d.handles.erase(found);
  --d.counts.handles;
  return 0;
}

EXPORT int cuMemExportToShareableHandle(void* out, AllocationHandle handle, int type,
                                        unsigned long long flags) {
  LOCK("cuMemExportToShareableHandle");
  const auto found = d.handles.find(handle);
  if (found == d.handles.end() || type != kFileDescriptorHandle || flags != 0) return kInvalidValue;
  *static_cast<int*>(out) = ::fcntl(found->second.file, F_DUPFD, 0);
  return 0;
}
/// The descriptor stays the caller's.
EXPORT int cuMemImportFromShareableHandle(AllocationHandle* out, void* from, int type) {
  LOCK("cuMemImportFromShareableHandle");
  const int file = duplicate(static_cast<int>(reinterpret_cast<std::intptr_t>(from)));
  struct stat status {};
  if (type != kFileDescriptorHandle || file < 0 || ::fstat(file, &status) != 0) return kInvalidValue;
  return add(d, out, file, static_cast<std::size_t>(status.st_size), 0);
}

EXPORT int cuMemAddressReserve(std::uint64_t* out, std::size_t bytes, std::size_t, std::uint64_t,
                               unsigned long long flags) {
  LOCK("cuMemAddressReserve");
  if (bytes == 0 || bytes % kUnit != 0 || flags != 0) return kInvalidValue;
  void* const at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return kNoMemory;
  d.reserved[static_cast<std::byte*>(at)] = bytes;
  ++d.counts.reservations;
  *out = reinterpret_cast<std::uint64_t>(at);
  return 0;
}
EXPORT int cuMemAddressFree(std::uint64_t address, std::size_t bytes) {
  LOCK("cuMemAddressFree");
  const auto found = d.reserved.find(static_cast<std::byte*>(pointer(address)));
  if (found == d.reserved.end() || found->second != bytes || d.holding(found->first) != nullptr)
    return kInvalidValue;
  ::munmap(found->first, bytes);
  d.reserved.erase(found);
  --d.counts.reservations;
  return 0;
}

EXPORT int cuMemMap(std::uint64_t address, std::size_t bytes, std::size_t offset, AllocationHandle handle,
                    unsigned long long flags) {
  LOCK("cuMemMap");
  const auto reserved = d.reserved.find(static_cast<std::byte*>(pointer(address)));
  const auto what = d.handles.find(handle);
  if (reserved == d.reserved.end() || reserved->second != bytes || what == d.handles.end() ||
      what->second.bytes != bytes || offset != 0 || flags != 0 || d.holding(reserved->first) != nullptr)
    return kInvalidValue;
  const int file = duplicate(what->second.file);
  void* const alias = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (alias == MAP_FAILED) {
    ::close(file);
    return kNoMemory;
  }
  d.allocations[reserved->first] = {.at = reserved->first,
                                    .alias = static_cast<std::byte*>(alias),
                                    .bytes = bytes,
                                    .kind = Kind::kVirtual,
                                    .context = nullptr,
                                    .device = what->second.device,
                                    .file = file,
                                    .accessible = false};
  ++d.counts.allocations;
  return 0;
}
EXPORT int cuMemSetAccess(std::uint64_t address, std::size_t bytes, const AccessDescription* access,
                          std::size_t count) {
  LOCK("cuMemSetAccess");
  const auto found = mapping_of(d, address, bytes);
  if (found == d.allocations.end() || count != 1 || !is_right(access->location) ||
      access->flags != kReadAndWrite)
    return kInvalidValue;
  found->second.accessible = true;
  return 0;
}
/// What is in a stream may not use it any more.
EXPORT int cuMemUnmap(std::uint64_t address, std::size_t bytes) {
  LOCK("cuMemUnmap");
  const auto found = mapping_of(d, address, bytes);
  if (found == d.allocations.end() || !d.is_idle()) return kInvalidValue;
  d.unmap(found->second);
  d.allocations.erase(found);
  return 0;
}
