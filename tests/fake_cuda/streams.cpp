// streams.cpp -- copies of the fake, and the one stream that they wait in.
#include <algorithm>
#include <cstring>

#include "tests/fake_cuda/fake_driver.hpp"

using namespace fake_cuda;

namespace {

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
      if (const Allocation* in = d.holding(end)) d.counts.foreign_context += in->device != context->device;
  }
  ++d.counts.copies;
  d.counts.bytes += width * rows;
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

EXPORT int cuStreamQuery(void*) {
  LOCK("cuStreamQuery");
  if (d.kernel_runs) return kNotReady;
  d.run();
  return 0;
}

EXPORT void fake_cuda_fill(void* device, int value, std::size_t bytes) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  std::byte* const target = d.reach(device, bytes);
  d.stream.push_back([=] { std::memset(target, value, bytes); });
}
