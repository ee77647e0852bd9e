// beside_nccl_test.cpp -- how plans are counted beside NCCL's.
#include "search/beside_nccl.hpp"

#include <gtest/gtest.h>

#include "search_cases.hpp"

namespace loom::search {
namespace {

TEST(BesideNccl, CountsTheFastestChannelOfEachHead) {
  ChannelPlan plan;
  plan.pattern = Pattern::kNvls;
  plan.channels = {{{0}, {}, 10, 10}, {{1}, {}, 20, 20}, {{0}, {}, 15, 15}, {{1}, {}, 5, 5}};
  plan.total_gbps = 50;
  EXPECT_DOUBLE_EQ(by_one_channel_a_head(plan), 35);
  plan.pattern = Pattern::kCollnetDirect;
  EXPECT_DOUBLE_EQ(by_one_channel_a_head(plan), 35);
  plan.pattern = Pattern::kRing;
  EXPECT_DOUBLE_EQ(by_one_channel_a_head(plan), 50);
}

TEST(BesideNccl, CountsPortsUpToTwiceWhatHeadsMulticast) {
  EXPECT_DOUBLE_EQ(nccl_total(Pattern::kNvls, true, 400, 20, 8), 320);
  EXPECT_DOUBLE_EQ(nccl_total(Pattern::kNvls, true, 300, 20, 8), 300);
  EXPECT_DOUBLE_EQ(nccl_total(Pattern::kNvls, false, 400, 20, 8), 400);
  EXPECT_DOUBLE_EQ(nccl_total(Pattern::kRing, true, 400, 20, 8), 400);
}

/// Three sockets with a GPU each; that of the second one has no port near, so that the network is no way
/// around.
TEST(BesideNccl, ClosesRingsInsideANodeAlone) {
  const topo::System system =
      topo::read_nccl_xml(LOOM_SEARCH_DATA "/three-sockets-two-ports.xml", topo::Model::kNccl).system;
  const topo::Paths paths(system);
  ASSERT_FALSE(paths.uses_network(system.gpu_of_rank(0), system.gpu_of_rank(1)));
  ASSERT_FALSE(paths.uses_network(system.gpu_of_rank(1), system.gpu_of_rank(2)));
  ASSERT_TRUE(paths.uses_network(system.gpu_of_rank(2), system.gpu_of_rank(0)));
  ChannelPlan plan;
  plan.channels = {{{0, 1, 2}, {}, 1, 1}};
  EXPECT_TRUE(crosses_slow_pairs(paths, plan));
  plan.pattern = Pattern::kTree;
  EXPECT_FALSE(crosses_slow_pairs(paths, plan)) << "its last GPU does not send to the first one";
  plan.channels = {{{1, 0, 2}, {}, 1, 1}};
  EXPECT_TRUE(crosses_slow_pairs(paths, plan));
  plan.channels = {{{0, 1, 2}, {0, 0}, 1, 1}};
  plan.pattern = Pattern::kRing;
  plan.network = true;
  EXPECT_FALSE(crosses_slow_pairs(paths, plan)) << "it leaves through a port";
}

}  // namespace
}  // namespace loom::search
