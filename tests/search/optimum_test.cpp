// optimum_test.cpp -- on small machines plans carry, and bounds say, what a linear program of all channels
// gives.
#include "brute_force.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

constexpr int kMostGpus = 4;

class Optimum : public ::testing::TestWithParam<unsigned> {};

TEST_P(Optimum, IsReachedAndProvenOnSmallMachines) {
  const topo::System system = random_machine(GetParam(), kMostGpus);
  const topo::Paths paths(system, whole_rules());
  const topo::Paths* const all[] = {&paths};
  int compared = 0;
  for (const Pattern pattern : kAllPatterns)
    for (const auto& [nodes, cross_nic] :
         {std::pair(1, 2), std::pair(2, 0), std::pair(2, 1), std::pair(2, 2)}) {
      SCOPED_TRACE(loom::format("{}, {} nodes, cross-NIC {}", name_of(pattern), nodes, cross_nic));
      Request request;
      request.pattern = pattern;
      request.nodes = nodes;
      request.cross_nic = cross_nic;
      request.max_channels = 64;
      const ChannelPlan plan = find_channels(paths, request);
      if (plan.channels.empty() || plan.in_order) continue;
      const Pattern patterns[] = {plan.pattern};
      const double most = most_gbps(all, patterns, nodes > 1, cross_nic);
      EXPECT_NEAR(plan.total_gbps, most, 1e-3 * most);
      EXPECT_NEAR(plan.bound_gbps, most, 1e-3 * most);
      ++compared;
    }
  EXPECT_GE(compared, 4);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Optimum, seeds(40));

}  // namespace
}  // namespace loom::search
