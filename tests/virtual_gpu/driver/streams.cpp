// streams.cpp -- streams and events.
#include <algorithm>
#include <thread>

#include "tests/virtual_gpu/driver/driver.hpp"
#include "tests/virtual_gpu/memory/words.hpp"

using namespace virtual_gpu;

namespace {

bool is_unfinished(const WorkPtr& work) {
  return work != nullptr && !work->ended;
}

/// Where a stream is asked or waited for: not while it captures, nor, of the legacy stream, while one does
/// that waits for it. Other captures make it an unsafe call.
Result check_stream(Call& call, const std::shared_ptr<Stream>& stream) {
  if (stream == nullptr) return kInvalidHandle;
  if (stream->capture != nullptr) {
    stream->capture->valid = false;
    return say(kCaptureUnsupported, "a stream that captures is waited for");
  }
  if (stream == stream->context->legacy)
    if (const Result result = check_legacy(call, *stream->context); result != kSuccess) return result;
  return check_captures(call);
}

Event* find_event(const Call& call, void* handle) {
  const auto found = call.driver.events.find(handle);
  return found == call.driver.events.end() ? nullptr : found->second.get();
}
Result check_event(Call& call, const Event* event) {
  if (event == nullptr) return kInvalidHandle;
  if (event->capture != nullptr) {
    event->capture->valid = false;
    return say(kCapturedEvent, "an event is asked that was recorded in a capture");
  }
  return check_captures(call);
}

/// What is in a stream; the legacy one has ended when those that it synchronises with have, too.
std::vector<WorkPtr> works_of(const Stream& stream) {
  std::vector<WorkPtr> works{stream.last};
  if (&stream == stream.context->legacy.get())
    for (const auto& other : stream.context->streams)
      if (other->blocking) works.push_back(other->last);
  return works;
}

}  // namespace

EXPORT int cuStreamCreate(void** out, unsigned flags) {
  return enter("cuStreamCreate", kInContext, [&](Call& call) -> Result {
    if (out == nullptr || flags > kNonBlocking) return kInvalidValue;
    const auto stream =
        std::make_shared<Stream>(Stream{.context = call.context, .blocking = flags != kNonBlocking});
    call.context->streams.push_back(stream);
    call.driver.streams[*out = stream.get()] = stream;
    ++call.driver.counts.streams;
    return kSuccess;
  });
}
EXPORT int cuStreamCreateWithPriority(void** out, unsigned flags, int) {
  return cuStreamCreate(out, flags);
}
/// What is in it goes on. One that captures ends its capture (inferred).
EXPORT int cuStreamDestroy_v2(void* handle) {
  return enter("cuStreamDestroy", kInContext, [&](Call& call) -> Result {
    Driver& d = call.driver;
    const auto found = d.streams.find(handle);
    if (found == d.streams.end()) return kInvalidHandle;
    if (found->second->capture != nullptr) {
      found->second->capture->valid = false;
      std::erase(d.captures, found->second->capture);
    }
    found->second->destroyed = true;
    d.ended_handles.push_back(found->second);
    d.streams.erase(found);
    --d.counts.streams;
    return kSuccess;
  });
}
EXPORT int cuStreamQuery(void* handle) {
  return enter("cuStreamQuery", kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (const Result result = check_stream(call, stream); result != kSuccess) return result;
    Result result = stream->context->sticky;
    WorkPtr last;
    for (const WorkPtr& work : works_of(*stream)) {
      if (is_unfinished(work)) {
        call.driver.engine.hurry(work);
        result = kNotReady;
      } else if (work != nullptr && (last == nullptr || work->end > last->end)) {
        last = work;
      }
    }
    if (result == kSuccess) call.find_ended(last);
    return result;
  });
}
EXPORT int cuStreamSynchronize(void* handle) {
  return enter("cuStreamSynchronize", kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (const Result result = check_stream(call, stream); result != kSuccess) return result;
    ++call.driver.counts.synchronisations;
    for (const WorkPtr& work : works_of(*stream)) call.wait(work);
    return stream->context->sticky;
  });
}
EXPORT int cuStreamGetFlags(void* handle, unsigned* flags) {
  return enter("cuStreamGetFlags", kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr || flags == nullptr) return kInvalidHandle;
    *flags = stream->blocking ? 0 : kNonBlocking;
    return kSuccess;
  });
}
EXPORT int cuStreamGetPriority(void* handle, int* priority) {
  return enter("cuStreamGetPriority", kInContext, [&](Call& call) -> Result {
    if (call.stream(handle) == nullptr || priority == nullptr) return kInvalidHandle;
    *priority = 0;
    return kSuccess;
  });
}
EXPORT int cuStreamGetCtx(void* handle, Context** out) {
  return enter("cuStreamGetCtx", kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr || out == nullptr) return kInvalidHandle;
    *out = stream->context;
    return kSuccess;
  });
}
EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return enter("cuCtxGetStreamPriorityRange", kInContext, [&](Call&) -> Result {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return kSuccess;
  });
}

/// The function must not call CUDA, and waits in its stream for what came before.
EXPORT int cuLaunchHostFunc(void* handle, HostFunction* function, void* data) {
  return enter("cuLaunchHostFunc", kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (function == nullptr) return kInvalidValue;
    return enqueue(call, *stream, [=](Work&) {
      in_host_function = true;
      function(data);
      in_host_function = false;
    });
  });
}

/// Words in memory that streams write, and wait for.
namespace {

/// nullptr: nobody keeps virtual time.
memory::Arrivals* line_of(const Allocation& in, Address address) {
  memory::Arrivals* const lines = in.file ? in.file->arrivals() : nullptr;
  return lines == nullptr ? nullptr : lines + (address - in.begin) / memory::kLineBytes;
}

template <class Word>
Result write_value(const char* function, void* handle, Address address, Word value) {
  return enter(function, kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr) return kInvalidHandle;
    const AllocationPtr in = call.driver.memory.holding(address, sizeof(Word));
    if (in == nullptr || address % sizeof(Word) != 0) return kInvalidValue;
    return enqueue(call, *stream, [in, address, value](Work& work) {
      if (memory::Arrivals* const line = line_of(*in, address)) line->note(work.begin());
      std::atomic_ref(*reinterpret_cast<Word*>(in->at(address))).store(value, std::memory_order_release);
      if (in->file && in->file->written() != nullptr)
        in->file->written()->mark(address - in->begin, sizeof(Word));
    });
  });
}

template <class Word>
Result wait_value(const char* function, void* handle, Address address, Word value, unsigned flags) {
  return enter(function, kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr) return kInvalidHandle;
    const AllocationPtr in = call.driver.memory.holding(address, sizeof(Word));
    const unsigned how = flags & 3;  // greater or equal (cyclic), equal, and, nor
    if (in == nullptr || address % sizeof(Word) != 0) return kInvalidValue;
    return enqueue(call, *stream, [in, address, value, how, context = stream->context](Work& work) {
      const auto is_there = [&] {
        const Word now =
            std::atomic_ref(*reinterpret_cast<Word*>(in->at(address))).load(std::memory_order_acquire);
        switch (how) {
          case 0:
            return static_cast<std::make_signed_t<Word>>(now - value) >= 0;
          case 1:
            return now == value;
          case 2:
            return (now & value) != 0;
          default:
            return static_cast<Word>(~(now | value)) != 0;
        }
      };
      while (!is_there() && !context->stop) std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (const memory::Arrivals* const line = line_of(*in, address)) work.end = line->latest();
    });
  });
}

}  // namespace

EXPORT int cuStreamWriteValue32_v2(void* stream, Address address, std::uint32_t value, unsigned) {
  return write_value("cuStreamWriteValue32", stream, address, value);
}
EXPORT int cuStreamWriteValue64_v2(void* stream, Address address, std::uint64_t value, unsigned) {
  return write_value("cuStreamWriteValue64", stream, address, value);
}
EXPORT int cuStreamWaitValue32_v2(void* stream, Address address, std::uint32_t value, unsigned flags) {
  return wait_value("cuStreamWaitValue32", stream, address, value, flags);
}
EXPORT int cuStreamWaitValue64_v2(void* stream, Address address, std::uint64_t value, unsigned flags) {
  return wait_value("cuStreamWaitValue64", stream, address, value, flags);
}

EXPORT int cuEventCreate(void** out, unsigned flags) {
  return enter("cuEventCreate", kInContext, [&](Call& call) -> Result {
    const bool right = flags <= 7 && ((flags & kInterprocess) == 0 || (flags & kDisableTiming) != 0);
    if (out == nullptr || !right) return kInvalidValue;
    auto event = std::make_shared<Event>(Event{.context = call.context, .flags = flags});
    *out = event.get();
    call.driver.events[*out] = std::move(event);
    ++call.driver.counts.streams;
    return kSuccess;
  });
}
EXPORT int cuEventDestroy_v2(void* handle) {
  return enter("cuEventDestroy", kInContext, [&](Call& call) -> Result {
    const auto found = call.driver.events.find(handle);
    if (found == call.driver.events.end()) return kInvalidHandle;
    call.driver.ended_handles.emplace_back(std::move(found->second));
    call.driver.events.erase(found);
    --call.driver.counts.streams;
    return kSuccess;
  });
}
EXPORT int cuEventRecord(void* handle, void* stream_handle) {
  return enter("cuEventRecord", kInContext, [&](Call& call) -> Result {
    Event* const event = find_event(call, handle);
    const auto stream = call.stream(stream_handle);
    if (event == nullptr || stream == nullptr || event->context != stream->context) return kInvalidHandle;
    if (stream->capture != nullptr) {
      if (!stream->capture->valid) return kCaptureInvalidated;
      event->capture = stream->capture;
      event->tail = stream->tail;
      return kSuccess;
    }
    if (const Result result = enqueue(call, *stream, {}, kMark); result != kSuccess) return result;
    event->capture = nullptr;
    event->recorded = true;
    event->work = stream->last;
    return kSuccess;
  });
}
EXPORT int cuEventRecordWithFlags(void* event, void* stream, unsigned) {
  return cuEventRecord(event, stream);
}
/// What the event stands for at this moment. An event of a capture takes the stream into it; one of before
/// would tie the capture to work outside it.
EXPORT int cuStreamWaitEvent(void* stream_handle, void* handle, unsigned flags) {
  return enter("cuStreamWaitEvent", kInContext, [&](Call& call) -> Result {
    const Event* const event = find_event(call, handle);
    const auto stream = call.stream(stream_handle);
    if (event == nullptr || stream == nullptr) return kInvalidHandle;
    if (flags > 1) return kInvalidValue;
    if (event->capture != nullptr) {
      if (std::ranges::count(call.driver.captures, event->capture) == 0)
        return say(kCapturedEvent, "an event is waited for whose capture has ended");
      if (!event->capture->valid) return kCaptureInvalidated;
      if (stream == stream->context->legacy) {  // it cannot be captured (which error is inferred)
        event->capture->valid = false;
        return say(kCaptureImplicit, "the legacy stream waits for a capture");
      }
      if (stream->capture != nullptr && stream->capture != event->capture) return kCaptureMerge;
      if (stream->capture == nullptr) stream->tail.clear();  // of an earlier capture
      stream->capture = event->capture;
      stream->tail.insert(stream->tail.end(), event->tail.begin(), event->tail.end());
      return kSuccess;
    }
    if (stream->capture != nullptr) {
      if (!event->recorded) return kSuccess;
      stream->capture->valid = false;
      return say(kCaptureIsolation, "a capture waits for work outside it");
    }
    return event->recorded ? enqueue(call, *stream, {}, kMark, event->work) : kSuccess;
  });
}
EXPORT int cuEventQuery(void* handle) {
  return enter("cuEventQuery", kInContext, [&](Call& call) -> Result {
    const Event* const event = find_event(call, handle);
    if (const Result result = check_event(call, event); result != kSuccess) return result;
    if (!is_unfinished(event->work)) {
      call.find_ended(event->work);
      return event->context->sticky;
    }
    call.driver.engine.hurry(event->work);
    return kNotReady;
  });
}
EXPORT int cuEventSynchronize(void* handle) {
  return enter("cuEventSynchronize", kInContext, [&](Call& call) -> Result {
    const Event* const event = find_event(call, handle);
    if (const Result result = check_event(call, event); result != kSuccess) return result;
    Context& context = *event->context;
    call.wait(WorkPtr(event->work));
    return context.sticky;
  });
}
EXPORT int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  return enter("cuEventElapsedTime", kInContext, [&](Call& call) -> Result {
    const Event *const first = find_event(call, from), *const last = find_event(call, to);
    if (milliseconds == nullptr) return kInvalidValue;
    for (const Event* event : {first, last})
      if (event == nullptr || (event->flags & kDisableTiming) != 0 || !event->recorded ||
          event->context != first->context)
        return kInvalidHandle;
    if (is_unfinished(first->work) || is_unfinished(last->work)) return kNotReady;
    const std::chrono::duration<float, std::milli> here(last->work->when_ended - first->work->when_ended);
    *milliseconds = call.driver.gpus->clock() != nullptr
                        ? static_cast<float>((last->work->end - first->work->end) * 1e-6)
                        : here.count();
    return kSuccess;
  });
}
EXPORT int cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
  return cuEventElapsedTime(milliseconds, from, to);
}
