// proof_test.cpp -- every bound comes with a proof that can be checked without the search: prices at which no
// channel is cheaper than what it carries, tried on all channels that small machines have.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "brute_force.hpp"
#include "search/graph_xml.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kMostGpus = 4;

/// What a channel costs; infinite where it is not possible.
double cost_of(const topo::Paths& paths, const ChannelPlan& plan, const Channel& channel) {
  const Taken taken = taken_by(paths, plan.pattern, plan.network, channel);
  if (!taken.possible) return std::numeric_limits<double>::infinity();
  double cost = 0;
  for (const Proof::Price& entry : plan.proof.prices)
    if (entry.number >= 0)
      cost += entry.price * taken.of_resources[static_cast<std::size_t>(entry.number)];
    else if (!channel.nets.empty() && shares_cable(paths.system(), entry.node, channel.nets[0]))
      cost += entry.price;
  return cost;
}

/// What a GB/s of the cheapest channel costs. Rings that cross NICs come in pairs with swapped ports.
double least_cost(const topo::Paths& paths, const ChannelPlan& plan, int cross_nic) {
  std::map<std::vector<topo::NodeId>, double> of_ports;
  for (const Channel& channel : all_channels(paths.system(), plan.pattern, plan.network, cross_nic)) {
    const double cost = cost_of(paths, plan, channel);
    double& known = of_ports.try_emplace(channel.nets, cost).first->second;
    known = std::min(known, cost);
  }
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [nets, cost] : of_ports) {
    const bool pairs = plan.pattern == Pattern::kRing && plan.network && cross_nic == 2 &&
                       !may_pair(paths.system(), nets[0], nets[1], plan.pattern, 0);
    least = std::min(least, pairs ? (cost + of_ports.at({nets[1], nets[0]})) / 2 : cost);
  }
  return least;
}

/// The prices are of what there is, and what there is costs the bound.
void expect_worth(const topo::System& system, const ChannelPlan& plan) {
  EXPECT_FALSE(plan.proof.prices.empty());
  double worth = 0;
  for (const Proof::Price& entry : plan.proof.prices) {
    EXPECT_GT(entry.price, 0);
    const double gbps =
        entry.number >= 0 ? Resources(system).gbps(entry.number) : cable_gbps(system, entry.node);
    EXPECT_NEAR(entry.gbps, gbps, 1e-6 * gbps);
    worth += entry.price * entry.gbps;
  }
  EXPECT_NEAR(worth, plan.bound_gbps, 1e-6 * worth);
}

/// No way leads from the GPUs on one side (or, from outside, from the ports) to the other ones, nor out, but
/// over the links with prices.
void expect_cut(const topo::System& system, const ChannelPlan& plan) {
  std::set<topo::LinkId> cut;
  for (const Proof::Price& entry : plan.proof.prices) cut.insert(entry.number);
  const std::set<int> side(plan.proof.side.begin(), plan.proof.side.end());
  const auto reached_from = [&](std::vector<topo::NodeId> reached) {
    std::set<topo::NodeId> known(reached.begin(), reached.end());
    for (std::size_t i = 0; i < reached.size(); ++i)
      for (const topo::Link& link : system.links_of(reached[i]))
        if (!cut.contains(system.id_of(link)) && known.insert(link.to).second) reached.push_back(link.to);
    return known;
  };
  std::vector<topo::NodeId> gpus, ports, others;
  for (const topo::NodeId gpu : system.gpus())
    (side.contains(system.node(gpu).gpu().rank) ? gpus : others).push_back(gpu);
  for (const topo::NodeId net : system.of_kind(topo::NodeKind::kNet)) ports.push_back(net);
  const auto is_apart = [&](const std::vector<topo::NodeId>& from, const std::vector<topo::NodeId>& to) {
    const std::set<topo::NodeId> known = reached_from(from);
    return std::none_of(to.begin(), to.end(), [&](topo::NodeId node) { return known.contains(node); });
  };
  EXPECT_TRUE(is_apart(gpus, others));
  if (!plan.network) {
    EXPECT_FALSE(gpus.empty() || others.empty());
    return;
  }
  EXPECT_TRUE((!others.empty() && is_apart(ports, others)) || (!gpus.empty() && is_apart(gpus, ports)));
}

/// That so few channels carry no more, by all channels that there are.
void expect_limited_by_channels(const topo::Paths& paths, const ChannelPlan& plan, const Request& request) {
  const topo::Paths* const all[] = {&paths};
  const Pattern patterns[] = {plan.pattern};
  const auto most_of = [&](const std::function<bool(const Channel&)>& counts) {
    return most_gbps(all, patterns, plan.network, request.cross_nic == 2 ? 1 : request.cross_nic, counts);
  };
  const double slack = 1e-6 * plan.bound_gbps;
  if (plan.proof.side.empty()) {
    for (const Channel& channel :
         all_channels(paths.system(), plan.pattern, plan.network, request.cross_nic)) {
      const auto is_it = [&](const Channel& other) {
        return other.ranks == channel.ranks && other.nets == channel.nets;
      };
      EXPECT_LE(most_of(is_it) * request.max_channels, plan.bound_gbps + slack);
    }
    return;
  }
  EXPECT_GT(plan.proof.side.size(), static_cast<std::size_t>(request.max_channels));
  const bool at_end = plan.proof.because.find(" end at ") != std::string::npos;
  for (const int rank : plan.proof.side)
    EXPECT_LE(most_of([&](const Channel& channel) {
                return (at_end ? channel.ranks.back() : channel.ranks.front()) != rank;
              }),
              plan.bound_gbps + slack)
        << "without rank " << rank;
}

/// Returns whether there is something to prove.
bool expect_proven(const topo::Paths& paths, const ChannelPlan& plan, const Request& request) {
  if (plan.channels.empty() || plan.in_order) return false;
  if (!plan.proof.because.empty()) {
    expect_limited_by_channels(paths, plan, request);
    return true;
  }
  expect_worth(paths.system(), plan);
  EXPECT_GE(least_cost(paths, plan, request.cross_nic), 1 - 1e-6);
  if (!plan.proof.side.empty()) expect_cut(paths.system(), plan);
  return true;
}

class ProofOnRandomMachines : public ::testing::TestWithParam<unsigned> {};

TEST_P(ProofOnRandomMachines, HoldsForAllChannelsThatThereAre) {
  const topo::System system = random_machine(GetParam(), kMostGpus);
  const topo::Paths paths(system, whole_rules());
  int proven = 0;
  for (const Pattern pattern : kAllPatterns)
    for (const auto& [nodes, cross_nic, channels, exact_gpus] :
         {std::tuple(1, 2, 32, 16), std::tuple(1, 2, 2, 16), std::tuple(2, 2, 32, 16),
          std::tuple(2, 0, 2, 16), std::tuple(2, 1, 32, 16), std::tuple(1, 2, 32, 2), std::tuple(2, 0, 32, 2),
          std::tuple(2, 1, 32, 2), std::tuple(2, 2, 32, 2)}) {
      SCOPED_TRACE(loom::format("{}, {} nodes, cross-NIC {}, {} channels, orders of up to {} GPUs exact",
                                name_of(pattern), nodes, cross_nic, channels, exact_gpus));
      Request request;
      request.pattern = pattern;
      request.nodes = nodes;
      request.cross_nic = cross_nic;
      request.max_channels = channels;
      request.exact_gpus = exact_gpus;
      proven += expect_proven(paths, find_channels(paths, request), request) ? 1 : 0;
    }
  EXPECT_GE(proven, 1);
}
INSTANTIATE_TEST_SUITE_P(Seeds, ProofOnRandomMachines, seeds(40));

class ProofOfRandomParts : public ::testing::TestWithParam<unsigned> {};

/// In every part a GB/s costs something, in all together at least 1.
TEST_P(ProofOfRandomParts, HoldsForAllChannelsOfAllParts) {
  const PathTables tables(random_machine_in_parts(GetParam()));
  for (const Pattern pattern : kAllPatterns)
    for (const auto& [cross_nic, exact_gpus] :
         {std::pair(0, 16), std::pair(1, 16), std::pair(2, 16), std::pair(0, 2), std::pair(2, 2)}) {
      Request request;
      request.pattern = pattern;
      request.nodes = 2;
      request.cross_nic = cross_nic;
      request.exact_gpus = exact_gpus;
      const NodePlans plans = plan_parts(tables, request);
      if (plans.parts.empty() || !plans.parts[0].proof.together || !plans.parts[0].proof.because.empty())
        continue;
      SCOPED_TRACE(loom::format("{}, cross-NIC {}, orders of up to {} GPUs exact", name_of(pattern),
                                cross_nic, exact_gpus));
      double least = 0;
      for (std::size_t i = 0; i < plans.parts.size(); ++i) {
        const topo::Paths& paths = part_of(tables, plans, i).paths;
        expect_worth(paths.system(), plans.parts[i]);
        least += least_cost(paths, plans.parts[i], cross_nic);
      }
      EXPECT_GE(least, 1 - 1e-6);
    }
}
INSTANTIATE_TEST_SUITE_P(Seeds, ProofOfRandomParts, seeds(40));

TEST(Proof, IsTheCutBetweenTwoIslands) {
  const topo::System system =
      topo::read_nccl_xml(LOOM_SEARCH_DATA "/sixteen-gpus-two-islands.xml", topo::Model::kNccl).system;
  Request request;
  for (const int nodes : {1, 2}) {
    SCOPED_TRACE(nodes);
    request.nodes = nodes;
    const ChannelPlan plan = find_plans(system, request).parts[0];
    const bool first = nodes == 1;
    EXPECT_THAT(plan.proof.side,
                first ? ElementsAre(0, 1, 2, 3, 4, 5, 6, 7) : ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
    expect_worth(system, plan);
    expect_cut(system, plan);
  }
}

/// Between the sockets of a host without NVLinks.
TEST(Proof, IsTheLinkBetweenTwoSockets) {
  const topo::System system = machine("pcie-2socket.xml");
  const topo::Paths paths(system, whole_rules());
  const ChannelPlan plan = find_channels(paths, {});
  expect_worth(system, plan);
  for (const Proof::Price& entry : plan.proof.prices)
    EXPECT_THAT(Resources(system).label(entry.number), HasSubstr("NUMA"));
}

TEST(Proof, SaysWhenTheNumberOfChannelsLimits) {
  const topo::System system = machine("dgx1v.xml");
  Request request;
  request.max_channels = 2;
  const ChannelPlan plan = find_channels(topo::Paths(system, whole_rules()), request);
  EXPECT_DOUBLE_EQ(plan.bound_gbps, 2 * 40);
  EXPECT_THAT(plan.proof.because,
              HasSubstr("2 channels, none faster than the fastest path between GPUs, 40 GB/s"));
  EXPECT_TRUE(plan.proof.prices.empty());
}

}  // namespace
}  // namespace loom::search
