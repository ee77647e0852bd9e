// Jobs that nobody would run: what always holds has to hold for them too.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "connect/node_plans.hpp"
#include "job_cases.hpp"
#include "topo/nccl_xml.hpp"

namespace loom::connect {
namespace {

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

/// What all ranks' views send through each port, against its speed: the search plans with no more.
void expect_rings_fit_ports(const Job& job) {
  std::map<std::pair<int, int>, double> in, out;
  for (int c = 0; c < job.agreed(Family::kRing).channels; ++c)
    for (int rank = 0; rank < job.ranks(); ++rank) {
      const int node = job.placement().node_of(rank);
      const Ring ring = ring_of(job, c, rank);
      const double gbps = job.agreed(Family::kRing).inter_gbps[static_cast<std::size_t>(c)];
      if (job.placement().node_of(ring.previous) != node) in[{node, ring.port_in}] += gbps;
      if (job.placement().node_of(ring.next) != node) out[{node, ring.port_out}] += gbps;
    }
  ASSERT_GE(static_cast<int>(in.size()), job.nodes());
  for (const auto* loads : {&in, &out})
    for (const auto& [port, gbps] : *loads) {
      ASSERT_NE(port.second, kNoPort);
      EXPECT_LE(gbps, job.summary(port.first).port_gbps[static_cast<std::size_t>(port.second)] * 1.001);
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
    expect_rings_fit_ports(job);
  }
}

}  // namespace
}  // namespace loom::connect
