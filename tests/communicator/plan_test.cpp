#include "component/plan.hpp"

#include <gtest/gtest.h>

#include "device/host/direct_exchange.hpp"

namespace loom {
namespace {

TEST(AllreducePlan, CopiesForOneRank) { EXPECT_EQ(plan_allreduce({1, 1, 1}, 1 << 20), Algorithm::kCopy); }

TEST(AllreducePlan, IsDirectForSmallAndARingForLargeMessagesOfOneHost) {
  EXPECT_EQ(plan_allreduce({2, 1, 2}, 8), Algorithm::kDirect);
  EXPECT_EQ(plan_allreduce({2, 1, 2}, 1 << 20), Algorithm::kRing);
}

TEST(AllreducePlan, NeverExceedsTheDirectSlot) {
  for (int ranks = 2; ranks < 300; ++ranks)
    for (std::size_t bytes = 1; bytes <= 1 << 20; bytes *= 2) {
      if (plan_allreduce({ranks, 1, ranks}, bytes) == Algorithm::kDirect) {
        EXPECT_LE(bytes, device::DirectSlot::kPayloadBytes);
      }
    }
}

TEST(AllreducePlan, UsesRailsAcrossEqualHostsAndOneRingAcrossUnequalOnes) {
  EXPECT_EQ(plan_allreduce({6, 3, 2}, 16 << 20), Algorithm::kRails);
  EXPECT_EQ(plan_allreduce({5, 3, 0}, 16 << 20), Algorithm::kFlatRing);
}

TEST(AllreducePlan, LeavesSmallMessagesAcrossHostsToTheComponentBelow) {
  EXPECT_EQ(plan_allreduce({6, 3, 2}, 8), Algorithm::kBelow);
}

}  // namespace
}  // namespace loom
