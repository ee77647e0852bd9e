#include "connect/exchange.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "job_cases.hpp"

namespace loom::connect {
namespace {

TEST(Summary, ComesBackFromItsBytes) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const NodeSummary node = random_node(random, 1 + below(random, trial % 20 == 0 ? 600 : 16));
    EXPECT_EQ(decode(encode(node)), node);
  }
}

TEST(Summary, RefusesBytesThatNobodyWrote) {
  std::mt19937 random(6);
  const std::vector<std::byte> good = encode(random_node(random, 8));
  for (std::size_t cut = 0; cut < good.size(); ++cut) EXPECT_THROW(decode(std::span(good).first(cut)), Error);
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 1);
  EXPECT_THROW(decode(longer), Error);
  int refused = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    std::vector<std::byte> spoilt = good;
    spoilt[static_cast<std::size_t>(below(random, static_cast<int>(good.size())))] =
        static_cast<std::byte>(below(random, 256));
    try {
      const NodeSummary read = decode(spoilt);  // what is read may be another node, but a possible one
      for (const FamilySummary& family : read.families)
        for (const ChannelSummary& channel : family.channels) {
          for (const std::uint16_t local : channel.order) ASSERT_LT(local, read.ranks);
          for (const float gbps : {channel.intra_gbps, channel.inter_gbps})
            ASSERT_TRUE(std::isfinite(gbps) && gbps >= 0) << gbps;
        }
      std::mt19937 unused;
      const Job job =
          job_of(placed({read.ranks, read.ranks}, Order::kBlock, unused), std::vector{read, read});
      for (int rank = 0; rank < job.ranks(); ++rank) connect(job, rank);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Summary, RefusesSpeedsThatAreNone) {
  const NodeSummary good = node_with_order({0, 1});
  for (const float none : {-1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    NodeSummary port = good, inside = good, outside = good;
    port.port_gbps[0] = inside.families[0].channels[0].intra_gbps =
        outside.families[0].channels[0].inter_gbps = none;
    for (const NodeSummary* spoilt : {&port, &inside, &outside}) EXPECT_THROW(decode(encode(*spoilt)), Error);
  }
}

TEST(Summary, SpeaksOfRanksAsTheNodeCountsThem) {
  search::ChannelPlan plan;
  plan.channels = {{{40, 10, 30}}};
  topo::CpuInfo cpu;
  const topo::System system = topo::build_system({{cpu, topo::kNoNode, 0, {}}}, {0}).system;
  const std::vector ranks = {30, 10, 40};
  EXPECT_THAT(summarize(system, ranks, std::span(&plan, 1)).families[0].channels[0].order,
              ::testing::ElementsAre(2, 0, 1));
  plan.channels[0].ranks[0] = 41;
  EXPECT_THROW(summarize(system, ranks, std::span(&plan, 1)), Error);
  plan.channels[0].ranks[0] = 40;
  plan.channels[0].nets = {0, 0};
  EXPECT_THROW(summarize(system, ranks, std::span(&plan, 1)), Error);  // a CPU is no port
}

/// Every rank sends what it knows, and makes the job of what it gets.
struct Exchanged {
  std::vector<Job> jobs;
  std::size_t slice_bytes = 0;
  int kinds = 0;
};
Exchanged exchanged(const std::vector<std::vector<int>>& nodes, const std::vector<NodeSummary>& summaries) {
  const Placement placement = Placement::of_nodes(nodes);
  std::vector<std::vector<std::byte>> own(static_cast<std::size_t>(placement.ranks()));
  std::vector<std::uint64_t> words(own.size());
  for (std::size_t n = 0; n < nodes.size(); ++n)
    for (const int rank : nodes[n]) {
      own[static_cast<std::size_t>(rank)] = encode(summaries[n]);
      words[static_cast<std::size_t>(rank)] = word_of(
          rank, placement.ranks_of(placement.node_of(rank)).front(), own[static_cast<std::size_t>(rank)]);
    }
  const Announced announced(words);
  std::vector<std::byte> slices;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    const auto slice = announced.slice(rank, own[static_cast<std::size_t>(rank)]);
    slices.insert(slices.end(), slice.begin(), slice.end());
  }
  std::vector<std::vector<std::byte>> kinds;
  for (int node = 0; node < placement.nodes(); ++node)
    if (const auto& bytes = own[static_cast<std::size_t>(placement.ranks_of(node).front())];
        std::find(kinds.begin(), kinds.end(), bytes) == kinds.end())
      kinds.push_back(bytes);
  EXPECT_EQ(announced.all_slices(kinds), slices);
  Exchanged result{{}, announced.slice_bytes(), announced.kinds()};
  for (int rank = 0; rank < placement.ranks(); ++rank)
    result.jobs.push_back(announced.join(slices, rank, own[static_cast<std::size_t>(rank)]));
  return result;
}

TEST(Exchange, GivesEveryRankTheJob) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 30; ++trial) {
    std::vector<NodeSummary> kinds, summaries;
    for (int kind = 0; kind < 3; ++kind) kinds.push_back(random_node(random, 1 + below(random, 5)));
    std::vector<int> sizes;
    for (int node = 0, nodes = 1 + below(random, 12); node < nodes; ++node) {
      summaries.push_back(kinds[static_cast<std::size_t>(below(random, 3))]);
      sizes.push_back(summaries.back().ranks);
    }
    const auto nodes = placed(sizes, static_cast<Order>(trial % 3), random);
    const Job wanted = job_of(nodes, summaries);
    const Exchanged result = exchanged(nodes, summaries);
    EXPECT_EQ(result.kinds, static_cast<int>(wanted.kinds().size()));
    for (const Job& job : result.jobs)
      for (int rank = 0; rank < wanted.ranks(); ++rank) {
        EXPECT_EQ(job.placement().node_of(rank), wanted.placement().node_of(rank));
        EXPECT_EQ(job.summary(job.placement().node_of(rank)), wanted.summary(job.placement().node_of(rank)));
      }
  }
}

TEST(Exchange, SendsEqualNodesOnce) {
  std::mt19937 random(8), unused;
  const NodeSummary node = random_node(random, 8);
  const std::size_t bytes = encode(node).size();
  const auto slice_of = [&](int nodes) {
    return exchanged(placed(std::vector<int>(static_cast<std::size_t>(nodes), 8), Order::kBlock, unused),
                     std::vector<NodeSummary>(static_cast<std::size_t>(nodes), node))
        .slice_bytes;
  };
  EXPECT_EQ(slice_of(1), (bytes + 7) / 8);
  EXPECT_EQ(slice_of(20), (bytes + 159) / 160);
}

TEST(Exchange, NoticesTwoSummariesWithOneWord) {
  const std::vector<std::byte> one = encode(node_with_order({0, 1})), other = encode(node_with_order({1, 0}));
  const std::uint64_t word = word_of(0, 0, one);
  const Announced announced(std::vector<std::uint64_t>{word, 0, word, 2});
  std::vector<std::byte> slices;
  for (const auto& [rank, own] : {std::pair(0, &one), {1, &one}, {2, &other}, {3, &other}}) {
    const auto slice = announced.slice(rank, *own);
    slices.insert(slices.end(), slice.begin(), slice.end());
  }
  EXPECT_THROW(announced.join(slices, 2, other), Error);
}

TEST(Exchange, RefusesWordsThatContradictEachOther) {
  const std::uint64_t word = word_of(0, 0, encode(node_with_order({0, 1})));
  EXPECT_THROW(Announced(std::vector<std::uint64_t>{word, 9}), Error);
  EXPECT_THROW(Announced(std::vector<std::uint64_t>{word, 0, 1}), Error);
  EXPECT_THROW(Announced(std::vector<std::uint64_t>{1, word}), Error);
  EXPECT_NE(word, ~std::uint64_t{0});
}

}  // namespace
}  // namespace loom::connect
