// virtual_memory.cpp -- virtual memory management: physical memory, addresses and the mapping of one at the
// other are three things, and a mapping outlives the handle of what it maps.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "tests/virtual_gpu/driver/memory.hpp"

using namespace virtual_gpu;

namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20;  // as GPUs have it
constexpr int kPinned = 1, kFile = 1, kOfDevice = 1;

bool is_offered() {
  return number("VIRTUAL_GPU_VIRTUAL_MEMORY", 0) != 0;
}

bool is_right(const Driver& d, const MemoryLocation& location) {
  return location.type == kOfDevice && d.is_device(location.id);
}
bool is_right(const Driver& d, const AllocationProperties* properties) {
  return properties != nullptr && properties->type == kPinned && (properties->handle_types & ~kFile) == 0 &&
         is_right(d, properties->location) && properties->of_windows == nullptr &&
         properties->flags.compression == 0;
}

Result add(Driver& d, std::uint64_t* out, std::shared_ptr<MemoryFile> file, Ordinal device) {
  *out = (std::uint64_t{1} << 40) + ++d.last_handle;
  d.handles[*out] = {std::move(file), device};
  ++d.counts.handles;
  return kSuccess;
}

/// The reservation that holds the whole range.
auto reservation_of(const Driver& d, Address address, std::size_t bytes) {
  auto found = d.reserved.upper_bound(address);
  if (found == d.reserved.begin()) return d.reserved.end();
  --found;
  return address + bytes <= found->first + found->second ? found : d.reserved.end();
}

/// Mappings that fill the range, without anything between or beyond. Empty: that is not so.
std::vector<AllocationPtr> mappings_of(const Driver& d, Address address, std::size_t bytes) {
  std::vector<AllocationPtr> result;
  for (Address at = address; at < address + bytes; at += result.back()->bytes) {
    const AllocationPtr next = d.memory.at(at);
    if (next == nullptr || next->kind != Kind::kVirtual || at + next->bytes > address + bytes) return {};
    result.push_back(next);
  }
  return result;
}

template <class Body>
Result of_virtual_memory(const char* function, Body&& body) {
  return enter(function, kNothing,
               [&](Call& call) -> Result { return is_offered() ? body(call.driver) : kNotSupported; });
}

}  // namespace

EXPORT int cuMemGetAllocationGranularity(std::size_t* unit, const AllocationProperties* properties,
                                         int which) {
  return of_virtual_memory("cuMemGetAllocationGranularity", [&](Driver& d) -> Result {
    if (unit == nullptr || !is_right(d, properties) || which < 0 || which > 1) return kInvalidValue;
    *unit = kUnit;
    return kSuccess;
  });
}

EXPORT int cuMemCreate(std::uint64_t* out, std::size_t bytes, const AllocationProperties* properties,
                       unsigned long long flags) {
  return of_virtual_memory("cuMemCreate", [&](Driver& d) -> Result {
    if (out == nullptr || !is_right(d, properties) || bytes == 0 || bytes % kUnit != 0 || flags != 0)
      return kInvalidValue;
    const Ordinal device = properties->location.id;
    std::shared_ptr<MemoryFile> file =
        MemoryFile::create(bytes, 0, (*d.gpus)[device].uuid, number("VIRTUAL_GPU_WRITTEN", 0) != 0);
    if (file == nullptr) return kOutOfMemory;
    file->shared().exportable = properties->handle_types == kFile;
    return add(d, out, std::move(file), device);
  });
}
EXPORT int cuMemRelease(std::uint64_t handle) {
  return of_virtual_memory("cuMemRelease", [&](Driver& d) -> Result {
    const auto found = d.handles.find(handle);
    if (found == d.handles.end()) return kInvalidValue;
    if (--found->second.references > 0) return kSuccess;
    d.handles.erase(found);
    --d.counts.handles;
    return kSuccess;
  });
}
/// A handle more has to be released for it.
EXPORT int cuMemRetainAllocationHandle(std::uint64_t* out, void* address) {
  return of_virtual_memory("cuMemRetainAllocationHandle", [&](Driver& d) -> Result {
    const AllocationPtr in = d.memory.holding(address_of(address));
    if (out == nullptr || in == nullptr || in->kind != Kind::kVirtual) return kInvalidValue;
    const auto found =
        std::ranges::find_if(d.handles, [&](const auto& each) { return each.second.file == in->file; });
    if (found == d.handles.end()) return add(d, out, in->file, in->device);
    ++found->second.references;
    *out = found->first;
    return kSuccess;
  });
}

EXPORT int cuMemExportToShareableHandle(void* out, std::uint64_t handle, int type, unsigned long long flags) {
  return of_virtual_memory("cuMemExportToShareableHandle", [&](Driver& d) -> Result {
    const auto found = d.handles.find(handle);
    if (out == nullptr || found == d.handles.end() || type != kFile || flags != 0 ||
        found->second.file->shared().exportable == 0)
      return kInvalidValue;
    const int file = ::fcntl(found->second.file->file(), F_DUPFD, 0);
    if (file < 0) return kOutOfMemory;
    *static_cast<int*>(out) = file;
    return kSuccess;
  });
}
/// The descriptor stays the caller's. That another file is an invalid value is inferred.
EXPORT int cuMemImportFromShareableHandle(std::uint64_t* out, void* from, int type) {
  return of_virtual_memory("cuMemImportFromShareableHandle", [&](Driver& d) -> Result {
    if (out == nullptr || type != kFile) return kInvalidValue;
    const int theirs = static_cast<int>(reinterpret_cast<std::intptr_t>(from));
    std::shared_ptr<MemoryFile> file = MemoryFile::open(::fcntl(theirs, F_DUPFD_CLOEXEC, 0));
    if (file == nullptr) return say(kInvalidValue, "the file that is imported is no memory of a GPU");
    const Ordinal device = d.gpus->ordinal_of(file->shared().gpu).value_or(0);
    return add(d, out, std::move(file), device);
  });
}

EXPORT int cuMemAddressReserve(Address* out, std::size_t bytes, std::size_t alignment, Address,
                               unsigned long long flags) {
  return of_virtual_memory("cuMemAddressReserve", [&](Driver& d) -> Result {
    if (out == nullptr || bytes == 0 || bytes % kUnit != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
      return kInvalidValue;
    alignment = std::max(alignment, kUnit);
    void* const at =
        ::mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return kOutOfMemory;
    const Address begin = address_of(at), aligned = (begin + alignment - 1) / alignment * alignment,
                  end = begin + bytes + alignment;
    if (aligned > begin) ::munmap(at, aligned - begin);
    if (end > aligned + bytes) ::munmap(pointer(aligned + bytes), end - aligned - bytes);
    d.reserved[*out = aligned] = bytes;
    ++d.counts.reservations;
    return kSuccess;
  });
}
EXPORT int cuMemAddressFree(Address address, std::size_t bytes) {
  return of_virtual_memory("cuMemAddressFree", [&](Driver& d) -> Result {
    const auto found = d.reserved.find(address);
    if (found == d.reserved.end() || found->second != bytes || d.memory.overlaps(address, bytes))
      return kInvalidValue;
    ::munmap(pointer(address), bytes);
    d.reserved.erase(found);
    --d.counts.reservations;
    return kSuccess;
  });
}

EXPORT int cuMemMap(Address address, std::size_t bytes, std::size_t offset, std::uint64_t handle,
                    unsigned long long flags) {
  return of_virtual_memory("cuMemMap", [&](Driver& d) -> Result {
    const auto what = d.handles.find(handle);
    if (what == d.handles.end() || what->second.file->bytes() != bytes || offset != 0 || flags != 0 ||
        address % kUnit != 0 || reservation_of(d, address, bytes) == d.reserved.end() ||
        d.memory.overlaps(address, bytes))
      return kInvalidValue;
    d.memory.add(AllocationPtr(new Allocation{.begin = address,
                                              .bytes = bytes,
                                              .kind = Kind::kVirtual,
                                              .context = nullptr,
                                              .device = what->second.device,
                                              .id = ++d.last_id,
                                              .file = what->second.file}));
    ++d.counts.allocations;
    return kSuccess;
  });
}
EXPORT int cuMemSetAccess(Address address, std::size_t bytes, const AccessDescription* access,
                          std::size_t count) {
  return of_virtual_memory("cuMemSetAccess", [&](Driver& d) -> Result {
    const auto mappings = mappings_of(d, address, bytes);
    if (mappings.empty() || access == nullptr || count == 0) return kInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      const int flags = access[i].flags;
      if (!is_right(d, access[i].location)) return kInvalidDevice;
      if (flags != 0 && flags != 1 && flags != 3) return kInvalidValue;
      for (const AllocationPtr& mapping : mappings) {
        const Ordinal from = access[i].location.id;
        if (flags != 0 && from != mapping->device && !d.gpus->can_access(from, mapping->device))
          return kInvalidDevice;
      }
    }
    for (std::size_t i = 0; i < count; ++i)
      for (const AllocationPtr& mapping : mappings) mapping->access[access[i].location.id] = access[i].flags;
    d.memory.touch();
    return kSuccess;
  });
}
EXPORT int cuMemGetAccess(unsigned long long* flags, const MemoryLocation* location, Address address) {
  return of_virtual_memory("cuMemGetAccess", [&](Driver& d) -> Result {
    const AllocationPtr in = d.memory.holding(address);
    if (flags == nullptr || location == nullptr || !is_right(d, *location) || in == nullptr ||
        in->kind != Kind::kVirtual)
      return kInvalidValue;
    const auto found = in->access.find(location->id);
    *flags = found == in->access.end() ? 0 : static_cast<unsigned long long>(found->second);
    return kSuccess;
  });
}
/// Waits for nothing. A driver unmaps under work that uses the memory; here that is an error of the caller.
EXPORT int cuMemUnmap(Address address, std::size_t bytes) {
  return of_virtual_memory("cuMemUnmap", [&](Driver& d) -> Result {
    const auto mappings = mappings_of(d, address, bytes);
    if (mappings.empty()) return kInvalidValue;
    for (const AllocationPtr& mapping : mappings)
      if (mapping->users != 0) return say(kInvalidValue, "memory is unmapped that copies on their way use");
    for (const AllocationPtr& mapping : mappings) d.release(mapping);
    return kSuccess;
  });
}
