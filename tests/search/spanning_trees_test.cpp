#include "search/spanning_trees.hpp"

#include "search_cases.hpp"

namespace loom::search {
namespace {

TEST(SpanningTrees, CarryWhatTutteAndNashWilliamsSay) {
  // 8 GPUs behind a switch, 370.8 GB/s each way: n/2 edges' worth of links for the n - 1 edges of a tree.
  const topo::System system = machine("dgxh100.xml");
  const TreePacking packed = pack_spanning_trees(topo::Paths(system, whole_rules()));
  EXPECT_NEAR(packed.gbps, 18 * 20.6 * 4 / 7, 1e-3);
  EXPECT_NEAR(packed.bound_gbps, packed.gbps, 1e-3);
  EXPECT_GT(packed.trees, 1);
}

class TreesOnRandomMachines : public ::testing::TestWithParam<unsigned> {};

/// Every chain is a tree.
TEST_P(TreesOnRandomMachines, AreNeverBelowChains) {
  const topo::System system = random_machine(GetParam());
  const topo::Paths paths(system, whole_rules());
  const TreePacking packed = pack_spanning_trees(paths);
  Request request;
  request.pattern = Pattern::kTree;
  const ChannelPlan chains = find_channels(paths, request);
  ASSERT_TRUE(violations(paths, chains).empty());
  EXPECT_GE(packed.gbps, all_reduce_gbps(paths, chains) * (1 - 1e-5));
  EXPECT_LE(packed.gbps, packed.bound_gbps * (1 + 1e-6));
  EXPECT_GE(packed.gbps, packed.bound_gbps * (1 - 1e-3));
}
INSTANTIATE_TEST_SUITE_P(Seeds, TreesOnRandomMachines, seeds(40));

}  // namespace
}  // namespace loom::search
