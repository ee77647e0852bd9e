// virtual_library.hpp -- the virtual driver as a test sees it that plays the application.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/virtual_gpu/driver/virtual_gpu.hpp"

namespace virtual_gpu {

/// The driver, loaded and initialised, with what a program does on a device and what it may ask the driver.
class Library {
 public:
  explicit Library(const char* path) : library_(::dlopen(path, RTLD_NOW)) {
    function<int(unsigned)>("cuInit")(0);
  }

  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }
  /// With arguments of exactly the types that the function has.
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    return function<int(Arguments...)>(name)(arguments...);
  }
  /// The primary context of a device.
  void* context(int device) const {
    void* context = nullptr;
    call("cuDevicePrimaryCtxRetain", &context, device);
    return context;
  }
  /// All is there on return: cuMemcpyHtoD itself may return before.
  void write(std::byte* to, const std::vector<std::byte>& bytes) const {
    call("cuMemcpyHtoD_v2", to, static_cast<const void*>(bytes.data()), bytes.size());
    call("cuCtxSynchronize");
  }
  std::vector<std::byte> read(std::byte* from, std::size_t bytes) const {
    std::vector<std::byte> result(bytes);
    call("cuMemcpyDtoH_v2", static_cast<void*>(result.data()), from, bytes);
    return result;
  }
  VirtualGpuCounts counts() const {
    VirtualGpuCounts result;
    function<decltype(virtual_gpu_read)>("virtual_gpu_read")(&result);
    return result;
  }
  /// Calls of that name answer `error` from now on; 0: what they would.
  void fail(const char* what, int error, int after = 0) const {
    function<decltype(virtual_gpu_fail)>("virtual_gpu_fail")(what, after, error);
  }

 private:
  void* library_;
};

}  // namespace virtual_gpu
