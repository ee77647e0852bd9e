#include "component/plan.hpp"

#include <gtest/gtest.h>

#include "device/host/direct_exchange.hpp"

namespace loom {
namespace {

TEST(AllreducePlan, CopiesForOneRank) {
  EXPECT_EQ(plan(device::Collective::kAllreduce, {1, 1, 1}, 1 << 20), Algorithm::kCopy);
}

TEST(AllreducePlan, IsDirectForSmallAndGoesByBoardsForLargeMessagesOfOneHost) {
  EXPECT_EQ(plan(device::Collective::kAllreduce, {2, 1, 2}, 8), Algorithm::kDirect);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {2, 1, 2}, 1 << 20), Algorithm::kBoards);
}

TEST(Plan, NeverExceedsTheDirectSlot) {
  using device::Collective;
  for (const auto collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter,
                                Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll})
    for (int ranks = 2; ranks < 300; ++ranks)
      for (std::size_t bytes = 1; bytes <= 1 << 20; bytes *= 2) {
        if (plan(collective, {ranks, 1, ranks}, bytes) == Algorithm::kDirect) {
          EXPECT_LE(device::offered_bytes(collective, bytes, ranks), device::DirectSlot::kPayloadBytes);
        }
      }
}

TEST(Plan, LeavesAllButAllreduceToTheComponentBelowAcrossHosts) {
  for (const auto collective : {device::Collective::kBroadcast, device::Collective::kBarrier})
    EXPECT_EQ(plan(collective, {6, 3, 2}, 16 << 20), Algorithm::kBelow);
}

TEST(AllreducePlan, UsesRailsAcrossEqualHostsAndOneRingAcrossUnequalOnes) {
  EXPECT_EQ(plan(device::Collective::kAllreduce, {6, 3, 2}, 16 << 20), Algorithm::kRails);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {5, 3, 0}, 16 << 20), Algorithm::kFlatRing);
}

TEST(AllreducePlan, TakesTwoLevelsForSmallMessagesBetweenAFewHosts) {
  EXPECT_EQ(plan(device::Collective::kAllreduce, {6, 3, 2}, 8), Algorithm::kTwoLevels);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {5, 3, 0}, 8), Algorithm::kTwoLevels);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {200, 100, 2}, 8), Algorithm::kBelow);
}

TEST(Plan, LeavesToTheComponentBelowWhatHasNoAlgorithmAcrossHosts) {
  EXPECT_EQ(plan(device::Collective::kAllToAll, {6, 3, 2}, 8), Algorithm::kBelow);
  EXPECT_EQ(plan(device::Collective::kAllGather, {5, 3, 0}, 8), Algorithm::kBelow);
  EXPECT_EQ(plan(device::Collective::kBroadcast, {6, 3, 2}, 8 << 20), Algorithm::kBelow);
}

}  // namespace
}  // namespace loom
