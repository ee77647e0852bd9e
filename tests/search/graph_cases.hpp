// graph_cases.hpp -- plans that went through a graph file, beside those that were written.
#pragma once

#include <algorithm>

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

/// Channels that a file has in equal parts are one.
inline ChannelPlan in_one_piece(ChannelPlan plan) {
  std::vector<Channel> channels;
  for (const Channel& part : plan.channels) {
    const auto whole = std::find_if(channels.begin(), channels.end(), [&](const Channel& other) {
      return other.ranks == part.ranks && other.nets == part.nets;
    });
    if (whole == channels.end()) {
      channels.push_back(part);
      continue;
    }
    whole->intra_gbps += part.intra_gbps;
    whole->inter_gbps += part.inter_gbps;
  }
  plan.channels = std::move(channels);
  return plan;
}

/// A file has as many digits as NCCL reads.
inline void expect_same_speed(double written, double read) {
  EXPECT_NEAR(read, written, 1e-6 * written);
}

inline void expect_same_channels(const std::vector<NodePlans>& a, const std::vector<NodePlans>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].ranks, b[i].ranks);
    expect_same_speed(a[i].total_gbps, b[i].total_gbps);
    for (std::size_t part = 0; part < a[i].parts.size(); ++part) {
      const bool cut = a[i].parts[part].channels.size() != b[i].parts[part].channels.size();
      const ChannelPlan x = cut ? in_one_piece(a[i].parts[part]) : a[i].parts[part];
      const ChannelPlan y = cut ? in_one_piece(b[i].parts[part]) : b[i].parts[part];
      EXPECT_EQ(x.pattern, y.pattern);
      EXPECT_EQ(x.network, y.network);
      EXPECT_EQ(x.type_intra, y.type_intra);
      EXPECT_EQ(x.type_inter, y.type_inter);
      EXPECT_EQ(x.limits.cross_nic, y.limits.cross_nic);
      EXPECT_EQ(x.same_channels, y.same_channels);
      if (!cut) {
        EXPECT_EQ(x.hops, y.hops);
      }
      ASSERT_EQ(x.channels.size(), y.channels.size());
      for (std::size_t c = 0; c < x.channels.size(); ++c) {
        EXPECT_EQ(x.channels[c].ranks, y.channels[c].ranks);
        EXPECT_EQ(x.channels[c].nets, y.channels[c].nets);
        expect_same_speed(x.channels[c].intra_gbps, y.channels[c].intra_gbps);
        expect_same_speed(x.channels[c].inter_gbps, y.channels[c].inter_gbps);
      }
    }
  }
}

}  // namespace loom::search
