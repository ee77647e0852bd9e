// memory.cpp -- memory of devices and page-locked memory of the host; whose an address is.
#include "tests/virtual_gpu/driver/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

using namespace virtual_gpu;

namespace virtual_gpu {
namespace {

/// What new memory holds, as far as this, and what freed memory holds.
constexpr int kNewMemory = 0xa5, kFreedMemory = 0xdb;
constexpr std::size_t kMostFilled = std::size_t{16} << 20;

/// Addresses that were freed last come first, unless the program has taken them.
void* map_for_program(Driver& d, const MemoryFile& file, bool cpu_may) {
  const int access = cpu_may ? PROT_READ | PROT_WRITE : PROT_NONE;
  std::vector<Address>& freed = d.freed[file.mapped_bytes()];
  while (!freed.empty()) {
    void* const hint = pointer(freed.back());
    freed.pop_back();
    void* const at =
        ::mmap(hint, file.mapped_bytes(), access, MAP_SHARED | MAP_FIXED_NOREPLACE, file.file(), 0);
    if (at == hint) return at;
    if (at != MAP_FAILED) ::munmap(at, file.mapped_bytes());  // Linux before 4.17
  }
  return ::mmap(nullptr, file.mapped_bytes(), access, MAP_SHARED, file.file(), 0);
}

}  // namespace

Result add_allocation(Driver& d, std::shared_ptr<MemoryFile> file, Kind kind, Context* context,
                      Ordinal device, AllocationPtr& out) {
  const bool cpu_may = kind == Kind::kManaged || kind == Kind::kHost;
  void* const at = map_for_program(d, *file, cpu_may);
  if (at == MAP_FAILED) return kOutOfMemory;
  out.reset(new Allocation{.begin = address_of(at) + file->first(),
                           .bytes = file->bytes(),
                           .kind = kind,
                           .context = context,
                           .device = device,
                           .id = ++d.last_id,
                           .file = file});
  d.memory.add(out);
  ++d.counts.allocations;
  if (kind == Kind::kPeer) ++d.counts.peers;
  return kSuccess;
}

/// Whoever else has it mapped finds it poisoned.
void Driver::release(const AllocationPtr& allocation) {
  memory.remove(allocation->begin);
  if (allocation->kind == Kind::kRegistered) {
    counts.registered -= allocation->bytes;
    return;
  }
  --counts.allocations;
  if (allocation->kind == Kind::kPeer) --counts.peers;
  const MemoryFile& file = *allocation->file;
  if (allocation->kind != Kind::kVirtual) {
    ::munmap(pointer(allocation->begin - file.first()), file.mapped_bytes());
    freed[file.mapped_bytes()].push_back(allocation->begin - file.first());
  }
  if (allocation->exported) {
    file.shared().freed.store(1, std::memory_order_release);
    std::memset(file.data(), kFreedMemory, file.bytes());
  }
  const bool counted = allocation->kind == Kind::kDevice || allocation->kind == Kind::kManaged ||
                       allocation->kind == Kind::kPool;
  if (counted) used[static_cast<std::size_t>(allocation->device)] -= allocation->bytes;
}

}  // namespace virtual_gpu

namespace {

/// Small memory is aligned to 256 bytes and no more, as on a GPU; whole pages begin where a page does.
Result allocate(Call& call, Address* out, std::size_t bytes, Kind kind, unsigned flags = 0) {
  Driver& d = call.driver;
  if (out == nullptr || bytes == 0) return kInvalidValue;
  const auto device = static_cast<std::size_t>(call.context->device);
  const bool of_gpu = kind != Kind::kHost;
  if (of_gpu && bytes > (*d.gpus)[call.context->device].memory_bytes - d.used[device]) return kOutOfMemory;
  const bool notes_written = of_gpu && number("VIRTUAL_GPU_WRITTEN", 0) != 0;
  std::shared_ptr<MemoryFile> file = MemoryFile::create(bytes, bytes % kPage == 0 ? 0 : 256,
                                                        (*d.gpus)[call.context->device].uuid, notes_written);
  if (file == nullptr) return kOutOfMemory;
  std::memset(file->data(), kNewMemory, std::min(bytes, kMostFilled));
  AllocationPtr allocation;
  Context* const owner = kind == Kind::kPool ? nullptr : call.context;
  if (const Result result = add_allocation(d, file, kind, owner, call.context->device, allocation);
      result != kSuccess)
    return result;
  allocation->flags = flags;
  if (of_gpu) d.used[device] += bytes;
  *out = allocation->begin;
  return kSuccess;
}

/// Frees once nothing is on its way in the context. Another thread may have been faster.
Result free_after_all(Call& call, const AllocationPtr& allocation) {
  if (allocation == nullptr) return say(kInvalidValue, "memory is freed that is not there");
  const Result result = call.wait_for_all(*call.context);
  if (call.driver.memory.at(allocation->begin) == allocation) call.driver.release(allocation);
  return result;
}

/// How an attribute is where CUDA does not know the address: zeros, mostly.
Result attribute(const Allocation* in, int which, Address address, void* out) {
  const auto set = [out](auto value) {
    std::memcpy(out, &value, sizeof(value));
    return kSuccess;
  };
  const bool on_host = in != nullptr && in->on_host();
  switch (which) {
    case 1:
      return set(in == nullptr ? nullptr : in->context);
    case 2:
      return set(in == nullptr ? 0U : on_host ? kHostMemory : kDeviceMemory);
    case 3:
      return set(in == nullptr ? Address{0} : address);
    case 4:
      return set(in == nullptr || !in->cpu_may() ? Address{0} : address);
    case 6:
      return set(false);
    case 7:
      return set(in == nullptr ? std::uint64_t{0} : in->id);
    case 8:
      return set(in != nullptr && in->kind == Kind::kManaged);  // a byte or four: be ready for both
    case 9:
      return set(in == nullptr ? -2 : in->device);
    case 10:
      return set(in != nullptr && in->kind == Kind::kDevice);
    case 11:
      return set(in == nullptr ? Address{0} : in->begin);
    case 12:
      return set(in == nullptr ? std::size_t{0} : in->bytes);
    case 13:
      return set(in != nullptr);
    case 14:
      return set(in != nullptr && in->kind == Kind::kVirtual ? std::uint64_t{1} : std::uint64_t{0});
    case 15:
      return set(in != nullptr && !on_host);
    default:
      return kInvalidValue;
  }
}

}  // namespace

EXPORT int cuMemAlloc_v2(Address* out, std::size_t bytes) {
  return enter("cuMemAlloc", kInContext | kUnsafe,
               [&](Call& call) { return allocate(call, out, bytes, Kind::kDevice); });
}
EXPORT int cuMemAllocManaged(Address* out, std::size_t bytes, unsigned flags) {
  return enter("cuMemAllocManaged", kInContext | kUnsafe, [&](Call& call) {
    return flags == 1 || flags == 2 ? allocate(call, out, bytes, Kind::kManaged) : kInvalidValue;
  });
}
/// Of the device's pool. The memory is there at once; the program may use it only after this in the stream.
EXPORT int cuMemAllocAsync(Address* out, std::size_t bytes, void* handle) {
  return enter("cuMemAllocAsync", kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (stream->capture != nullptr) return kNotSupported;  // a limit of the virtual GPU
    if (const Result result = enqueue(call, *stream, {}); result != kSuccess) return result;
    return allocate(call, out, bytes, Kind::kPool);
  });
}
EXPORT int cuMemHostAlloc(void** out, std::size_t bytes, unsigned flags) {
  return enter("cuMemHostAlloc", kInContext | kUnsafe, [&](Call& call) -> Result {
    if (flags > 7) return kInvalidValue;
    Address address = 0;
    const Result result = allocate(call, &address, bytes, Kind::kHost, flags);
    if (result == kSuccess) *out = pointer(address);
    return result;
  });
}
EXPORT int cuMemAllocHost_v2(void** out, std::size_t bytes) {
  return cuMemHostAlloc(out, bytes, 0);
}
/// Waits for everything in the context, as drivers do. 0 is nothing to free.
EXPORT int cuMemFree_v2(Address address) {
  return enter("cuMemFree", kInContext | kUnsafe, [&](Call& call) -> Result {
    if (address == 0) return kSuccess;
    return free_after_all(call, find_begin(call.driver, address, Kind::kDevice, Kind::kManaged, Kind::kPool));
  });
}
EXPORT int cuMemFreeAsync(Address address, void* handle) {
  return enter("cuMemFreeAsync", kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr) return kInvalidHandle;
    const AllocationPtr allocation = find_begin(call.driver, address, Kind::kPool);
    if (allocation == nullptr || allocation->leaves) return say(kInvalidValue, "not memory of a pool");
    if (stream->capture != nullptr) return kNotSupported;
    allocation->leaves = true;
    return enqueue(call, *stream, [&d = call.driver, allocation](Work&) {
      const std::lock_guard lock(d.mutex);
      if (d.memory.at(allocation->begin) == allocation) d.release(allocation);
    });
  });
}
EXPORT int cuMemFreeHost(void* memory) {
  return enter("cuMemFreeHost", kInContext | kUnsafe, [&](Call& call) {
    return free_after_all(call, find_begin(call.driver, address_of(memory), Kind::kHost));
  });
}
/// Host memory has one address for all (unified addresses).
EXPORT int cuMemHostGetDevicePointer_v2(Address* out, void* memory, unsigned flags) {
  return enter("cuMemHostGetDevicePointer", kInContext, [&](Call& call) -> Result {
    const AllocationPtr in = call.driver.memory.holding(address_of(memory));
    const bool mapped = in != nullptr && (in->kind == Kind::kHost ||
                                          (in->kind == Kind::kRegistered && (in->flags & kDeviceMap) != 0));
    if (out == nullptr || flags != 0 || !mapped) return kInvalidValue;
    *out = address_of(memory);
    return kSuccess;
  });
}

EXPORT int cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned flags) {
  return enter("cuMemHostRegister", kInContext | kUnsafe, [&](Call& call) -> Result {
    Driver& d = call.driver;
    if (memory == nullptr || bytes == 0 || flags > 15) return kInvalidValue;
    if (d.memory.overlaps(address_of(memory), bytes)) return kAlreadyRegistered;
    d.memory.add(AllocationPtr(new Allocation{.begin = address_of(memory),
                                              .bytes = bytes,
                                              .kind = Kind::kRegistered,
                                              .context = call.context,
                                              .device = call.context->device,
                                              .id = ++d.last_id,
                                              .flags = flags}));
    d.counts.registered += bytes;
    d.counts.most_registered = std::max(d.counts.most_registered, d.counts.registered);
    return kSuccess;
  });
}
/// Waits until nothing uses it (inferred: pages cannot be unlocked under a copy).
EXPORT int cuMemHostUnregister(void* memory) {
  return enter("cuMemHostUnregister", kInContext | kUnsafe, [&](Call& call) -> Result {
    const AllocationPtr found = find_begin(call.driver, address_of(memory), Kind::kRegistered);
    return found == nullptr ? kNotRegistered : free_after_all(call, found);
  });
}

/// Needs no context.
EXPORT int cuPointerGetAttributes(unsigned count, const int* which, void** out, Address address) {
  return enter("cuPointerGetAttributes", kNothing, [&](Call& call) -> Result {
    ++call.driver.counts.looks;
    const AllocationPtr in = call.driver.memory.holding(address);
    for (unsigned i = 0; i < count; ++i)
      if (const Result result = attribute(in.get(), which[i], address, out[i]); result != kSuccess)
        return result;
    return kSuccess;
  });
}
EXPORT int cuPointerGetAttribute(void* out, int which, Address address) {
  return enter("cuPointerGetAttribute", kNothing, [&](Call& call) -> Result {
    ++call.driver.counts.looks;
    const AllocationPtr in = call.driver.memory.holding(address);
    if (in == nullptr || (which == 4 && !in->cpu_may())) return kInvalidValue;
    return attribute(in.get(), which, address, out);
  });
}
EXPORT int cuMemGetAddressRange_v2(Address* begin, std::size_t* bytes, Address address) {
  return enter("cuMemGetAddressRange", kInContext, [&](Call& call) -> Result {
    const AllocationPtr in = call.driver.memory.holding(address);
    if (in == nullptr) return kNotFound;
    if (begin != nullptr) *begin = in->begin;
    if (bytes != nullptr) *bytes = in->bytes;
    return kSuccess;
  });
}
EXPORT int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return enter("cuMemGetInfo", kInContext, [&](Call& call) -> Result {
    const auto device = static_cast<std::size_t>(call.context->device);
    *total = (*call.driver.gpus)[call.context->device].memory_bytes;
    *free = *total - call.driver.used[device];
    return kSuccess;
  });
}
