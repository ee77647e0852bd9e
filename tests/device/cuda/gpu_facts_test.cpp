// What follows from what the ranks of a host tell each other of their GPUs.
#include "device/cuda/gpu_facts.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace loom::device::cuda {
namespace {

constexpr int kBlocks = 16;

GpuFacts on_gpu(int number, bool mps = false, int multiprocessors = 132) {
  GpuFacts facts{.multiprocessors = multiprocessors, .mps = mps};
  facts.uuid[3] = static_cast<std::byte>(number);
  return facts;
}
Sharing of(const std::vector<GpuFacts>& facts) {
  return sharing_of(facts, kBlocks);
}

TEST(Sharing, IsNoneWhereEachRankHasItsGpu) {
  EXPECT_EQ(of({on_gpu(0), on_gpu(1), on_gpu(2)}), Sharing::kNone);
  EXPECT_EQ(of({on_gpu(0, true, 1), on_gpu(1, false, 1)}), Sharing::kNone);
}

TEST(Sharing, TakesTurnsWhereMpsDoesNotServeAllWhoShare) {
  EXPECT_EQ(of({on_gpu(0), on_gpu(1), on_gpu(0)}), Sharing::kTakingTurns);
  EXPECT_EQ(of({on_gpu(0, true), on_gpu(1), on_gpu(0, false)}), Sharing::kTakingTurns);
  EXPECT_EQ(of({on_gpu(0, true), on_gpu(0, true), on_gpu(1), on_gpu(1)}), Sharing::kTakingTurns);
}

TEST(Sharing, LeavesKernelsResidentWhereMpsServesAllWhoShare) {
  EXPECT_EQ(of({on_gpu(0, true), on_gpu(0, true)}), Sharing::kResident);
  EXPECT_EQ(of({on_gpu(0, true), on_gpu(1, false), on_gpu(0, true)}), Sharing::kResident);
}

TEST(Sharing, TakesTurnsWhereAGpuHasNoRoomForTheBlocksOfAll) {
  const auto four = [](int multiprocessors) {
    return std::vector<GpuFacts>(4, on_gpu(0, true, multiprocessors));
  };
  EXPECT_EQ(of(four(4 * kBlocks)), Sharing::kResident);
  EXPECT_EQ(of(four(4 * kBlocks - 1)), Sharing::kTakingTurns);
  EXPECT_EQ(of({on_gpu(0, true, 132), on_gpu(0, true, 31)}), Sharing::kTakingTurns);  // as MPS limits clients
}

}  // namespace
}  // namespace loom::device::cuda
