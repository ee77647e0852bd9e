// The declarations follow the documented interface of CUDA's driver.
#include "device/cuda/driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>

#include "base/format.hpp"
#include "device/cuda/host_memory.hpp"

namespace loom::device::cuda {
namespace {

using Result = int;
constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kDeinitialized = 4,
                 kStubLibrary = 34, kNoDevice = 100, kInvalidContext = 201, kNotRegistered = 713;

// CUpointer_attribute
constexpr int kContext = 1, kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9, kRangeBegin = 11,
              kRangeBytes = 12;
// CUmemorytype
constexpr unsigned kHostMemory = 1, kDeviceMemory = 2, kUnifiedMemory = 4;
constexpr unsigned kRegisterPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE
constexpr int kRelaxedCaptures = 2;        // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr Result kCaptureImplicit = 906;   // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
constexpr unsigned kDefaultStream = 0;     // CU_STREAM_DEFAULT: it synchronises with the legacy one
constexpr unsigned kUntimedEvent = 2;      // CU_EVENT_DISABLE_TIMING
constexpr std::size_t kMaxPitch =
    std::numeric_limits<std::int32_t>::max();  // CU_DEVICE_ATTRIBUTE_MAX_PITCH of all GPUs
void* const kLegacyStream = reinterpret_cast<void*>(std::uintptr_t{1});  // CU_STREAM_LEGACY

/// CUDA_MEMCPY2D_v2
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
  std::size_t dst_pitch;
  std::size_t width_bytes, height;
};
static_assert(sizeof(void*) == 8, "CUDA has addresses of 64 bits");

std::uint64_t address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace

std::size_t bytes_of(std::span<const StridedRegion> regions) noexcept {
  std::size_t bytes = 0;
  for (const StridedRegion& region : regions) bytes += region.row_bytes * region.rows;
  return bytes;
}

struct Driver::Functions {
  void* library;
  Result (*get_attributes)(unsigned, int*, void**, std::uint64_t);
  Result (*push_context)(void*);
  Result (*pop_context)(void**);
  Result (*primary_state)(int, unsigned*, int*);
  Result (*retain_primary)(void**, int);
  Result (*release_primary)(int);
  Result (*copy)(std::uint64_t, std::uint64_t, std::size_t, void*);
  Result (*copy_2d)(const Copy2D*, void*);
  Result (*synchronize)(void*);
  Result (*register_host)(void*, std::size_t, unsigned);
  Result (*unregister_host)(void*);
  Result (*error_string)(Result, const char**);
  Result (*get_context)(void**);
  Result (*get_device)(int*);
  Result (*exchange_capture_mode)(int*);  ///< nullptr before CUDA 10.1
  Result (*is_capturing)(void*, int*);    ///< nullptr before CUDA 10.0
  Result (*create_stream)(void**, unsigned);
  Result (*destroy_stream)(void*);
  Result (*create_event)(void**, unsigned);
  Result (*destroy_event)(void*);
  Result (*record)(void*, void*);

  /// Whether all of them are there. The names with _v2 are those that cuda.h gives the current interface.
  bool find() {
    const auto find = [this](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    find(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
    find(is_capturing, "cuStreamIsCapturing");
    return find(create_stream, "cuStreamCreate") && find(destroy_stream, "cuStreamDestroy_v2") &&
           find(create_event, "cuEventCreate") && find(destroy_event, "cuEventDestroy_v2") &&
           find(record, "cuEventRecord") && find(get_attributes, "cuPointerGetAttributes") &&
           find(push_context, "cuCtxPushCurrent_v2") && find(pop_context, "cuCtxPopCurrent_v2") &&
           find(primary_state, "cuDevicePrimaryCtxGetState") &&
           find(retain_primary, "cuDevicePrimaryCtxRetain") &&
           find(release_primary, "cuDevicePrimaryCtxRelease_v2") && find(copy, "cuMemcpyAsync") &&
           find(copy_2d, "cuMemcpy2DAsync_v2") && find(synchronize, "cuStreamSynchronize") &&
           find(register_host, "cuMemHostRegister_v2") && find(unregister_host, "cuMemHostUnregister") &&
           find(error_string, "cuGetErrorString") && find(get_context, "cuCtxGetCurrent") &&
           find(get_device, "cuCtxGetDevice");
  }

  /// The question is the one use of the legacy stream that ends no capture.
  bool legacy_is_forbidden() const {
    int ignored;
    return is_capturing != nullptr && is_capturing(kLegacyStream, &ignored) == kCaptureImplicit;
  }
};

Driver::ProgramStream::ProgramStream(const Driver& driver) noexcept
    : driver_(driver), stream_(kLegacyStream) {
  const Functions& functions = *driver_.functions_;
  if (!functions.legacy_is_forbidden()) return;
  void* own = nullptr;
  is_own_ = functions.create_stream(&own, kDefaultStream) == kSuccess;
  if (is_own_) stream_ = own;
}

Driver::ProgramStream::~ProgramStream() {
  if (is_own_) driver_.functions_->destroy_stream(stream_);
}

int Driver::ProgramStream::synchronize() const noexcept {
  const Functions& functions = *driver_.functions_;
  if (!is_own_) return functions.synchronize(stream_);
  // A stream with nothing in it waits for nobody.
  void* event = nullptr;
  Result result = functions.create_event(&event, kUntimedEvent);
  if (result != kSuccess) return result;
  result = functions.record(event, stream_);
  const Result ended = functions.synchronize(stream_);
  functions.destroy_event(event);
  return result == kSuccess ? ended : result;
}

bool Driver::is_legacy_stream_forbidden(const Owner& owner) const noexcept {
  const CurrentContext context(*this, owner);
  return context.result() == kSuccess && functions_->legacy_is_forbidden();
}

Driver::RelaxedCaptures::RelaxedCaptures(const Driver& driver) noexcept
    : driver_(driver),
      mode_(kRelaxedCaptures),
      exchanged_(driver.functions_->exchange_capture_mode != nullptr &&
                 driver.functions_->exchange_capture_mode(&mode_) == kSuccess) {}

Driver::RelaxedCaptures::~RelaxedCaptures() {
  if (exchanged_) driver_.functions_->exchange_capture_mode(&mode_);
}

namespace {
thread_local const Driver::CurrentContext* innermost = nullptr;  // of this thread
}

Driver::CurrentContext::CurrentContext(const Driver& driver, const Owner& owner)
    : driver_(driver), owner_(owner), around_(innermost) {
  if (around_ != nullptr && around_->owner_.context == owner.context &&
      around_->owner_.device == owner.device)
    return;
  relaxed_.emplace(driver);
  const Functions& functions = *driver.functions_;
  void* context = owner.context;
  if (context == nullptr) {
    unsigned flags = 0;
    int active = 0;
    result_ = functions.primary_state(owner.device, &flags, &active);
    if (result_ == kSuccess)  // none is made: the memory has gone with the context it was in
      result_ = active != 0 ? functions.retain_primary(&context, owner.device) : kInvalidContext;
    if (result_ != kSuccess) return;
    retained_ = owner.device;
  }
  result_ = functions.push_context(context);
  pushed_ = result_ == kSuccess;
  if (pushed_) innermost = this;
}

Driver::CurrentContext::~CurrentContext() {
  void* popped;
  if (pushed_) driver_.functions_->pop_context(&popped);
  innermost = around_;
  if (retained_) driver_.functions_->release_primary(*retained_);
}

void* Driver::primary_of(int device) const noexcept {
  unsigned flags = 0;
  int active = 0;
  void* primary = nullptr;
  if (functions_->primary_state(device, &flags, &active) != kSuccess || active == 0 ||
      functions_->retain_primary(&primary, device) != kSuccess)
    return nullptr;
  functions_->release_primary(device);
  return primary;
}

bool Driver::is_primary(const Owner& owner) const noexcept {
  void* const primary = primary_of(owner.device);
  return primary != nullptr && (owner.context == nullptr || owner.context == primary);
}

Driver::Driver(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}
Driver::~Driver() = default;

std::unique_ptr<Driver> Driver::open(const char* name, bool if_loaded) {
  // Once initialised it must stay loaded: it has threads, and the application may use it, too.
  const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | (if_loaded ? RTLD_NOLOAD : 0);
  auto functions = std::make_unique<Functions>();
  functions->library = ::dlopen(name, flags);
  if (functions->library == nullptr) return nullptr;
  if (!functions->find()) return nullptr;
  return std::unique_ptr<Driver>(new Driver(std::move(functions)));
}

/// No driver of NVIDIA's has a function of this name.
Driver::Clock Driver::own_clock() const noexcept {
  const auto now = reinterpret_cast<Clock>(find("virtual_gpu_now"));
  return now != nullptr && now() >= 0 ? now : nullptr;
}

void* Driver::find(const char* name) const noexcept {
  return ::dlsym(functions_->library, name);
}

void* Driver::find_or_throw(const char* name) const {
  if (void* const function = find(name)) return function;
  throw Error(ErrorCode::kDevice, loom::format("CUDA's driver has no {}.", name));
}

Error Driver::error(const char* doing, Result result) const {
  const char* text = nullptr;
  if (functions_->error_string(result, &text) != kSuccess || text == nullptr) text = "unknown to it";
  return Error(result == kOutOfMemory ? ErrorCode::kOutOfMemory : ErrorCode::kDevice,
               loom::format("CUDA's driver fails with error {} ({}) while {}.", result, text, doing));
}

/// Whole ranges, so that there are few; CUDA is asked about each once.
void Driver::remember(const void* on_device) const {
  if (was_on_device(on_device)) return;
  const std::uint64_t address = address_of(on_device);
  std::uint64_t begin = 0, bytes = 0;
  std::array attributes{kRangeBegin, kRangeBytes};
  std::array<void*, 2> values{&begin, &bytes};
  if (functions_->get_attributes(attributes.size(), attributes.data(), values.data(), address) != kSuccess ||
      address - begin >= bytes) {  // before CUDA 10.2
    begin = address;
    bytes = 1;
  }
  const MutexLock lock(mutex_);
  std::uint64_t end = begin + bytes;
  auto next = seen_.upper_bound(end);
  while (next != seen_.begin() && std::prev(next)->second >= begin) {
    const auto overlapping = std::prev(next);
    begin = std::min(begin, overlapping->first);
    end = std::max(end, overlapping->second);
    next = seen_.erase(overlapping);
  }
  seen_[begin] = end;
}

bool Driver::was_on_device(const void* memory) const {
  const std::uint64_t address = address_of(memory);
  const MutexLock lock(mutex_);
  const auto next = seen_.upper_bound(address);
  return next != seen_.begin() && address < std::prev(next)->second;
}

std::optional<Owner> Driver::owner_of(const void* address, void* otherwise) const {
  std::optional<Owner> owner = recorded_owner_of(address);
  if (!owner || owner->context != nullptr) return owner;
  const std::optional<Owner> current = current_owner();
  owner->context = current && current->device == owner->device ? current->context
                   : otherwise != nullptr                      ? otherwise
                                                               : primary_of(owner->device);
  return owner;
}

bool Driver::is_in_a_context(const void* address) const {
  const std::optional<Owner> owner = recorded_owner_of(address);
  return owner && owner->context != nullptr;
}

std::optional<Owner> Driver::recorded_owner_of(const void* address) const {
  if (is_program_memory(address)) return std::nullopt;
  Owner owner{nullptr, 0};
  unsigned type = 0, managed = 0;
  std::array attributes{kContext, kMemoryType, kIsManaged, kDeviceOrdinal};
  std::array<void*, 4> values{&owner.context, &type, &managed, &owner.device};
  const Result result =
      functions_->get_attributes(attributes.size(), attributes.data(), values.data(), address_of(address));
  switch (result) {
    case kSuccess:
      break;
    case kInvalidValue:    // not CUDA's memory
    case kNotInitialized:  // CUDA has no memory yet, or this is a forked child
    case kDeinitialized:
    case kStubLibrary:
    case kNoDevice:
    case kInvalidContext:
      return std::nullopt;
    default:
      if (!was_on_device(address) && is_mapped_on_host(address)) return std::nullopt;
      throw error("it is asked where a buffer lies", result);
  }
  if (type != kDeviceMemory && managed == 0) return std::nullopt;
  remember(address);
  return owner;
}

std::optional<Owner> Driver::current_owner() const noexcept {
  Owner owner{nullptr, 0};
  const bool is_there = functions_->get_context(&owner.context) == kSuccess && owner.context != nullptr &&
                        functions_->get_device(&owner.device) == kSuccess;
  return is_there ? std::optional(owner) : std::nullopt;
}

int Driver::enqueue(std::span<const StridedRegion> regions, Direction direction, void* stream) const {
  const bool to_host = direction == Direction::kToHost;
  const auto copy_row = [&](std::byte* device, std::byte* host, std::size_t bytes) {
    return to_host ? functions_->copy(address_of(host), address_of(device), bytes, stream)
                   : functions_->copy(address_of(device), address_of(host), bytes, stream);
  };
  const auto copy_region = [&](const StridedRegion& region) -> Result {
    if (region.rows > 1 && region.pitch <= kMaxPitch) {
      Copy2D copy{};
      copy.src_pitch = copy.dst_pitch = region.pitch;
      copy.width_bytes = region.row_bytes;
      copy.height = region.rows;
      // Unified: the driver finds out which kind of memory it is.
      copy.src_type = to_host ? kUnifiedMemory : kHostMemory;
      copy.dst_type = to_host ? kHostMemory : kUnifiedMemory;
      (to_host ? copy.src_device : copy.dst_device) = address_of(region.device);
      if (to_host)
        copy.dst_host = region.host;
      else
        copy.src_host = region.host;
      return functions_->copy_2d(&copy, stream);
    }
    Result result = kSuccess;
    for (std::size_t row = 0; row < region.rows && result == kSuccess; ++row)
      result =
          copy_row(region.device + row * region.pitch, region.host + row * region.pitch, region.row_bytes);
    return result;
  };
  Result result = kSuccess;
  for (std::size_t i = 0; i < regions.size() && result == kSuccess; ++i) result = copy_region(regions[i]);
  return result;
}

void Driver::wait_for_program(const Owner& owner) const {
  const CurrentContext context(*this, owner);
  if (context.result() != kSuccess) throw error("a buffer's context is made current", context.result());
  if (const Result result = ProgramStream(*this).synchronize(); result != kSuccess)
    throw error("it waits for the default stream", result);
}

void Driver::copy(const Owner& owner, std::span<const StridedRegion> regions, Direction direction,
                  bool& in_flight) const {
  in_flight = false;
  const CurrentContext context(*this, owner);
  if (context.result() != kSuccess) throw error("a buffer's context is made current", context.result());
  const ProgramStream program(*this);
  Result result = enqueue(regions, direction, program.stream());
  // Also after a failure: copies on their way must not touch memory that is used again.
  const Result ended = program.synchronize();
  in_flight = ended != kSuccess;
  if (result == kSuccess) result = ended;
  if (result != kSuccess)
    throw error(direction == Direction::kToHost ? "it copies a buffer to the host"
                                                : "it copies a buffer to the device",
                result);
}

bool Driver::pin(const Owner& owner, void* memory, std::size_t bytes) const noexcept {
  const CurrentContext context(*this, owner);
  return context.result() == kSuccess &&
         functions_->register_host(memory, bytes, kRegisterPortable) == kSuccess;
}

bool Driver::unpin(const std::optional<Owner>& in_context_of, void* memory) const noexcept {
  const auto unregister = [&] {
    const Result result = functions_->unregister_host(memory);
    return result == kSuccess || result == kNotRegistered;
  };
  const RelaxedCaptures relaxed(*this);
  if (!in_context_of) return unregister();
  const CurrentContext context(*this, *in_context_of);
  return unregister();
}

}  // namespace loom::device::cuda
