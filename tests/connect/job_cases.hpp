// job_cases.hpp -- nodes and jobs for the tests: made up by hand or at random.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "connect/checks.hpp"

namespace loom::connect {

/// A node with one ring (and one tree) channel: the local indices in this order.
inline NodeSummary node_with_order(const std::vector<int>& order) {
  NodeSummary node;
  node.ranks = static_cast<int>(order.size());
  node.port_gbps = {10};
  ChannelSummary channel{{order.begin(), order.end()}, 0, 0, 10, 10};
  for (const Family family : {Family::kRing, Family::kTree}) {
    FamilySummary& mine = node.families[static_cast<std::size_t>(family)];
    mine.pattern = family == Family::kRing ? search::Pattern::kRing : search::Pattern::kBalancedTree;
    mine.channels = {channel};
  }
  return node;
}

inline int below(std::mt19937& random, int limit) {
  return static_cast<int>(random() % static_cast<unsigned>(limit));
}

inline std::vector<std::uint16_t> random_order(std::mt19937& random, int ranks) {
  std::vector<std::uint16_t> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

/// Any number of channels of any speed and order at any port; rings partly in pairs that swap their ports.
inline NodeSummary random_node(std::mt19937& random, int ranks) {
  NodeSummary node;
  node.ranks = ranks;
  for (int port = 0, ports = 1 + below(random, 8); port < ports; ++port)
    node.port_gbps.push_back(static_cast<float>(12 * (1 + below(random, 4))));
  const auto port = [&] {
    return static_cast<std::int16_t>(below(random, static_cast<int>(node.port_gbps.size())));
  };
  const auto speed = [&] { return static_cast<float>(1 + below(random, 6)) * 4; };
  const bool even_speeds = below(random, 2) == 0;
  const auto fill = [&](Family family, search::Pattern pattern, int count) {
    FamilySummary& mine = node.families[static_cast<std::size_t>(family)];
    mine.pattern = pattern;
    mine.cross_nic = pattern == search::Pattern::kRing ? 2 * below(random, 2) : 0;
    const float common = speed();
    while (static_cast<int>(mine.channels.size()) < count) {
      const float gbps = even_speeds ? common : speed();
      ChannelSummary channel{random_order(random, ranks), port(), port(), gbps * 2, gbps};
      if (mine.cross_nic == 0) channel.port_out = channel.port_in;
      mine.channels.push_back(channel);
      if (channel.port_in == channel.port_out) continue;
      std::swap(channel.port_in, channel.port_out);
      channel.order = random_order(random, ranks);
      mine.channels.push_back(channel);
    }
  };
  fill(Family::kRing, search::Pattern::kRing, 1 + below(random, 12));
  const search::Pattern trees[] = {search::Pattern::kTree, search::Pattern::kSplitTree,
                                   search::Pattern::kBalancedTree};
  fill(Family::kTree, trees[below(random, 3)], 1 + below(random, 6));
  if (below(random, 3) == 0) return node;
  fill(Family::kCollnetChain, search::Pattern::kCollnetChain, 1 + below(random, 3));
  for (const auto& [family, pattern] : {std::pair(Family::kNvls, search::Pattern::kNvls),
                                        {Family::kCollnetDirect, search::Pattern::kCollnetDirect}}) {
    fill(family, pattern, 1 + below(random, std::min(ranks, 16)));
    for (ChannelSummary& channel : node.families[static_cast<std::size_t>(family)].channels)
      channel.order.resize(1);
  }
  return node;
}

/// Ranks on nodes of the given sizes.
enum class Order { kBlock, kRoundRobin, kRandom };
inline std::vector<std::vector<int>> placed(const std::vector<int>& sizes, Order order,
                                            std::mt19937& random) {
  std::vector<std::vector<int>> nodes(sizes.size());
  std::vector<int> ranks(static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), 0)));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (order == Order::kRandom) std::shuffle(ranks.begin(), ranks.end(), random);
  std::size_t next = 0;
  if (order == Order::kRoundRobin) {
    for (std::size_t node = 0; next < ranks.size(); node = (node + 1) % nodes.size())
      if (static_cast<int>(nodes[node].size()) < sizes[node]) nodes[node].push_back(ranks[next++]);
    return nodes;
  }
  for (std::size_t node = 0; node < nodes.size(); ++node)
    for (int i = 0; i < sizes[node]; ++i) nodes[node].push_back(ranks[next++]);
  return nodes;
}

inline void expect_sound(const Job& job) {
  for (const std::string& violation : violations(job)) ADD_FAILURE() << violation;
}

}  // namespace loom::connect
