#include "component/links/link_specs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "base/format.hpp"
#include "component/setup/group.hpp"
#include "connect/exchange.hpp"
#include "tests/connect/job_cases.hpp"

namespace loom {
namespace {

using Ways = LinkPeer::Ways;
using Hosts = std::vector<std::vector<int>>;

/// What each rank knows, as far as plans look at it.
std::deque<Group> groups_of(const Hosts& hosts, const char* tune) {
  std::vector<connect::NodeSummary> summaries;
  for (const auto& ranks : hosts) {
    std::vector<int> order(ranks.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(order.size() - 1 - i);
    summaries.push_back(connect::node_with_order(order));
  }
  const connect::Job job = connect::job_of(hosts, summaries);
  std::deque<Group> groups(static_cast<std::size_t>(job.ranks()));
  for (int rank = 0; rank < job.ranks(); ++rank) {
    Group& group = groups[static_cast<std::size_t>(rank)];
    group.wiring = connect::wire(job, rank);
    group.placement = job.placement();
    group.tune = Tune::parse(tune, "test");
    group.hier_from = may_use_hier(group.wiring.shape) ? 1 : 0;
    for (const int mate : group.placement.ranks_of(group.placement.node_of(rank))) group.host_mates[mate];
    for (int position = 0; position < job.ranks() && hosts.size() > 1; ++position)
      group.grid_ranks.push_back(connect::rank_at(job, 0, position));
  }
  return groups;
}

Ways other_way(Ways ways) {
  return ways == Ways::kSend ? Ways::kReceive : ways == Ways::kReceive ? Ways::kSend : Ways::kBoth;
}

/// Every link has two ends, each of which knows where the other is.
void expect_that_ends_meet(const LinkSpec& spec, const std::deque<Group>& groups) {
  std::vector<LinkPlan> plans;
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    plans.push_back(spec.plan(groups[rank], static_cast<int>(rank)));
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    std::set<std::pair<std::size_t, bool>> used;  // by place, and whether it sends
    bool used_twice = false;
    for (const LinkPeer& peer : plans[rank].peers) {
      EXPECT_FALSE(groups[rank].on_my_host(peer.rank));
      EXPECT_LT(peer.place, plans[rank].places);
      for (const bool sends : {false, true})
        if (peer.ways != (sends ? Ways::kReceive : Ways::kSend))
          used_twice |= !used.emplace(peer.place, sends).second;
      const auto is_other_end = [&](const LinkPeer& other) {
        return other.rank == static_cast<int>(rank) && other.place == peer.place_there &&
               other.place_there == peer.place && other.ways == other_way(peer.ways);
      };
      EXPECT_EQ(std::ranges::count_if(plans[static_cast<std::size_t>(peer.rank)].peers, is_other_end), 1)
          << "from rank " << rank << " to rank " << peer.rank;
    }
    EXPECT_FALSE(used_twice);
  }
}

class LinkPlans : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(LinkPlans, MakeEndsThatMeet) {
  std::mt19937 random(7);
  for (const connect::Order order :
       {connect::Order::kBlock, connect::Order::kRoundRobin, connect::Order::kRandom}) {
    const Hosts hosts = connect::placed(GetParam(), order, random);
    for (const char* const tune : {"", "all:dbt"}) {
      const std::deque<Group> groups = groups_of(hosts, tune);
      for (const LinkSpec& spec : kLinkSpecs) expect_that_ends_meet(spec, groups);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Hosts, LinkPlans,
                         ::testing::Values(std::vector{4}, std::vector{1, 1}, std::vector{2, 2},
                                           std::vector{3, 1}, std::vector{1, 1, 1}, std::vector{4, 2, 3},
                                           std::vector(5, 2), std::vector(9, 3), std::vector(16, 4),
                                           std::vector(17, 1), std::vector(24, 3)),
                         [](const auto& hosts) { return loom::join(hosts.param, "_"); });

TEST(LinkPlan, LeadAsFarAsTheAlgorithmsNeed) {
  const auto peers = [](LinkKind kind, const std::deque<Group>& groups, int rank) {
    std::multiset<int> ranks;
    for (const LinkPeer& peer : spec_of(kind).plan(groups[static_cast<std::size_t>(rank)], rank).peers)
      ranks.insert(peer.rank);
    return ranks;
  };
  using Ranks = std::multiset<int>;
  const std::deque<Group> groups = groups_of({{0, 1}, {2, 3}, {4, 5}}, "all:dbt");
  EXPECT_EQ(peers(LinkKind::kRing, groups, 1), (Ranks{3, 5}));
  EXPECT_EQ(peers(LinkKind::kLeaders, groups, 2), (Ranks{0, 4}));
  EXPECT_EQ(peers(LinkKind::kLeaders, groups, 3), Ranks{});
  EXPECT_EQ(peers(LinkKind::kPairwise, groups, 2), (Ranks{0, 1, 4, 5}));
  Ranks of_trees;
  for (int rank = 0; rank < 6; rank += 2) of_trees.merge(peers(LinkKind::kTrees, groups, rank));
  EXPECT_EQ(of_trees.size(), 2 * 2 * 2) << "two trees of two edges with two ends each, on each rail";

  const std::deque<Group> one_host = groups_of({{0, 1, 2}}, "all:dbt");
  for (std::size_t kind = 0; kind < kLinkKinds; ++kind)
    EXPECT_EQ(peers(static_cast<LinkKind>(kind), one_host, 0), Ranks{});
}

}  // namespace
}  // namespace loom
