// virtual_device.hpp -- a driver without a GPU, for tests that play the application and loom.
#pragma once

#include <condition_variable>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

#include "device/cuda/driver.hpp"
#include "tests/virtual_gpu/driver/virtual_library.hpp"

namespace loom::device::cuda {

/// A thread of the program that records what one of its streams is to do, as long as this lives. Unsafe calls
/// of others would end that in vain.
class Capture {
 public:
  explicit Capture(const virtual_gpu::Library& device) {
    std::promise<void> began;
    thread_ = std::jthread([&device, &began, this](const std::stop_token& end) {
      void *stream = nullptr, *graph = nullptr, *popped = nullptr;
      device.call("cuCtxPushCurrent_v2", device.context(0));
      device.call("cuStreamCreate", &stream, 1U);         // CU_STREAM_NON_BLOCKING
      device.call("cuStreamBeginCapture_v2", stream, 0);  // CU_STREAM_CAPTURE_MODE_GLOBAL
      began.set_value();
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait(lock, end, [] { return false; });
      result_ = device.call("cuStreamEndCapture", stream, &graph);
      device.call("cuGraphDestroy", graph);
      device.call("cuStreamDestroy_v2", stream);
      device.call("cuCtxPopCurrent_v2", &popped);
    });
    began.get_future().wait();
  }
  /// The driver's result.
  int end() {
    thread_.request_stop();
    thread_.join();
    return result_;
  }

 private:
  int result_ = 0;
  std::jthread thread_;
};

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
