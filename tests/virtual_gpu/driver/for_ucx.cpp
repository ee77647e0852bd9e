// for_ucx.cpp -- what else UCX's module for CUDA asks a driver for: mostly refused, as drivers do that lack
// it.
#include "tests/virtual_gpu/driver/driver.hpp"

using namespace virtual_gpu;

/// Contexts are never freed.
EXPORT int cuCtxGetId(Context* context, unsigned long long* out) {
  return enter("cuCtxGetId", context == nullptr ? kInContext : kNothing, [&](Call& call) -> Result {
    if (out == nullptr) return kInvalidValue;
    *out = address_of(context == nullptr ? call.context : context);
    return kSuccess;
  });
}
/// Synchronous operations are always ordered here.
EXPORT int cuPointerSetAttribute(const void*, int which, Address address) {
  return enter("cuPointerSetAttribute", kNothing, [&](Call& call) -> Result {
    constexpr int kOrderedOperations = 6;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    return which == kOrderedOperations && call.driver.memory.holding(address) != nullptr ? kSuccess
                                                                                         : kInvalidValue;
  });
}
#define REFUSED(function)                                                             \
  EXPORT int function() {                                                             \
    return enter(#function, kNothing, [](Call&) -> Result { return kNotSupported; }); \
  }
REFUSED(cuMemGetAllocationPropertiesFromHandle)
REFUSED(cuMemPoolDestroy)
REFUSED(cuMemPoolExportPointer)
REFUSED(cuMemPoolExportToShareableHandle)
REFUSED(cuMemPoolImportFromShareableHandle)
REFUSED(cuMemPoolImportPointer)
REFUSED(cuMemPoolSetAccess)
REFUSED(cuMemRangeGetAttribute)
REFUSED(cuStreamAddCallback)
