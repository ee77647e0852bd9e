// cuda_interface.hpp -- numbers and structures of cuda.h, declared again so that nothing of CUDA is needed.
// cuda_interface_test.cpp compares them with the header if there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace virtual_gpu {

using Result = int;                // CUresult
using Address = std::uint64_t;     // CUdeviceptr
using Ordinal = int;               // CUdevice
using HostFunction = void(void*);  // CUhostFn

inline constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3,
                        kNoDevice = 100, kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
                        kAlreadyMapped = 208, kNoBinaryForGpu = 209, kPeerAccessUnsupported = 217,
                        kTooManyPeers = 711, kInvalidPtx = 218, kUnsupportedPtxVersion = 222,
                        kInvalidHandle = 400, kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
                        kLaunchOutOfResources = 701, kPeerAccessAlreadyEnabled = 704,
                        kPeerAccessNotEnabled = 705, kPrimaryContextActive = 708, kContextIsDestroyed = 709,
                        kAlreadyRegistered = 712, kNotRegistered = 713, kMisalignedAddress = 716,
                        kLaunchFailed = 719, kNotPermitted = 800, kNotSupported = 801,
                        kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureMerge = 902,
                        kCaptureUnmatched = 903, kCaptureUnjoined = 904, kCaptureIsolation = 905,
                        kCaptureImplicit = 906, kCapturedEvent = 907, kCaptureWrongThread = 908;

// Streams that have no handle of their own.
inline constexpr std::uintptr_t kLegacyStream = 1, kPerThreadStream = 2;
inline constexpr unsigned kNonBlocking = 1;                                        // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kDisableTiming = 2, kInterprocess = 4;                   // CU_EVENT_...
inline constexpr unsigned kPortable = 1, kDeviceMap = 2;                           // CU_MEMHOSTREGISTER_...
inline constexpr unsigned kHostMemory = 1, kDeviceMemory = 2, kUnifiedMemory = 4;  // CUmemorytype
inline constexpr unsigned kLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };

/// CUDA_MEMCPY2D
struct Copy2D {
  std::size_t src_x, src_y;
  unsigned src_type;
  const void* src_host;
  Address src_device;
  void* src_array;
  std::size_t src_pitch;
  std::size_t dst_x, dst_y;
  unsigned dst_type;
  void* dst_host;
  Address dst_device;
  void* dst_array;
  std::size_t dst_pitch, width, height;
};

/// CUmemLocation
struct MemoryLocation {
  int type = 0;  ///< 1: a device
  int id = 0;
};

/// CUmemAllocationProp
struct AllocationProperties {
  int type = 0;          ///< 1: pinned
  int handle_types = 0;  ///< 1: a file descriptor
  MemoryLocation location;
  void* of_windows = nullptr;
  struct {
    unsigned char compression = 0, direct_rdma = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};

/// CUmemAccessDesc
struct AccessDescription {
  MemoryLocation location;
  int flags = 0;  ///< 0: none, 1: read, 3: read and write
};

}  // namespace virtual_gpu
