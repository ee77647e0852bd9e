// driver_fixture.hpp -- what tests of the virtual driver have in common.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/virtual_gpu/driver/cuda_interface.hpp"
#include "tests/virtual_gpu/driver/virtual_library.hpp"

namespace virtual_gpu {

/// Device 0's primary context is current, and reset at the end.
class DriverTest : public ::testing::Test {
 public:
  DriverTest() {
    context_ = cuda_.context(0);
    EXPECT_EQ(cuda_.call("cuCtxPushCurrent_v2", context_), kSuccess);
  }
  ~DriverTest() override {
    void* popped;
    while (cuda_.call("cuCtxPopCurrent_v2", &popped) == kSuccess) {
    }
    for (const int device : {0, 1}) {
      cuda_.call("cuDevicePrimaryCtxReset_v2", device);
      while (cuda_.call("cuDevicePrimaryCtxRelease_v2", device) == kSuccess) {
      }
    }
  }

  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    return cuda_.call(name, arguments...);
  }
  Address allocate(std::size_t bytes) const {
    Address address = 0;
    EXPECT_EQ(call("cuMemAlloc_v2", &address, bytes), kSuccess);
    return address;
  }
  int release(Address address) const { return call("cuMemFree_v2", address); }
  int* allocate_ints(std::size_t count) const {
    void* memory = nullptr;
    EXPECT_EQ(call("cuMemHostAlloc", &memory, count * sizeof(int), 0U), kSuccess);
    return static_cast<int*>(memory);
  }
  void* stream(unsigned flags = 0) const {
    void* stream = nullptr;
    EXPECT_EQ(call("cuStreamCreate", &stream, flags), kSuccess);
    return stream;
  }
  void* event(unsigned flags = 0) const {
    void* event = nullptr;
    EXPECT_EQ(call("cuEventCreate", &event, flags), kSuccess);
    return event;
  }
  int synchronize(void* stream) const { return call("cuStreamSynchronize", stream); }
  int query(void* stream) const { return call("cuStreamQuery", stream); }
  int copy(Address to, Address from, std::size_t bytes, void* stream) const {
    return call("cuMemcpyAsync", to, from, bytes, stream);
  }
  int host_function(void* stream, HostFunction* function, void* data) const {
    return call("cuLaunchHostFunc", stream, function, data);
  }
  static Address address(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

  /// Keeps a stream busy until it is opened. The stream may be destroyed before.
  class Gate {
   public:
    Gate(const DriverTest& test, void* stream)
        : test_(test), stream_(stream), waits_(test.host_function(stream, wait, this) == kSuccess) {
      EXPECT_TRUE(waits_);
    }
    ~Gate() {
      open();
      while (waits_) std::this_thread::yield();
      test_.synchronize(stream_);
    }
    void open() { open_ = true; }

   private:
    static void wait(void* data) {
      auto* const gate = static_cast<Gate*>(data);
      while (!gate->open_) std::this_thread::yield();
      gate->waits_ = false;
    }
    const DriverTest& test_;
    void* stream_;
    std::atomic<bool> open_{false};
    std::atomic<bool> waits_;  ///< the function, in the stream
  };

  Library cuda_{VIRTUAL_GPU_LIBRARY};
  void* context_ = nullptr;
  void* const legacy_ = reinterpret_cast<void*>(kLegacyStream);
  void* const per_thread_ = reinterpret_cast<void*>(kPerThreadStream);
};

/// A variable of the environment as long as this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace virtual_gpu
