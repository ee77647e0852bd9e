#include <algorithm>

#include "connect/simulate.hpp"

#include <gmock/gmock.h>

#include "connect/node_plans.hpp"
#include "job_cases.hpp"
#include "topo/nccl_xml.hpp"

namespace loom::connect {
namespace {

/// The schedule itself, step by step: a rank sends when it has sent the chunk before and received this one.
double step_by_step(const std::vector<RingHop>& hops, int steps) {
  std::vector<double> sent(hops.size(), 0), arrived(hops.size(), 0);
  for (int step = 0; step < steps; ++step) {
    std::vector<double> next(hops.size());
    for (std::size_t i = 0; i < hops.size(); ++i) {
      sent[i] = std::max(sent[i], arrived[i]) + hops[i].chunk_us;
      next[(i + 1) % hops.size()] = sent[i] + hops[i].latency_us;
    }
    arrived = next;
  }
  return *std::max_element(arrived.begin(), arrived.end());
}

TEST(RingTime, IsTheSchedulesWhereHopsAreAlike) {
  for (const int size : {2, 3, 8, 33}) {
    const std::vector<RingHop> hops(static_cast<std::size_t>(size), {5, 2});
    const int steps = 2 * (size - 1);
    EXPECT_NEAR(ring_us(hops, steps), steps * 7, 1e-9);
    EXPECT_NEAR(ring_us(hops, steps), step_by_step(hops, steps), 1e-9);
  }
}

TEST(RingTime, IsNeverLessThanTheSchedulesAndCloseToIt) {
  std::mt19937 random(4);
  double worst = 1;
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<RingHop> hops;
    for (int i = 0, size = 2 + below(random, 40); i < size; ++i)
      hops.push_back(
          {static_cast<double>(below(random, 100)), static_cast<double>(below(random, trial % 2 ? 5 : 200))});
    const int steps = 1 + below(random, 2 * static_cast<int>(hops.size()) - 2);
    const double wanted = step_by_step(hops, steps), got = ring_us(hops, steps);
    EXPECT_GE(got, wanted - 1e-6);
    if (steps >= static_cast<int>(hops.size())) worst = std::max(worst, got / wanted);
  }
  EXPECT_LT(worst, 1.1);
}

/// Hosts of CPUs with one port of 10 Gbit/s.
struct Hosts {
  topo::System system;
  std::unique_ptr<topo::Paths> paths;
  std::vector<Machine> machines;
  Job job;
};
Hosts hosts_of(int nodes, int ranks) {
  topo::CpuInfo cpu;
  cpu.arch = "x86_64";
  cpu.vendor = "GenuineIntel";
  std::vector<topo::Node> parts = {{cpu, topo::kNoNode, 0, {}}};
  for (int rank = 0; rank < ranks; ++rank) {
    topo::GpuInfo gpu;
    gpu.device = gpu.rank = rank;
    gpu.is_virtual = true;
    parts.push_back({gpu, 0, 0, {}});
  }
  parts.push_back({topo::NicInfo{}, 0, 0, topo::PciFunction{}});
  topo::NetInfo net;
  net.speed_mbps = 10000;
  parts.push_back({net, static_cast<topo::NodeId>(parts.size()) - 1, 0, {}});
  Hosts hosts{topo::build_system(std::move(parts), {0}).system, {}, {}, {}};
  PlanRequest request;
  request.nodes = nodes;
  const std::vector<NodePlan> plans = plan_nodes(hosts.system, request);
  EXPECT_EQ(plans.size(), 1);
  topo::PathRules rules;
  rules.network_inside_host = false;
  hosts.paths = std::make_unique<topo::Paths>(hosts.system, rules);
  hosts.machines = {{hosts.paths.get(), plans[0].ranks}};
  std::mt19937 unused;
  hosts.job = job_of(placed(std::vector<int>(static_cast<std::size_t>(nodes), ranks), Order::kBlock, unused),
                     std::vector<NodeSummary>(static_cast<std::size_t>(nodes),
                                              summarize(hosts.system, plans[0].ranks, plans[0].plans)));
  return hosts;
}

Prediction predicted(const Hosts& hosts, const std::string& algorithm, SimulationRequest request) {
  request.net_us = 0;
  for (const Prediction& prediction : simulate(hosts.job, hosts.machines, request))
    if (prediction.algorithm == algorithm) return prediction;
  ADD_FAILURE() << "no " << algorithm;
  return {};
}

TEST(Simulation, OfPortsIsTheirShareOfTheBytes) {
  constexpr double kBytes = 1e9;
  constexpr double kPortUs = kBytes / kTcpEfficiency / 1250;  // 1.25 GB/s
  for (const int nodes : {2, 3, 16}) {
    const double around = 2.0 * (nodes - 1) / nodes;
    EXPECT_NEAR(
        predicted(hosts_of(nodes, 1), "ring", {Collective::kAllreduce, kBytes}).us / (around * kPortUs), 1,
        0.001);
    EXPECT_NEAR(
        predicted(hosts_of(nodes, 1), "ring", {Collective::kAllGather, kBytes}).us / (around / 2 * kPortUs),
        1, 0.001);
    EXPECT_NEAR(predicted(hosts_of(nodes, 1), "ring", {Collective::kBroadcast, kBytes}).us / kPortUs, 1,
                0.01);
    // Two ranks share a port: half the bytes each along their rails. Inside, before and after that, each
    // sends and receives half of them.
    const double inside_us = 2 * kBytes / (1000 * kHostCpuGbps);
    EXPECT_NEAR(predicted(hosts_of(nodes, 2), "rails", {Collective::kAllreduce, kBytes}).transfer_us /
                    (around * kPortUs + inside_us),
                1, 0.001);
  }
  // Inside of one tree and leaf of the other: two children, a parent, and a parent, each half the bytes, both
  // ways.
  EXPECT_NEAR(
      predicted(hosts_of(16, 1), "tree", {Collective::kAllreduce, kBytes}).transfer_us / (2 * kPortUs), 1,
      0.001);
  EXPECT_THAT(predicted(hosts_of(3, 1), "ring", {Collective::kAllreduce, kBytes}).bottleneck,
              ::testing::HasSubstr("1.25 GB/s"));
}

TEST(Simulation, InsideAHostIsWhatTheCpusOfTheRanksMove) {
  constexpr double kBytes = 1e9;
  for (const int ranks : {2, 4, 8}) {
    const Prediction ring = predicted(hosts_of(1, ranks), "ring", {Collective::kAllreduce, kBytes});
    const double moved = 2.0 * (ranks - 1) * 2 * kBytes / ranks;  // in each step a chunk out and one in
    EXPECT_NEAR(ring.us / (moved / (1000 * kHostCpuGbps)), 1, 0.001);
    EXPECT_EQ(ring.bottleneck, "a rank's CPU, 3.8 GB/s");
  }
}

TEST(Simulation, PrefersTreesForSmallMessagesOnManyNodes) {
  const Hosts hosts = hosts_of(128, 1);
  EXPECT_EQ(simulate(hosts.job, hosts.machines, {Collective::kAllreduce, 8}).front().algorithm, "tree");
  EXPECT_EQ(simulate(hosts.job, hosts.machines, {Collective::kAllreduce, 1e9}).front().algorithm, "ring");
}

TEST(Simulation, ReachesWhatTheSearchPromises) {
  const topo::System system = topo::read_nccl_xml(LOOM_TEST_DATA "/dgxh100.xml").system;
  PlanRequest request;
  request.nodes = 4;
  const std::vector<NodePlan> plans = plan_nodes(system, request);
  ASSERT_EQ(plans.size(), 1);
  topo::PathRules rules;
  rules.network_inside_host = false;
  const topo::Paths paths(system, rules);
  const std::vector<Machine> machines = {{&paths, plans[0].ranks}};
  std::mt19937 unused;
  const Job job = job_of(placed({8, 8, 8, 8}, Order::kRandom, unused),
                         std::vector<NodeSummary>(4, summarize(system, plans[0].ranks, plans[0].plans)));
  const double promised = job.agreed(Family::kRing).total_gbps();
  for (const Prediction& prediction : simulate(job, machines, {Collective::kAllreduce, 64e9}))
    if (prediction.algorithm == "ring") {
      EXPECT_NEAR(prediction.bus_gbps / promised, 1, 0.01);
    } else if (prediction.algorithm == "tree") {
      EXPECT_NEAR(prediction.bus_gbps / job.agreed(Family::kTree).total_gbps(), 1, 0.05);
    }
  EXPECT_GT(promised, 300);
}

TEST(Trees, AreThoseWithWhichInnerNodesCarryMost) {
  const topo::System system = topo::read_nccl_xml(LOOM_TEST_DATA "/dgxh100.xml").system;
  topo::PathRules rules;
  rules.network_inside_host = false;
  const topo::Paths paths(system, rules);
  PlanRequest request;
  request.nodes = 4;
  const NodePlan node = plan_nodes(system, request).at(0);
  const Machine machine{&paths, node.ranks};
  const auto carried = [&](std::span<const search::ChannelPlan> plans) {
    return inner_node_gbps(machine, summarize(system, node.ranks, plans).family(Family::kTree));
  };
  search::Request search_request;
  search_request.nodes = 4;
  for (const search::Pattern pattern :
       {search::Pattern::kTree, search::Pattern::kSplitTree, search::Pattern::kBalancedTree}) {
    search_request.pattern = pattern;
    const search::ChannelPlan plan = search::find_channels(paths, search_request);
    EXPECT_GE(carried(node.plans), carried(std::span(&plan, 1)) * (1 - 1e-6));
  }
  EXPECT_NEAR(carried(node.plans), 384, 1);  // eight ports of 48 GB/s
}

}  // namespace
}  // namespace loom::connect
