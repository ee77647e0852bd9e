// virtual_device.hpp -- a driver without a GPU, for tests that play the application and loom.
#pragma once

#include <cstring>
#include <memory>

#include "device/cuda/driver.hpp"
#include "tests/virtual_gpu/driver/virtual_library.hpp"

namespace loom::device::cuda {

/// The virtual driver, and device 0's context current in this thread.
class VirtualDevice : public virtual_gpu::Library {
 public:
  VirtualDevice() : Library(VIRTUAL_GPU_LIBRARY) { use(0); }
  ~VirtualDevice() {
    void* context;
    call("cuCtxPopCurrent_v2", &context);
  }
  VirtualDevice(const VirtualDevice&) = delete;
  VirtualDevice& operator=(const VirtualDevice&) = delete;

  void use(int device) const { call("cuCtxPushCurrent_v2", context(device)); }
  std::byte* allocate(std::size_t bytes) const {
    std::byte* memory = nullptr;
    call("cuMemAlloc_v2", &memory, bytes);
    return memory;
  }
  std::byte* allocate_managed(std::size_t bytes) const {
    std::byte* memory = nullptr;
    call("cuMemAllocManaged", &memory, bytes, 1U);  // CU_MEM_ATTACH_GLOBAL
    return memory;
  }
  std::byte* allocate_in_pool(std::size_t bytes) const {
    std::byte* memory = nullptr;
    call("cuMemAllocAsync", &memory, bytes, static_cast<void*>(nullptr));
    return memory;
  }
  std::byte* allocate_on_host(std::size_t bytes) const {
    std::byte* memory = nullptr;
    call("cuMemHostAlloc", &memory, bytes, 0U);
    return memory;
  }
  void release(std::byte* memory) const { call("cuMemFree_v2", memory); }
  void release_on_host(std::byte* memory) const { call("cuMemFreeHost", memory); }
};

inline std::unique_ptr<Driver> open_virtual() {
  return Driver::open(VIRTUAL_GPU_LIBRARY, false);
}

}  // namespace loom::device::cuda
