// swapped_channels_test.cpp -- what NCCL makes of a written graph file whose rings cross NICs: on every other
// node it swaps the channels 2k and 2k + 1, by position.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "search/graph_xml.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

/// Rings of a file as a node has them: odd nodes with neighbours swapped.
std::vector<Channel> on_node(const ChannelPlan& plan, bool odd) {
  std::vector<Channel> channels = plan.channels;
  for (std::size_t i = 0; odd && i + 1 < channels.size(); i += 2) std::swap(channels[i], channels[i + 1]);
  return channels;
}

/// Whether channel after channel two nodes agree on the port between them and on the speed.
void expect_wired(const ChannelPlan& plan) {
  ASSERT_EQ(plan.channels.size() % 2, 0U) << "NCCL swaps an even number alone";
  const std::vector<Channel> even = on_node(plan, false), odd = on_node(plan, true);
  for (std::size_t i = 0; i < even.size(); ++i) {
    SCOPED_TRACE(fmt::format("channel {}", i));
    EXPECT_EQ(even[i].nets[1], odd[i].nets[0]) << "from an even node to an odd one";
    EXPECT_EQ(odd[i].nets[1], even[i].nets[0]) << "and back";
    EXPECT_EQ(even[i].inter_gbps, odd[i].inter_gbps);
  }
}

TEST(SwappedChannels, AreWiredOnEveryDgx1vWithoutTwoGpus) {
  const topo::System whole = machine("dgx1v.xml");
  int crossing = 0, mixed = 0;
  for (int first = 0; first < 8; ++first)
    for (int second = first + 1; second < 8; ++second) {
      SCOPED_TRACE(fmt::format("without {} and {}", first, second));
      std::vector<int> ranks;
      for (int rank = 0; rank < 8; ++rank)
        if (rank != first && rank != second) ranks.push_back(rank);
      const PathTables tables(topo::trimmed_to(whole, ranks));
      Request request;
      request.nodes = 2;
      const NodePlans plans = find_plans(tables, request);
      for (const ChannelPlan& plan : plans.parts) {
        if (plan.limits.cross_nic != 2) continue;
        ++crossing;
        for (const Channel& channel : plan.channels) mixed += channel.nets[0] == channel.nets[1] ? 1 : 0;
      }
      const std::string text = to_graph_xml(tables, {&plans, 1});
      const std::vector<NodePlans> read = parse_graph_xml(text, "graph.xml", tables, 2);
      for (const NodePlans& node : read)
        for (const ChannelPlan& plan : node.parts)
          if (plan.limits.cross_nic == 2) expect_wired(plan);
      EXPECT_EQ(to_graph_xml(tables, read), text) << "what is in halves stays as it is";
    }
  EXPECT_GT(crossing, 0);
  EXPECT_GT(mixed, 0) << "rings without a partner are among them";
}

/// Of 64 rings some have no partner and become two halves.
TEST(SwappedChannels, AreNoMoreThanAFileHas) {
  const topo::System whole = machine("dgx1v.xml");
  int refused = 0, written = 0;
  for (int second = 1; second < 8; ++second) {
    std::vector<int> ranks;
    for (int rank = 1; rank < 8; ++rank)
      if (rank != second) ranks.push_back(rank);
    const PathTables tables(topo::trimmed_to(whole, ranks));
    Request request;
    request.nodes = 2;
    request.min_channels = request.max_channels = 64;
    const NodePlans plans = find_plans(tables, request);
    try {
      const std::string text = to_graph_xml(tables, {&plans, 1});
      EXPECT_NO_THROW(parse_graph_xml(text, "graph.xml", tables, 2));
      ++written;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("A graph file has 64 channels at most"), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(written, 0);
}

}  // namespace
}  // namespace loom::search
