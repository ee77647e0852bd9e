// proof_test.cpp -- every bound comes with a proof that can be checked without the search: prices at which no
// channel is cheaper than what it carries, tried on all channels that small machines have.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <limits>
#include <map>

#include "search/resources.hpp"
#include "search_cases.hpp"
#include "topo/bandwidth.hpp"

namespace loom::search {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kMostGpus = 5;

bool is_head_pattern(Pattern pattern) {
  return pattern == Pattern::kNvls || pattern == Pattern::kCollnetDirect;
}

/// Whether a channel may come in and go out there, whatever it costs.
bool may_pair(const topo::System& system, topo::NodeId in, topo::NodeId out, Pattern pattern) {
  if (in == out) return true;
  const bool crosses =
      pattern == Pattern::kRing || pattern == Pattern::kSplitTree || pattern == Pattern::kBalancedTree;
  const topo::NetInfo &a = system.node(in).net(), &b = system.node(out).net();
  return crosses && !(a.plane && b.plane && a.plane != b.plane);
}

/// All channels of a pattern, each with 1 GB/s.
std::vector<Channel> all_channels(const topo::System& system, Pattern pattern, bool network) {
  std::vector<int> ranks;
  for (const topo::NodeId gpu : system.gpus()) ranks.push_back(system.node(gpu).gpu().rank);
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::vector<int>> orders;
  if (is_head_pattern(pattern))
    for (const int rank : ranks) orders.push_back({rank});
  else
    do orders.push_back(ranks);
    while (std::next_permutation(ranks.begin(), ranks.end()));
  std::vector<Channel> channels;
  for (const std::vector<int>& order : orders) {
    if (!network) channels.push_back({order, {}, 1, 1});
    const auto nets = system.of_kind(topo::NodeKind::kNet);
    for (std::size_t i = 0; network && i < nets.size(); ++i)
      for (const topo::NodeId out : nets)
        if (may_pair(system, nets[i], out, pattern))
          channels.push_back({order, {nets[i], out}, pattern == Pattern::kNvls ? 0.5 : 1, 1});
  }
  return channels;
}

bool shares_cable(const topo::System& system, topo::NodeId a, topo::NodeId b) {
  const topo::NetInfo &x = system.node(a).net(), &y = system.node(b).net();
  return a == b || (x.guid && x.guid == y.guid && x.port == y.port);
}

/// What a channel costs; infinite where it is not possible.
double cost_of(const topo::Paths& paths, const ChannelPlan& plan, const Channel& channel) {
  ChannelPlan alone;
  alone.pattern = plan.pattern;
  alone.network = plan.network;
  alone.limits = {2, topo::PathType::kSys, topo::PathType::kSys};
  alone.type_intra = alone.type_inter = topo::PathType::kSys;
  alone.channels = {channel};
  for (const std::string& wrong : violations(paths, alone))
    if (wrong.find("allowed is up to") != std::string::npos) return std::numeric_limits<double>::infinity();
  const std::vector<double> loads = link_loads(paths, alone);
  double cost = 0;
  for (const Proof::Price& entry : plan.proof.prices)
    if (entry.number >= 0)
      cost += entry.price * loads[static_cast<std::size_t>(entry.number)];
    else if (!channel.nets.empty() && shares_cable(paths.system(), entry.node, channel.nets[0]))
      cost += entry.price;
  return cost;
}

double gbps_of(const topo::System& system, const Proof::Price& entry) {
  if (entry.number >= 0) return Resources(system).gbps(entry.number);
  double least = std::numeric_limits<double>::infinity();
  for (const topo::NodeId net : system.of_kind(topo::NodeKind::kNet))
    if (shares_cable(system, entry.node, net))
      least = std::min(least, static_cast<double>(topo::net_gbps(system.node(net).net().speed_mbps)));
  return least;
}

/// Returns whether there were prices.
bool expect_proven(const topo::Paths& paths, const ChannelPlan& plan) {
  if (plan.channels.empty() || plan.in_order) return false;
  if (!plan.proof.because.empty()) return false;
  EXPECT_FALSE(plan.proof.prices.empty());
  double worth = 0;
  for (const Proof::Price& entry : plan.proof.prices) {
    EXPECT_GT(entry.price, 0);
    EXPECT_NEAR(entry.gbps, gbps_of(paths.system(), entry), 1e-6 * entry.gbps);
    worth += entry.price * entry.gbps;
  }
  EXPECT_NEAR(worth, plan.bound_gbps, 1e-6 * worth);
  std::map<std::vector<topo::NodeId>, double> least;  // by ports
  for (const Channel& channel : all_channels(paths.system(), plan.pattern, plan.network)) {
    const double cost = cost_of(paths, plan, channel);
    double& known = least.try_emplace(channel.nets, cost).first->second;
    known = std::min(known, cost);
  }
  for (const auto& [nets, cost] : least) {
    // Rings that cross NICs come in pairs with swapped ports: both together cost 2.
    const bool pairs =
        plan.pattern == Pattern::kRing && plan.network && !shares_cable(paths.system(), nets[0], nets[1]);
    EXPECT_GE(pairs ? (cost + least.at({nets[1], nets[0]})) / 2 : cost, 1 - 1e-6);
  }
  return true;
}

class ProofOnRandomMachines : public ::testing::TestWithParam<unsigned> {};

TEST_P(ProofOnRandomMachines, HoldsForAllChannelsThatThereAre) {
  const topo::System system = random_machine(GetParam());
  if (system.gpus().size() > kMostGpus) GTEST_SKIP() << "too many orders to try them all";
  const topo::Paths paths(system, whole_rules());
  int proven = 0;
  for (const Pattern pattern : kAllPatterns)
    for (const int nodes : {1, 2}) {
      SCOPED_TRACE(std::string(name_of(pattern)) + (nodes == 2 ? ", two nodes" : ""));
      Request request;
      request.pattern = pattern;
      request.nodes = nodes;
      proven += expect_proven(paths, find_channels(paths, request)) ? 1 : 0;
    }
  EXPECT_GE(proven, 1);
}
INSTANTIATE_TEST_SUITE_P(Seeds, ProofOnRandomMachines, ::testing::Range(1U, 81U));

TEST(Proof, IsTheCutBetweenTwoSockets) {
  const topo::System system = machine("pcie-2socket.xml");
  const topo::Paths paths(system, whole_rules());
  const ChannelPlan plan = find_channels(paths, {});
  expect_proven(paths, plan);
  double crossing = 0;
  for (const Proof::Price& entry : plan.proof.prices) crossing += entry.price * entry.gbps;
  EXPECT_NEAR(crossing, plan.bound_gbps, 1e-6);
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
