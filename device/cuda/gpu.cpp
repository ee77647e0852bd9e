// The declarations follow the documented interface of CUDA's driver.
#include "device/cuda/gpu.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "device/cuda/driver_interface.hpp"
#include "device/cuda/images.hpp"
#include "device/cuda/opened_memory.hpp"
#include "device/reduce/reduce.hpp"

namespace loom::device::cuda {
namespace {

using Result = int;
using Address = std::uint64_t;
constexpr Result kSuccess = 0;
constexpr unsigned kPortableAndMapped = 3;  // CU_MEMHOSTALLOC_PORTABLE and _DEVICEMAP
constexpr unsigned kLazyPeerAccess = 1;     // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/// CUipcMemHandle, which the driver takes by value.
struct IpcHandle {
  std::byte bytes[64];
};

Address address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}
std::byte* memory_at(Address address) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

}  // namespace

struct Gpu::Functions {
  Result (*push_context)(void*);
  Result (*pop_context)(void**);
  Result (*allocate)(Address*, std::size_t);
  Result (*release)(Address);
  Result (*allocate_host)(void**, std::size_t, unsigned);
  Result (*release_host)(void*);
  Result (*register_host)(void*, std::size_t, unsigned);
  Result (*unregister_host)(void*);
  Result (*get_device_pointer)(Address*, void*, unsigned);
  Result (*fill)(Address, unsigned char, std::size_t, void*);
  Result (*copy)(Address, Address, std::size_t, void*);
  Result (*create_stream)(void**, unsigned);
  Result (*destroy_stream)(void*);
  Result (*synchronize)(void*);
  Result (*get_pointer_attribute)(void*, int, Address);
  Result (*get_range)(Address*, std::size_t*, Address);
  Result (*get_device)(int*, int);
  Result (*get_uuid)(std::byte*, int);
  Result (*get_attribute)(int*, int, int);
  Result (*get_bus_id)(char*, int, int);
  Result (*get_handle)(IpcHandle*, Address);
  Result (*open_handle)(Address*, IpcHandle, unsigned);
  Result (*close_handle)(Address);
  Result (*load_module)(void**, const void*);
  Result (*unload_module)(void*);
  Result (*get_function)(void**, void*, const char*);

  explicit Functions(const Driver& driver) {
    driver.find(push_context, "cuCtxPushCurrent_v2");
    driver.find(pop_context, "cuCtxPopCurrent_v2");
    driver.find(allocate, "cuMemAlloc_v2");
    driver.find(release, "cuMemFree_v2");
    driver.find(allocate_host, "cuMemHostAlloc");
    driver.find(release_host, "cuMemFreeHost");
    driver.find(register_host, "cuMemHostRegister_v2");
    driver.find(unregister_host, "cuMemHostUnregister");
    driver.find(get_device_pointer, "cuMemHostGetDevicePointer_v2");
    driver.find(fill, "cuMemsetD8Async");
    driver.find(copy, "cuMemcpyAsync");
    driver.find(create_stream, "cuStreamCreate");
    driver.find(destroy_stream, "cuStreamDestroy_v2");
    driver.find(synchronize, "cuStreamSynchronize");
    driver.find(get_pointer_attribute, "cuPointerGetAttribute");
    driver.find(get_range, "cuMemGetAddressRange_v2");
    driver.find(get_device, "cuDeviceGet");
    driver.find(get_uuid, "cuDeviceGetUuid_v2");
    driver.find(get_attribute, "cuDeviceGetAttribute");
    driver.find(get_bus_id, "cuDeviceGetPCIBusId");
    driver.find(get_handle, "cuIpcGetMemHandle");
    driver.find(open_handle, "cuIpcOpenMemHandle_v2");
    driver.find(close_handle, "cuIpcCloseMemHandle");
    driver.find(load_module, "cuModuleLoadData");
    driver.find(unload_module, "cuModuleUnload");
    driver.find(get_function, "cuModuleGetFunction");
  }
};

/// The context is current in this thread as long as this lives.
class Gpu::Current {
 public:
  explicit Current(const Gpu& gpu)
      : gpu_(gpu), relaxed_(gpu.driver_), result_(gpu.functions_->push_context(gpu.context_)) {}
  ~Current() {
    void* popped;
    if (result_ == kSuccess) gpu_.functions_->pop_context(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  /// Throws Error.
  void check() const { gpu_.check(result_, "a context is made current"); }
  bool is() const noexcept { return result_ == kSuccess; }

 private:
  const Gpu& gpu_;
  const Driver::RelaxedCaptures relaxed_;
  Result result_;
};

Gpu::Gpu(const Driver& driver, const Owner& owner, std::size_t most_bytes)
    : driver_(driver),
      functions_(std::make_unique<Functions>(driver)),
      context_(owner.context),
      device_(owner.device),
      most_bytes_(most_bytes) {
  if (!has_kernels())
    throw Error(
        ErrorCode::kDevice,
        "This build of loom has no kernels: it was made without nvcc and clang, or LOOM_CUDA was OFF.");
  if (context_ == nullptr)
    throw Error(ErrorCode::kDevice,
                "No context of CUDA's is current in this thread, and there is no primary one.");
  try {
    const Current current(*this);
    current.check();
    check(functions_->allocate(&anchor_, sizeof(Word)), "memory of a GPU is allocated");
    check(functions_->get_pointer_attribute(&anchor_id_, kBufferId, anchor_), "memory of a GPU is looked up");
    check(functions_->create_stream(&stream_, kNonBlocking), "a stream is made");
    opened_ = std::make_unique<OpenedMemory>(*this);
  } catch (...) {
    free_all();
    throw;
  }
}

Gpu::~Gpu() {
  release_unused();  // what is still in use then goes with the context
  opened_.reset();   // which closes by what is still here
  if (is_alive()) {
    const Current current(*this);
    for (const auto& [image, module] : modules_)
      if (current.is() && module.handle != nullptr) functions_->unload_module(module.handle);
  }
  free_all();
}

void Gpu::free_all() noexcept {
  if (anchor_id_ != 0 && !is_alive()) return;  // all went with the context, and a new one is not ours
  const Current current(*this);
  if (current.is() && anchor_ != 0) functions_->release(anchor_);
  if (current.is() && stream_ != nullptr) functions_->destroy_stream(stream_);
}

bool Gpu::is_alive() const noexcept {
  std::uint64_t id = 0;
  return functions_->get_pointer_attribute(&id, kBufferId, anchor_) == kSuccess && id == anchor_id_;
}

void Gpu::check(int result, const char* doing) const {
  if (result != kSuccess) throw driver_.error(doing, result);
}

std::byte* Gpu::allocate(std::size_t bytes, Memory kind) {
  return within_limit(bytes, [&] { return allocate_any(bytes, kind); });
}

template <class Make>
std::byte* Gpu::within_limit(std::size_t bytes, Make&& make) {
  std::map<std::byte*, std::size_t> entry{{nullptr, bytes}};  // made before anything else can fail
  {
    const MutexLock lock(mutex_);
    if (bytes > most_bytes_ - used_)
      throw Error(ErrorCode::kOutOfMemory,
                  loom::format("{} bytes of a GPU, or locked for it, are more than the {} left of its limit.",
                               bytes, most_bytes_ - used_));
    used_ += bytes;
  }
  std::byte* memory;
  try {
    memory = make();
  } catch (...) {
    const MutexLock lock(mutex_);
    used_ -= bytes;
    throw;
  }
  auto node = entry.extract(entry.begin());
  node.key() = memory;
  const MutexLock lock(mutex_);
  allocated_.insert(std::move(node));
  return memory;
}

std::byte* Gpu::allocate_any(std::size_t bytes, Memory kind) {
  const Current current(*this);
  current.check();
  std::byte* memory;
  if (kind == Memory::kVirtual) {
    memory = keep(VirtualMemory::create(driver_, device(), bytes));
  } else {
    Address address = 0;
    check(functions_->allocate(&address, bytes), "memory of a GPU is allocated");
    memory = memory_at(address);
  }
  Result result = functions_->fill(address_of(memory), 0, bytes, stream_);
  if (result == kSuccess) result = functions_->synchronize(stream_);
  if (result != kSuccess) release_any(memory);
  check(result, "memory of a GPU is cleared");
  return memory;
}

/// To be called before the address can be another's.
void Gpu::give_back(std::byte* memory) noexcept {
  const MutexLock lock(mutex_);
  const auto found = allocated_.find(memory);
  if (found == allocated_.end()) return;
  used_ -= found->second;
  allocated_.erase(found);
}

void Gpu::release(std::byte* memory) noexcept {
  give_back(memory);
  release_any(memory);
}

void Gpu::release_later(std::byte* memory, std::shared_ptr<void> use) noexcept {
  try {
    const MutexLock lock(mutex_);
    in_use_.push_back({memory, std::move(use)});
  } catch (const std::bad_alloc&) {  // then it stays until the context ends
  }
}

void Gpu::release_unused() noexcept {
  std::list<InUse> unused;
  {
    const MutexLock lock(mutex_);
    for (auto each = in_use_.begin(); each != in_use_.end();) {
      const auto next = std::next(each);
      if (each->use.use_count() <= 1) unused.splice(unused.end(), in_use_, each);
      each = next;
    }
  }
  for (const InUse& each : unused) release(each.memory);
}

void Gpu::release_any(std::byte* memory) noexcept {
  if (drop(memory) || !is_alive()) return;  // the address may be another's by now
  const Current current(*this);
  if (current.is()) functions_->release(address_of(memory));
}

std::byte* Gpu::keep(VirtualMemory memory) {
  const MutexLock lock(mutex_);
  std::byte* const at = memory.data();
  virtual_.emplace(at, std::move(memory));
  return at;
}

/// Whether it was virtual memory.
bool Gpu::drop(std::byte* memory) noexcept {
  decltype(virtual_)::node_type dropped;  // goes after the lock
  const MutexLock lock(mutex_);
  const auto found = virtual_.find(memory);
  if (found == virtual_.end()) return false;
  dropped = virtual_.extract(found);
  return true;
}

std::byte* Gpu::allocate_on_host(std::size_t bytes) {
  const Current current(*this);
  current.check();
  void* memory = nullptr;
  check(functions_->allocate_host(&memory, bytes, kPortableAndMapped), "host memory is allocated");
  return static_cast<std::byte*>(memory);
}

void Gpu::release_on_host(std::byte* memory) noexcept {
  if (!is_alive()) return;
  const Current current(*this);
  if (current.is()) functions_->release_host(memory);
}

std::byte* Gpu::map(std::byte* pages, std::size_t bytes) {
  const Current current(*this);
  current.check();
  Address address = 0;
  within_limit(bytes, [&] {
    check(functions_->register_host(pages, bytes, kPortableAndMapped), "host memory is mapped");
    const Result result = functions_->get_device_pointer(&address, pages, 0);
    if (result != kSuccess) functions_->unregister_host(pages);
    check(result, "host memory is mapped");
    return pages;
  });
  return memory_at(address);
}

bool Gpu::unmap(std::byte* pages) noexcept {
  give_back(pages);
  if (!is_alive()) return driver_.unpin({}, pages);
  const Current current(*this);
  return current.is() && functions_->unregister_host(pages) == kSuccess;
}

MemoryHandle Gpu::share(std::byte* memory) const {
  MemoryHandle handle{.pid = ::getpid(), .address = address_of(memory)};
  {
    const MutexLock lock(mutex_);
    if (const auto found = virtual_.find(memory); found != virtual_.end()) {
      handle.file = found->second.file();
      return handle;
    }
  }
  const Result result = get_handle(handle);
  check(result, "memory of a GPU is shared with other processes");
  return handle;
}

int Gpu::get_handle(MemoryHandle& handle) const {
  const Current current(*this);
  current.check();
  IpcHandle raw;
  const Result result = functions_->get_handle(&raw, handle.address);
  if (result == kSuccess) std::memcpy(handle.driver.data(), raw.bytes, sizeof(raw.bytes));
  return result;
}

std::optional<MemoryHandle> Gpu::try_share(std::uint64_t begin) const {
  MemoryHandle handle{.pid = ::getpid(), .address = begin};
  return get_handle(handle) == kSuccess ? std::optional(handle) : std::nullopt;
}

Gpu::Allocation Gpu::allocation_of(const void* address) const {
  const Current current(*this);
  current.check();
  Allocation found;
  std::size_t bytes = 0;
  if (functions_->get_pointer_attribute(&found.id, kBufferId, address_of(address)) != kSuccess ||
      functions_->get_range(&found.begin, &bytes, address_of(address)) != kSuccess)
    return {};
  found.bytes = bytes;
  return found;
}

void Gpu::close_handle(std::byte* memory) noexcept {
  const MutexLock lock(mutex_);
  if (const auto found = virtual_.find(memory); found != virtual_.end()) found->second.close_file();
}

std::byte* Gpu::attach(const MemoryHandle& handle) {
  if (handle.pid == ::getpid()) return memory_at(handle.address);
  const Current current(*this);
  current.check();
  if (handle.file.file.fd >= 0)
    return keep(VirtualMemory::attach(driver_, device(), handle.pid, handle.file));
  IpcHandle raw;
  std::memcpy(raw.bytes, handle.driver.data(), sizeof(raw.bytes));
  Address address = 0;
  check(functions_->open_handle(&address, raw, kLazyPeerAccess),
        "another process's memory of a GPU is opened");
  return memory_at(address);
}

void Gpu::detach(const MemoryHandle& handle, std::byte* memory) noexcept {
  if (handle.pid == ::getpid() || drop(memory) || !is_alive()) return;
  const Current current(*this);
  if (current.is()) functions_->close_handle(address_of(memory));
}

void Gpu::copy(void* to, const void* from, std::size_t bytes) {
  const Current current(*this);
  current.check();
  check(functions_->copy(address_of(to), address_of(from), bytes, stream_), "a GPU copies");
  check(functions_->synchronize(stream_), "a GPU copies");
}

bool Gpu::supports(Op op, Type type) noexcept {
  const bool long_double =
      type == Type::kLongDouble || type == Type::kComplexLongDouble || type == Type::kLongDoubleInt;
  return !long_double && device::supports(op, type);
}

/// Of the first compiler whose image the driver takes.
void* Gpu::module(int op, Type type) {
  std::string why_not;
  for (const Compiler compiler : kCompilers) {
    const char* const image = kernel_image(compiler, op, type);
    if (image == nullptr) continue;
    const auto [at, is_new] = modules_.try_emplace(image);
    Module& module = at->second;
    if (is_new)
      if (const Result result = functions_->load_module(&module.handle, image); result != kSuccess)
        module.why_not =
            driver_.error(loom::format("it loads kernels by {}", kernels_by(compiler)).c_str(), result)
                .what();
    if (module.handle != nullptr) return module.handle;
    why_not += (why_not.empty() ? "" : " ") + module.why_not;
  }
  throw Error(ErrorCode::kDevice, why_not);
}

void* Gpu::kernel(int kind, std::optional<Op> of, Type type) {
  constexpr const char* kKinds[] = {"combine", "collective"};
  const int op = of ? static_cast<int>(*of) : kMove;
  type = kernel_type(op, type);
  std::atomic<void*>& known =
      kernels_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
  if (void* const function = known.load(std::memory_order_acquire)) return function;
  // While it loads, a driver may wait for kernels that wait for those of other ranks: nobody else waits for
  // it who has his kernel.
  const MutexLock loading(loading_);
  const Current current(*this);
  current.check();
  void* const module = this->module(op, type);
  void* function = nullptr;
  const std::string name = loom::format("loom_{}_{}_{}", kKinds[kind], op, static_cast<int>(type));
  check(functions_->get_function(&function, module, name.c_str()), "a kernel is looked up");
  known.store(function, std::memory_order_release);
  return function;
}

unsigned Gpu::resident_blocks(std::optional<Op> op, Type type) {
  const Current current(*this);
  current.check();
  Result (*occupancy)(int*, void*, int, std::size_t) = nullptr;
  driver_.find(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  int blocks = 0, multiprocessors = 0;
  check(occupancy(&blocks, collective_kernel(op, type), kCollectiveThreads, 0),
        "it says how many blocks fit");
  check(functions_->get_attribute(&multiprocessors, kMultiprocessorCount, device()), "a GPU is looked up");
  return static_cast<unsigned>(blocks * multiprocessors);
}

/// As the driver names it.
int Gpu::device() const {
  int device = 0;
  check(functions_->get_device(&device, device_), "a GPU is looked up");
  return device;
}

std::uint64_t Gpu::room() const {
  const MutexLock lock(mutex_);
  return most_bytes_ - used_;
}

int Gpu::attribute(int which, int if_unknown) const {
  int value = 0;
  return functions_->get_attribute(&value, which, device()) == kSuccess ? value : if_unknown;
}

GpuFacts Gpu::facts() const {
  GpuFacts facts;
  const int device = this->device();
  check(functions_->get_uuid(facts.uuid.data(), device), "a GPU is looked up");
  facts.room = room();
  facts.multiprocessors = attribute(kMultiprocessorCount, 0);
  facts.capability = 10 * attribute(kCapabilityMajor, 0) + attribute(kCapabilityMinor, 0);
  if (functions_->get_bus_id(facts.bus_id.data(), static_cast<int>(facts.bus_id.size()), device) != kSuccess)
    facts.bus_id = {};
  facts.gpu_direct = static_cast<std::int8_t>(attribute(kGpuDirectSupported, -1));
  facts.mps = attribute(kMpsEnabled, 0) != 0;
  // By CUDA's documentation memory handles work where event handles do; older drivers do not tell.
  facts.ipc = attribute(kIpcEventsSupported, 1) != 0;
  facts.virtual_memory =
      attribute(kVirtualMemorySupported, 0) != 0 && attribute(kFileDescriptorsSupported, 0) != 0;
  return facts;
}

}  // namespace loom::device::cuda
