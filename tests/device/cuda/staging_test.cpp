// Copies of device buffers, on a driver without a GPU (tests/virtual_gpu).
#include "device/cuda/staging.hpp"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "virtual_device.hpp"

namespace loom::device::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::unique_ptr<StagingBuffer> staging_buffer(Staging& staging, std::byte* memory, std::size_t bytes) {
  std::array whole{StridedRegion{memory, nullptr, bytes, 1, 0}};
  return staging.staging_buffer(memory, whole, {});
}

TEST(CudaDriver, IsNotThereWithoutALibraryOrWithAnotherOne) {
  EXPECT_EQ(Driver::open("libloom-has-no-such-library.so.1", false), nullptr);
  EXPECT_EQ(Driver::open("libm.so.6", false), nullptr);
  EXPECT_NE(open_virtual(), nullptr);
}

TEST(CudaDriver, KnowsWhatTheCpuMayNotTouch) {
  const VirtualDevice device;
  const auto driver = open_virtual();
  std::byte *const plain = device.allocate(4096), *const managed = device.allocate_managed(4096),
                   *const pool = device.allocate_in_pool(4096), *const locked = device.allocate_on_host(4096);
  int local = 0;
  EXPECT_FALSE(driver->owner_of(&local));
  EXPECT_FALSE(driver->owner_of(nullptr));
  EXPECT_FALSE(driver->owner_of(locked));
  ASSERT_TRUE(driver->owner_of(plain + 4095));
  EXPECT_NE(driver->owner_of(plain)->context, nullptr);
  EXPECT_TRUE(driver->owner_of(managed));
  EXPECT_TRUE(driver->owner_of(pool));
  EXPECT_TRUE(driver->is_in_a_context(plain));
  EXPECT_FALSE(driver->is_in_a_context(pool));
  EXPECT_FALSE(driver->is_in_a_context(&local));
  for (std::byte* memory : {plain, managed, pool}) device.release(memory);
  device.release_on_host(locked);
  EXPECT_FALSE(driver->owner_of(plain));
}

TEST(CudaDriver, TakesMemoryInNoContextToBeInThatOfTheProgram) {
  const VirtualDevice device;
  const auto driver = open_virtual();
  void *own = nullptr, *left = nullptr, *const primary = device.context(0), *const another = &own;
  std::byte* const pool = device.allocate_in_pool(4096);
  EXPECT_EQ(driver->owner_of(pool)->context, primary);
  device.call("cuCtxCreate_v2", &own, 0U, 0);
  EXPECT_EQ(driver->owner_of(pool)->context, own);
  EXPECT_EQ(driver->owner_of(pool, another)->context, own);
  device.use(1);
  EXPECT_EQ(driver->owner_of(pool)->context, primary) << "the current context is another device's";
  device.call("cuCtxPopCurrent_v2", &left);
  std::jthread([&] {
    EXPECT_EQ(driver->owner_of(pool)->context, primary) << "no context is current in this thread";
    EXPECT_EQ(driver->owner_of(pool, another)->context, another);
  }).join();
  device.call("cuCtxDestroy_v2", own);
  device.release(pool);
}

/// Memory of the host that CUDA might have, as far as loom knows.
std::byte* map_on_host(std::size_t bytes) {
  return static_cast<std::byte*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

TEST(CudaDriver, IsAskedOnlyAboutAddressesThatMayBecomeItsOwn) {
  static std::byte in_the_program[100];
  const VirtualDevice device;
  const auto driver = open_virtual();
  const auto looks = [&, before = device.counts().looks] { return device.counts().looks - before; };
  auto* const on_the_heap = static_cast<std::byte*>(::sbrk(4096));
  auto* const on_the_stack = static_cast<std::byte*>(__builtin_frame_address(0));
  for (const std::byte* memory : {on_the_stack, static_cast<std::byte*>(in_the_program), on_the_heap})
    EXPECT_FALSE(driver->owner_of(memory));
  std::jthread([&] {
    EXPECT_FALSE(driver->owner_of(__builtin_frame_address(0)));
    EXPECT_EQ(looks(), 0);
    EXPECT_FALSE(driver->owner_of(on_the_stack)) << "another thread's stack";
  }).join();
  EXPECT_EQ(looks(), 1);
  std::byte* const mapped = map_on_host(4096);
  EXPECT_FALSE(driver->owner_of(mapped));
  EXPECT_FALSE(driver->owner_of(mapped)) << "again, for it may have been freed";
  EXPECT_EQ(looks(), 3);
  ::munmap(mapped, 4096);
}

// A kernel that has failed makes every later call fail, this question too.
TEST(CudaDriver, KnowsTheHostsMemoryWhereItDoesNotAnswer) {
  const VirtualDevice device;
  const auto driver = open_virtual();
  std::byte *const mapped = map_on_host(8192), *const plain = device.allocate(8192),
                   *const managed = device.allocate_managed(8192);
  EXPECT_TRUE(driver->owner_of(managed));
  device.fail("cuPointerGetAttributes", 719);
  EXPECT_FALSE(driver->owner_of(mapped));
  EXPECT_THAT([&] { static_cast<void>(driver->owner_of(plain)); },
              ThrowsMessage<Error>(HasSubstr("error 719")))
      << "not for the CPU";
  EXPECT_THROW(static_cast<void>(driver->owner_of(managed + 8191)), Error) << "it was the device's";
  ::munmap(mapped, 8192);
  EXPECT_THROW(static_cast<void>(driver->owner_of(mapped)), Error) << "nothing is there";
  device.fail("cuPointerGetAttributes", 0);
  for (std::byte* memory : {plain, managed}) device.release(memory);
}

TEST(CudaDriverDeathTest, DeviceMemoryCannotBeReadByTheCpu) {
  const VirtualDevice device;
  volatile std::byte* const memory = device.allocate(4096);
  EXPECT_DEATH(static_cast<void>(memory[0]), "");
}

TEST(CudaDriver, CopiesRowsAndNothingBetweenThem) {
  const VirtualDevice device;
  const auto driver = open_virtual();
  bool in_flight = true;
  for (const bool in_pool : {false, true}) {
    std::byte* const memory = in_pool ? device.allocate_in_pool(1000) : device.allocate(1000);
    device.write(memory, std::vector<std::byte>(1000, std::byte{1}));
    std::vector<std::byte> host(1000, std::byte{2});
    const std::array regions{StridedRegion{memory + 10, host.data() + 10, 3, 20, 7},
                             StridedRegion{memory + 500, host.data() + 500, 90, 1, 0}};
    const auto is_row = [](std::size_t i) {
      return (i >= 10 && i < 10 + 20 * 7 && (i - 10) % 7 < 3) || (i >= 500 && i < 590);
    };
    driver->copy(*driver->owner_of(memory), regions, Direction::kToHost, in_flight);
    for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(host[i], std::byte(is_row(i) ? 1 : 2)) << i;
    std::fill(host.begin(), host.end(), std::byte{3});
    driver->copy(*driver->owner_of(memory), regions, Direction::kToDevice, in_flight);
    const auto now = device.read(memory, 1000);
    for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(now[i], std::byte(is_row(i) ? 3 : 1)) << i;
    device.release(memory);
  }
}

TEST(CudaDriver, NamesTheErrorAndWhatItWasDoing) {
  const VirtualDevice device;
  const auto driver = open_virtual();
  std::byte* const memory = device.allocate(100);
  const Owner owner = *driver->owner_of(memory);
  bool in_flight = true;
  std::array<std::byte, 100> host{};
  const std::array regions{StridedRegion{memory, host.data(), 100, 1, 0}};
  device.fail("cuMemcpyAsync", 700);
  EXPECT_THAT([&] { driver->copy(owner, regions, Direction::kToDevice, in_flight); },
              ThrowsMessage<Error>(AllOf(HasSubstr("error 700"), HasSubstr("to the device"))));
  device.fail("cuMemcpyAsync", 0);
  device.fail("cuCtxPushCurrent", 2);
  try {
    driver->copy(owner, regions, Direction::kToHost, in_flight);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  device.fail("cuCtxPushCurrent", 0);
  device.release(memory);
}

TEST(Staging, KeepsMemoryUpToItsLimit) {
  const VirtualDevice device;
  std::byte* const memory = device.allocate(1 << 20);
  const std::uint64_t before = device.counts().registered;
  {
    Staging staging(open_virtual(), 256 * 1024);
    { const auto first = staging_buffer(staging, memory, 100'000); }
    EXPECT_EQ(device.counts().registered - before, 128 * 1024);
    {
      const auto again = staging_buffer(staging, memory, 90'000),
                 other = staging_buffer(staging, memory, 100'000);
      EXPECT_EQ(device.counts().registered - before, 256 * 1024);
      const auto too_much = staging_buffer(staging, memory, 100'000);
      EXPECT_EQ(device.counts().registered - before, 256 * 1024);
      std::memset(memory + too_much->distance(), 1, 100'000);
    }
    { const auto large = staging_buffer(staging, memory, 256 * 1024); }  // what is free makes room
    EXPECT_EQ(device.counts().registered - before, 256 * 1024);
    { const auto larger = staging_buffer(staging, memory, 300 * 1024); }
    EXPECT_EQ(device.counts().registered - before, 256 * 1024);
  }
  EXPECT_EQ(device.counts().registered, before);
  device.release(memory);
}

// CUDA unlocks pages when nothing is on its way any more: perhaps never, as far as a call knows.
TEST(Staging, UnlocksNothingForWhoMayNotWait) {
  const VirtualDevice device;
  std::byte* const memory = device.allocate(1 << 20);
  Staging staging(open_virtual(), 256 * 1024);
  std::array region{StridedRegion{memory, nullptr, 200'000, 1, 0}};
  { const auto first = staging_buffer(staging, memory, 100'000); }
  device.fail("cuMemHostUnregister", 700);
  {
    const auto larger = staging.staging_buffer(memory, region, {}, false);
    EXPECT_FALSE(larger->is_locked());
  }
  device.fail("cuMemHostUnregister", 0);
  EXPECT_TRUE(staging.staging_buffer(memory, region, {}, true)->is_locked());
  region[0].row_bytes = 1;
  EXPECT_TRUE(staging.staging_buffer(memory, region, {}, false)->is_locked()) << "what is free will do";
  device.release(memory);
}

TEST(Staging, KnowsWhereCudaDoesNotLockMemory) {
  const VirtualDevice device;
  std::byte* const memory = device.allocate(100'000);
  Staging staging(open_virtual(), 1 << 20);
  device.fail("cuMemHostRegister", 2);
  EXPECT_FALSE(staging_buffer(staging, memory, 100'000)->is_locked());
  device.fail("cuMemHostRegister", 0);
  EXPECT_TRUE(staging_buffer(staging, memory, 100'000)->is_locked());
  EXPECT_TRUE(staging_buffer(staging, memory, 900'000)->is_locked()) << "memory that was not locked counts";
  device.release(memory);
}

// A message from MPI_BOTTOM may have parts on the device and on the host, as far apart as addresses can be.
TEST(Staging, TakesBlocksThatLieFarApart) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer keeps the addresses for itself";
#endif
  static std::byte data[5000];
  const VirtualDevice device;
  std::byte* const memory = device.allocate(4096);
  Staging staging(open_virtual(), 1 << 20);
  std::vector<std::byte> heap(5000);
  std::vector<std::unique_ptr<StagingBuffer>>
      kept;  // as with calls that have not ended: these distances are taken
  for (int i = 0; i < 10; ++i) {
    std::array load{StridedRegion{memory + 3, nullptr, 10, 20, 100},
                    StridedRegion{heap.data() + 1, nullptr, 4000, 1, 0}};
    std::array store{StridedRegion{data, nullptr, sizeof data, 1, 0}};
    kept.push_back(staging.staging_buffer(memory, load, store));
    for (const std::span<StridedRegion> regions :
         {std::span<StridedRegion>(load), std::span<StridedRegion>(store)})
      for (const StridedRegion& region : regions) {
        EXPECT_EQ(region.host, region.device + kept.back()->distance());
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.host) % 64,
                  reinterpret_cast<std::uintptr_t>(region.device) % 64);
        for (std::size_t row = 0; row < region.rows; ++row) {
          EXPECT_EQ(region.host[row * region.pitch], std::byte{0});
          std::memset(region.host + row * region.pitch, 1, region.row_bytes);
        }
      }
  }
  EXPECT_EQ(data[0], std::byte{0});
  device.release(memory);
}

TEST(Staging, ServesSeveralThreads) {
  const VirtualDevice device;
  Staging staging(open_virtual(), 1 << 20);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      const VirtualDevice mine;
      for (std::size_t round = 1; round <= 50; ++round) {
        const std::size_t bytes = round * 3000;
        std::byte* const memory = mine.allocate(bytes);
        std::array regions{StridedRegion{memory, nullptr, bytes, 1, 0}};
        const auto staging_buffer = staging.staging_buffer(memory, regions, {});
        std::memset(regions[0].host, thread, bytes);
        staging_buffer->copy(regions, Direction::kToDevice);
        std::memset(regions[0].host, 77, bytes);
        staging_buffer->copy(regions, Direction::kToHost);
        EXPECT_EQ(regions[0].host[bytes - 1], std::byte(thread));
        mine.release(memory);
      }
    });
  threads.clear();
  EXPECT_EQ(staging.bytes_copied(), 4 * 2 * 3000ULL * (50 * 51 / 2));
}

// Some calls of the driver are forbidden while any thread captures a stream, unless the caller says that it
// knows what it does.
TEST(Staging, LeavesCapturesOfOtherThreadsAlone) {
  const VirtualDevice device;
  std::byte* const memory = device.allocate(100'000);
  Capture capture(device);
  std::array regions{StridedRegion{memory, nullptr, 100'000, 1, 0}};
  {
    Staging staging(open_virtual(), 1 << 20);
    const auto staging_buffer = staging.staging_buffer(memory, regions, {});
    EXPECT_TRUE(staging_buffer->is_locked());
    EXPECT_NO_THROW(staging_buffer->copy(regions, Direction::kToHost));
  }
  EXPECT_EQ(capture.end(), 0);
  device.release(memory);
}

TEST(Staging, KeepsItsHandsOffMemoryThatCopiesMayStillReach) {
  const VirtualDevice device;
  std::byte* const memory = device.allocate(100'000);
  Staging staging(open_virtual(), 0);
  {
    std::array regions{StridedRegion{memory, nullptr, 100'000, 1, 0}};
    const auto staging_buffer = staging.staging_buffer(memory, regions, {});
    device.fail("cuStreamSynchronize", 700);
    EXPECT_THROW(staging_buffer->copy(regions, Direction::kToHost), Error);
    device.fail("cuStreamSynchronize", 0);
  }
  device.read(memory, 1);  // the copy comes now
  device.release(memory);
}

// Else the pages would be copied on write, and the GPU would keep to the old ones.
TEST(Staging, IsNotInheritedByChildren) {
  const VirtualDevice device;
  std::byte* const memory = device.allocate(5000);
  Staging staging(open_virtual(), 1 << 20);
  std::array regions{StridedRegion{memory, nullptr, 5000, 1, 0}};
  const auto staging_buffer = staging.staging_buffer(memory, regions, {});
  ASSERT_TRUE(staging_buffer->is_locked());
  const auto is_mapped =
      [page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(regions[0].host) / 4096 * 4096)] {
        unsigned char resident;
        return ::mincore(page, 4096, &resident) == 0;
      };
  EXPECT_TRUE(is_mapped());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(is_mapped() ? 1 : 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Staging, OutlivesAContext) {
  const VirtualDevice device;
  device.use(1);
  std::byte* const memory = device.allocate(5000);
  Staging staging(open_virtual(), 1 << 20);
  std::array regions{StridedRegion{memory, nullptr, 5000, 1, 0}};
  const auto staging_buffer = staging.staging_buffer(memory, regions, {});
  device.function<int(int)>("cuDevicePrimaryCtxReset_v2")(1);
  std::memset(regions[0].host, 1, 5000);  // still ours
  EXPECT_THROW(staging_buffer->copy(regions, Direction::kToDevice), Error);
  EXPECT_THROW(cuda::staging_buffer(staging, memory, 5000), Error);
  void* context;
  device.function<int(void**)>("cuCtxPopCurrent_v2")(&context);
}

}  // namespace
}  // namespace loom::device::cuda
