// Virtual time as a program sees it, on a DGX H100: in each direction a GPU has 450 GB/s of NVLink to the
// switch, and 63 of PCIe to the host.
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "driver_fixture.hpp"

namespace virtual_gpu {
namespace {

// Before the driver is loaded. A machine of this process's own: tests run at the same time.
const Variable kTime("VIRTUAL_GPU_TIME", "1"), kMachine("VIRTUAL_GPU_MACHINE", LOOM_TEST_DATA "/dgxh100.xml"),
    kOwn("VIRTUAL_GPU_SHARED", std::to_string(::getpid()).c_str());

constexpr std::size_t kBytes = 4 << 20;
constexpr double kOverNvlink = kBytes / 450e3, kOverPcie = kBytes / 63e3;  // 9.3 and 66.6 us
/// A call of the driver, and until a copy begins; twice that much for two of them.
constexpr double kOverhead = 12;

constexpr const char* kWait = R"(.version 8.0
.target sm_80
.address_size 64
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
)";

class VirtualTime : public DriverTest {
 protected:
  /// In microseconds.
  double now() const { return cuda_.function<decltype(virtual_gpu_now)>("virtual_gpu_now")() * 1e6; }
  /// Until all that is enqueued has ended, too.
  double takes(const std::function<void()>& work) const {
    const double begin = now();
    work();
    EXPECT_EQ(call("cuCtxSynchronize"), kSuccess);
    return now() - begin;
  }
  Address allocate_on(int device) const {
    call("cuCtxPushCurrent_v2", cuda_.context(device));
    const Address memory = allocate(kBytes);
    void* popped;
    call("cuCtxPopCurrent_v2", &popped);
    return memory;
  }
  Address on_host() const { return address(allocate_ints(kBytes / sizeof(int))); }
  /// Between memories, each pair in a stream of its own, at the same time.
  double copies_take(const std::vector<std::pair<Address, Address>>& copies) const {
    return takes([&] {
      for (const auto& [from, to] : copies) EXPECT_EQ(copy(to, from, kBytes, stream(kNonBlocking)), kSuccess);
    });
  }
};

TEST_F(VirtualTime, OfACopyIsThatOfItsLink) {
  const double us = copies_take({{allocate_on(0), on_host()}});
  EXPECT_GT(us, kOverPcie);
  EXPECT_LT(us, kOverPcie + kOverhead);
}
TEST_F(VirtualTime, OfTwoCopiesOverOneLinkIsTwiceAsLong) {
  const double us = copies_take({{allocate_on(0), on_host()}, {allocate_on(0), on_host()}});
  EXPECT_GT(us, 2 * kOverPcie);
  EXPECT_LT(us, 2 * kOverPcie + kOverhead);
}
TEST_F(VirtualTime, OfCopiesInBothDirectionsIsThatOfOne) {
  EXPECT_LT(copies_take({{allocate_on(0), on_host()}, {on_host(), allocate_on(0)}}), kOverPcie + kOverhead);
}
TEST_F(VirtualTime, OfPeersThatShareNoLinkIsThatOfOneCopy) {
  const double us = copies_take({{allocate_on(0), allocate_on(1)}, {allocate_on(2), allocate_on(3)}});
  EXPECT_GT(us, kOverNvlink);
  EXPECT_LT(us, kOverNvlink + kOverhead);
}
TEST_F(VirtualTime, OfPeersThatShareALinkIsTwiceAsLong) {
  EXPECT_GT(copies_take({{allocate_on(0), allocate_on(1)}, {allocate_on(0), allocate_on(2)}}),
            2 * kOverNvlink);
}
TEST_F(VirtualTime, OfPageableMemoryIsLonger) {
  std::vector<std::byte> pageable(kBytes);
  EXPECT_GT(copies_take({{allocate_on(0), address(pageable.data())}}), 2 * kOverPcie);
}
TEST_F(VirtualTime, IsWhatEventsTell) {
  void *const s = stream(kNonBlocking), *const before = event(), *const after = event();
  const Address from = allocate_on(0), to = on_host();
  takes([&] {
    call("cuEventRecord", before, s);
    copy(to, from, kBytes, s);
    call("cuEventRecord", after, s);
  });
  float milliseconds = 0;
  ASSERT_EQ(call("cuEventElapsedTime", &milliseconds, before, after), kSuccess);
  EXPECT_GT(milliseconds * 1e3, kOverPcie);
  EXPECT_LT(milliseconds * 1e3, kOverPcie + kOverhead);
}
TEST_F(VirtualTime, OfTheProgramGoesOnByCallsAlone) {
  void* const s = stream(kNonBlocking);
  const Address from = allocate_on(0), to = on_host();
  const double begin = now();
  EXPECT_EQ(now(), begin);
  copy(to, from, kBytes, s);
  const double called = now();
  EXPECT_GT(called, begin);
  EXPECT_LT(called, begin + kOverhead) << "nobody has waited for the copy";
  while (query(s) == kNotReady) std::this_thread::yield();
  EXPECT_GT(now(), begin + kOverPcie) << "it has been seen to have ended";
  cuda_.function<decltype(virtual_gpu_wait_until)>("virtual_gpu_wait_until")(1);
  EXPECT_GE(now(), 1e6);
  cuda_.function<decltype(virtual_gpu_wait_until)>("virtual_gpu_wait_until")(0);
  EXPECT_GE(now(), 1e6);
}
TEST_F(VirtualTime, OfAKernelThatWaitsIsThatOfWhatItWaitsFor) {
  void *module = nullptr, *function = nullptr;
  ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>(kWait)), kSuccess);
  ASSERT_EQ(call("cuModuleGetFunction", &function, module, "wait"), kSuccess);
  Address flag = allocate(sizeof(unsigned));
  ASSERT_EQ(call("cuMemsetD32_v2", flag, 0U, std::size_t{1}), kSuccess);
  ASSERT_EQ(call("cuCtxSynchronize"), kSuccess);
  void *const waiting = stream(kNonBlocking), *const copying = stream(kNonBlocking), *const before = event(),
              *const after = event();
  const Address from = allocate_on(0), to = on_host();
  takes([&] {
    void* parameters[] = {&flag};
    call("cuEventRecord", before, waiting);
    EXPECT_EQ(call("cuLaunchKernel", function, 1U, 1U, 1U, 1U, 1U, 1U, 0U, waiting, &parameters[0],
                   static_cast<void**>(nullptr)),
              kSuccess);
    call("cuEventRecord", after, waiting);
    copy(to, from, kBytes, copying);
    EXPECT_EQ(call("cuStreamWriteValue32_v2", copying, flag, std::uint32_t{1}, 0U), kSuccess);
  });
  float milliseconds = 0;
  ASSERT_EQ(call("cuEventElapsedTime", &milliseconds, before, after), kSuccess);
  EXPECT_GT(milliseconds * 1e3, kOverPcie);
  EXPECT_LT(milliseconds * 1e3, kOverPcie + kOverhead);
}

}  // namespace
}  // namespace virtual_gpu
