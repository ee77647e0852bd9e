// streams.cpp -- copies of the fake, and the streams that they wait in.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/fake_cuda/fake_driver.hpp"

using namespace fake_cuda;

namespace {

Clock::duration time_of(std::size_t bytes) {
  static const char* const rate = std::getenv("FAKE_CUDA_GBPS");
  if (rate == nullptr) return {};
  return std::chrono::nanoseconds(static_cast<std::int64_t>(static_cast<double>(bytes) / std::atof(rate)));
}

/// Rows from one place to another.
int enqueue(Driver& d, Stream& stream, void* to, const void* from, std::size_t width, std::size_t rows,
            std::size_t to_pitch, std::size_t from_pitch) {
  Context* const context = current_context();
  if (context == nullptr || !d.alive.contains(context)) return kInvalidContext;
  for (std::size_t row = 0; row < rows; ++row) {
    auto* const to_row = static_cast<std::byte*>(to) + row * to_pitch;
    auto* const from_row = static_cast<std::byte*>(const_cast<void*>(from)) + row * from_pitch;
    std::byte *const target = d.reach(to_row, width), *const source = d.reach(from_row, width);
    if (target == nullptr || source == nullptr) return kInvalidValue;
    stream.push_back([=] { std::memmove(target, source, width); });
    for (const void* end : {static_cast<const void*>(to_row), static_cast<const void*>(from_row)})
      if (const Allocation* in = d.holding(end)) d.counts.foreign_context += in->device != context->device;
  }
  stream.ends = std::max(stream.ends, Clock::now()) + time_of(width * rows);
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
  Stream* const in = d.find(stream);
  if (in == nullptr) return kInvalidHandle;
  return enqueue(d, *in, pointer(to), pointer(from), bytes, 1, 0, 0);
}
EXPORT int cuMemcpy2DAsync_v2(const Copy2D* copy, void* stream) {
  LOCK("cuMemcpy2DAsync");
  Stream* const in = d.find(stream);
  if (in == nullptr) return kInvalidHandle;
  if (copy->width > copy->src_pitch || copy->width > copy->dst_pitch || copy->src_x + copy->src_y != 0 ||
      copy->dst_x + copy->dst_y != 0)
    return kInvalidValue;
  const void* const from = copy->src_type == kHostType ? copy->src_host : pointer(copy->src_device);
  void* const to = copy->dst_type == kHostType ? copy->dst_host : pointer(copy->dst_device);
  if (std::max(copy->src_type, copy->dst_type) > kUnifiedType) return kInvalidValue;
  return enqueue(d, *in, to, from, copy->width, copy->height, copy->dst_pitch, copy->src_pitch);
}
/// What there is to run, and until when that takes.
static int synchronize(void* stream, Clock::time_point& ends) {
  LOCK("cuStreamSynchronize");
  Stream* const in = d.find(stream);
  if (in == nullptr) return kInvalidHandle;
  ++d.counts.synchronisations;
  ends = in->ends;
  if (in == &d.stream)
    d.run();
  else
    in->run(in->enqueued);
  return 0;
}
EXPORT int cuStreamSynchronize(void* stream) {
  Clock::time_point ends{};
  const int result = synchronize(stream, ends);
  std::this_thread::sleep_until(ends);
  return result;
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

EXPORT int cuMemsetD8Async(std::uint64_t address, unsigned char value, std::size_t bytes, void* stream) {
  LOCK("cuMemsetD8Async");
  Stream* const in = d.find(stream);
  if (in == nullptr) return kInvalidHandle;
  std::byte* const target = d.reach(pointer(address), bytes);
  if (target == nullptr) return kInvalidValue;
  in->push_back([=] { std::memset(target, value, bytes); });
  return 0;
}
EXPORT int cuStreamCreate(void** out, unsigned flags) {
  LOCK("cuStreamCreate");
  if (current_context() == nullptr) return kInvalidContext;
  if (flags != 1) return kInvalidValue;
  *out = *d.streams.insert(new Stream).first;
  ++d.counts.streams;
  return 0;
}
EXPORT int cuStreamDestroy_v2(void* stream) {
  LOCK("cuStreamDestroy");
  auto* const made = static_cast<Stream*>(stream);
  if (!d.streams.contains(made)) return kInvalidHandle;
  d.streams.erase(made);
  d.left.push_back(made);  // for ever: events may refer to it
  --d.counts.streams;
  return 0;
}

EXPORT int cuEventCreate(void** out, unsigned) {
  LOCK("cuEventCreate");
  if (current_context() == nullptr) return kInvalidContext;
  *out = *d.events.insert(new Event).first;
  ++d.counts.streams;
  return 0;
}
EXPORT int cuEventDestroy_v2(void* event) {
  LOCK("cuEventDestroy");
  if (d.events.erase(static_cast<Event*>(event)) == 0) return kInvalidHandle;
  delete static_cast<Event*>(event);
  --d.counts.streams;
  return 0;
}
EXPORT int cuEventRecord(void* event, void* stream) {
  LOCK("cuEventRecord");
  Stream* const in = d.find(stream);
  if (in == nullptr || !d.events.contains(static_cast<Event*>(event))) return kInvalidHandle;
  *static_cast<Event*>(event) = {in, in->enqueued, in->ends};
  return 0;
}
/// What the event stands for at this moment.
EXPORT int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  LOCK("cuStreamWaitEvent");
  Stream* const in = d.find(stream);
  if (in == nullptr || !d.events.contains(static_cast<Event*>(event))) return kInvalidHandle;
  const Event before = *static_cast<Event*>(event);
  if (before.stream == nullptr) return 0;
  in->ends = std::max(in->ends, before.ends);
  in->push_back([before] { before.stream->run(before.position); });
  return 0;
}
static int wait_for(void* event, Clock::time_point& ends) {
  LOCK("cuEventSynchronize");
  if (!d.events.contains(static_cast<Event*>(event))) return kInvalidHandle;
  const Event before = *static_cast<Event*>(event);
  ends = before.ends;
  if (before.stream != nullptr) before.stream->run(before.position);
  return 0;
}
EXPORT int cuEventSynchronize(void* event) {
  Clock::time_point ends{};
  const int result = wait_for(event, ends);
  std::this_thread::sleep_until(ends);
  return result;
}

EXPORT int cuStreamQuery(void* stream) {
  LOCK("cuStreamQuery");
  Stream* const in = d.find(stream);
  if (in == nullptr) return kInvalidHandle;
  if (in == &d.stream && d.kernel_runs) return kNotReady;
  if (in == &d.stream)
    d.run();
  else
    in->run(in->enqueued);
  return 0;
}

EXPORT void fake_cuda_fill(void* device, int value, std::size_t bytes) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  std::byte* const target = d.reach(device, bytes);
  d.stream.push_back([=] { std::memset(target, value, bytes); });
}
