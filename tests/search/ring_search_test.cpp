#include <gmock/gmock.h>

#include "search/channel_plan.hpp"

namespace loom::search {
namespace {

using ::testing::ElementsAre;

TEST(RingSearch, KeepsRanksOfOneNumaNodeTogetherInOrderOfTheirCpus) {
  const topo::System system{{}, {{0, 1, 9, 1}, {1, 0, 2, 1}, {2, 1, 8, 1}, {3, 0, 1, 1}}};
  const ChannelPlan plan = find_ring(system);
  ASSERT_EQ(plan.channels.size(), 1);
  EXPECT_THAT(plan.channels[0].ranks, ElementsAre(3, 1, 2, 0));
}

TEST(RingSearch, FallsBackToRankOrderWhereNothingTellsRanksApart) {
  const topo::System system{{}, {{4, 0, 0, 8}, {5, 0, 0, 8}, {9, 0, 0, 8}}};
  EXPECT_THAT(find_ring(system).channels[0].ranks, ElementsAre(4, 5, 9));
}

}  // namespace
}  // namespace loom::search
