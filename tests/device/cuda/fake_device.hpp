// fake_device.hpp -- a driver without a GPU, for tests that play the application and loom.
#pragma once

#include <memory>

#include "device/cuda/driver.hpp"
#include "tests/fake_cuda/fake_library.hpp"

namespace loom::device::cuda {

/// The fake driver, and device 0's context current in this thread.
class FakeDevice : public FakeLibrary {
 public:
  FakeDevice() { use(0); }
  ~FakeDevice() {
    void* context;
    function<int(void**)>("cuCtxPopCurrent_v2")(&context);
  }
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  void use(int device) const { function<int(void*)>("cuCtxPushCurrent_v2")(context(device)); }
  std::byte* allocate(std::size_t bytes, const char* how = "cuMemAlloc_v2") const {
    std::byte* memory = nullptr;
    // The managed form has one more argument, which the others ignore.
    function<int(std::byte**, std::size_t, unsigned)>(how)(&memory, bytes, 0);
    return memory;
  }
  void release(std::byte* memory) const { function<int(std::byte*)>("cuMemFree_v2")(memory); }
};

inline std::unique_ptr<Driver> open_fake() {
  return Driver::open(LOOM_FAKE_CUDA, false);
}

}  // namespace loom::device::cuda
