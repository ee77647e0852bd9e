#include "tests/fake_cuda/fake_cuda.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda/kernel_args.hpp"
#include "device/reduce.hpp"

namespace {

constexpr int kInvalidValue = 1, kNoMemory = 2, kNotInitialized = 3, kInvalidContext = 201,
              kInvalidHandle = 400, kNotFound = 500, kNotReady = 600, kAlreadyRegistered = 712,
              kNotRegistered = 713;

struct Context {
  int device;
  int retained = 0;
};

enum class Kind { kDevice, kManaged, kPool, kHost, kPeer };  // the last: of another process
struct Allocation {
  std::byte* at;
  std::byte* alias;  // where the CPU may
  std::size_t bytes;
  Kind kind;
  Context* context;
  int file;
};

/// A kernel by its name, in place of its code: loom_reduce_<operation>_<type>, or loom_collective_...
struct Kernel {
  int operation, type;
  bool collective;
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
  std::map<int, Kernel> kernels;
  std::thread
      kernel;  ///< a collective, which is at work beside the program until it has met those of other ranks
  std::atomic<bool> kernel_runs{false};
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
    if (kernel.joinable()) kernel.join();
    for (const auto& work : std::exchange(stream, {})) work();
  }
  void unmap(const Allocation& allocation) {
    ::munmap(allocation.at, allocation.bytes);
    if (allocation.alias != allocation.at) ::munmap(allocation.alias, allocation.bytes);
    ::close(allocation.file);
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
  d.allocations[address] = {address, static_cast<std::byte*>(alias), bytes, kind, current_context(), file};
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

/// A reduction, done by the host's own table.
int enqueue_reduce(Driver& d, const Kernel& kernel, loom::device::cuda::ReduceArgs args) {
  using loom::device::Type;
  const auto type = static_cast<Type>(kernel.type);
  const loom::device::ReduceFn reduce =
      loom::device::find_reduce(static_cast<loom::device::Op>(kernel.operation), type);
  if (reduce == nullptr || args.operands < 2) return kInvalidValue;
  const std::size_t bytes = args.count * loom::device::size_of(type);
  std::byte* const out = d.reach(args.out, bytes);
  std::vector<const std::byte*> in;
  for (int i = 0; i < args.operands; ++i) in.push_back(d.reach(const_cast<void*>(args.in[i]), bytes));
  in.push_back(out);
  for (const std::byte* each : in)
    if (each == nullptr) return kInvalidValue;
  d.stream.push_back([=] {
    // `out` may be any of the operands: a GPU has read all of an element before it writes it.
    std::vector<std::byte> result(in[0], in[0] + bytes);
    for (int i = 1; i < args.operands; ++i)
      reduce(result.data(), result.data(), in[static_cast<std::size_t>(i)], args.count);
    std::memcpy(out, result.data(), bytes);
  });
  ++d.counts.kernels;
  return 0;
}

/// The step code of collectives, by a thread of the host and with the host's table of reductions: so five
/// types stand for all.
template <std::size_t kBytes>
struct alignas(kBytes) Element {
  std::byte bytes[kBytes];
};
thread_local loom::device::ReduceFn the_reduction;
struct Reduction {
  template <class T>
  T operator()(T a, T b) const {
    T result;
    the_reduction(result.bytes, a.bytes, b.bytes, 1);
    return result;
  }
};
struct OneThread {
  static constexpr int kLanes = 1;
  int index() const { return 0; }
  int size() const { return 1; }
  bool any(bool condition) { return condition; }
  bool all_lanes(bool condition) { return condition; }
  void pause() { std::this_thread::yield(); }
};

namespace steps = loom::device::steps;
using loom::device::Word;

/// Where the CPU may reach what the ends of a channel point to.
struct Reach {
  Driver& driver;
  template <class T>
  void translate(T*& at) const {
    if (at != nullptr)
      at = reinterpret_cast<T*>(driver.reach(const_cast<void*>(static_cast<const void*>(at)), 1));
  }
  void translate(steps::Channel& channel) const {
    const auto both = [this](steps::RecvEnd& from, steps::SendEnd& to) {
      translate(from.slots), translate(from.filled), translate(from.consumed);
      translate(to.slots), translate(to.filled), translate(to.consumed);
    };
    for (steps::RingEnds& ring : channel.ring) both(ring.from, ring.to);
    for (steps::MeshEnds& mesh : channel.mesh)
      for (int peer = 0; peer < steps::kMostRanks - 1; ++peer) both(mesh.from[peer], mesh.to[peer]);
  }
};

template <class Operation>
bool perform(std::size_t bytes, const steps::Task& task, steps::Channel& channel,
             const steps::ChannelForm& form, const steps::WayOut& way_out) {
  OneThread group;
  switch (bytes) {
    case 1:
      return steps::perform<Operation, Element<1>>(group, task, channel, form, way_out);
    case 2:
      return steps::perform<Operation, Element<2>>(group, task, channel, form, way_out);
    case 4:
      return steps::perform<Operation, Element<4>>(group, task, channel, form, way_out);
    case 8:
      return steps::perform<Operation, Element<8>>(group, task, channel, form, way_out);
    default:
      return steps::perform<Operation, Element<16>>(group, task, channel, form, way_out);
  }
}

/// Blocks one after the other: channels have nothing to do with each other, and all ranks go in this order.
int start_collective(Driver& d, const Kernel& kernel, loom::device::cuda::CollectiveArgs args,
                     unsigned blocks) {
  d.run();  // what comes before it in the stream
  const auto type = static_cast<loom::device::Type>(kernel.type);
  const bool moves = kernel.operation == loom::device::cuda::kMoveImage;
  const loom::device::ReduceFn reduce =
      moves ? nullptr : loom::device::find_reduce(static_cast<loom::device::Op>(kernel.operation), type);
  if (!moves && reduce == nullptr) return kInvalidValue;
  const Reach reach{d};
  reach.translate(args.channels);
  reach.translate(args.task.in);
  reach.translate(args.task.out);
  reach.translate(args.abandoned);
  reach.translate(args.failed);
  std::vector<steps::Channel> channels(args.channels, args.channels + blocks);
  for (steps::Channel& channel : channels) reach.translate(channel);
  d.kernel_runs = true;
  d.kernel = std::thread([&d, args, channels, reduce, bytes = loom::device::size_of(type)]() mutable {
    the_reduction = reduce;
    for (std::size_t block = 0; block < channels.size(); ++block) {
      steps::Task task = args.task;
      task.window_first += block * task.window_length;
      steps::Channel& channel = channels[block];
      const steps::WayOut way_out{args.abandoned};
      const bool done = reduce != nullptr
                            ? perform<Reduction>(bytes, task, channel, args.form, way_out)
                            : perform<steps::NoOperation>(bytes, task, channel, args.form, way_out);
      if (!done) steps::store_release(args.failed, 1);
      for (int p = 0; p < steps::kProtocols; ++p) {
        args.channels[block].ring[p].passed = channel.ring[p].passed;
        args.channels[block].mesh[p].passed = channel.mesh[p].passed;
      }
    }
    d.kernel_runs = false;
  });
  ++d.counts.kernels;
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

EXPORT int cuMemsetD8Async(std::uint64_t address, unsigned char value, std::size_t bytes, void*) {
  LOCK("cuMemsetD8Async");
  std::byte* const target = d.reach(pointer(address), bytes);
  if (target == nullptr) return kInvalidValue;
  d.stream.push_back([=] { std::memset(target, value, bytes); });
  return 0;
}
/// There is one stream.
EXPORT int cuStreamCreate(void** out, unsigned) {
  LOCK("cuStreamCreate");
  *out = nullptr;
  return 0;
}
EXPORT int cuStreamDestroy_v2(void*) {
  return 0;
}

EXPORT int cuIpcGetMemHandle(IpcHandle* handle, std::uint64_t address) {
  LOCK("cuIpcGetMemHandle");
  const Allocation* const in = d.holding(pointer(address));
  if (in == nullptr || in->kind != Kind::kDevice) return kInvalidValue;
  *handle = {::getpid(), in->file, in->bytes, {}};
  return 0;
}
EXPORT int cuIpcOpenMemHandle_v2(std::uint64_t* out, IpcHandle handle, unsigned) {
  LOCK("cuIpcOpenMemHandle");
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
  d.run();
  d.unmap(found->second);
  d.allocations.erase(found);
  return 0;
}

EXPORT int cuModuleLoadData(void** module, const void* image) {
  LOCK("cuModuleLoadData");
  if (image == nullptr) return kInvalidValue;
  if (current_context() == nullptr) return kInvalidContext;
  *module = &d;
  return 0;
}
EXPORT int cuModuleUnload(void*) {
  return 0;
}
/// Kernels live as long as the fake.
EXPORT int cuModuleGetFunction(Kernel** out, void*, const char* name) {
  LOCK("cuModuleGetFunction");
  Kernel kernel{};
  kernel.collective = std::sscanf(name, "loom_collective_%d_%d", &kernel.operation, &kernel.type) == 2;
  if (!kernel.collective && std::sscanf(name, "loom_reduce_%d_%d", &kernel.operation, &kernel.type) != 2)
    return kNotFound;
  const int key = (kernel.operation * loom::device::kTypeCount + kernel.type) * 2 + kernel.collective;
  *out = &d.kernels.emplace(key, kernel).first->second;
  return 0;
}
EXPORT int cuLaunchKernel(const Kernel* kernel, unsigned blocks, unsigned, unsigned, unsigned, unsigned,
                          unsigned, unsigned, void*, void** parameters, void**) {
  using loom::device::cuda::CollectiveArgs;
  using loom::device::cuda::ReduceArgs;
  LOCK("cuLaunchKernel");
  if (current_context() == nullptr) return kInvalidContext;
  if (kernel->collective)
    return start_collective(d, *kernel, *static_cast<const CollectiveArgs*>(parameters[0]), blocks);
  return enqueue_reduce(d, *kernel, *static_cast<const ReduceArgs*>(parameters[0]));
}
EXPORT int cuStreamQuery(void*) {
  LOCK("cuStreamQuery");
  if (d.kernel_runs) return kNotReady;
  d.run();
  return 0;
}

EXPORT int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
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
EXPORT void fake_cuda_fill(void* device, int value, std::size_t bytes) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  std::byte* const target = d.reach(device, bytes);
  d.stream.push_back([=] { std::memset(target, value, bytes); });
}
