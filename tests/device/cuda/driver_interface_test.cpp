// The compiler compares what loom declares of CUDA's driver with cuda.h.
#include "device/cuda/driver_interface.hpp"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>

namespace loom::device::cuda {
namespace {

static_assert(kMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kVirtualMemorySupported == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(kFileDescriptorsSupported == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
#if CUDA_VERSION >= 13000  // older ones lack some
static_assert(kIpcEventsSupported == CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
static_assert(kMpsEnabled == CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
#endif
static_assert(kNetworkFlushes == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
static_assert(kNetworkOrdering == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
static_assert(kFlushByHost == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
static_assert(kOrderedForOwner == CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
static_assert(kFlushCurrentContext == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
static_assert(kFlushForOwner == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
static_assert(kPinnedAllocation == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kFileDescriptorHandle == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kDeviceLocation == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kReadAndWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kMinimumGranularity == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(sizeof(AllocationHandle) == sizeof(CUmemGenericAllocationHandle));

static_assert(sizeof(MemoryLocation) == sizeof(CUmemLocation));
static_assert(offsetof(MemoryLocation, type) == offsetof(CUmemLocation, type));
static_assert(offsetof(MemoryLocation, id) == offsetof(CUmemLocation, id));

static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, type) == offsetof(CUmemAllocationProp, type));
static_assert(offsetof(AllocationProperties, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, of_windows) ==
              offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));

static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, location) == offsetof(CUmemAccessDesc, location));
static_assert(offsetof(AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));

TEST(DriverInterface, IsThatOfCudasHeader) {}  // or this does not compile

}  // namespace
}  // namespace loom::device::cuda
