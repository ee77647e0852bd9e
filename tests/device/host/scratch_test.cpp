#include "device/host/scratch.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace loom::device {
namespace {

TEST(Scratch, BlocksInUseDoNotOverlap) {
  const std::size_t sizes[] = {1, 100, 4096, 300'000, std::size_t{4} << 20, std::size_t{9} << 20};
  std::vector<Scratch> blocks;
  for (int round = 0; round < 3; ++round)
    for (const std::size_t bytes : sizes) blocks.push_back(scratch(bytes));
  for (std::size_t i = 0; i < blocks.size(); ++i)
    std::memset(blocks[i].get(), static_cast<int>(i), sizes[i % std::size(sizes)]);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i][0], std::byte(i));
    EXPECT_EQ(blocks[i][sizes[i % std::size(sizes)] - 1], std::byte(i));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks[i].get()) % alignof(std::max_align_t), 0u);
  }
}

TEST(Scratch, ALaterCallOfTheThreadUsesTheSameMemory) {
  const std::size_t bytes = std::size_t{3} << 20;
  const std::byte* const first = scratch(bytes).get();
  for (int call = 0; call < 5; ++call) EXPECT_EQ(scratch(bytes).get(), first);
}

TEST(Scratch, AShorterCallUsesALongerBlockUnlessHalfOfItIsEnough) {
  const std::size_t bytes = std::size_t{7} << 20;
  const std::byte* const first = scratch(bytes).get();
  EXPECT_EQ(scratch(bytes - 1).get(), first);
  const Scratch half = scratch(bytes / 2 - 1);
  EXPECT_NE(half.get(), first);
  EXPECT_EQ(scratch(bytes).get(), first);
}

TEST(Scratch, KeepsNoMoreThanItMay) {
  const std::size_t bytes = kMostScratchKept / 4;
  {
    std::vector<Scratch> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(scratch(bytes));
  }
  EXPECT_LE(scratch_kept(), kMostScratchKept);
  EXPECT_GT(scratch_kept(), kMostScratchKept - bytes);
  const std::size_t kept = scratch_kept();
  scratch(kMostScratchKept + 1).reset();  // too long
  scratch(1000).reset();                  // too short
  EXPECT_EQ(scratch_kept(), kept);
}

TEST(Scratch, AnotherThreadMayGiveItBack) {
  Scratch made = scratch(200'000);
  const std::byte* const memory = made.get();
  std::thread([taken = std::move(made)]() mutable { taken.reset(); }).join();
  const Scratch again = scratch(200'000);
  EXPECT_EQ(again.get(), memory);
  std::memset(again.get(), 1, 200'000);
  EXPECT_EQ(again[199'999], std::byte{1});
}

}  // namespace
}  // namespace loom::device
