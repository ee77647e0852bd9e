#include <gmock/gmock.h>

#include "base/error.hpp"
#include "device/schedule/tree_schedule.hpp"
#include "job_cases.hpp"

namespace loom::connect {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<std::vector<int>> blocks(int nodes, int ranks) {
  std::mt19937 unused;
  return placed(std::vector<int>(static_cast<std::size_t>(nodes), ranks), Order::kBlock, unused);
}

Job equal_nodes(int nodes, const NodeSummary& node, const ChannelLimits& limits = {}) {
  return job_of(blocks(nodes, node.ranks), std::vector<NodeSummary>(static_cast<std::size_t>(nodes), node),
                limits);
}

TEST(Rings, JoinTwoMachinesEndToEnd) {
  const Job job = job_of(blocks(2, 8), std::vector{node_with_order({0, 7, 6, 3, 2, 5, 4, 1}),
                                                   node_with_order({2, 1, 0, 5, 4, 7, 6, 3})});
  EXPECT_THAT(ring_order(job, 0, 6), ElementsAre(6, 3, 2, 5, 4, 1, 10, 9, 8, 13, 12, 15, 14, 11, 0, 7));
  const Ring ring = connect(job, 6).rings[0];
  EXPECT_EQ(ring.previous, 7);
  EXPECT_EQ(ring.next, 3);
  EXPECT_EQ(ring.position, 2);
  EXPECT_EQ(ring.size, 16);
  EXPECT_EQ(ring.port_in, kNoPort);
  EXPECT_EQ(ring_of(job, 0, 1).next, 10);
  EXPECT_EQ(ring_of(job, 0, 1).port_out, 0);
  EXPECT_EQ(ring_of(job, 0, 0).previous, 11);
  expect_sound(job);
}

TEST(Rings, LeaveANodeOnTheRailWhereTheyEnterTheNext) {
  NodeSummary node = node_with_order({0, 1, 2, 3});
  node.port_gbps = {10, 10};
  FamilySummary& rings = node.families[0];
  rings.cross_nic = 2;
  rings.channels = {{{0, 1, 2, 3}, 0, 1, 10, 10}, {{3, 2, 1, 0}, 1, 0, 10, 10}};
  const Job job = equal_nodes(4, node);
  for (int channel = 0; channel < 2; ++channel)
    for (int member = 0; member < 4; ++member) {
      const ChannelSummary& here = job.channel(Family::kRing, member, channel);
      const ChannelSummary& next = job.channel(Family::kRing, (member + 1) % 4, channel);
      EXPECT_EQ(here.port_out, next.port_in) << "channel " << channel << ", node " << member;
    }
  EXPECT_THAT(ring_order(job, 0, 0), ElementsAre(0, 1, 2, 3, 7, 6, 5, 4, 8, 9, 10, 11, 15, 14, 13, 12));
  expect_sound(job);
}

TEST(Rings, AreOneRankWithItself) {
  const Job job = equal_nodes(1, node_with_order({0}));
  const Ring ring = ring_of(job, 0, 0);
  EXPECT_EQ(ring.previous, 0);
  EXPECT_EQ(ring.next, 0);
  EXPECT_EQ(tree_of(job, 0, 0).trees[1].parent, kNobody);
  expect_sound(job);
}

/// With one rank on every node the trees over nodes are the trees over ranks.
TEST(Trees, AreTheDoubleBinaryTreeWhereNodesHaveOneRank) {
  for (int size = 1; size <= 70; ++size) {
    const Job job = equal_nodes(size, node_with_order({0}));
    for (int rank = 0; rank < size; ++rank)
      for (const int tree : {0, 1}) {
        const device::TreePlace wanted = device::double_tree(tree, rank, size);
        const TreeLinks links = tree_of(job, 0, rank).trees[static_cast<std::size_t>(tree)];
        EXPECT_EQ(links.parent, wanted.parent);
        std::vector<int> children;
        for (const int child : wanted.child)
          if (child != kNobody) children.push_back(child);
        EXPECT_THAT(children,
                    ElementsAreArray(links.children.begin(), links.children.begin() + links.child_count));
      }
    expect_sound(job);
  }
}

/// Six nodes: 0 is above 4, which is above 2 and 5; the second tree is the mirror image.
TEST(Trees, HangChildrenWhereThePatternHasBandwidth) {
  NodeSummary node = node_with_order({1, 0, 2});
  const auto children_of = [&](search::Pattern pattern, int rank) {
    node.families[1].pattern = pattern;
    const Job job = equal_nodes(6, node);
    expect_sound(job);
    const TreeLinks links = tree_of(job, 0, rank).trees[0];
    return std::vector(links.children.begin(), links.children.begin() + links.child_count);
  };
  // Node 4 has ranks 12, 13, 14 in the chain 13 12 14; the children's first ranks are 7 and 16.
  EXPECT_THAT(children_of(search::Pattern::kTree, 13), ElementsAre(12, 7, 16));
  EXPECT_THAT(children_of(search::Pattern::kTree, 12), ElementsAre(14));
  EXPECT_THAT(children_of(search::Pattern::kSplitTree, 13), ElementsAre(12));
  EXPECT_THAT(children_of(search::Pattern::kSplitTree, 12), ElementsAre(14, 7, 16));
  EXPECT_THAT(children_of(search::Pattern::kBalancedTree, 13), ElementsAre(12, 16));
  EXPECT_THAT(children_of(search::Pattern::kBalancedTree, 12), ElementsAre(14, 7));
}

TEST(Heads, FormTreesOverTheNodes) {
  NodeSummary node = node_with_order({0, 1, 2, 3});
  FamilySummary& nvls = node.families[static_cast<std::size_t>(Family::kNvls)];
  nvls.pattern = search::Pattern::kNvls;
  for (const std::uint16_t head : std::initializer_list<std::uint16_t>{2, 0, 2, 3})
    nvls.channels.push_back({{head}, 0, 0, 20, 10});
  const Job job = equal_nodes(2, node);
  const NvlsHeads head = nvls_of(job, 6);
  EXPECT_THAT(head.heads, ElementsAre(6, 4, 7));
  EXPECT_EQ(head.mine, 0);
  EXPECT_EQ(head.trees[0].parent, 2);
  EXPECT_EQ(head.trees[1].parent, kNobody);
  EXPECT_EQ(head.trees[1].children[0], 2);
  EXPECT_EQ(nvls_of(job, 5).mine, kNobody);
  EXPECT_EQ(job.agreed(Family::kNvls).inter_gbps,
            (std::vector<float>{20, 10, 10}));  // two channels have head 2
  expect_sound(job);
}

TEST(Collnet, HasChainsAndHeads) {
  NodeSummary node = node_with_order({0, 1, 2});
  FamilySummary& chain = node.families[static_cast<std::size_t>(Family::kCollnetChain)];
  chain.pattern = search::Pattern::kCollnetChain;
  chain.channels = {{{1, 2, 0}, 0, 0, 10, 10}};
  FamilySummary& direct = node.families[static_cast<std::size_t>(Family::kCollnetDirect)];
  direct.pattern = search::Pattern::kCollnetDirect;
  direct.channels = {{{0}, 0, 0, 10, 10}, {{1}, 0, 0, 10, 10}};
  const Job job = equal_nodes(2, node);
  expect_sound(job);
  EXPECT_EQ(collnet_chain_of(job, 0, 4).up, kNetwork);
  EXPECT_EQ(collnet_chain_of(job, 0, 4).down, 5);
  EXPECT_EQ(collnet_chain_of(job, 0, 3).up, 5);
  EXPECT_EQ(collnet_chain_of(job, 0, 3).down, kNobody);
  EXPECT_THAT(collnet_direct_of(job, 3).up, ElementsAre(4));
  EXPECT_THAT(collnet_direct_of(job, 3).down, ElementsAre(4, 5));
  EXPECT_THAT(collnet_direct_of(job, 5).up, ElementsAre(3, 4));
  EXPECT_THAT(collnet_direct_of(job, 5).down, ElementsAre());
}

TEST(Job, RefusesNodesThatDoNotFit) {
  const NodeSummary node = node_with_order({0, 1});
  EXPECT_THROW(job_of(blocks(1, 3), std::vector{node}), Error);
  EXPECT_THROW(job_of(std::vector<std::vector<int>>{{0, 1}, {1, 2}}, std::vector{node, node}), Error);
  EXPECT_THROW(job_of(std::vector<std::vector<int>>{{0, 5}}, std::vector{node}), Error);
  EXPECT_THROW(Placement(std::vector<std::int32_t>{0, 2, 2}), Error);
  EXPECT_THROW(Placement(std::vector<std::int32_t>{0, 0, 1}), Error);
}

}  // namespace
}  // namespace loom::connect
