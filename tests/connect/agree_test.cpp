#include <gmock/gmock.h>

#include "job_cases.hpp"

namespace loom::connect {
namespace {

using ::testing::ElementsAre;

FamilySummary rings_of(const std::vector<float>& gbps) {
  FamilySummary rings;
  for (const float each : gbps) rings.channels.push_back({{0, 1}, 0, 0, each, each});
  return rings;
}

NodeSummary node_with_rings(const std::vector<float>& gbps) {
  NodeSummary node = node_with_order({0, 1});
  node.families[0] = rings_of(gbps);
  return node;
}

std::vector<std::pair<int, int>> own_and_copies(const std::vector<Part>& parts) {
  std::vector<std::pair<int, int>> pairs;
  for (const Part& part : parts) pairs.emplace_back(part.own, part.copies);
  return pairs;
}

using Pairs = std::vector<std::pair<int, int>>;

TEST(Spread, KeepsTheFastestAndCutsThemForMore) {
  const FamilySummary rings = rings_of({5, 20, 10});
  EXPECT_EQ(own_and_copies(spread(rings, 2)), (Pairs{{1, 1}, {2, 1}}));
  EXPECT_EQ(own_and_copies(spread(rings, 3)), (Pairs{{1, 1}, {2, 1}, {0, 1}}));
  EXPECT_EQ(own_and_copies(spread(rings, 4)), (Pairs{{1, 2}, {1, 2}, {2, 1}, {0, 1}}));
  EXPECT_EQ(own_and_copies(spread(rings, 6)), (Pairs{{1, 3}, {1, 3}, {1, 3}, {2, 2}, {2, 2}, {0, 1}}));
}

TEST(Spread, KeepsRingsThatSwapTheirPortsTogether) {
  FamilySummary rings = rings_of({10, 10, 30});
  rings.cross_nic = 2;
  rings.channels[0].port_out = rings.channels[1].port_in = 1;
  const std::vector<Part> parts = spread(rings, 5);
  ASSERT_EQ(parts.size(), 5);
  for (std::size_t c = 0; c < parts.size(); ++c) {
    const Part& partner = parts[static_cast<std::size_t>(parts[c].partner)];
    EXPECT_EQ(partner.partner, static_cast<int>(c));
    EXPECT_EQ(partner.own, parts[c].own == 2 ? 2 : 1 - parts[c].own);
    EXPECT_EQ(partner.copies, parts[c].copies);
  }
  EXPECT_EQ(spread(rings, 2)[0].own, 2);
  EXPECT_EQ(spread(rings, 2)[1].partner, 1);  // half a pair has no partner
}

TEST(Spread, TakesHalfAPairBeforeSlowerOnes) {
  FamilySummary rings = rings_of({10, 10, 9, 9, 1});
  rings.cross_nic = 2;
  rings.channels[0].port_out = rings.channels[1].port_in = 1;
  rings.channels[2].port_out = rings.channels[3].port_in = 1;
  EXPECT_EQ(own_and_copies(spread(rings, 3)), (Pairs{{0, 1}, {1, 1}, {2, 1}}));
  rings.channels[4].inter_gbps = 9;  // as fast as the pair, which can then stay whole or away
  EXPECT_EQ(own_and_copies(spread(rings, 3)), (Pairs{{0, 1}, {1, 1}, {4, 1}}));
}

TEST(Agree, TakesTheCountThatCarriesMost) {
  const std::vector kinds = {node_with_rings({12, 12, 12, 12}), node_with_rings({24, 24})};
  const Agreed agreed = agree(Family::kRing, kinds, {});
  EXPECT_EQ(agreed.channels, 4);  // two channels of both would carry 24
  EXPECT_THAT(agreed.inter_gbps, ElementsAre(12, 12, 12, 12));
}

TEST(Agree, AddsNoChannelForLittle) {
  const std::vector kinds = {node_with_rings({50, 50, 1}), node_with_rings({50, 50})};
  EXPECT_EQ(agree(Family::kRing, kinds, {}).channels, 2);
  const std::vector much = {node_with_rings({50, 50, 50}), node_with_rings({75, 75})};
  EXPECT_EQ(agree(Family::kRing, much, {}).channels, 6);
}

TEST(Agree, CutsFirstAndThenCopies) {
  const std::vector kinds = {node_with_rings({10, 10, 10})};
  EXPECT_EQ(agree(Family::kRing, kinds, {1, 2}).channels, 2);
  EXPECT_DOUBLE_EQ(agree(Family::kRing, kinds, {1, 2}).total_gbps(), 20);
  EXPECT_EQ(agree(Family::kRing, kinds, {8, 16}).channels, 8);
  EXPECT_NEAR(agree(Family::kRing, kinds, {8, 16}).total_gbps(), 30, 1e-4);
  EXPECT_EQ(agree(Family::kRing, kinds, {4, 2}).channels, 4);
}

TEST(Agree, GoesByTheSlowestNode) {
  std::vector kinds = {node_with_rings({48}), node_with_rings({20})};
  kinds[1].families[0].type_inter = topo::PathType::kSys;
  const Agreed agreed = agree(Family::kRing, kinds, {});
  EXPECT_NEAR(agreed.total_gbps(), 20, 1e-5);
  EXPECT_EQ(agreed.type_inter, topo::PathType::kSys);
}

TEST(Agree, HasWhatEveryNodeHas) {
  NodeSummary with = node_with_order({0, 1}), without = with;
  with.families[static_cast<std::size_t>(Family::kNvls)] = {
      search::Pattern::kNvls, {}, {}, 0, {{{0}, 0, 0, 1, 1}}};
  EXPECT_EQ(agree(Family::kNvls, std::vector{with}, {}).channels, 1);
  EXPECT_EQ(agree(Family::kNvls, std::vector{with, without}, {}).channels, 0);
}

NodeSummary node_with_heads(const std::vector<std::pair<int, float>>& channels) {
  NodeSummary node = node_with_order({0, 1, 2});
  FamilySummary& heads = node.families[static_cast<std::size_t>(Family::kNvls)];
  heads.pattern = search::Pattern::kNvls;
  for (const auto& [head, gbps] : channels)
    heads.channels.push_back({{static_cast<std::uint16_t>(head)}, 0, 0, gbps / 2, gbps});
  return node;
}

TEST(Agree, PairsHeadsByWhatTheirPortsCarryTogether) {
  const std::vector kinds = {node_with_heads({{0, 5}, {1, 20}, {2, 40}, {1, 30}}),
                             node_with_heads({{2, 45}, {0, 30}, {2, 5}})};
  const Agreed agreed = agree(Family::kNvls, kinds, {});
  ASSERT_EQ(agreed.channels, 2);
  EXPECT_THAT(agreed.heads, ElementsAre(ElementsAre(1, 2), ElementsAre(2, 0)));
  EXPECT_THAT(agreed.inter_gbps, ElementsAre(50, 30));
  EXPECT_THAT(agreed.intra_gbps, ElementsAre(25, 15));
  EXPECT_EQ(own_and_copies(agreed.by_kind[0]), (Pairs{{1, 1}, {2, 1}}));
  EXPECT_EQ(own_and_copies(agreed.by_kind[1]), (Pairs{{0, 1}, {1, 1}}));
}

}  // namespace
}  // namespace loom::connect
