#include "tests/virtual_gpu/driver/driver.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "tests/virtual_gpu/driver/module.hpp"

namespace virtual_gpu {

thread_local std::vector<Context*> current;
thread_local CaptureMode capture_mode = CaptureMode::kGlobal;
thread_local bool in_host_function = false;

Driver& driver() {
  static auto* const the_driver = new Driver;  // its threads go on until the process ends
  return *the_driver;
}

std::optional<std::string> variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const auto text = variable(name);
  return text ? std::strtoull(text->c_str(), nullptr, 10) : otherwise;
}

Result say(Result result, const std::string& why) {
  static const bool verbose = number("VIRTUAL_GPU_VERBOSE", 0) != 0;
  if (verbose) std::fprintf(stderr, "virtual GPU: error %d: %s\n", result, why.c_str());
  return result;
}

/// Where copies have a speed, that is the time they take.
Driver::Driver()
    : engine(
          mutex,
          std::chrono::microseconds(number("VIRTUAL_GPU_DELAY_US", variable("VIRTUAL_GPU_GBPS") ? 0 : 2000)),
          number("VIRTUAL_GPU_SEED", 1)) {
  const std::string all = variable("VIRTUAL_GPU_FAIL").value_or("");
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find(',', at), all.size());
    char name[64];
    int after = 0, error = 0;
    if (std::sscanf(all.substr(at, end - at).c_str(), "%63[^:]:%d:%d", name, &after, &error) == 3)
      failures[name] = {after, error};
    at = end + 1;
  }
}

Result Driver::fails(const char* function) {
  const auto found = failures.find(function);
  if (found == failures.end()) return kSuccess;
  if (found->second.first > 0) {
    --found->second.first;
    return kSuccess;
  }
  if (found->second.second < 0) ::raise(-found->second.second);
  return found->second.second;
}

AllocationPtr AddressMap::holding(Address address, std::size_t bytes) const {
  const auto next = by_begin_.upper_bound(address);
  if (next == by_begin_.begin()) return nullptr;
  const AllocationPtr& found = std::prev(next)->second;
  const std::size_t offset = address - found->begin;
  return offset < found->bytes && bytes <= found->bytes - offset ? found : nullptr;
}

AllocationPtr AddressMap::at(Address address) const {
  const auto found = by_begin_.find(address);
  return found == by_begin_.end() ? nullptr : found->second;
}

bool AddressMap::overlaps(Address address, std::size_t bytes) const {
  const auto next = by_begin_.lower_bound(address + bytes);
  return next != by_begin_.begin() && std::prev(next)->first + std::prev(next)->second->bytes > address;
}

void AddressMap::add(AllocationPtr allocation) {
  by_begin_[allocation->begin] = std::move(allocation);
}

void AddressMap::remove(Address begin) {
  by_begin_.erase(begin);
  touch();
}

std::vector<AllocationPtr> AddressMap::all() const {
  std::vector<AllocationPtr> result;
  for (const auto& [begin, allocation] : by_begin_) result.push_back(allocation);
  return result;
}

Result begin(Call& call, const char* function, unsigned needs) {
  Driver& d = call.driver;
  if (d.process != ::getpid()) return kNotInitialized;  // not, or in a child of fork
  if (in_host_function) return say(kNotPermitted, "a host function calls CUDA");
  call.lock = std::unique_lock(d.mutex);
  if (const Result failure = d.fails(function); failure != kSuccess) return failure;
  if (!current.empty()) call.context = current.back();
  if ((needs & kInContext) != 0) {
    if (call.context == nullptr)
      return say(kInvalidContext, std::string(function) + ": no context is current");
    if (!d.contexts.contains(call.context) || !call.context->active)
      return say(kContextIsDestroyed, std::string(function) + ": the current context is destroyed");
    if (call.context->sticky != kSuccess) return call.context->sticky;
  }
  return (needs & kUnsafe) != 0 ? check_captures(call) : kSuccess;
}

/// By the documentation of cuThreadExchangeStreamCaptureMode. That only captures of the current context count
/// is inferred from what users have seen: those on other GPUs go on.
Result check_captures(Call& call) {
  Result result = kSuccess;
  for (const auto& capture : call.driver.captures) {
    const bool mine = capture->thread == std::this_thread::get_id();
    const bool forbids = mine
                             ? capture->mode != CaptureMode::kRelaxed && capture_mode != CaptureMode::kRelaxed
                             : capture->mode == CaptureMode::kGlobal && capture_mode == CaptureMode::kGlobal;
    if (!forbids || capture->context != call.context) continue;
    capture->valid = false;
    result = say(kCaptureUnsupported, "an unsafe call while a stream captures");
  }
  return result;
}

Result check_legacy(Call& call, Context& context) {
  Result result = kSuccess;
  for (const auto& capture : call.driver.captures)
    if (capture->context == &context && capture->origin->blocking) {
      capture->valid = false;
      result = say(kCaptureImplicit, "the legacy stream is used while a stream captures that waits for it");
    }
  return result;
}

/// The streams without a handle are made when they are first used.
std::shared_ptr<Stream> Call::stream(void* handle) const {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value <= kLegacyStream) return context->legacy;
  if (value == kPerThreadStream) {
    auto& mine = context->per_thread[std::this_thread::get_id()];
    if (mine == nullptr) {
      mine = std::make_shared<Stream>(Stream{.context = context, .blocking = true});
      context->streams.push_back(mine);
    }
    return mine;
  }
  const auto found = driver.streams.find(handle);
  return found == driver.streams.end() ? nullptr : found->second;
}

void Call::wait(const WorkPtr& work) {
  driver.engine.wait(lock, work);
  machine::VirtualClock* const clock = driver.gpus->clock();
  if (work != nullptr && clock != nullptr) clock->wait_until(work->end + machine::kSynchronizeNs);
}

/// Questions in vain take no time: how many there are is this machine's affair.
void Call::find_ended(const WorkPtr& work) {
  machine::VirtualClock* const clock = driver.gpus->clock();
  if (clock == nullptr) return;
  if (work != nullptr) clock->wait_until(work->end);
  clock->spend(machine::kQueryNs);
}

Result Call::wait_for_all(Context& of) {
  std::vector<WorkPtr> works;
  for (const auto& stream : of.streams) works.push_back(stream->last);
  for (const WorkPtr& work : works)
    if (work != nullptr) driver.engine.hurry(work);
  for (const WorkPtr& work : works) wait(work);
  return of.sticky;
}

Result enqueue(Call& call, Stream& stream, std::function<void(Work&)> body, const Cost& cost,
               const WorkPtr& after) {
  Driver& d = call.driver;
  Context& context = *stream.context;
  if (stream.capture != nullptr) {
    if (!stream.capture->valid) return kCaptureInvalidated;
    stream.capture->nodes.push_back(stream.tail);
    stream.tail.assign(1, stream.capture->nodes.size() - 1);
    return kSuccess;
  }
  const bool legacy = &stream == context.legacy.get();
  if (legacy)
    if (const Result result = check_legacy(call, context); result != kSuccess) return result;
  std::vector<WorkPtr> before{stream.last, after};
  if (legacy) {
    std::erase_if(context.streams, [](const auto& other) {
      return other->destroyed && (other->last == nullptr || other->last->ended);
    });
    for (const auto& other : context.streams)
      if (other->blocking) before.push_back(other->last);
  } else if (stream.blocking) {
    before.push_back(context.legacy->last);
  }
  if (body)
    body = [&context, body = std::move(body)](Work& work) {
      if (context.sticky == kSuccess) body(work);
    };
  Schedule schedule;
  if (machine::VirtualClock* const clock = d.gpus->clock(); clock != nullptr) {
    clock->spend(cost.call);
    schedule = {clock->now() + cost.start, cost.gap};
  }
  stream.last = d.engine.enqueue(std::move(body), before, schedule);
  return kSuccess;
}

/// Also of a context that has failed, or that has been reset.
void Driver::end(std::unique_lock<std::mutex>& lock, Context& context) {
  context.stop = true;
  Call call{*this, std::move(lock), &context};
  call.wait_for_all(context);
  lock = std::move(call.lock);
  for (const AllocationPtr& allocation : memory.all())
    if (allocation->context == &context) release(allocation);
  std::erase_if(captures, [&](const auto& capture) { return capture->context == &context; });
  const auto drop = [this](auto& objects, auto&& is_gone) {
    for (auto it = objects.begin(); it != objects.end();)
      if (is_gone(*it->second)) {
        ended_handles.emplace_back(std::move(it->second));
        it = objects.erase(it);
        --counts.streams;
      } else {
        ++it;
      }
  };
  for (const auto& [handle, module] : modules)
    if (module->context == &context)
      for (const auto& [name, function] : module->functions) functions.erase(function.get());
  std::erase_if(modules, [&](const auto& each) { return each.second->context == &context; });
  drop(streams, [&](const Stream& stream) { return stream.context == &context; });
  drop(events, [&](const Event& event) { return event.context == &context; });
  context.streams.clear();
  context.per_thread.clear();
  context.peers.clear();
  context.legacy = std::make_shared<Stream>(Stream{.context = &context, .blocking = true});
  context.streams.push_back(context.legacy);
  context.sticky = kSuccess;
  context.stop = false;
  context.active = false;
}

}  // namespace virtual_gpu

using namespace virtual_gpu;

EXPORT void virtual_gpu_read(VirtualGpuCounts* counts) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  *counts = d.counts;
}
EXPORT double virtual_gpu_now(void) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (!d.gpus) return machine::keeps_time() ? 0 : -1;
  return d.gpus->clock() != nullptr ? d.gpus->clock()->now() * 1e-9 : -1;
}
EXPORT void virtual_gpu_wait_until(double seconds) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (d.gpus && d.gpus->clock() != nullptr) d.gpus->clock()->wait_until(seconds * 1e9);
}
EXPORT void virtual_gpu_fail(const char* function, int after, int error) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (error == 0)
    d.failures.erase(function);
  else
    d.failures[function] = {after, error};
}
EXPORT std::uint64_t virtual_gpu_carried(const char* from, const char* to) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  return d.gpus ? d.gpus->carried(from, to).value_or(~std::uint64_t{0}) : ~std::uint64_t{0};
}
