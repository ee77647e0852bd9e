// Initialisation, devices and contexts of the virtual driver.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "driver_fixture.hpp"

namespace virtual_gpu {
namespace {

class Contexts : public DriverTest {
 protected:
  void* create() const {
    void* context = nullptr;
    EXPECT_EQ(call("cuCtxCreate_v2", &context, 0U, 0), kSuccess);
    return context;
  }
  void* current() const {
    void* context = nullptr;
    EXPECT_EQ(call("cuCtxGetCurrent", &context), kSuccess);
    return context;
  }
  bool is_active(int device) const {
    unsigned flags;
    int active = -1;
    EXPECT_EQ(call("cuDevicePrimaryCtxGetState", device, &flags, &active), kSuccess);
    return active == 1;
  }
};

TEST_F(Contexts, ChildrenOfForkAreNotInitialised) {
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    const bool right = call("cuDeviceGetCount", &count) == kNotInitialized &&
                       call("cuInit", 0U) == kNotInitialized && call("cuCtxSynchronize") == kNotInitialized;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Contexts, KeepNoVirtualTimeUnlessAsked) {
  EXPECT_LT(cuda_.function<decltype(virtual_gpu_now)>("virtual_gpu_now")(), 0);
}

TEST_F(Contexts, DevicesAreKnownByTheirNumbersAndBuses) {
  int count = 0, device = -1, value = 0;
  EXPECT_EQ(call("cuDeviceGetCount", &count), kSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(call("cuDeviceGet", &device, 2), kInvalidDevice);
  EXPECT_EQ(call("cuDeviceGet", &device, -1), kInvalidDevice);
  EXPECT_EQ(call("cuDeviceGet", &device, 1), kSuccess);
  EXPECT_EQ(device, 1);
  char id[16] = "";
  EXPECT_EQ(call("cuDeviceGetPCIBusId", &id[0], 12, 1), kInvalidValue) << "no room for the end";
  EXPECT_EQ(call("cuDeviceGetPCIBusId", &id[0], 13, 1), kSuccess);
  EXPECT_STREQ(id, "0000:11:00.0");
  EXPECT_EQ(call("cuDeviceGetByPCIBusId", &device, static_cast<const char*>("11:0")), kSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(call("cuDeviceGetByPCIBusId", &device, static_cast<const char*>("0000:55:00.0")), kInvalidDevice);
  std::byte first[16], second[16];
  EXPECT_EQ(call("cuDeviceGetUuid_v2", &first[0], 0), kSuccess);
  EXPECT_EQ(call("cuDeviceGetUuid_v2", &second[0], 1), kSuccess);
  EXPECT_NE(std::memcmp(first, second, 16), 0);
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 75, 0), kSuccess);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 100'000, 0), kInvalidValue);
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 133, 0), kInvalidValue) << "a driver without MPS_ENABLED";
  EXPECT_EQ(call("cuDriverGetVersion", &value), kSuccess);
  EXPECT_EQ(value, 13000);
}

TEST_F(Contexts, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  EXPECT_EQ(call("cuGetErrorName", 716, &text), kSuccess);
  EXPECT_STREQ(text, "CUDA_ERROR_MISALIGNED_ADDRESS");
  EXPECT_EQ(call("cuGetErrorString", 2, &text), kSuccess);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(call("cuGetErrorString", 12345, &text), kInvalidValue);
  EXPECT_EQ(text, nullptr);
}

TEST_F(Contexts, FunctionsAreFoundByTheirNames) {
  void* found = nullptr;
  int status = -1;
  const auto find = [&](const char* name) {
    return call("cuGetProcAddress_v2", name, &found, 13000, std::uint64_t{0}, &status);
  };
  EXPECT_EQ(find("cuMemAlloc"), kSuccess);
  EXPECT_EQ(found, reinterpret_cast<void*>(cuda_.function<void()>("cuMemAlloc_v2")));
  EXPECT_EQ(status, 0);
  EXPECT_EQ(find("cuNoSuchFunction"), kNotFound);
  EXPECT_EQ(status, 1);
}

TEST_F(Contexts, ACallWithoutAContextFails) {
  void* popped = nullptr;
  EXPECT_EQ(call("cuCtxPopCurrent_v2", &popped), kSuccess);
  EXPECT_EQ(popped, context_);
  EXPECT_EQ(call("cuCtxPopCurrent_v2", &popped), kInvalidContext);
  Address memory;
  void* made;
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, std::size_t{8}), kInvalidContext);
  EXPECT_EQ(call("cuStreamCreate", &made, 0U), kInvalidContext);
  EXPECT_EQ(call("cuCtxSynchronize"), kInvalidContext);
  EXPECT_EQ(current(), nullptr);
}

TEST_F(Contexts, AreCurrentInOneThread) {
  void* found = this;
  std::thread([&] { call("cuCtxGetCurrent", &found); }).join();
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(current(), context_);
}

TEST_F(Contexts, AStackHoldsThoseThatAreNotCurrent) {
  void *const one = create(), *popped = nullptr;
  EXPECT_EQ(current(), one) << "a context that is made is current";
  EXPECT_EQ(call("cuCtxPushCurrent_v2", context_), kSuccess);
  EXPECT_EQ(call("cuCtxSetCurrent", static_cast<void*>(nullptr)), kSuccess);
  EXPECT_EQ(current(), one) << "the place of the top one is taken by none";
  EXPECT_EQ(call("cuCtxPopCurrent_v2", &popped), kSuccess);
  EXPECT_EQ(current(), context_);
  EXPECT_EQ(call("cuCtxDestroy_v2", one), kSuccess);
}

TEST_F(Contexts, ThatAreDestroyedStayCurrentInOtherThreads) {
  void* const made = create();
  std::atomic<int> step{0};
  int before = -1, after = -1, pushed = -1;
  void* still = nullptr;
  std::thread other([&] {
    call("cuCtxPushCurrent_v2", made);
    before = call("cuCtxSynchronize");
    step = 1;
    while (step != 2) std::this_thread::yield();
    call("cuCtxGetCurrent", &still);
    after = call("cuCtxSynchronize");
    pushed = call("cuCtxPushCurrent_v2", made);
  });
  while (step != 1) std::this_thread::yield();
  EXPECT_EQ(call("cuCtxDestroy_v2", made), kSuccess);
  EXPECT_EQ(current(), context_) << "it was popped where it was destroyed";
  step = 2;
  other.join();
  EXPECT_EQ(before, kSuccess);
  EXPECT_EQ(still, made);
  EXPECT_EQ(after, kContextIsDestroyed);
  EXPECT_EQ(pushed, kInvalidContext);
  EXPECT_EQ(call("cuCtxDestroy_v2", made), kInvalidContext);
  EXPECT_EQ(call("cuCtxDestroy_v2", context_), kInvalidContext) << "the primary one";
}

TEST_F(Contexts, APrimaryOneHasOneHandleAndComesAndGoes) {
  EXPECT_TRUE(is_active(0));
  EXPECT_FALSE(is_active(1));
  const Address memory = allocate(100);
  EXPECT_EQ(call("cuDevicePrimaryCtxReset_v2", 0), kSuccess);
  EXPECT_FALSE(is_active(0));
  EXPECT_EQ(current(), context_);
  Address other = 0;
  EXPECT_EQ(call("cuMemAlloc_v2", &other, std::size_t{8}), kContextIsDestroyed);
  EXPECT_EQ(cuda_.context(0), context_);
  EXPECT_TRUE(is_active(0));
  EXPECT_EQ(release(memory), kInvalidValue) << "it went with the context";
  EXPECT_EQ(call("cuMemAlloc_v2", &other, std::size_t{8}), kSuccess);
  // Twice retained, once before the reset.
  EXPECT_EQ(call("cuDevicePrimaryCtxRelease_v2", 0), kSuccess);
  EXPECT_TRUE(is_active(0));
  EXPECT_EQ(call("cuDevicePrimaryCtxRelease_v2", 0), kSuccess);
  EXPECT_FALSE(is_active(0));
  EXPECT_EQ(call("cuDevicePrimaryCtxRelease_v2", 0), kInvalidContext);
}

TEST_F(Contexts, TakeTheirStreamsAndEventsAlong) {
  void* const made = create();
  void *const of_made = stream(), *const event_of_made = event();
  EXPECT_EQ(cuda_.counts().streams, 2U);
  EXPECT_EQ(call("cuCtxDestroy_v2", made), kSuccess);
  EXPECT_EQ(cuda_.counts().streams, 0U);
  EXPECT_EQ(synchronize(of_made), kInvalidHandle);
  EXPECT_EQ(call("cuEventQuery", event_of_made), kInvalidHandle);
}

TEST_F(Contexts, EnablePeersOnce) {
  int can = -1;
  EXPECT_EQ(call("cuDeviceCanAccessPeer", &can, 0, 1), kSuccess);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(call("cuDeviceCanAccessPeer", &can, 0, 0), kSuccess);
  EXPECT_EQ(can, 0);
  void* const peer = cuda_.context(1);
  EXPECT_EQ(call("cuCtxEnablePeerAccess", context_, 0U), kInvalidContext) << "itself";
  EXPECT_EQ(call("cuCtxEnablePeerAccess", peer, 1U), kInvalidValue);
  EXPECT_EQ(call("cuCtxDisablePeerAccess", peer), kPeerAccessNotEnabled);
  EXPECT_EQ(call("cuCtxEnablePeerAccess", peer, 0U), kSuccess);
  EXPECT_EQ(call("cuCtxEnablePeerAccess", peer, 0U), kPeerAccessAlreadyEnabled);
  EXPECT_EQ(call("cuCtxDisablePeerAccess", peer), kSuccess);
}

TEST_F(Contexts, CallsFailOnPurpose) {
  Address memory;
  cuda_.fail("cuMemAlloc", 999, 1);
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, std::size_t{8}), kSuccess);
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, std::size_t{8}), 999);
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, std::size_t{8}), 999);
  cuda_.fail("cuMemAlloc", 0);
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, std::size_t{8}), kSuccess);
}

}  // namespace
}  // namespace virtual_gpu
