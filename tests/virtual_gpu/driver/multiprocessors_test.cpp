// Which blocks are on a GPU at once.
#include "tests/virtual_gpu/driver/multiprocessors.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
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

/// What processes that share GPUs have in common.
class Shared : public ::testing::Test {
 protected:
  std::size_t take(Room& room, std::size_t most) const {
    return room.take(most, [] { return true; });
  }
  machine::Machine machine_ = machine::Machine::from_environment();
  machine::SharedState state_{machine_, std::string()};
  machine::Residents& residents_ = state_.residents(0);
  static constexpr BlockNeeds kHalf{1024, 32, 0}, kWhole{1024, 64, 0}, kSmall{32, 16, 0};
};
using MultiprocessorsOfOneProcess = Shared;
/// Each Multiprocessors as a process has it.
using MultiprocessorsOfTwoProcesses = Shared;

TEST_F(MultiprocessorsOfOneProcess, HaveRoomForAsManyBlocksAsFit) {
  Multiprocessors gpu(3, residents_, false);
  Room first(gpu, kHalf), second(gpu, kHalf), third(gpu, kSmall);
  EXPECT_EQ(take(first, 4), 4U);
  EXPECT_EQ(take(second, 4), 2U);
  EXPECT_EQ(take(third, 1), 0U);
  first.give_back();
  EXPECT_EQ(take(second, 2), 1U) << "more of it when there is room";
}

TEST_F(MultiprocessorsOfOneProcess, GoToTheGridThatHasWaitedLongest) {
  Multiprocessors gpu(1, residents_, false);
  std::atomic<int> waiting{0};
  const auto take_when_there_is_room = [&](Room& room, std::size_t& got) {
    got = room.take(2, [&] { return ++waiting, false; });
  };
  auto all = std::make_unique<Room>(gpu, kWhole);
  ASSERT_EQ(take(*all, 1), 1U);
  Room first(gpu, kHalf), second(gpu, kHalf);
  std::size_t of_first = 0, of_second = 0;
  std::thread one([&] { take_when_there_is_room(first, of_first); });
  while (waiting == 0) std::this_thread::yield();
  std::thread other([&] { of_second = second.take(2, [&] { return of_first > 0; }); });
  all.reset();
  one.join();
  other.join();
  EXPECT_EQ(of_first, 2U);
  EXPECT_EQ(of_second, 0U);
}

TEST_F(MultiprocessorsOfTwoProcesses, AreTheirsByTurnsWithoutMps) {
  Multiprocessors mine(2, residents_, false), theirs(2, residents_, true);
  auto first = std::make_unique<Room>(mine, kSmall), second = std::make_unique<Room>(mine, kSmall);
  Room other(theirs, kSmall);
  EXPECT_EQ(take(*first, 1), 1U);
  EXPECT_EQ(take(*second, 1), 1U) << "kernels of one process go together";
  EXPECT_EQ(take(other, 1), 0U);
  first.reset();
  EXPECT_EQ(take(other, 1), 0U);
  second.reset();
  EXPECT_EQ(take(other, 1), 1U);
}

TEST_F(MultiprocessorsOfTwoProcesses, GoToTheProcessThatHasAskedFirst) {
  Multiprocessors mine(2, residents_, false), theirs(2, residents_, false);
  auto first = std::make_unique<Room>(mine, kSmall);
  ASSERT_EQ(take(*first, 1), 1U);
  std::atomic<int> asked{0};
  std::atomic<bool> let{false};
  std::thread other([&] {
    Room room(theirs, kSmall);
    EXPECT_EQ(room.take(1, [&] { return ++asked, false; }), 1U);
    while (!let) std::this_thread::yield();
  });
  while (asked == 0) std::this_thread::yield();
  first.reset();
  Room again(mine, kSmall);
  EXPECT_EQ(take(again, 1), 0U);
  let = true;
  other.join();
  EXPECT_EQ(take(again, 1), 1U);
}

TEST_F(MultiprocessorsOfTwoProcesses, AreOnePoolUnderMps) {
  Multiprocessors mine(2, residents_, true), theirs(2, residents_, true);
  Room first(mine, kHalf), second(theirs, kHalf), third(theirs, kSmall);
  EXPECT_EQ(take(first, 3), 3U);
  EXPECT_EQ(take(second, 3), 1U);
  EXPECT_EQ(take(third, 1), 0U);
  first.give_back();
  EXPECT_EQ(take(third, 1), 1U);
}

TEST_F(MultiprocessorsOfTwoProcesses, AreFreeAgainWhenOneDies) {
  const std::string file = ::testing::TempDir() + "/virtual_gpu_residents_" + std::to_string(::getpid());
  machine::SharedState state(machine_, machine::StateFile{file, true});
  const pid_t child = ::fork();
  if (child == 0) {
    machine::SharedState mine(machine_, machine::StateFile{file});
    Multiprocessors gpu(1, mine.residents(0), true);
    Room room(gpu, kWhole);
    take(room, 1);
    const machine::MutexLock lock(mine.residents(0).mutex);  // in the middle of something
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  Multiprocessors gpu(1, state.residents(0), false);
  Room room(gpu, kWhole);
  EXPECT_EQ(take(room, 1), 1U);
  EXPECT_TRUE(state.leave());
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace virtual_gpu
