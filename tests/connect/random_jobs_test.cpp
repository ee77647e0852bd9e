// Jobs that nobody would run: what always holds has to hold for them too. And the checks see what is wrong.
#include <gmock/gmock.h>

#include "connect/node_plans.hpp"
#include "job_cases.hpp"
#include "topo/nccl_xml.hpp"

namespace loom::connect {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Job random_job(std::mt19937& random, int nodes, int kind_count) {
  std::vector<NodeSummary> kinds, summaries;
  for (int kind = 0; kind < kind_count; ++kind) kinds.push_back(random_node(random, 1 + below(random, 10)));
  std::vector<int> sizes;
  for (int node = 0; node < nodes; ++node) {
    summaries.push_back(kinds[static_cast<std::size_t>(below(random, kind_count))]);
    sizes.push_back(summaries.back().ranks);
  }
  ChannelLimits limits;
  if (below(random, 2) == 0) limits = {1 + below(random, 20), 1 + below(random, 20)};
  const Job job = job_of(placed(sizes, static_cast<Order>(below(random, 3)), random), summaries, limits);
  const int rings = job.agreed(Family::kRing).channels;
  EXPECT_GE(rings, limits.min_channels);
  EXPECT_LE(rings, std::max(limits.min_channels, limits.max_channels));
  return job;
}

class RandomJobs : public ::testing::TestWithParam<int> {};

TEST_P(RandomJobs, AreSound) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  for (int trial = 0; trial < 12; ++trial) {
    SCOPED_TRACE(trial);
    expect_sound(random_job(random, 1 + below(random, trial == 0 ? 300 : 40),
                            1 + below(random, trial % 2 == 0 ? 3 : 25)));
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomJobs, ::testing::Range(0, 20));

TEST(EveryNumberOfNodes, IsSoundUpTo300) {
  std::mt19937 random(1);
  for (int nodes = 1; nodes <= 300; ++nodes) {
    SCOPED_TRACE(nodes);
    std::vector<int> sizes(static_cast<std::size_t>(nodes), 3);
    const Job job =
        job_of(placed(sizes, static_cast<Order>(nodes % 3), random),
               std::vector<NodeSummary>(static_cast<std::size_t>(nodes), node_with_order({2, 0, 1})));
    expect_sound(job);
  }
}

TEST(RealMachines, AreSoundTogether) {
  std::mt19937 random(2);
  std::vector<NodeSummary> summaries;
  std::vector<int> sizes;
  for (const char* name : {"dgx1v.xml", "dgxa100.xml", "dgxh100.xml", "gh200.xml", "pcie-2socket.xml"}) {
    const topo::System system = topo::read_nccl_xml(std::string(LOOM_TEST_DATA "/") + name).system;
    PlanRequest request;
    request.nodes = 9;
    for (const NodePlan& node : plan_nodes(system, request))
      for (int copy = 0; copy < 2; ++copy) {
        summaries.push_back(summarize(system, node.ranks, node.plans));
        sizes.push_back(summaries.back().ranks);
      }
  }
  for (const Order order : {Order::kBlock, Order::kRoundRobin, Order::kRandom}) {
    const Job job = job_of(placed(sizes, order, random), summaries);
    expect_sound(job);
    EXPECT_GT(job.agreed(Family::kRing).total_gbps(), 1);
  }
}

TEST(Checks, SeeWhatIsWrong) {
  std::mt19937 random(3);
  const NodeSummary node = random_node(random, 4);
  const Job job =
      job_of(placed(std::vector<int>(5, 4), Order::kBlock, random), std::vector<NodeSummary>(5, node));
  ASSERT_TRUE(violations(job).empty());
  const auto complaints = [&](const auto& spoil) {
    Wires wires = wires_of(job);
    spoil(wires);
    return violations(job, wires);
  };
  const auto ring = [&](const auto& change) {
    return complaints([&](Wires& wires) {
      wires.ring = [&](int channel, int rank) {
        Ring view = ring_of(job, channel, rank);
        if (channel == 0) change(view, rank);
        return view;
      };
    });
  };
  EXPECT_THAT(ring([](Ring& view, int) { view.next = view.previous; }), Contains(HasSubstr("expects rank")));
  EXPECT_THAT(ring([](Ring& view, int rank) {
                if (rank == 0) view.next = 0;
              }),
              Contains(HasSubstr("twice")));
  EXPECT_THAT(ring([](Ring& view, int rank) {
                if (rank == 7) view.position = 0;
              }),
              Contains(HasSubstr("is at")));
  EXPECT_THAT(ring([](Ring& view, int rank) {
                if (rank == 7) view.next = 99;
              }),
              Contains(HasSubstr("sees")));
  EXPECT_THAT(ring([](Ring& view, int) { view.port_out = 0; }), Contains(HasSubstr("takes a port")));

  const auto tree = [&](const auto& change) {
    return complaints([&](Wires& wires) {
      wires.tree = [&](int channel, int rank) {
        DoubleTree view = tree_of(job, channel, rank);
        change(view, rank);
        return view;
      };
    });
  };
  EXPECT_THAT(tree([](DoubleTree& view, int) { view.trees[0].parent = kNobody; }),
              Contains(HasSubstr("has child")));
  EXPECT_THAT(tree([](DoubleTree& view, int) { view.trees[0] = {}; }), Contains(HasSubstr("two roots")));
  EXPECT_THAT(tree([](DoubleTree& view, int) { view.trees[0].child_count = 0; }),
              Contains(HasSubstr("has parent")));
  EXPECT_THAT(tree([](DoubleTree& view, int) { view.trees[1] = view.trees[0]; }),
              Contains(HasSubstr("in both trees")));
  EXPECT_THAT(tree([](DoubleTree& view, int rank) {  // one long chain
                view.trees[0] = {rank - 1, rank < 19 ? 1 : 0, {rank + 1, kNobody, kNobody}};
              }),
              Contains(HasSubstr("deeper")));
  EXPECT_THAT(tree([](DoubleTree& view, int rank) {  // a cycle beside the tree
                if (rank >= 18)
                  view.trees[0] = {37 - rank, 1, {37 - rank, kNobody, kNobody}};
                else if (rank > 0)
                  view.trees[0] = {
                      (rank - 1) / 2, std::clamp(17 - 2 * rank, 0, 2), {2 * rank + 1, 2 * rank + 2, kNobody}};
                else
                  view.trees[0] = {kNobody, 2, {1, 2, kNobody}};
              }),
              Contains(HasSubstr("reaches 18 of 20")));
}

TEST(Checks, SeePortsThatCarryTooMuch) {
  std::mt19937 unused;
  NodeSummary node = node_with_order({0, 1});
  node.port_gbps = {10, 10};
  node.families[0].cross_nic = 2;
  node.families[0].channels = {{{0, 1}, 0, 1, 10, 10}, {{1, 0}, 1, 0, 10, 10}};
  const Job job = job_of(placed({2, 2}, Order::kBlock, unused), std::vector{node, node});
  ASSERT_TRUE(violations(job).empty());
  Wires wires = wires_of(job);
  wires.ring = [&](int channel, int rank) {
    Ring view = ring_of(job, channel, rank);
    if (view.port_in != kNoPort) view.port_in = 1 - view.port_in;
    return view;
  };
  EXPECT_THAT(violations(job, wires), Contains(HasSubstr("enters node 1 at port")));
}

}  // namespace
}  // namespace loom::connect
