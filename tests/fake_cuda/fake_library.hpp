// fake_library.hpp -- the fake driver as a test sees it that plays the application.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <vector>

#include "tests/fake_cuda/fake_cuda.hpp"

namespace loom {

/// The fake driver, loaded and initialised, with what a program does on a device and what it may ask of the
/// fake.
class FakeLibrary {
 public:
  FakeLibrary() : library_(::dlopen(LOOM_FAKE_CUDA, RTLD_NOW)) { function<int(unsigned)>("cuInit")(0); }

  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }
  /// The primary context of a device.
  void* context(int device) const {
    void* context = nullptr;
    function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device);
    return context;
  }
  void write(std::byte* to, const std::vector<std::byte>& bytes) const {
    function<int(std::byte*, const void*, std::size_t)>("cuMemcpyHtoD_v2")(to, bytes.data(), bytes.size());
  }
  std::vector<std::byte> read(std::byte* from, std::size_t bytes) const {
    std::vector<std::byte> result(bytes);
    function<int(void*, std::byte*, std::size_t)>("cuMemcpyDtoH_v2")(result.data(), from, bytes);
    return result;
  }
  FakeCudaCounts counts() const {
    FakeCudaCounts result;
    function<FakeCudaRead>("fake_cuda_read")(&result);
    return result;
  }
  /// Calls of that name answer `error` from now on; 0: what they would.
  void fail(const char* what, int error) const { function<FakeCudaFail>("fake_cuda_fail")(what, 0, error); }

 private:
  void* library_;
};

}  // namespace loom
