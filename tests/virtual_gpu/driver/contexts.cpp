// contexts.cpp -- primary contexts and those of the program; which one is current in a thread.
#include <algorithm>

#include "tests/virtual_gpu/driver/driver.hpp"

using namespace virtual_gpu;

namespace {

Context* make_context(Driver& d, Ordinal device, bool primary, unsigned flags) {
  auto* const context = new Context{.device = device, .primary = primary};  // for ever, see Driver::ended
  context->flags = flags;
  context->legacy = std::make_shared<Stream>(Stream{.context = context, .blocking = true});
  context->streams.push_back(context->legacy);
  d.contexts.insert(context);
  return context;
}

bool is_alive(const Driver& d, Context* context) {
  return d.contexts.contains(context);
}

}  // namespace

/// A device has one handle of its primary context for ever; it is active or not.
EXPORT int cuDevicePrimaryCtxRetain(Context** out, Ordinal device) {
  return enter("cuDevicePrimaryCtxRetain", kNothing, [&](Call& call) -> Result {
    Driver& d = call.driver;
    if (out == nullptr) return kInvalidValue;
    if (!d.is_device(device)) return kInvalidDevice;
    Context*& context = d.primary[static_cast<std::size_t>(device)];
    if (context == nullptr) context = make_context(d, device, true, 0);
    context->active = true;
    ++context->retained;
    *out = context;
    return kSuccess;
  });
}
EXPORT int cuDevicePrimaryCtxRelease_v2(Ordinal device) {
  return enter("cuDevicePrimaryCtxRelease", kNothing, [&](Call& call) -> Result {
    if (!call.driver.is_device(device)) return kInvalidDevice;
    Context* const context = call.driver.primary[static_cast<std::size_t>(device)];
    if (context == nullptr || context->retained == 0) return kInvalidContext;
    if (--context->retained == 0 && context->active) call.driver.end(call.lock, *context);
    return kSuccess;
  });
}
/// Retained or not: a reset does not change how often it is retained.
EXPORT int cuDevicePrimaryCtxReset_v2(Ordinal device) {
  return enter("cuDevicePrimaryCtxReset", kNothing, [&](Call& call) -> Result {
    if (!call.driver.is_device(device)) return kInvalidDevice;
    Context* const context = call.driver.primary[static_cast<std::size_t>(device)];
    if (context != nullptr && context->active) call.driver.end(call.lock, *context);
    return kSuccess;
  });
}
EXPORT int cuDevicePrimaryCtxGetState(Ordinal device, unsigned* flags, int* active) {
  return enter("cuDevicePrimaryCtxGetState", kNothing, [&](Call& call) -> Result {
    if (flags == nullptr || active == nullptr) return kInvalidValue;
    if (!call.driver.is_device(device)) return kInvalidDevice;
    const Context* const context = call.driver.primary[static_cast<std::size_t>(device)];
    *flags = context == nullptr ? 0 : context->flags;
    *active = context != nullptr && context->active;
    return kSuccess;
  });
}
EXPORT int cuDevicePrimaryCtxSetFlags_v2(Ordinal device, unsigned flags) {
  return enter("cuDevicePrimaryCtxSetFlags", kNothing, [&](Call& call) -> Result {
    if (!call.driver.is_device(device)) return kInvalidDevice;
    Context*& context = call.driver.primary[static_cast<std::size_t>(device)];
    if (context == nullptr) {
      context = make_context(call.driver, device, true, flags);
      context->active = false;
    }
    context->flags = flags;
    return kSuccess;
  });
}

EXPORT int cuCtxCreate_v2(Context** out, unsigned flags, Ordinal device) {
  return enter("cuCtxCreate", kNothing, [&](Call& call) -> Result {
    if (out == nullptr) return kInvalidValue;
    if (!call.driver.is_device(device)) return kInvalidDevice;
    current.push_back(*out = make_context(call.driver, device, false, flags));
    return kSuccess;
  });
}
EXPORT int cuCtxCreate_v4(Context** out, void*, unsigned flags, Ordinal device) {
  return cuCtxCreate_v2(out, flags, device);
}
/// A primary context is not destroyed so (inferred).
EXPORT int cuCtxDestroy_v2(Context* context) {
  return enter("cuCtxDestroy", kNothing, [&](Call& call) -> Result {
    Driver& d = call.driver;
    if (!is_alive(d, context) || context->primary) return kInvalidContext;
    d.end(call.lock, *context);
    d.contexts.erase(context);
    d.ended.insert(context);
    if (!current.empty() && current.back() == context) current.pop_back();
    return kSuccess;
  });
}

EXPORT int cuCtxPushCurrent_v2(Context* context) {
  return enter("cuCtxPushCurrent", kNothing, [&](Call& call) -> Result {
    if (!is_alive(call.driver, context)) return kInvalidContext;
    current.push_back(context);
    return kSuccess;
  });
}
EXPORT int cuCtxPopCurrent_v2(Context** out) {
  return enter("cuCtxPopCurrent", kNothing, [&](Call&) -> Result {
    if (current.empty()) return kInvalidContext;
    if (out != nullptr) *out = current.back();
    current.pop_back();
    return kSuccess;
  });
}
/// Takes the place of the current one; nullptr: none does.
EXPORT int cuCtxSetCurrent(Context* context) {
  return enter("cuCtxSetCurrent", kNothing, [&](Call& call) -> Result {
    if (context != nullptr && !is_alive(call.driver, context)) return kInvalidContext;
    if (!current.empty()) current.pop_back();
    if (context != nullptr) current.push_back(context);
    return kSuccess;
  });
}
EXPORT int cuCtxGetCurrent(Context** out) {
  return enter("cuCtxGetCurrent", kNothing, [&](Call& call) -> Result {
    if (out == nullptr) return kInvalidValue;
    *out = call.context;
    return kSuccess;
  });
}
EXPORT int cuCtxGetDevice(Ordinal* out) {
  return enter("cuCtxGetDevice", kInContext, [&](Call& call) -> Result {
    *out = call.context->device;
    return kSuccess;
  });
}
EXPORT int cuCtxGetFlags(unsigned* out) {
  return enter("cuCtxGetFlags", kInContext, [&](Call& call) -> Result {
    *out = call.context->flags;
    return kSuccess;
  });
}
EXPORT int cuCtxGetApiVersion(Context* context, unsigned* version) {
  return enter("cuCtxGetApiVersion", kNothing, [&](Call& call) -> Result {
    if (context == nullptr) context = call.context;
    if (!is_alive(call.driver, context) || !context->active) return kInvalidContext;
    *version = 3020;
    return kSuccess;
  });
}
EXPORT int cuCtxSynchronize() {
  return enter("cuCtxSynchronize", kInContext, [&](Call& call) -> Result {
    for (const auto& capture : call.driver.captures)  // whatever its mode
      if (capture->context == call.context) {
        capture->valid = false;
        return kCaptureUnsupported;
      }
    return call.wait_for_all(*call.context);
  });
}

EXPORT int cuDeviceCanAccessPeer(int* out, Ordinal from, Ordinal to) {
  return enter("cuDeviceCanAccessPeer", kNothing, [&](Call& call) -> Result {
    const Driver& d = call.driver;
    if (!d.is_device(from) || !d.is_device(to)) return kInvalidDevice;
    *out = d.gpus->can_access(from, to);
    return kSuccess;
  });
}
EXPORT int cuCtxEnablePeerAccess(Context* peer, unsigned flags) {
  return enter("cuCtxEnablePeerAccess", kInContext | kUnsafe, [&](Call& call) -> Result {
    Driver& d = call.driver;
    if (flags != 0) return kInvalidValue;
    if (!is_alive(d, peer) || !peer->active || peer == call.context) return kInvalidContext;
    if (peer->device != call.context->device && !d.gpus->can_access(call.context->device, peer->device))
      return kPeerAccessUnsupported;
    if (!call.context->peers.insert(peer).second) return kPeerAccessAlreadyEnabled;
    d.memory.touch();
    return kSuccess;
  });
}
EXPORT int cuCtxDisablePeerAccess(Context* peer) {
  return enter("cuCtxDisablePeerAccess", kInContext | kUnsafe, [&](Call& call) -> Result {
    if (!is_alive(call.driver, peer)) return kInvalidContext;
    if (call.context->peers.erase(peer) == 0) return kPeerAccessNotEnabled;
    call.driver.memory.touch();
    return kSuccess;
  });
}
