// driver_interface.hpp -- numbers and structures of cuda.h, declared again so that nothing of CUDA is needed
// to build loom. tests/device/cuda/driver_interface_test.cpp compares them with the header if there is one.
#pragma once

#include <cstdint>

namespace loom::device::cuda {

// CUdevice_attribute
inline constexpr int kMultiprocessorCount = 16, kCapabilityMajor = 75, kCapabilityMinor = 76,
                     kVirtualMemorySupported = 102, kFileDescriptorsSupported = 103,
                     kGpuDirectSupported = 116, kNetworkFlushes = 117, kNetworkOrdering = 118,
                     kIpcEventsSupported = 125, kMpsEnabled = 133;

// Of streams and pointers.
inline constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
inline constexpr int kBufferId = 7;          // CU_POINTER_ATTRIBUTE_BUFFER_ID

// Of what the network writes to a GPU's memory.
inline constexpr int kFlushByHost = 1;          // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
inline constexpr int kOrderedForOwner = 100;    // CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
inline constexpr int kFlushCurrentContext = 0;  // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX
inline constexpr int kFlushForOwner = 100;      // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER

// Of virtual memory management.
inline constexpr int kPinnedAllocation = 1;      // CU_MEM_ALLOCATION_TYPE_PINNED
inline constexpr int kFileDescriptorHandle = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
inline constexpr int kDeviceLocation = 1;        // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int kReadAndWrite = 3;          // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
inline constexpr int kMinimumGranularity = 0;    // CU_MEM_ALLOC_GRANULARITY_MINIMUM
using AllocationHandle = std::uint64_t;          // CUmemGenericAllocationHandle

/// CUmemLocation
struct MemoryLocation {
  int type = kDeviceLocation;
  int id = 0;
};

/// CUmemAllocationProp
struct AllocationProperties {
  int type = kPinnedAllocation;
  int handle_types = kFileDescriptorHandle;
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
  int flags = kReadAndWrite;
};

}  // namespace loom::device::cuda
