// parts_test.cpp -- parts of a machine that share links, memories or cables: what they carry at the same
// time.
#include <gmock/gmock.h>

#include <algorithm>

#include "brute_force.hpp"
#include "search/graph_xml.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PathTables tables_of(const char* file) {
  return PathTables(
      topo::read_nccl_xml(loom::format("{}/{}.xml", LOOM_SEARCH_DATA, file), topo::Model::kNccl).system);
}

Request rings(int cross_nic = 2, int max_channels = 32) {
  Request request;
  request.nodes = 2;
  request.cross_nic = cross_nic;
  request.max_channels = max_channels;
  return request;
}

TEST(Parts, ShareACable) {
  const PathTables tables = tables_of("two-sockets-one-cable");
  const NodePlans plans = plan_parts(tables, rings());
  ASSERT_EQ(plans.parts.size(), 2);
  expect_valid(tables, plans);
  EXPECT_NEAR(plans.total_gbps, 12.5, 1e-3) << "25 GB/s come in over the cable of both";
  EXPECT_NEAR(plans.alone_gbps, 24, 1e-3);
  EXPECT_NEAR(plans.alone_bound_gbps, 24, 1e-3);
  for (const ChannelPlan& plan : plans.parts) {
    EXPECT_NEAR(plan.bound_gbps, 12.5, 1e-3);
    EXPECT_TRUE(plan.proof.together);
    EXPECT_GT(plan.steps, 0);
  }
}

TEST(Parts, CarryNoMoreThanTheBoundOfAllWithFewChannels) {
  const PathTables tables = tables_of("parts-of-unequal-ports");
  for (const auto& [channels, least] :
       {std::pair(1, 10), std::pair(2, 18), std::pair(3, 18), std::pair(32, 18)}) {
    SCOPED_TRACE(channels);
    const NodePlans plans = plan_parts(tables, rings(2, channels));
    ASSERT_EQ(plans.parts.size(), 2);
    expect_valid(tables, plans);
    EXPECT_GE(plans.total_gbps, least - 1e-3);
    for (const ChannelPlan& plan : plans.parts) {
      EXPECT_FALSE(plan.channels.empty());
      EXPECT_LE(plan.channels.size(), static_cast<std::size_t>(channels));
    }
  }
}

/// By exact orders, and by local search.
TEST(Parts, SwapPortsWhereRingsOfOnePortAreNotAll) {
  const PathTables tables = tables_of("parts-that-swap-ports");
  for (const int exact_gpus : {16, 2}) {
    SCOPED_TRACE(exact_gpus);
    Request request = rings();
    request.exact_gpus = exact_gpus;
    const NodePlans plans = plan_parts(tables, request);
    ASSERT_EQ(plans.parts.size(), 2);
    expect_valid(tables, plans);
    EXPECT_GT(plans.total_gbps, 21);
    EXPECT_EQ(std::max(plans.parts[0].limits.cross_nic, plans.parts[1].limits.cross_nic), 2);
    if (exact_gpus > 2) {
      EXPECT_NEAR(plans.total_gbps, plans.parts[0].bound_gbps, 1e-3);
    }
  }
}

/// Parts as each is planned alone.
NodePlans alone(const PathTables& tables, const Request& request) {
  NodePlans plans;
  plans.total_gbps = std::numeric_limits<double>::infinity();
  for (const auto& part : tables.parts()) {
    plans.parts.push_back(find_channels(part->paths, request));
    plans.ranks.push_back(part->ranks);
    plans.total_gbps = std::min(plans.total_gbps, plans.parts.back().total_gbps);
  }
  return plans;
}

TEST(Parts, AreNotReadFromAFileThatOverloadsWhatTheyShare) {
  for (const auto& [file, shared] : {std::pair("two-sockets-one-cable", "Ports of ASIC 0x5 receive 48 GB/s"),
                                     std::pair("parts-of-unequal-ports", "parts together take")}) {
    SCOPED_TRACE(file);
    const PathTables tables = tables_of(file);
    const NodePlans plans = alone(tables, rings());
    EXPECT_THAT(violations(tables, plans), Contains(HasSubstr(shared)));
    const std::string text = to_graph_xml(tables, {&plans, 1});
    try {
      parse_graph_xml(text, "parts.xml", tables, 2);
      ADD_FAILURE() << "it is read";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("parts.xml:"));
      EXPECT_THAT(error.what(), HasSubstr("do not fit this machine at the same time"));
      EXPECT_THAT(error.what(), HasSubstr(shared));
    }
  }
}

TEST(Parts, OfAFileHaveTheBoundOfAllOrTheirOwn) {
  const PathTables tables = tables_of("two-sockets-one-cable");
  NodePlans plans = plan_parts(tables, rings());
  for (Channel& channel : plans.parts[0].channels) channel.inter_gbps *= 0.5, channel.intra_gbps *= 0.5;
  for (Channel& channel : plans.parts[1].channels) channel.inter_gbps *= 1.5, channel.intra_gbps *= 1.5;
  const std::string text = to_graph_xml(tables, {&plans, 1});
  std::vector<NodePlans> read = parse_graph_xml(text, "parts.xml", tables, 2);
  ASSERT_EQ(read.size(), 1);
  prove_bounds(tables, rings(), read[0]);
  EXPECT_NEAR(read[0].parts[0].bound_gbps, 12.5, 1e-3);
  EXPECT_NEAR(read[0].parts[1].total_gbps, 18.75, 1e-3);
  EXPECT_NEAR(read[0].parts[1].bound_gbps, 24, 1e-3) << "while the other carries less";
  expect_valid(tables, read[0]);
}

TEST(Parts, OfAFileThatContradictTheBoundAreFound) {
  const PathTables tables = tables_of("two-sockets-one-cable");
  NodePlans plans = alone(tables, rings());  // as a reader without overloads() would take them
  prove_bounds(tables, rings(), plans);
  EXPECT_THAT(violations(tables, plans), Contains(HasSubstr("above the bound of 12.5")));
}

TEST(Parts, AreCheckedAtTheSameTime) {
  const PathTables tables = tables_of("parts-of-unequal-ports");
  const NodePlans plans = plan_parts(tables, rings());
  ASSERT_THAT(violations(tables, plans), IsEmpty());
  NodePlans other = plans;
  other.total_gbps *= 1.01;
  EXPECT_THAT(violations(tables, other), Contains(HasSubstr("The slowest part carries")));
  other = plans;
  other.parts[1].bound_gbps = plans.total_gbps / 2;
  EXPECT_THAT(violations(tables, other), Contains(HasSubstr("at the same time, above the bound")));
  EXPECT_THAT(violations(tables, other), Contains(HasSubstr("part 2: ")));
  other = plans;
  other.parts[1] = plans.parts[0];
  other.ranks[1] = plans.ranks[0];
  EXPECT_THAT(violations(tables, other), Contains(HasSubstr("is in two parts")));
}

// ---- random machines in parts

class RandomParts : public ::testing::TestWithParam<unsigned> {};

constexpr std::size_t kMostGpus = 4;  // of a part

/// Of every pattern, with every cross-NIC.
TEST_P(RandomParts, CarryTheMostThatAnyChannelsDo) {
  const PathTables tables(random_machine_in_parts(GetParam()));
  for (const auto& part : tables.parts())
    if (part->ranks.size() > kMostGpus) GTEST_SKIP() << "too many orders to pack them all";
  for (const Pattern pattern : kAllPatterns)
    for (const int cross_nic : {0, 1, 2}) {
      if (cross_nic > 0 && (pattern == Pattern::kTree || is_head_pattern(pattern))) continue;
      SCOPED_TRACE(loom::format("{}, cross-NIC {}", name_of(pattern), cross_nic));
      Request request = rings(cross_nic, 64);
      request.pattern = pattern;
      const NodePlans plans = plan_parts(tables, request);
      expect_valid(tables, plans);
      if (plans.parts.empty() || !plans.parts[0].proof.together) continue;
      std::vector<const topo::Paths*> paths;
      std::vector<Pattern> patterns;
      for (std::size_t i = 0; i < plans.parts.size(); ++i) {
        paths.push_back(&part_of(tables, plans, i).paths);
        patterns.push_back(plans.parts[i].pattern);
      }
      const double most = most_gbps(paths, patterns, true, cross_nic);
      EXPECT_NEAR(plans.total_gbps, most, 1e-3 * most);
      EXPECT_NEAR(plans.parts[0].bound_gbps, most, 1e-3 * most);
    }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomParts, seeds(40));

/// Between GPUs chains are up to twice as fast as the ports ask for: only links stop them, whatever other
/// parts take.
TEST_P(RandomParts, AreAsFastInsideAsLinksAllow) {
  const PathTables tables(random_machine_in_parts(GetParam()));
  for (const Pattern pattern : {Pattern::kTree, Pattern::kSplitTree, Pattern::kBalancedTree}) {
    Request request = rings();
    request.pattern = pattern;
    const NodePlans plans = plan_parts(tables, request);
    for (std::size_t i = 0; i < plans.parts.size(); ++i) {
      if (!plans.parts[i].proof.together || plans.ranks[i].size() < 2) continue;
      NodePlans faster = plans;
      for (Channel& channel : faster.parts[i].channels) channel.intra_gbps *= 1.02;
      const Channel& first = faster.parts[i].channels.at(0);
      EXPECT_TRUE(first.intra_gbps > 2 * first.inter_gbps || !violations(tables, faster).empty())
          << name_of(pattern) << ", part " << i;
    }
  }
}

TEST(RandomPartsOfAll, ShareLinksOften) {
  int together = 0;
  for (unsigned seed = 1; seed < 41; ++seed) {
    const NodePlans plans = plan_parts(PathTables(random_machine_in_parts(seed)), rings());
    together += !plans.parts.empty() && plans.parts[0].proof.together ? 1 : 0;
  }
  EXPECT_GE(together, 8);
}

}  // namespace
}  // namespace loom::search
