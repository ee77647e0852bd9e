// Copies of calls that do not wait, on a driver without a GPU (tests/virtual_gpu).
#include "device/cuda/polled_copies.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "virtual_device.hpp"

namespace loom::device::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t kBytes = 300'000;

/// With its pages locked, or not.
class PolledCopiesTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  PolledCopiesTest() { device_.write(memory_, std::vector<std::byte>(kBytes, std::byte{5})); }
  ~PolledCopiesTest() override {
    staging_buffer_.reset();
    may_end_ = true;
    device_.call("cuCtxSynchronize");
    device_.release(memory_);
    EXPECT_EQ(device_.counts().streams, 0) << "streams or events are left";
  }
  /// Work of the program in the legacy default stream, until may_end_.
  void enqueue_waiting_work() {
    const auto wait = [](void* may_end) {
      while (!*static_cast<std::atomic<bool>*>(may_end))
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    };
    void (*const function)(void*) = wait;
    device_.call("cuLaunchHostFunc", static_cast<void*>(nullptr), function, static_cast<void*>(&may_end_));
  }
  std::unique_ptr<PolledCopies> start() {
    const PolledSide side{staging_buffer_.get(), regions_, regions_};
    return std::make_unique<PolledCopies>(std::span(&side, 1));
  }
  static void until(const auto& done) {
    while (!done()) std::this_thread::yield();
  }

  VirtualDevice device_;
  std::byte* memory_ = device_.allocate(kBytes);
  Staging staging_{open_virtual(), GetParam()};
  // A piece, and rows with gaps.
  std::array<StridedRegion, 2> regions_{StridedRegion{memory_, nullptr, 200'000, 1, 0},
                                        StridedRegion{memory_ + 210'000, nullptr, 30, 100, 700}};
  std::unique_ptr<StagingBuffer> staging_buffer_ = staging_.staging_buffer(memory_, regions_, {}, false);
  std::atomic<bool> may_end_{false};
};

TEST_P(PolledCopiesTest, GoThereAndBack) {
  const auto copies = start();
  until([&] { return copies->load(); });
  EXPECT_EQ(regions_[0].host[199'999], std::byte{5});
  EXPECT_EQ(regions_[1].host[99 * 700 + 29], std::byte{5});
  EXPECT_TRUE(copies->load());
  for (const StridedRegion& region : regions_)
    for (std::size_t row = 0; row < region.rows; ++row)
      std::memset(region.host + row * region.pitch, 6, region.row_bytes);
  until([&] { return copies->store(); });
  EXPECT_TRUE(copies->store());
  const auto now = device_.read(memory_, kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    const bool copied = i < 200'000 || (i >= 210'000 && i < 280'000 && (i - 210'000) % 700 < 30);
    ASSERT_EQ(now[i], std::byte(copied ? 6 : 5)) << i;
  }
  EXPECT_EQ(staging_.bytes_copied(), 2 * (200'000 + 3000));
}

TEST_P(PolledCopiesTest, ComeAfterWhatTheProgramHasEnqueued) {
  enqueue_waiting_work();
  device_.call("cuMemsetD8Async", memory_, static_cast<unsigned char>(9), kBytes,
               static_cast<void*>(nullptr));
  const auto copies = start();
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(copies->load());
  may_end_ = true;
  until([&] { return copies->load(); });
  EXPECT_EQ(regions_[0].host[0], std::byte{9});
}

TEST_P(PolledCopiesTest, DoNotWaitForWhatItEnqueuesLater) {
  const auto copies = start();
  enqueue_waiting_work();
  until([&] { return copies->load(); });
  until([&] { return copies->store(); });
}

// The driver copies pageable memory while it is called, in the program's progress loop.
TEST_P(PolledCopiesTest, CopyLittlePageableMemoryInAStep) {
  constexpr std::size_t kPitch = 4 << 20, kRow = 5 << 19, kMost = PolledCopies::kPageableBytes;
  std::byte* const memory = device_.allocate(2 * kPitch);
  device_.write(memory, std::vector<std::byte>(2 * kPitch, std::byte{5}));
  // Long rows, short ones that are many, and a few bytes.
  std::array regions{StridedRegion{memory, nullptr, kRow, 2, kPitch},
                     StridedRegion{memory + kRow, nullptr, 1000, 700, 2000},
                     StridedRegion{memory + 2 * kPitch - 7, nullptr, 7, 1, 0}};
  const std::size_t all = bytes_of(regions);
  const auto buffer = staging_.staging_buffer(memory, regions, {}, false);
  ASSERT_EQ(buffer->is_locked(), GetParam() > 0);
  const PolledSide side{buffer.get(), regions, regions};
  PolledCopies copies(std::span(&side, 1));
  const auto most_in_a_step = [&](const auto& step) {
    std::uint64_t most = 0, copied = 0;
    for (bool done = false; !done; std::this_thread::yield()) {
      const std::uint64_t before = device_.counts().bytes;
      done = step();
      const std::uint64_t now = device_.counts().bytes - before;
      most = std::max(most, now);
      copied += now;
    }
    EXPECT_EQ(copied, all);
    return most;
  };
  const std::uint64_t loaded_at_once = most_in_a_step([&] { return copies.load(); });
  for (const StridedRegion& region : regions)
    for (std::size_t row = 0; row < region.rows; ++row) {
      ASSERT_EQ(region.host[row * region.pitch + region.row_bytes - 1], std::byte{5});
      std::memset(region.host + row * region.pitch, 6, region.row_bytes);
    }
  const std::uint64_t stored_at_once = most_in_a_step([&] { return copies.store(); });
  for (const std::uint64_t most : {loaded_at_once, stored_at_once})
    EXPECT_EQ(most, GetParam() > 0 ? all : kMost);
  const auto now = device_.read(memory, 2 * kPitch);
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(now, std::byte{6})), all);
  EXPECT_EQ(now[0], std::byte{6});
  EXPECT_EQ(now[kPitch + kRow - 1], std::byte{6});
  EXPECT_EQ(now.back(), std::byte{6});
  device_.release(memory);
}

TEST_P(PolledCopiesTest, LeaveCapturesOfOtherThreadsAlone) {
  Capture capture(device_);
  {
    const auto copies = start();
    until([&] { return copies->load(); });
    until([&] { return copies->store(); });
  }
  EXPECT_EQ(capture.end(), 0);
}

TEST_P(PolledCopiesTest, SayWhatFails) {
  for (const char* function : {"cuStreamCreate", "cuEventCreate", "cuEventRecord", "cuCtxPushCurrent"}) {
    device_.fail(function, 700);
    EXPECT_THROW(start(), Error) << function;
    device_.fail(function, 0);
  }
  const auto copies = start();
  for (const char* function : {"cuCtxPushCurrent", "cuEventQuery"}) {
    device_.fail(function, 700);
    EXPECT_THAT([&] { copies->load(); }, ThrowsMessage<Error>(HasSubstr("error 700"))) << function;
    device_.fail(function, 0);
  }
  until([&] { return copies->load(); });
  device_.fail("cuMemcpyAsync", 700);
  EXPECT_THAT([&] { until([&] { return copies->store(); }); },
              ThrowsMessage<Error>(AllOf(HasSubstr("error 700"), HasSubstr("to the device"))));
  device_.fail("cuMemcpyAsync", 0);
}

TEST_P(PolledCopiesTest, LeaveMemoryAloneThatTheyMayStillReach) {
  {
    const auto copies = start();
    device_.fail("cuEventRecord", 700);
    EXPECT_THROW(until([&] { return copies->load(); }), Error);  // the copies are enqueued
    device_.fail("cuEventRecord", 0);
  }
  staging_buffer_.reset();
}

TEST_P(PolledCopiesTest, OutliveAContext) {
  const auto copies = start();
  until([&] { return copies->load(); });
  device_.function<int(int)>("cuDevicePrimaryCtxReset_v2")(0);
  EXPECT_THROW(copies->store(), Error);
}

INSTANTIATE_TEST_SUITE_P(Of, PolledCopiesTest, ::testing::Values(16 << 20, 0), [](const auto& pages) {
  return pages.param > 0 ? "LockedMemory" : "PageableMemory";
});

}  // namespace
}  // namespace loom::device::cuda
