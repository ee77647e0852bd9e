// Modules and kernels of the virtual driver: what is loaded, what a launch checks, and what a kernel that
// fails leaves behind.
#include <atomic>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "driver_fixture.hpp"

namespace virtual_gpu {
namespace {

const std::string kHead = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// add: adds n to the word of each thread. wait: until the word is not 0. store: a word, 4 bytes long, at an
/// address. bump: adds 1 to a variable of the module.
const std::string kKernels = R"(
.global .align 4 .u32 counter = 5;
.visible .entry add(.param .u64 p, .param .u32 n)
.maxntid 256, 1, 1
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.s32 %r2, %r3, %r4, %r2;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [%rd3];
  add.s32 %r5, %r5, %r1;
  st.global.u32 [%rd3], %r5;
  ret;
}
.visible .entry wait(.param .u64 p)
{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
again:
  ld.relaxed.sys.global.u32 %r1, [%rd1];
  setp.eq.s32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
.visible .entry store(.param .u64 p, .param .u32 n)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  st.relaxed.sys.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry bump()
{
  .reg .b32 %r<2>;
  ld.global.u32 %r1, [counter];
  add.s32 %r1, %r1, 1;
  st.global.u32 [counter], %r1;
  ret;
}
)";

class Kernels : public DriverTest {
 public:
  int load(const std::string& text, void** module) const {
    return call("cuModuleLoadData", module, static_cast<const void*>(text.c_str()));
  }
  void* function(const char* name) {
    if (module_ == nullptr) {
      EXPECT_EQ(load(kHead + kKernels, &module_), kSuccess);
    }
    void* function = nullptr;
    EXPECT_EQ(call("cuModuleGetFunction", &function, module_, name), kSuccess);
    return function;
  }
  int launch(void* function, unsigned blocks, unsigned threads, void** parameters, void* stream = nullptr,
             unsigned shared_bytes = 0) const {
    return call("cuLaunchKernel", function, blocks, 1U, 1U, threads, 1U, 1U, shared_bytes, stream, parameters,
                static_cast<void**>(nullptr));
  }
  int store(Address where, unsigned value, void* stream = nullptr) {
    void* parameters[] = {&where, &value};
    return launch(function("store"), 1, 1, parameters, stream);
  }
  int wait(Address where, void* stream) {
    void* parameters[] = {&where};
    return launch(function("wait"), 1, 1, parameters, stream);
  }
  Address zeros(std::size_t bytes) const {
    const Address memory = allocate(bytes);
    EXPECT_EQ(call("cuMemsetD8_v2", memory, '\0', bytes), kSuccess);
    EXPECT_EQ(synchronize(nullptr),
              kSuccess);  // it may return early, and non-blocking streams do not wait for it
    return memory;
  }
  unsigned read(Address from) const {
    unsigned found = 0;
    EXPECT_EQ(call("cuMemcpyDtoH_v2", static_cast<void*>(&found), from, sizeof(found)), kSuccess);
    return found;
  }
  /// What everything in the context answers, after the kernel has failed.
  void expect_sticky(int error) const {
    Address memory = 0;
    void* made = nullptr;
    EXPECT_EQ(call("cuCtxSynchronize"), error);
    EXPECT_EQ(call("cuMemAlloc_v2", &memory, std::size_t{8}), error);
    EXPECT_EQ(call("cuStreamCreate", &made, 0U), error);
    EXPECT_EQ(query(nullptr), error);
  }

 private:
  void* module_ = nullptr;
};

TEST_F(Kernels, AreLoadedFromPtxThatTheGpuMayRun) {
  void* module = nullptr;
  const auto ptx = [](const char* version, const char* target) {
    return std::string(".version ") + version + "\n.target " + target +
           "\n.address_size 64\n.visible .entry k()\n{\n  ret;\n}\n";
  };
  EXPECT_EQ(load(ptx("9.0", "sm_90"), &module), kSuccess);
  EXPECT_EQ(load(ptx("9.0", "sm_90a"), &module), kSuccess);
  EXPECT_EQ(load(ptx("9.1", "sm_90"), &module), kUnsupportedPtxVersion) << "of CUDA 13.1";
  EXPECT_EQ(load(ptx("8.6", "sm_100"), &module), kInvalidPtx);
  EXPECT_EQ(load(ptx("8.6", "sm_80a"), &module), kInvalidPtx) << "for that architecture alone";
  EXPECT_EQ(load(kHead + ".visible .entry k()\n{\n  no.such.thing;\n}\n", &module), kInvalidPtx);
  EXPECT_EQ(load("\177ELF", &module), kNoBinaryForGpu);
  const Variable older("VIRTUAL_GPU_DRIVER_VERSION", "12060");
  EXPECT_EQ(load(ptx("8.5", "sm_80"), &module), kSuccess);
  EXPECT_EQ(load(ptx("8.6", "sm_80"), &module), kUnsupportedPtxVersion);
}

TEST_F(Kernels, AndVariablesAreFoundByTheirNames) {
  void *module = nullptr, *found = nullptr;
  ASSERT_EQ(load(kHead + kKernels, &module), kSuccess);
  EXPECT_EQ(call("cuModuleGetFunction", &found, module, static_cast<const char*>("nobody")), kNotFound);
  EXPECT_EQ(call("cuModuleGetFunction", &found, module, static_cast<const char*>("bump")), kSuccess);
  Address counter = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(call("cuModuleGetGlobal_v2", &counter, &bytes, module, static_cast<const char*>("nothing")),
            kNotFound);
  EXPECT_EQ(call("cuModuleGetGlobal_v2", &counter, &bytes, module, static_cast<const char*>("counter")),
            kSuccess);
  EXPECT_EQ(bytes, 4U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(launch(found, 1, 1, nullptr), kSuccess);
  EXPECT_EQ(read(counter), 8U);
  EXPECT_EQ(call("cuModuleUnload", module), kSuccess);
  EXPECT_EQ(launch(found, 1, 1, nullptr), kInvalidHandle);
  EXPECT_EQ(call("cuModuleUnload", module), kInvalidHandle);
  std::uint64_t id = 0;
  EXPECT_EQ(call("cuPointerGetAttribute", static_cast<void*>(&id), 7, counter), kInvalidValue);
}

TEST_F(Kernels, TakeTheirParametersWhenTheyAreLaunched) {
  Address memory = zeros(600 * 4);
  unsigned n = 7;
  void* parameters[] = {&memory, &n};
  {
    Gate gate(*this, legacy_);
    EXPECT_EQ(launch(function("add"), 3, 200, parameters), kSuccess);
    n = 1000;
  }
  for (const std::size_t i : {0, 200, 599}) EXPECT_EQ(read(memory + 4 * i), 7U);
  struct {
    Address memory;
    unsigned n;
  } buffer{memory, 5};
  std::size_t bytes = sizeof(buffer);
  void* extra[] = {reinterpret_cast<void*>(1), &buffer, reinterpret_cast<void*>(2), &bytes, nullptr};
  EXPECT_EQ(call("cuLaunchKernel", function("add"), 1U, 1U, 1U, 1U, 1U, 1U, 0U, legacy_,
                 static_cast<void**>(nullptr), &extra[0]),
            kSuccess);
  EXPECT_EQ(read(memory), 12U);
  bytes = 8;
  EXPECT_EQ(call("cuLaunchKernel", function("add"), 1U, 1U, 1U, 1U, 1U, 1U, 0U, legacy_,
                 static_cast<void**>(nullptr), &extra[0]),
            kInvalidValue)
      << "too few bytes";
  EXPECT_EQ(launch(function("add"), 1, 1, nullptr), kInvalidValue) << "no parameters";
}

TEST_F(Kernels, AreLaunchedAsLargeAsTheyMayBe) {
  Address memory = zeros(4 * 1024);
  unsigned n = 1;
  void* parameters[] = {&memory, &n};
  void* const add = function("add");
  EXPECT_EQ(launch(add, 1, 256, parameters), kSuccess);
  EXPECT_EQ(launch(add, 1, 257, parameters), kInvalidValue) << "more than .maxntid";
  EXPECT_EQ(launch(add, 0, 1, parameters), kInvalidValue);
  EXPECT_EQ(launch(add, 1, 0, parameters), kInvalidValue);
  EXPECT_EQ(launch(function("store"), 1, 1025, parameters), kInvalidValue);
  EXPECT_EQ(launch(add, 1, 1, parameters, nullptr, 48 * 1024 + 1), kInvalidValue);
  EXPECT_EQ(call("cuFuncSetAttribute", add, 8, 100 * 1024), kSuccess);
  EXPECT_EQ(launch(add, 1, 1, parameters, nullptr, 100 * 1024), kSuccess);
  EXPECT_EQ(call("cuFuncSetAttribute", add, 8, 228 * 1024), kInvalidValue);
  int value = 0;
  EXPECT_EQ(call("cuFuncGetAttribute", &value, 0, add), kSuccess);
  EXPECT_EQ(value, 256);
  EXPECT_EQ(call("cuFuncGetAttribute", &value, 4, add), kSuccess);
  EXPECT_EQ(value, 255);
  EXPECT_EQ(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", &value, add, 256, std::size_t{0}), kSuccess);
  EXPECT_EQ(value, 1) << "65536 registers / (256 * 255)";
  EXPECT_EQ(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", &value, add, 32, std::size_t{100 * 1024}),
            kSuccess);
  EXPECT_EQ(value, 2) << "228 KiB / 101 KiB";
  synchronize(nullptr);
}

TEST_F(Kernels, BelongToTheirContext) {
  void *const store = function("store"), *const s = stream(), *other = nullptr;
  Address memory = zeros(8);
  unsigned n = 1;
  void* parameters[] = {&memory, &n};
  ASSERT_EQ(call("cuCtxCreate_v2", &other, 0U, 0), kSuccess);
  EXPECT_EQ(launch(store, 1, 1, parameters), kInvalidHandle) << "in a stream of another context";
  EXPECT_EQ(launch(store, 1, 1, parameters, s), kInvalidContext);
  EXPECT_EQ(call("cuCtxDestroy_v2", other), kSuccess);
}

TEST_F(Kernels, OfDifferentStreamsAreThereTogether) {
  const Address word = zeros(4);
  EXPECT_EQ(wait(word, stream(kNonBlocking)), kSuccess);
  void* const second = stream(kNonBlocking);
  EXPECT_EQ(store(word, 1, second), kSuccess);
  EXPECT_EQ(call("cuCtxSynchronize"), kSuccess);
}

TEST_F(Kernels, UseMemoryOfTheHostThatIsMapped) {
  int* const locked = allocate_ints(1);
  EXPECT_EQ(store(address(locked), 42), kSuccess);
  EXPECT_EQ(synchronize(nullptr), kSuccess);
  EXPECT_EQ(*locked, 42);
  std::vector<int> memory(64);
  call("cuMemHostRegister_v2", static_cast<void*>(memory.data()), std::size_t{256}, kDeviceMap);
  EXPECT_EQ(store(address(memory.data()), 43), kSuccess);
  EXPECT_EQ(synchronize(nullptr), kSuccess);
  EXPECT_EQ(memory[0], 43);
}

TEST_F(Kernels, LeaveTheirErrorToAllThatFollows) {
  const Address memory = zeros(8);
  EXPECT_EQ(store(memory + 1, 1), kSuccess) << "a launch returns before";
  expect_sticky(kMisalignedAddress);
  void* other = cuda_.context(1);
  call("cuCtxPushCurrent_v2", other);
  EXPECT_EQ(call("cuCtxSynchronize"), kSuccess) << "of this context alone";
  void* popped;
  call("cuCtxPopCurrent_v2", &popped);
  EXPECT_EQ(call("cuDevicePrimaryCtxReset_v2", 0), kSuccess);
  cuda_.context(0);
  EXPECT_EQ(call("cuCtxSynchronize"), kSuccess);
}

TEST_F(Kernels, MustNotTouchWhatIsNotTheirs) {
  int plain = 0;
  EXPECT_EQ(store(address(&plain), 1), kSuccess);
  expect_sticky(kIllegalAddress);
  EXPECT_EQ(plain, 0);
}

TEST_F(Kernels, MustNotTouchBeyondTheEnd) {
  store(allocate(4) + 4, 1);
  expect_sticky(kIllegalAddress);
}

TEST_F(Kernels, MustNotTouchMemoryThatIsFreed) {
  const Address memory = zeros(4);
  release(memory);
  store(memory, 1);
  expect_sticky(kIllegalAddress);
}

TEST_F(Kernels, MustNotTouchRegisteredMemoryThatIsNotMapped) {
  std::vector<int> memory(64);
  call("cuMemHostRegister_v2", static_cast<void*>(memory.data()), std::size_t{256}, 0U);
  store(address(memory.data()), 1);
  expect_sticky(kIllegalAddress);
  call("cuDevicePrimaryCtxReset_v2", 0);
}

TEST_F(Kernels, TouchMemoryOfPeersOnceThatIsEnabled) {
  void *const peer = cuda_.context(1), *popped;
  call("cuCtxPushCurrent_v2", peer);
  const Address theirs = zeros(4);
  call("cuCtxSynchronize");
  call("cuCtxPopCurrent_v2", &popped);
  EXPECT_EQ(call("cuCtxEnablePeerAccess", peer, 0U), kSuccess);
  EXPECT_EQ(store(theirs, 9), kSuccess);
  EXPECT_EQ(read(theirs), 9U);
  EXPECT_EQ(call("cuCtxDisablePeerAccess", peer), kSuccess);
  store(theirs, 10);
  expect_sticky(kIllegalAddress);
}

TEST_F(Kernels, ThatWaitEndWithTheirContext) {
  wait(zeros(4), stream(kNonBlocking));
  EXPECT_EQ(call("cuDevicePrimaryCtxReset_v2", 0), kSuccess);
}

TEST_F(Kernels, ThatFailEndThoseThatWait) {
  const Address memory = zeros(8);
  wait(memory, stream(kNonBlocking));
  store(memory + 1, 1, stream(kNonBlocking));
  EXPECT_EQ(call("cuCtxSynchronize"), kMisalignedAddress);
}

TEST_F(Kernels, MustNotReadWhatNobodyHasWritten) {
  const Variable noted("VIRTUAL_GPU_WRITTEN", "1");
  Address memory = allocate(8), copied = allocate(8);
  unsigned n = 1;
  void* parameters[] = {&copied, &n};
  store(memory, 3);
  call("cuMemcpyDtoD_v2", copied, memory, std::size_t{8});
  EXPECT_EQ(launch(function("add"), 1, 1, parameters), kSuccess);
  EXPECT_EQ(read(copied), 4U) << "the first word is written, here and in what was copied";
  EXPECT_EQ(launch(function("add"), 1, 2, parameters), kSuccess);
  expect_sticky(kLaunchFailed);
}

TEST_F(Kernels, AreCountedOnTheLinksThatTheyUse) {
  const auto carried = [&](const char* from, const char* to) {
    return cuda_.function<decltype(virtual_gpu_carried)>("virtual_gpu_carried")(from, to);
  };
  EXPECT_EQ(carried("GPU 0", "GPU 9"), ~std::uint64_t{0});
  void *const peer = cuda_.context(1), *popped;
  call("cuCtxPushCurrent_v2", peer);
  Address theirs = zeros(4096);
  call("cuCtxPopCurrent_v2", &popped);
  Address mine = zeros(4096), host = address(allocate_ints(512));
  ASSERT_EQ(call("cuCtxEnablePeerAccess", peer, 0U), kSuccess);
  unsigned n = 1;
  const auto add = [&](Address& memory, unsigned blocks, unsigned threads) {
    void* parameters[] = {&memory, &n};
    EXPECT_EQ(launch(function("add"), blocks, threads, parameters), kSuccess);
    EXPECT_EQ(synchronize(nullptr), kSuccess);
  };
  struct Way {
    const char *from, *to;
    std::uint64_t before = 0;
  };
  Way ways[] = {{"GPU 0", "CPU 0"},          {"CPU 0", "GPU 0"},           {"CPU 0", "GPU 1"},
                {"GPU 1", "CPU 0"},          {"memory of CPU 0", "CPU 0"}, {"GPU 1", "memory of GPU 1"},
                {"GPU 0", "memory of GPU 0"}};
  const auto expect = [&](std::initializer_list<std::uint64_t> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::uint64_t now = carried(ways[i].from, ways[i].to);
      EXPECT_EQ(now - ways[i].before, bytes.begin()[i]) << ways[i].from << " to " << ways[i].to;
      ways[i].before = now;
    }
  };
  for (Way& way : ways) way.before = carried(way.from, way.to);
  add(theirs, 3, 200);
  expect({2400, 2400, 2400, 2400, 0, 2400, 0});
  add(host, 1, 64);
  expect({256, 256, 0, 0, 256, 0, 0});
  add(mine, 1, 64);
  expect({0, 0, 0, 0, 0, 0, 0});
  call("cuMemsetD16_v2", mine, static_cast<unsigned short>(7), std::size_t{100});
  call("cuMemsetD8_v2", theirs, '\1', std::size_t{50});
  call("cuCtxSynchronize");
  expect({50, 0, 50, 0, 0, 50, 200});
  store(mine, 0);
  EXPECT_EQ(call("cuCtxDisablePeerAccess", peer), kSuccess);
}

/// poll: until the first word is 1, with loads that acquire at the GPU's scope; then loads 32 words, 64 bytes
/// apart, that it has loaded before, and adds them up.
const std::string kPoll = R"(
.visible .entry poll(.param .u64 p, .param .u64 host)
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  ld.param.u64 %rd2, [host];
  mov.u32 %r1, 0;
again:
  mov.u32 %r2, 0;
  mov.u32 %r3, 0;
  mov.u64 %rd3, %rd1;
next:
  ld.global.u32 %r4, [%rd3];
  add.s32 %r3, %r3, %r4;
  add.s64 %rd3, %rd3, 64;
  add.s32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, 32;
  @%p1 bra next;
  add.s32 %r1, %r1, 1;
  setp.eq.s32 %p1, %r1, 2;
  @%p1 bra end;
  st.relaxed.sys.global.u32 [%rd2], 1;
wait:
  ld.relaxed.sys.global.u32 %r5, [%rd2+4];
  setp.eq.s32 %p2, %r5, 0;
  @%p2 bra wait;
  fence.acq_rel.gpu;
  bra again;
end:
  st.relaxed.sys.global.u32 [%rd2+8], %r3;
  ret;
}
)";

/// Whether a fence at the GPU's scope is enough for a kernel to see what a copy has written meanwhile.
class WhatAKernelReads : public Kernels {
 protected:
  /// Of the memory that a kernel reads, which has begun and goes on when words_[1] is not 0.
  Address begin() {
    void *module = nullptr, *poll = nullptr;
    EXPECT_EQ(load(kHead + kPoll, &module), kSuccess);
    EXPECT_EQ(call("cuModuleGetFunction", &poll, module, static_cast<const char*>("poll")), kSuccess);
    Address memory = zeros(32 * 64);
    words_ = allocate_ints(3);
    words_[0] = words_[1] = words_[2] = 0;
    Address host = address(words_);
    void* parameters[] = {&memory, &host};
    EXPECT_EQ(launch(poll, 1, 1, parameters, stream(kNonBlocking)), kSuccess);
    while (std::atomic_ref(words_[0]).load() == 0) query(nullptr);
    return memory;
  }
  unsigned sum_after(const std::function<void(Address)>& meanwhile) {
    const Address memory = begin();
    meanwhile(memory);
    void* const other = stream(kNonBlocking);
    EXPECT_EQ(call("cuMemsetD32Async", memory, 1U, std::size_t{32 * 16}, other), kSuccess);
    EXPECT_EQ(synchronize(other), kSuccess);
    std::atomic_ref(words_[1]).store(1);
    EXPECT_EQ(call("cuCtxSynchronize"), kSuccess);
    return static_cast<unsigned>(words_[2]);
  }
  /// Each word is old at random.
  bool may_be_old(
      const std::function<void(Address)>& meanwhile, const std::function<void()>& after = [] {}) {
    for (int tries = 0; tries < 100; ++tries) {
      const unsigned sum = sum_after(meanwhile);
      after();
      if (sum < 32) return true;
    }
    return false;
  }
  int* words_ = nullptr;
  Variable weak_{"VIRTUAL_GPU_MODE", "weak"};
};

TEST_F(WhatAKernelReads, IsNewAfterAFenceWhereOnlyItsGpuReachesIt) {
  EXPECT_EQ(sum_after([](Address) {}), 32U);
}
TEST_F(WhatAKernelReads, MayBeOldOnceOtherProcessesReachIt) {
  EXPECT_TRUE(may_be_old([&](Address memory) {
    unsigned char handle[64];
    EXPECT_EQ(call("cuIpcGetMemHandle", static_cast<void*>(handle), memory), kSuccess);
  }));
}
TEST_F(WhatAKernelReads, MayBeOldOnceAPeerReachesIt) {
  const auto in_context_1 = [&](const auto& body) {
    void* popped;
    call("cuCtxPushCurrent_v2", cuda_.context(1));
    body();
    call("cuCtxPopCurrent_v2", &popped);
  };
  bool enabled = false;
  const auto disable = [&] {
    if (std::exchange(enabled, false)) {
      EXPECT_EQ(call("cuCtxDisablePeerAccess", context_), kSuccess);
    }
  };
  EXPECT_TRUE(may_be_old(
      [&](Address) {
        in_context_1([&] {
          EXPECT_EQ(call("cuCtxEnablePeerAccess", context_, 0U), kSuccess);
          enabled = true;
        });
      },
      [&] { in_context_1(disable); }));
}

TEST_F(WhatAKernelReads, IsSaidWhenItEndsBeforeItsTime) {
  begin();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(call("cuDevicePrimaryCtxReset_v2", 0), kSuccess);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("warp 0, lanes 0x00000001: runs at line"),
            std::string::npos);
}

}  // namespace
}  // namespace virtual_gpu
