// swapped_channels_test.cpp -- what NCCL makes of a written graph file whose rings cross NICs: on every other
// node it swaps the channels 2k and 2k + 1, by position.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/format.hpp"
#include "search/columns.hpp"
#include "search/graph_xml.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

constexpr std::size_t kMostChannels = 64;

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
    SCOPED_TRACE(loom::format("channel {}", i));
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
      SCOPED_TRACE(loom::format("without {} and {}", first, second));
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

double total_of(const ChannelPlan& plan) {
  double total = 0;
  for (const Channel& channel : plan.channels) total += channel.inter_gbps;
  return total;
}

/// NCCL has as many channels as rings and trees both have, and swaps no odd number.
void expect_all_used(const std::vector<NodePlans>& read) {
  std::size_t count = kMostChannels;
  const auto is_used = [](const ChannelPlan& plan) {
    return plan.pattern != Pattern::kCollnetChain && !has_heads(plan.pattern);
  };
  for (const NodePlans& node : read)
    for (const ChannelPlan& plan : node.parts)
      if (is_used(plan)) count = std::min(count, plan.channels.size());
  for (const NodePlans& node : read)
    for (ChannelPlan plan : node.parts) {
      if (!is_used(plan)) continue;
      plan.channels.resize(count);
      if (plan.pattern == Pattern::kRing && plan.limits.cross_nic == 2) expect_wired(plan);
      EXPECT_NEAR(total_of(plan), plan.total_gbps, 1e-6 * plan.total_gbps) << name_of(plan.pattern);
    }
}

/// Returns whether rings cross NICs.
bool expect_all_patterns_used(const topo::System& system) {
  const PathTables tables(system);
  std::vector<NodePlans> plans;
  for (const Pattern pattern : kAllPatterns) {
    Request request;
    request.pattern = pattern;
    request.nodes = 2;
    plans.push_back(find_plans(tables, request));
  }
  const auto& rings = plans[0].parts;
  if (std::none_of(rings.begin(), rings.end(), [](const auto& plan) { return plan.limits.cross_nic == 2; }))
    return false;
  const std::string text = to_graph_xml(tables, plans);
  const std::vector<NodePlans> read = parse_graph_xml(text, "graph.xml", tables, 2);
  expect_all_used(read);
  EXPECT_EQ(to_graph_xml(tables, read), text) << "what is cut stays as it is";
  return true;
}

TEST(SwappedChannels, AreAsManyAsTrees) {
  const topo::System whole = machine("dgx1v.xml");
  int crossing = 0;
  for (int second = 1; second < 8; ++second) {
    SCOPED_TRACE(second);
    std::vector<int> ranks;
    for (int rank = 1; rank < 8; ++rank)
      if (rank != second) ranks.push_back(rank);
    crossing += expect_all_patterns_used(topo::trimmed_to(whole, ranks)) ? 1 : 0;
  }
  EXPECT_GT(crossing, 0);
}

TEST(SwappedChannels, AreAsManyAsTreesOnEveryMachine) {
  std::vector<std::filesystem::path> files = machine_files();
  for (const auto& entry : std::filesystem::directory_iterator(LOOM_SEARCH_DATA))
    files.push_back(entry.path());
  int crossing = 0;
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    const topo::System system = topo::read_nccl_xml(file.string(), topo::Model::kNccl).system;
    crossing += expect_all_patterns_used(system) ? 1 : 0;
  }
  EXPECT_GT(crossing, 2);
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
