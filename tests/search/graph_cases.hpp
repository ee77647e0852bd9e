// graph_cases.hpp -- plans that went through a graph file, beside those that were written.
#pragma once

#include "search/graph_xml.hpp"
#include "search_cases.hpp"

namespace loom::search {

/// Those of `plans` that a graph file keeps: with channels that claim something, each pattern once (a GPU
/// alone has one tree for all).
inline std::vector<NodePlans> kept_plans(std::vector<NodePlans> plans) {
  std::vector<NodePlans> kept;
  for (NodePlans& node : plans) {
    const bool nothing = std::any_of(node.parts.begin(), node.parts.end(), [](const ChannelPlan& plan) {
      return plan.channels.empty() || plan.in_order;
    });
    const bool twice = std::any_of(kept.begin(), kept.end(), [&](const NodePlans& other) {
      if (other.ranks != node.ranks) return false;
      for (std::size_t i = 0; i < node.parts.size(); ++i)
        if (other.parts[i].pattern != node.parts[i].pattern) return false;
      return true;
    });
    if (!nothing && !twice) kept.push_back(std::move(node));
  }
  return kept;
}

/// A channel in two halves, as a file has those without a partner, is one.
inline ChannelPlan without_halves(ChannelPlan plan) {
  std::vector<Channel> channels;
  for (std::size_t i = 0; i < plan.channels.size(); ++i) {
    channels.push_back(plan.channels[i]);
    if (i + 1 == plan.channels.size() || plan.channels[i].ranks != plan.channels[i + 1].ranks ||
        plan.channels[i].nets != plan.channels[i + 1].nets ||
        plan.channels[i].inter_gbps != plan.channels[i + 1].inter_gbps)
      continue;
    channels.back().intra_gbps *= 2;
    channels.back().inter_gbps *= 2;
    ++i;
  }
  plan.channels = std::move(channels);
  return plan;
}

inline void expect_same_channels(const std::vector<NodePlans>& a, const std::vector<NodePlans>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].ranks, b[i].ranks);
    EXPECT_DOUBLE_EQ(a[i].total_gbps, b[i].total_gbps);
    for (std::size_t part = 0; part < a[i].parts.size(); ++part) {
      const bool halved = a[i].parts[part].channels.size() != b[i].parts[part].channels.size();
      const ChannelPlan& x = a[i].parts[part];
      const ChannelPlan y = halved ? without_halves(b[i].parts[part]) : b[i].parts[part];
      EXPECT_EQ(x.pattern, y.pattern);
      EXPECT_EQ(x.network, y.network);
      EXPECT_EQ(x.type_intra, y.type_intra);
      EXPECT_EQ(x.type_inter, y.type_inter);
      EXPECT_EQ(x.limits.cross_nic, y.limits.cross_nic);
      EXPECT_EQ(x.same_channels, y.same_channels);
      if (!halved) {
        EXPECT_EQ(x.hops, y.hops);
      }
      ASSERT_EQ(x.channels.size(), y.channels.size());
      for (std::size_t c = 0; c < x.channels.size(); ++c) {
        EXPECT_EQ(x.channels[c].ranks, y.channels[c].ranks);
        EXPECT_EQ(x.channels[c].nets, y.channels[c].nets);
        EXPECT_DOUBLE_EQ(x.channels[c].intra_gbps, y.channels[c].intra_gbps);
        EXPECT_DOUBLE_EQ(x.channels[c].inter_gbps, y.channels[c].inter_gbps);
      }
    }
  }
}

}  // namespace loom::search
