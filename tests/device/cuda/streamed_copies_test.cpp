// Copies that go on during a call, on a driver without a GPU (tests/virtual_gpu).
#include "device/cuda/streamed_copies.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "virtual_device.hpp"

namespace loom::device::cuda {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t kPart = StreamedCopies::kPartBytes;
/// Longer than the locked window is.
constexpr std::size_t kBytes = 10 * kPart + 1000;
static_assert(kBytes > StagingBuffer::kWindowBytes);

std::byte value_at(std::size_t i) {
  return std::byte(i * 7 + i / kPart);
}
std::vector<std::byte> values(std::size_t bytes) {
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = value_at(i);
  return result;
}

/// A buffer on the device, and its staging buffer.
class Buffer {
 public:
  explicit Buffer(const VirtualDevice& device, Staging& staging)
      : device_(device), memory_(device.allocate(kBytes)) {
    region_ = {memory_, nullptr, kBytes, 1, 0};
    staging_buffer_ = staging.staging_buffer(memory_, {&region_, 1}, {});
  }
  ~Buffer() { device_.release(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  StreamedSide operand() const { return {staging_buffer_.get(), region_, {}}; }
  StreamedSide result() const { return {staging_buffer_.get(), {}, region_}; }
  StreamedSide both() const { return {staging_buffer_.get(), region_, region_}; }
  std::byte* host() const { return region_.host; }
  std::byte* memory() const { return memory_; }

 private:
  const VirtualDevice& device_;
  std::byte* memory_;
  StridedRegion region_;
  std::unique_ptr<StagingBuffer> staging_buffer_;
};

/// By how much memory may be locked: all of it, or a window that everything passes through.
class StreamedCopiesTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  ~StreamedCopiesTest() override {
    EXPECT_EQ(device_.counts().streams, 0) << "streams or events are left";
    EXPECT_LE(device_.counts().registered, GetParam()) << "more memory is locked than allowed";
  }
  static bool has_window() { return GetParam() < kBytes; }
  std::uint64_t copied() const { return device_.counts().bytes - before_; }
  /// From the program, in the default stream.
  void fill(std::byte* memory, int value) const {
    device_.call("cuMemsetD8Async", memory, static_cast<unsigned char>(value), kBytes,
                 static_cast<void*>(nullptr));
  }
  static std::unique_ptr<StreamedCopies> start(const StreamedSide& side) {
    return std::make_unique<StreamedCopies>(std::span(&side, 1));
  }

  VirtualDevice device_;
  Staging staging_{open_virtual(), GetParam()};
  Buffer buffer_{device_, staging_};
  std::uint64_t before_ = device_.counts().bytes;
};

TEST_P(StreamedCopiesTest, BringWhatIsNeededAndALittleMore) {
  device_.write(buffer_.memory(), values(kBytes));
  std::memset(buffer_.host(), 0, kBytes);
  const auto copies = start(buffer_.operand());
  EXPECT_EQ(copied(), 0);
  copies->need(buffer_.host() + kPart - 10, 30);  // of two parts
  for (std::size_t i = 0; i < 2 * kPart; ++i) ASSERT_EQ(buffer_.host()[i], value_at(i)) << i;
  EXPECT_EQ(copied(), (2 + StreamedCopies::kPartsAhead) * kPart);
  const std::uint64_t so_far = copied();
  copies->need(buffer_.host(), 2 * kPart);
  EXPECT_EQ(copied(), so_far);
  copies->need(buffer_.host() + kBytes - 1, 1);
  EXPECT_EQ(buffer_.host()[kBytes - 1], value_at(kBytes - 1));
  copies->need_all();
  EXPECT_TRUE(std::ranges::equal(std::span(buffer_.host(), kBytes), values(kBytes)));
  EXPECT_EQ(copied(), kBytes) << "each byte once";
}

TEST_P(StreamedCopiesTest, ComeAfterWhatTheProgramHasEnqueued) {
  fill(buffer_.memory(), 5);
  const auto copies = start(buffer_.operand());
  fill(buffer_.memory(), 6);  // comes later: the copies may see it or not
  buffer_.host()[0] = std::byte{0};
  copies->need(buffer_.host(), 1);
  EXPECT_THAT(buffer_.host()[0], AnyOf(std::byte{5}, std::byte{6}));
}

TEST_P(StreamedCopiesTest, PassOverAddressesOfOtherBuffers) {
  const auto copies = start(buffer_.both());
  std::vector<std::byte> elsewhere(kBytes);
  copies->need(elsewhere.data(), kBytes);
  copies->have(elsewhere.data(), kBytes);
  copies->need(buffer_.host() - 100, 100);
  copies->have(buffer_.host() + kBytes, 100);
  EXPECT_EQ(copied(), 0);
}

TEST_P(StreamedCopiesTest, TakeResultsAsSoonAsAPartIsWhole) {
  device_.write(buffer_.memory(), std::vector<std::byte>(kBytes));
  const auto copies = start(buffer_.result());
  const auto truth = values(kBytes);
  std::copy(truth.begin(), truth.end(), buffer_.host());
  for (std::size_t at = 100; at < 2 * kPart; at += 7000)
    copies->have(buffer_.host() + at, std::min<std::size_t>(7000, 2 * kPart - at));
  EXPECT_EQ(copied(), kPart) << "the first part has not been told of whole";
  copies->have(buffer_.host(), 100);
  EXPECT_EQ(copied(), 2 * kPart);
  copies->have(buffer_.host() + 3 * kPart + 1, 2 * kPart);
  EXPECT_EQ(copied(), 3 * kPart);
  copies->finish();  // the rest
  EXPECT_EQ(copied(), kBytes) << "each byte once";
  EXPECT_EQ(device_.read(buffer_.memory(), kBytes), truth);
}

TEST_P(StreamedCopiesTest, OverwriteResultsAfterWhatTheProgramHasEnqueued) {
  fill(buffer_.memory(), 5);
  const auto copies = start(buffer_.result());
  std::memset(buffer_.host(), 9, kBytes);
  copies->have(buffer_.host(), kBytes);
  copies->finish();
  EXPECT_EQ(device_.read(buffer_.memory(), kBytes), std::vector<std::byte>(kBytes, std::byte{9}));
}

// The driver waits for the device before it copies from memory whose pages are not locked.
TEST_P(StreamedCopiesTest, TakeResultsWithoutWaitingForTheDevice) {
  std::atomic<bool> may_end{false};
  void (*const wait)(void*) = [](void* end) {
    while (!*static_cast<std::atomic<bool>*>(end)) std::this_thread::yield();
  };
  device_.call("cuLaunchHostFunc", static_cast<void*>(nullptr), wait, static_cast<void*>(&may_end));
  const auto copies = start(buffer_.result());
  const auto truth = values(kBytes);
  std::copy(truth.begin(), truth.end(), buffer_.host());
  copies->have(buffer_.host(), 3 * kPart);
  EXPECT_EQ(copied(), 3 * kPart);
  may_end = true;
  copies->finish();
  EXPECT_EQ(device_.read(buffer_.memory(), kBytes), truth);
}

// Executors read at several places by turns, as many as there are ranks.
TEST_P(StreamedCopiesTest, BringPartsOfManyPlaces) {
  device_.write(buffer_.memory(), values(kBytes));
  std::memset(buffer_.host(), 0, kBytes);
  const auto copies = start(buffer_.both());
  for (std::size_t step = 0; step < kPart; step += kPart / 4)
    for (std::size_t place = 0; place < kBytes / kPart; ++place) {
      const std::size_t at = place * kPart + step;
      copies->need(buffer_.host() + at, kPart / 4);
      for (std::size_t i = at; i < at + kPart / 4; ++i) {
        ASSERT_EQ(buffer_.host()[i], value_at(i)) << i;
        buffer_.host()[i] ^= std::byte{0xff};
      }
      copies->have(buffer_.host() + at, kPart / 4);
    }
  copies->need(buffer_.host() + kBytes - 1000, 1000);
  copies->finish();
  auto truth = values(kBytes);
  for (std::size_t i = 0; i < kBytes - 1000; ++i) truth[i] ^= std::byte{0xff};
  EXPECT_EQ(device_.read(buffer_.memory(), kBytes), truth);
}

TEST_P(StreamedCopiesTest, LeaveResultsThatAreNotWhole) {
  device_.write(buffer_.memory(), values(kBytes));
  {
    const auto copies = start(buffer_.result());  // of a call that fails
    std::memset(buffer_.host(), 9, kBytes);
    copies->have(buffer_.host(), kPart - 1);
  }
  EXPECT_EQ(device_.read(buffer_.memory(), kBytes), values(kBytes));
}

TEST_P(StreamedCopiesTest, CarryOperandAndResultInOnePlace) {
  device_.write(buffer_.memory(), values(kBytes));
  const auto copies = start(buffer_.both());
  for (std::size_t at = 0; at < kBytes; at += kPart / 4) {
    const std::size_t bytes = std::min(kPart / 4, kBytes - at);
    copies->need(buffer_.host() + at, bytes);
    for (std::size_t i = at; i < at + bytes; ++i) buffer_.host()[i] ^= std::byte{0xff};
    copies->have(buffer_.host() + at, bytes);
  }
  copies->finish();
  auto truth = values(kBytes);
  for (std::byte& value : truth) value ^= std::byte{0xff};
  EXPECT_EQ(device_.read(buffer_.memory(), kBytes), truth);
  EXPECT_EQ(copied(), 2 * kBytes);
}

TEST_P(StreamedCopiesTest, LeaveCapturesOfOtherThreadsAlone) {
  Capture capture(device_);
  {
    const auto copies = start(buffer_.both());
    copies->need(buffer_.host(), kBytes);
    copies->have(buffer_.host(), kPart);
    copies->finish();
  }
  EXPECT_EQ(capture.end(), 0);
}

TEST_P(StreamedCopiesTest, SayWhatFails) {
  for (const char* function : {"cuStreamCreate", "cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"}) {
    device_.fail(function, 700);
    EXPECT_THROW(start(buffer_.both()), Error) << function;
    device_.fail(function, 0);
  }
  for (const char* function : {"cuMemcpyAsync", "cuEventSynchronize", "cuCtxPushCurrent"}) {
    const auto copies = start(buffer_.operand());
    device_.fail(function, 700);
    EXPECT_THAT([&] { copies->need(buffer_.host(), 1); },
                ThrowsMessage<Error>(AllOf(HasSubstr("error 700"), HasSubstr("to the host"))))
        << function;
    device_.fail(function, 0);
  }
}

TEST_P(StreamedCopiesTest, TryAgainWhatCouldNotBeStoredEarly) {
  const auto copies = start(buffer_.result());
  std::memset(buffer_.host(), 9, kBytes);
  copies->have(buffer_.host(), kPart);
  device_.fail("cuMemcpyAsync", 700);
  copies->have(buffer_.host() + kPart, kPart);
  EXPECT_THAT([&] { copies->finish(); },
              ThrowsMessage<Error>(AllOf(HasSubstr("error 700"), HasSubstr("to the device"))));
  device_.fail("cuMemcpyAsync", 0);
  copies->have(buffer_.host() + 2 * kPart, kPart);
  copies->finish();
  EXPECT_EQ(device_.read(buffer_.memory(), kBytes), std::vector<std::byte>(kBytes, std::byte{9}));
  EXPECT_EQ(copied(), kBytes);
}

TEST(StreamedCopies, LeaveMemoryAloneThatCopiesMayStillReach) {
  const VirtualDevice device;
  Staging staging(open_virtual(), 0);
  std::byte* const memory = device.allocate(kBytes);
  {
    StridedRegion region{memory, nullptr, kBytes, 1, 0};
    const auto staging_buffer = staging.staging_buffer(memory, {&region, 1}, {});
    const StreamedSide side{staging_buffer.get(), region, {}};
    StreamedCopies copies(std::span(&side, 1));
    copies.need(region.host, 1);
    device.fail("cuStreamSynchronize", 700);
  }
  device.fail("cuStreamSynchronize", 0);
  device.release(memory);  // what was on its way comes now
}

TEST_P(StreamedCopiesTest, BringAllInOneCopyWhereNobodyHasBegun) {
  device_.write(buffer_.memory(), values(kBytes));
  const std::uint64_t copies_before = device_.counts().copies;
  const auto copies = start(buffer_.both());
  copies->need_all();
  const std::size_t parts = (kBytes + kPart - 1) / kPart, pieces = has_window() ? parts : 1;
  EXPECT_EQ(device_.counts().copies, copies_before + pieces);
  EXPECT_TRUE(std::ranges::equal(std::span(buffer_.host(), kBytes), values(kBytes)));
  copies->need(buffer_.host(), kBytes);
  EXPECT_EQ(copied(), kBytes);
  std::memset(buffer_.host(), 9, kBytes);
  copies->finish();
  EXPECT_EQ(device_.counts().copies, copies_before + 2 * pieces);
  EXPECT_EQ(device_.read(buffer_.memory(), kBytes), std::vector<std::byte>(kBytes, std::byte{9}));
}

INSTANTIATE_TEST_SUITE_P(Through, StreamedCopiesTest,
                         ::testing::Values(std::size_t{16} << 20, StagingBuffer::kWindowBytes),
                         [](const auto& bytes) { return bytes.param > kBytes ? "LockedMemory" : "AWindow"; });

TEST(StreamedCopies, OutliveAContext) {
  const VirtualDevice device;
  device.use(1);
  std::byte* const memory = device.allocate(kBytes);
  Staging staging(open_virtual(), 16 << 20);
  StridedRegion region{memory, nullptr, kBytes, 1, 0};
  const auto staging_buffer = staging.staging_buffer(memory, {&region, 1}, {});
  const StreamedSide side{staging_buffer.get(), region, region};
  StreamedCopies copies(std::span(&side, 1));
  copies.need(region.host, 1);
  device.function<int(int)>("cuDevicePrimaryCtxReset_v2")(1);
  EXPECT_THROW(copies.need(region.host + kBytes - 1, 1), Error);
  copies.have(region.host, kPart);
  EXPECT_THROW(copies.finish(), Error);
  void* context;
  device.function<int(void**)>("cuCtxPopCurrent_v2")(&context);
}

}  // namespace
}  // namespace loom::device::cuda
