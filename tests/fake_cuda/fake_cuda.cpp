#include "tests/fake_cuda/fake_cuda.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int kInvalidValue = 1, kNoMemory = 2, kNotInitialized = 3, kInvalidContext = 201,
              kInvalidHandle = 400, kAlreadyRegistered = 712, kNotRegistered = 713;

struct Context {
  int device;
  int retained = 0;
};

enum class Kind { kDevice, kManaged, kPool, kHost };
struct Allocation {
  std::byte* at;
  std::byte* alias;  // where the CPU may
  std::size_t bytes;
  Kind kind;
  Context* context;
};

struct Driver {
  std::mutex mutex;
  bool initialised = false;
  Context* primary[2] = {nullptr, nullptr};
  std::set<Context*> alive;
  std::vector<Context*> ended;                   // never freed, so that no other gets such an address
  std::map<std::byte*, Allocation> allocations;  // by address
  std::map<std::byte*, std::pair<std::size_t, Context*>> registered;
  std::vector<std::function<void()>> stream;  // put off
  std::map<std::string, std::pair<int, int>> failures;
  FakeCudaCounts counts{};

  int fails(const char* function) {
    const auto found = failures.find(function);
    if (found == failures.end()) return 0;
    if (found->second.first > 0) {
      --found->second.first;
      return 0;
    }
    return found->second.second;
  }
  Allocation* holding(const void* address, std::size_t bytes = 1) {
    auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
    auto next = allocations.upper_bound(at);
    if (next == allocations.begin()) return nullptr;
    Allocation& found = std::prev(next)->second;
    return at + bytes <= found.at + found.bytes ? &found : nullptr;
  }
  /// Where the CPU may reach what is at an address; nullptr: beyond the end of an allocation.
  std::byte* reach(void* address, std::size_t bytes) {
    if (Allocation* in = holding(address, bytes))
      return in->alias + (static_cast<std::byte*>(address) - in->at);
    return holding(address) != nullptr ? nullptr : static_cast<std::byte*>(address);
  }
  void run() {
    for (const auto& work : std::exchange(stream, {})) work();
  }
  void unmap(const Allocation& allocation) {
    ::munmap(allocation.at, allocation.bytes);
    if (allocation.alias != allocation.at) ::munmap(allocation.alias, allocation.bytes);
    --counts.allocations;
  }
};

Driver& driver() {
  static auto* const the_driver = new Driver;
  return *the_driver;
}
thread_local std::vector<Context*> current;

Context* current_context() {
  return current.empty() ? nullptr : current.back();
}

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);
}

#define LOCK(function)                        \
  Driver& d = driver();                       \
  const std::lock_guard lock(d.mutex);        \
  if (!d.initialised) return kNotInitialized; \
  if (const int failure = d.fails(function)) return failure

/// Rows from one place to another, in the default stream.
int enqueue(Driver& d, void* to, const void* from, std::size_t width, std::size_t rows, std::size_t to_pitch,
            std::size_t from_pitch) {
  Context* const context = current_context();
  if (context == nullptr || !d.alive.contains(context)) return kInvalidContext;
  for (std::size_t row = 0; row < rows; ++row) {
    auto* const to_row = static_cast<std::byte*>(to) + row * to_pitch;
    auto* const from_row = static_cast<std::byte*>(const_cast<void*>(from)) + row * from_pitch;
    std::byte *const target = d.reach(to_row, width), *const source = d.reach(from_row, width);
    if (target == nullptr || source == nullptr) return kInvalidValue;
    d.stream.push_back([=] { std::memmove(target, source, width); });
    for (const void* end : {static_cast<const void*>(to_row), static_cast<const void*>(from_row)})
      if (const Allocation* in = d.holding(end))
        d.counts.foreign_context += in->context->device != context->device;
  }
  ++d.counts.copies;
  d.counts.bytes += width * rows;
  return 0;
}

int allocate(std::uint64_t* out, std::size_t bytes, Kind kind) {
  Driver& d = driver();
  Context* const context = current_context();
  if (context == nullptr) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  bytes = (bytes + 4095) / 4096 * 4096;
  const int file = ::memfd_create("fake_cuda", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return kNoMemory;
  const int access = kind == Kind::kManaged || kind == Kind::kHost ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* const at = ::mmap(nullptr, bytes, access, MAP_SHARED, file, 0);
  void* const alias = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED || alias == MAP_FAILED) return kNoMemory;
  auto* const address = static_cast<std::byte*>(at);
  d.allocations[address] = {address, static_cast<std::byte*>(alias), bytes, kind, context};
  ++d.counts.allocations;
  *out = reinterpret_cast<std::uint64_t>(at);
  return 0;
}

struct Copy2D {
  std::size_t src_x, src_y;
  unsigned src_type;
  const void* src_host;
  std::uint64_t src_device;
  void* src_array;
  std::size_t src_pitch;
  std::size_t dst_x, dst_y;
  unsigned dst_type;
  void* dst_host;
  std::uint64_t dst_device;
  void* dst_array;
  std::size_t dst_pitch, width, height;
};

constexpr unsigned kHostType = 1, kUnifiedType = 4;

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

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
  d.run();
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
  if (found == d.allocations.end()) return kInvalidValue;
  d.run();
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
        *static_cast<int*>(values[i]) = in == nullptr ? -2 : in->context->device;
        break;
      default:
        return kInvalidValue;
    }
  }
  return 0;
}

EXPORT int cuMemcpyAsync(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
  LOCK("cuMemcpyAsync");
  if (reinterpret_cast<std::uintptr_t>(stream) > 1) return kInvalidHandle;
  return enqueue(d, pointer(to), pointer(from), bytes, 1, 0, 0);
}
EXPORT int cuMemcpy2DAsync_v2(const Copy2D* copy, void* stream) {
  LOCK("cuMemcpy2DAsync");
  if (reinterpret_cast<std::uintptr_t>(stream) > 1) return kInvalidHandle;
  if (copy->width > copy->src_pitch || copy->width > copy->dst_pitch || copy->src_x + copy->src_y != 0 ||
      copy->dst_x + copy->dst_y != 0)
    return kInvalidValue;
  const void* const from = copy->src_type == kHostType ? copy->src_host : pointer(copy->src_device);
  void* const to = copy->dst_type == kHostType ? copy->dst_host : pointer(copy->dst_device);
  if (std::max(copy->src_type, copy->dst_type) > kUnifiedType) return kInvalidValue;
  return enqueue(d, to, from, copy->width, copy->height, copy->dst_pitch, copy->src_pitch);
}
EXPORT int cuStreamSynchronize(void* stream) {
  LOCK("cuStreamSynchronize");
  if (reinterpret_cast<std::uintptr_t>(stream) > 1) return kInvalidHandle;
  ++d.counts.synchronisations;
  d.run();
  return 0;
}

/// The test's own copies: at once, after what is in the stream, and not counted.
static int copy_now(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  LOCK("a copy of the test");
  d.run();
  std::byte *const target = d.reach(pointer(to), bytes), *const source = d.reach(pointer(from), bytes);
  if (target == nullptr || source == nullptr) return kInvalidValue;
  std::memcpy(target, source, bytes);
  return 0;
}
EXPORT int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
  return copy_now(to, reinterpret_cast<std::uint64_t>(from), bytes);
}
EXPORT int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
  return copy_now(reinterpret_cast<std::uint64_t>(to), from, bytes);
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
EXPORT void fake_cuda_fill(void* device, int value, std::size_t bytes) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  std::byte* const target = d.reach(device, bytes);
  d.stream.push_back([=] { std::memset(target, value, bytes); });
}
