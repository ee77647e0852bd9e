// Which blocks are on a GPU at once.
#include "tests/virtual_gpu/driver/multiprocessors.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace virtual_gpu {
namespace {

using Room = Multiprocessors::Room;

TEST(MultiprocessorsTest, HoldWhatThreadsRegistersAndSharedMemoryAllow) {
  EXPECT_EQ(blocks_of_multiprocessor({512, 32, 0}), 4U);   // threads: 2048 / 512
  EXPECT_EQ(blocks_of_multiprocessor({33, 32, 0}), 32U);   // 2048 / 64, and 32 at the most
  EXPECT_EQ(blocks_of_multiprocessor({512, 128, 0}), 1U);  // registers: 65536 / (512 * 128)
  EXPECT_EQ(blocks_of_multiprocessor({512, 136, 0}), 0U);
  EXPECT_EQ(blocks_of_multiprocessor({32, 16, 100 * 1024}), 2U);  // 228 / (100 + 1)
  EXPECT_EQ(blocks_of_multiprocessor({32, 16, 227 * 1024}), 1U);
}

TEST(MultiprocessorsTest, KernelsAreCompiledToFitTheirLargestBlock) {
  EXPECT_EQ(registers_of_thread(1024), 64U);
  EXPECT_EQ(registers_of_thread(512), 128U);
  EXPECT_EQ(registers_of_thread(500), 128U);
  EXPECT_EQ(registers_of_thread(32), 255U);
}

TEST(MultiprocessorsTest, GiveRoomToAsManyBlocksAsFit) {
  Multiprocessors gpu(3, "");
  const std::atomic<bool> stop{false};
  const BlockNeeds half{1024, 32, 0};
  const Room first(gpu, 4, half, stop), second(gpu, 4, half, stop);
  EXPECT_EQ(first.blocks(), 4U);
  EXPECT_EQ(second.blocks(), 2U);
}

TEST(MultiprocessorsTest, WaitForRoomOrForTheOrderToStop) {
  Multiprocessors gpu(1, "");
  std::atomic<bool> stop{false};
  const BlockNeeds whole{1024, 64, 0};
  std::size_t got = 99;
  auto first = std::make_unique<Room>(gpu, 1, whole, stop);
  std::thread stopped([&] { got = Room(gpu, 1, whole, stop).blocks(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  stop = true;
  stopped.join();
  EXPECT_EQ(got, 0U);
  stop = false;
  std::thread second([&] { got = Room(gpu, 1, whole, stop).blocks(); });
  first.reset();
  second.join();
  EXPECT_EQ(got, 1U);
}

/// Each Multiprocessors as a process has it, of one GPU.
TEST(MultiprocessorsTest, ProcessesThatShareThemTakeTurns) {
  const std::string file = ::testing::TempDir() + "/virtual_gpu_turns";
  Multiprocessors mine(2, file), theirs(2, file);
  std::atomic<bool> stop{false};
  const BlockNeeds small{32, 16, 0};
  std::atomic<bool> in{false};
  auto first = std::make_unique<Room>(mine, 1, small, stop);
  const auto second = std::make_unique<Room>(mine, 1, small, stop);
  EXPECT_EQ(second->blocks(), 1U) << "kernels of one process go together";
  std::thread other([&] {
    const Room room(theirs, 1, small, stop);
    in = room.blocks() == 1;
  });
  first.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(in);
  const_cast<std::unique_ptr<Room>&>(second).reset();
  other.join();
  EXPECT_TRUE(in);
}

}  // namespace
}  // namespace virtual_gpu
