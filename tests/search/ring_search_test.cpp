#include <gmock/gmock.h>

#include "search/channel_plan.hpp"
#include "topo/place.hpp"

namespace loom::search {
namespace {

using ::testing::ElementsAre;

topo::System host_with(const std::vector<topo::Place>& places) {
  return topo::hosts_of(places).at(0).system;
}

TEST(RingSearch, KeepsRanksOfOneNumaNodeTogetherInOrderOfTheirCpus) {
  const ChannelPlan plan = find_ring(host_with({{{}, 1, 9, 1}, {{}, 0, 2, 1}, {{}, 1, 8, 1}, {{}, 0, 1, 1}}));
  ASSERT_EQ(plan.channels.size(), 1);
  EXPECT_THAT(plan.channels[0].ranks, ElementsAre(3, 1, 2, 0));
}

TEST(RingSearch, FallsBackToRankOrderWhereNothingTellsRanksApart) {
  EXPECT_THAT(find_ring(host_with({{{}, 0, 0, 8}, {{}, 0, 0, 8}, {{}, 0, 0, 8}})).channels[0].ranks,
              ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace loom::search
