// copies.cpp -- copies and fills: which memory they touch, what waits for them and what they wait for.
#include <algorithm>
#include <cstring>
#include <limits>

#include "tests/virtual_gpu/driver/driver.hpp"

using namespace virtual_gpu;

namespace {

/// What the caller says an address is. kAny: what CUDA knows is that, all else is the host's.
enum class Is { kAny, kDevice, kHost };

/// Rows of memory, one end of a copy.
struct End {
  std::byte* at;
  AllocationPtr in;  ///< nullptr: pageable memory of the host
  std::size_t pitch;
  Address address;

  bool pageable() const { return in == nullptr; }
  bool on_host() const { return in == nullptr || in->on_host(); }
  const Uuid* gpu() const { return on_host() ? nullptr : &in->file->shared().gpu; }
};

/// Makes sure that it stays while work uses it.
class User {
 public:
  explicit User(AllocationPtr allocation) : allocation_(std::move(allocation)) {
    if (allocation_ != nullptr) ++allocation_->users;
  }
  User(const User& other) : User(other.allocation_) {}
  User& operator=(const User&) = delete;
  ~User() {
    if (allocation_ != nullptr) --allocation_->users;
  }

 private:
  AllocationPtr allocation_;
};

Result find_end(const Call& call, Address address, std::size_t bytes, std::size_t pitch, Is is, bool writes,
                End& out) {
  const Driver& d = call.driver;
  const AllocationPtr in = d.memory.holding(address, bytes);
  out = {nullptr, in, pitch, address};
  if (in == nullptr) {
    if (is == Is::kDevice || d.memory.overlaps(address, bytes) || address == 0)
      return say(kInvalidValue, "a copy reaches beyond memory, or there is none");
    out.at = static_cast<std::byte*>(pointer(address));
    return kSuccess;
  }
  if (is == Is::kHost && !in->cpu_may())
    return say(kInvalidValue, "memory of a device is taken for the host's");
  if (in->kind == Kind::kVirtual) {
    const auto access = in->access.find(call.context->device);
    if (access == in->access.end() || (access->second & (writes ? 2 : 1)) == 0)
      return say(kInvalidValue, "virtual memory is not made accessible to the device");
  }
  if (in->kind == Kind::kPeer && in->file->shared().freed.load(std::memory_order_acquire) != 0)
    return say(kIllegalAddress, "memory of another process is used that its owner has freed");
  out.at = in->at(address);
  return kSuccess;
}

void note_written(const End& to, const std::byte* row, const End* from, const std::byte* from_row,
                  std::size_t bytes) {
  memory::WrittenMap* const notes = to.in == nullptr || !to.in->file ? nullptr : to.in->file->written();
  if (notes == nullptr) return;
  const auto offset = static_cast<std::size_t>(row - to.in->file->data());
  const memory::WrittenMap* const source =
      from == nullptr || from->in == nullptr || !from->in->file ? nullptr : from->in->file->written();
  if (source == nullptr) return notes->mark(offset, bytes);
  const auto from_offset = static_cast<std::size_t>(from_row - from->in->file->data());
  if (source->all_written(from_offset, bytes)) return notes->mark(offset, bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    if (source->all_written(from_offset + i, 1)) notes->mark(offset + i, 1);
}

void copy_rows(const End& to, const End& from, std::size_t width, std::size_t rows) {
  static const auto speed = variable("VIRTUAL_GPU_GBPS");
  const auto start = Clock::now();
  for (std::size_t row = 0; row < rows; ++row) {
    std::byte *const target = to.at + row * to.pitch, *const source = from.at + row * from.pitch;
    std::memmove(target, source, width);
    note_written(to, target, &from, source, width);
  }
  if (speed)
    std::this_thread::sleep_until(start + std::chrono::nanoseconds(static_cast<std::int64_t>(
                                              static_cast<double>(width * rows) / std::stod(*speed))));
}

constexpr std::size_t kInCommand = 64 * 1024;  ///< a copy of so much from pageable memory waits for nothing

struct Shape {
  std::size_t width, rows = 1, to_pitch = 0, from_pitch = 0;
};

/// When a call returns, by "API synchronization behavior" in CUDA's documentation:
///   to pageable memory of the host: when all is copied
///   from pageable memory: when it has been read; more than 64 KiB is read when the stream has come so far
///   between host and host: when all is copied
///   synchronous calls, page-locked memory: when all is copied; between devices: at once
///   asynchronous calls else: at once
Result copy(Call& call, void* handle, Address to, Is to_is, Address from, Is from_is, const Shape& shape,
            bool async) {
  Driver& d = call.driver;
  const auto stream = call.stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (shape.width == 0 || shape.rows == 0) return kSuccess;
  End target, source;
  const auto extent = [&](std::size_t pitch) { return (shape.rows - 1) * pitch + shape.width; };
  Result result = find_end(call, to, extent(shape.to_pitch), shape.to_pitch, to_is, true, target);
  if (result == kSuccess)
    result = find_end(call, from, extent(shape.from_pitch), shape.from_pitch, from_is, false, source);
  if (result != kSuccess) return result;
  const std::size_t bytes = shape.width * shape.rows;
  if (async) {
    ++d.counts.copies;
    d.counts.bytes += bytes;
    for (const End& end : {target, source})
      if (!end.on_host()) d.counts.foreign_context += end.in->device != call.context->device;
  }
  const double share = source.pageable() || target.pageable() ? machine::kPageableShare : 1;
  std::shared_ptr<std::vector<std::byte>> staged;
  if (source.pageable() && !target.on_host() && stream->capture == nullptr) {
    if (!async || bytes > kInCommand) {
      if (stream == call.context->legacy)
        if (result = check_legacy(call, *call.context); result != kSuccess) return result;
      if (result = enqueue(call, *stream, {}); result != kSuccess) return result;
      call.wait(stream->last);
      if (call.context->sticky != kSuccess) return call.context->sticky;
    }
    staged = std::make_shared<std::vector<std::byte>>(extent(shape.from_pitch));
    std::memcpy(staged->data(), source.at, staged->size());
    source.at = staged->data();
  }
  result = enqueue(
      call, *stream,
      [target, source, shape, share, staged, gpus = &*d.gpus, to_user = User(target.in),
       from_user = User(source.in)](Work& work) {
        copy_rows(target, source, shape.width, shape.rows);
        work.end = gpus->copy(source.gpu(), target.gpu(), shape.width * shape.rows, share, work.begin());
      },
      kCopy);
  if (result != kSuccess || stream->capture != nullptr) return result;
  const bool between_devices = !target.on_host() && !source.on_host();
  const bool waits = target.pageable() || (target.on_host() && source.on_host()) ||
                     (!async && !between_devices && staged == nullptr);
  if (!waits) return kSuccess;
  call.wait(stream->last);
  return call.context->sticky;
}

Result copy_line(const char* function, void* handle, Address to, Is to_is, Address from, Is from_is,
                 std::size_t bytes, bool async) {
  return enter(function, async ? kInContext : kInContext | kUnsafe, [&](Call& call) {
    return copy(call, handle, to, to_is, from, from_is, {.width = bytes}, async);
  });
}

Result copy_2d(const char* function, const Copy2D* form, void* handle, bool async) {
  return enter(function, async ? kInContext : kInContext | kUnsafe, [&](Call& call) -> Result {
    constexpr auto kMaxPitch = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
    if (form == nullptr) return kInvalidValue;
    const auto is_type = [](unsigned type) {
      return type == kHostMemory || type == kDeviceMemory || type == kUnifiedMemory;
    };
    if (!is_type(form->src_type) || !is_type(form->dst_type)) return kInvalidValue;
    if (form->src_x + form->width > form->src_pitch || form->dst_x + form->width > form->dst_pitch ||
        std::max(form->src_pitch, form->dst_pitch) > kMaxPitch)
      return say(kInvalidValue, "a row is longer than from one row to the next, or that is too far");
    const auto is = [](unsigned type) {
      return type == kHostMemory ? Is::kHost : type == kDeviceMemory ? Is::kDevice : Is::kAny;
    };
    const auto address = [](unsigned type, const void* host, Address device, std::size_t x, std::size_t y,
                            std::size_t pitch) {
      return (type == kHostMemory ? address_of(host) : device) + y * pitch + x;
    };
    return copy(
        call, handle,
        address(form->dst_type, form->dst_host, form->dst_device, form->dst_x, form->dst_y, form->dst_pitch),
        is(form->dst_type),
        address(form->src_type, form->src_host, form->src_device, form->src_x, form->src_y, form->src_pitch),
        is(form->src_type), {form->width, form->height, form->dst_pitch, form->src_pitch}, async);
  });
}

/// Fills of device memory are asynchronous in any case; those of host and of managed memory wait.
template <class Value>
Result fill(const char* function, void* handle, Address address, Value value, std::size_t count, bool async) {
  return enter(function, async ? kInContext : kInContext | kUnsafe, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (count == 0) return kSuccess;
    if (address % sizeof(Value) != 0) return kInvalidValue;
    End target;
    if (const Result result = find_end(call, address, count * sizeof(Value), 0, Is::kDevice, true, target);
        result != kSuccess)
      return result;
    const Result result = enqueue(
        call, *stream,
        [target, value, count, user = User(target.in), gpus = &*call.driver.gpus,
         by = call.context->device](Work& work) {
          std::fill_n(reinterpret_cast<Value*>(target.at), count, value);
          note_written(target, target.at, nullptr, nullptr, count * sizeof(Value));
          work.end = gpus->fill(by, target.gpu(), count * sizeof(Value), work.begin());
        },
        kLaunch);
    if (result != kSuccess || async || !target.in->cpu_may()) return result;
    call.wait(stream->last);
    return call.context->sticky;
  });
}

void* const kLegacy = reinterpret_cast<void*>(kLegacyStream);

}  // namespace

EXPORT int cuMemcpy(Address to, Address from, std::size_t bytes) {
  return copy_line("cuMemcpy", kLegacy, to, Is::kAny, from, Is::kAny, bytes, false);
}
EXPORT int cuMemcpyAsync(Address to, Address from, std::size_t bytes, void* stream) {
  return copy_line("cuMemcpyAsync", stream, to, Is::kAny, from, Is::kAny, bytes, true);
}
EXPORT int cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  return copy_line("cuMemcpyHtoD", kLegacy, to, Is::kDevice, address_of(from), Is::kHost, bytes, false);
}
EXPORT int cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, void* stream) {
  return copy_line("cuMemcpyHtoDAsync", stream, to, Is::kDevice, address_of(from), Is::kHost, bytes, true);
}
EXPORT int cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  return copy_line("cuMemcpyDtoH", kLegacy, address_of(to), Is::kHost, from, Is::kDevice, bytes, false);
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, void* stream) {
  return copy_line("cuMemcpyDtoHAsync", stream, address_of(to), Is::kHost, from, Is::kDevice, bytes, true);
}
EXPORT int cuMemcpyDtoD_v2(Address to, Address from, std::size_t bytes) {
  return copy_line("cuMemcpyDtoD", kLegacy, to, Is::kDevice, from, Is::kDevice, bytes, false);
}
EXPORT int cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, void* stream) {
  return copy_line("cuMemcpyDtoDAsync", stream, to, Is::kDevice, from, Is::kDevice, bytes, true);
}
/// With unified addresses the contexts say nothing that the addresses do not.
EXPORT int cuMemcpyPeer(Address to, Context*, Address from, Context*, std::size_t bytes) {
  return copy_line("cuMemcpyPeer", kLegacy, to, Is::kDevice, from, Is::kDevice, bytes, false);
}
EXPORT int cuMemcpyPeerAsync(Address to, Context*, Address from, Context*, std::size_t bytes, void* stream) {
  return copy_line("cuMemcpyPeerAsync", stream, to, Is::kDevice, from, Is::kDevice, bytes, true);
}
EXPORT int cuMemcpy2D_v2(const Copy2D* form) {
  return copy_2d("cuMemcpy2D", form, kLegacy, false);
}
EXPORT int cuMemcpy2DUnaligned_v2(const Copy2D* form) {
  return copy_2d("cuMemcpy2DUnaligned", form, kLegacy, false);
}
EXPORT int cuMemcpy2DAsync_v2(const Copy2D* form, void* stream) {
  return copy_2d("cuMemcpy2DAsync", form, stream, true);
}

EXPORT int cuMemsetD8_v2(Address address, unsigned char value, std::size_t count) {
  return fill("cuMemsetD8", kLegacy, address, value, count, false);
}
EXPORT int cuMemsetD16_v2(Address address, unsigned short value, std::size_t count) {
  return fill("cuMemsetD16", kLegacy, address, value, count, false);
}
EXPORT int cuMemsetD32_v2(Address address, unsigned value, std::size_t count) {
  return fill("cuMemsetD32", kLegacy, address, value, count, false);
}
EXPORT int cuMemsetD8Async(Address address, unsigned char value, std::size_t count, void* stream) {
  return fill("cuMemsetD8Async", stream, address, value, count, true);
}
EXPORT int cuMemsetD16Async(Address address, unsigned short value, std::size_t count, void* stream) {
  return fill("cuMemsetD16Async", stream, address, value, count, true);
}
EXPORT int cuMemsetD32Async(Address address, unsigned value, std::size_t count, void* stream) {
  return fill("cuMemsetD32Async", stream, address, value, count, true);
}
