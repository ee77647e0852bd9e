#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.hpp"
#include "job_cases.hpp"

namespace loom::connect {
namespace {

/// hosts[h] are host h's ranks in the order of its ring.
Job job_with_rings(const std::vector<std::vector<int>>& hosts) {
  std::vector<NodeSummary> summaries;
  for (const auto& ranks : hosts) {
    std::vector<int> sorted = ranks, order;
    std::sort(sorted.begin(), sorted.end());
    for (const int rank : ranks)
      order.push_back(
          static_cast<int>(std::lower_bound(sorted.begin(), sorted.end(), rank) - sorted.begin()));
    summaries.push_back(node_with_order(order));
  }
  return job_of(hosts, summaries);
}

/// Follows `ring_of(rank)` from `start` and expects a closed ring of `members` in which all views agree.
template <class RingOf>
void expect_ring(int start, const std::set<int>& members, RingOf ring_of) {
  std::set<int> visited;
  int rank = start;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Ring ring = ring_of(rank), next = ring_of(ring.next);
    EXPECT_TRUE(visited.insert(rank).second);
    EXPECT_EQ(ring.size, static_cast<int>(members.size()));
    EXPECT_EQ(next.previous, rank);
    EXPECT_EQ(next.position, (ring.position + 1) % ring.size);
    rank = ring.next;
  }
  EXPECT_EQ(rank, start);
  EXPECT_EQ(visited, members);
}

void expect_consistent(const std::vector<std::vector<int>>& hosts) {
  const Job job = job_with_rings(hosts);
  std::map<int, Wiring> wirings;
  std::set<int> all;
  for (const auto& host : hosts)
    for (const int rank : host) {
      wirings[rank] = wire(job, rank);
      all.insert(rank);
    }
  for (const auto& [rank, wiring] : wirings) EXPECT_EQ(wiring.shape, wirings.begin()->second.shape);
  for (const auto& host : hosts)
    for (const int rank : host)
      expect_ring(rank, {host.begin(), host.end()}, [&](int r) { return wirings[r].local; });
  const Shape shape = wirings.begin()->second.shape;
  EXPECT_EQ(shape.ranks, static_cast<int>(all.size()));
  EXPECT_EQ(shape.hosts, static_cast<int>(hosts.size()));
  if (hosts.size() == 1) return;
  if (shape.ranks_per_host == 0) {
    expect_ring(*all.begin(), all, [&](int r) { return *wirings[r].flat; });
    return;
  }
  for (std::size_t i = 0; i < hosts[0].size(); ++i) {
    std::set<int> rail;
    for (const auto& host : hosts) rail.insert(host[i]);
    expect_ring(hosts[0][i], rail, [&](int r) { return *wirings[r].rail; });
    for (const int rank : rail) EXPECT_EQ(wirings[rank].local.position, static_cast<int>(i));
  }
}

TEST(Wiring, JoinsOneHost) {
  expect_consistent({{0, 1, 2, 3}});
}
TEST(Wiring, JoinsEqualHostsByRails) {
  expect_consistent({{0, 3, 1}, {2, 4, 5}, {8, 7, 6}});
}
TEST(Wiring, JoinsHostsOfOneRank) {
  expect_consistent({{2}, {0}, {1}});
}
TEST(Wiring, JoinsUnequalHostsByOneRing) {
  expect_consistent({{0, 1, 2}, {3}, {4, 5}});
}

TEST(Wiring, IsConsistentForRandomJobs) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int> ranks(1 + random() % 40);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random);
    std::vector<std::vector<int>> hosts;
    const std::size_t per_host = 1 + random() % 6;
    while (!ranks.empty()) {
      const std::size_t take = std::min(ranks.size(), trial % 2 ? per_host : 1 + random() % 6);
      hosts.emplace_back(ranks.end() - static_cast<std::ptrdiff_t>(take), ranks.end());
      ranks.resize(ranks.size() - take);
    }
    expect_consistent(hosts);
  }
}

TEST(Wiring, RefusesARankThatNoHostHas) {
  EXPECT_THROW(wire(job_with_rings({{0, 1}}), 7), Error);
}

}  // namespace
}  // namespace loom::connect
