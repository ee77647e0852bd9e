// The compiler compares what the virtual driver declares with cuda.h.
#include "tests/virtual_gpu/driver/cuda_interface.hpp"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

namespace virtual_gpu {
namespace {

#define SAME(ours, theirs) static_assert((ours) == static_cast<std::remove_cv_t<decltype(ours)>>(theirs))
SAME(kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(kInvalidPtx, CUDA_ERROR_INVALID_PTX);
SAME(kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
SAME(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
SAME(kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(kAlreadyMapped, CUDA_ERROR_ALREADY_MAPPED);
SAME(kPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
SAME(kPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(kPeerAccessNotEnabled, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
SAME(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
SAME(kNotFound, CUDA_ERROR_NOT_FOUND);
SAME(kNotReady, CUDA_ERROR_NOT_READY);
SAME(kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(kAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(kNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
SAME(kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SAME(kNotPermitted, CUDA_ERROR_NOT_PERMITTED);
SAME(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
SAME(kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(kCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(kCaptureMerge, CUDA_ERROR_STREAM_CAPTURE_MERGE);
SAME(kCaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
SAME(kCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
SAME(kCaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
SAME(kCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(kCapturedEvent, CUDA_ERROR_CAPTURED_EVENT);
SAME(kCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
SAME(kNonBlocking, CU_STREAM_NON_BLOCKING);
SAME(kDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME(kInterprocess, CU_EVENT_INTERPROCESS);
SAME(kPortable, CU_MEMHOSTREGISTER_PORTABLE);
SAME(kDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(kHostMemory, CU_MEMORYTYPE_HOST);
SAME(kDeviceMemory, CU_MEMORYTYPE_DEVICE);
SAME(kUnifiedMemory, CU_MEMORYTYPE_UNIFIED);
SAME(kLazyPeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(CaptureMode::kGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(CaptureMode::kThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CaptureMode::kRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CaptureStatus::kInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
#undef SAME

static_assert(sizeof(Copy2D) == sizeof(CUDA_MEMCPY2D));
static_assert(offsetof(Copy2D, dst_x) == offsetof(CUDA_MEMCPY2D, dstXInBytes));
static_assert(offsetof(Copy2D, height) == offsetof(CUDA_MEMCPY2D, Height));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));

TEST(VirtualCudaInterface, IsThatOfCudasHeader) {}  // or this does not compile

}  // namespace
}  // namespace virtual_gpu
