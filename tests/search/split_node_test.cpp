// split_node_test.cpp -- nodes whose parts talk through the network, and the graph files of such parts.
#include <gtest/gtest.h>

#include <set>

#include "base/format.hpp"
#include "search/graph_xml.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

/// Two trays of four GPUs, seven of them behind one NVSwitch; GPU `alone` has PCI alone, which is slow.
topo::System trays(std::size_t alone) {
  std::string text = "<system version='1'>";
  for (std::size_t tray = 0; tray < 2; ++tray) {
    text += loom::format(
        "<cpu host_hash='0x{}' numaid='0' affinity='f' arch='x86_64' vendor='AuthenticAMD' familyid='143' "
        "modelid='1'>",
        tray + 1);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t gpu = 4 * tray + i;
      const bool slow = gpu == alone;
      text += loom::format(
          "<pci busid='0000:{}0:00.0' class='0x060400' link_speed='32.0 GT/s PCIe' link_width='16'>"
          "<pci busid='0000:{}1:00.0' class='0x030200' link_speed='{} GT/s PCIe' link_width='16'>"
          "<gpu dev='{}' sm='90' rank='{}' gdr='1'>{}</gpu></pci>"
          "<pci busid='0000:{}2:00.0' class='0x020000' link_speed='32.0 GT/s PCIe' link_width='16'>"
          "<nic><net name='n{}' dev='{}' speed='200000' gdr='1'/></nic></pci></pci>",
          i + 1, i + 1, slow ? "16.0" : "32.0", i, gpu,
          slow ? "" : "<nvlink target='fffffff:ffff:ff' count='18' tclass='0x068000'/>", i + 1, i, i);
    }
    text += "</cpu>";
  }
  return topo::parse_nccl_xml(text + "</system>", "trays.xml", topo::Model::kNccl).system;
}

NodePlans ring_of(const topo::System& system, int nodes) {
  Request request;
  request.nodes = nodes;
  return find_plans(system, request);
}

TEST(SplitNode, SplitsNodesWhereverTheBadlyConnectedGpuIsListed) {
  for (const int nodes : {1, 2}) {
    SCOPED_TRACE(nodes);
    const NodePlans last = ring_of(trays(7), nodes);
    for (std::size_t alone = 0; alone < 8; ++alone) {
      const topo::System system = trays(alone);
      const NodePlans plans = ring_of(system, nodes);
      expect_valid(system, plans);
      EXPECT_EQ(plans.parts.size(), last.parts.size());
      EXPECT_NEAR(plans.total_gbps, last.total_gbps, 1e-3);
    }
  }
}

TEST(SplitNode, NeverSplitsANodeIntoPartsSlowerThanTheWhole) {
  for (std::size_t alone = 0; alone < 8; ++alone) {
    const topo::System system = trays(alone);
    const PathTables tables(system);
    ASSERT_NE(tables.whole(), nullptr);
    ASSERT_EQ(tables.parts().size(), 2);
    Request request;
    request.nodes = 2;
    EXPECT_GE(find_plans(tables, request).total_gbps,
              find_channels(tables.whole()->paths, request).total_gbps * (1 - 1e-6));
  }
}

/// A plan of a part alone so slow that the others have room beside it.
ChannelPlan beside_others(ChannelPlan plan) {
  for (Channel& channel : plan.channels) channel.intra_gbps /= 4, channel.inter_gbps /= 4;
  plan.total_gbps /= 4;
  return plan;
}

TEST(SplitNode, HasGraphFilesWithPartsInAnyOrderOrOnePartAlone) {
  const PathTables tables(trays(7));
  NodePlans parts;
  for (const auto& part : tables.parts()) {
    Request request;
    request.nodes = 2;
    parts.parts.insert(parts.parts.begin(), beside_others(find_channels(part->paths, request)));
    parts.ranks.insert(parts.ranks.begin(), part->ranks);
  }
  ASSERT_EQ(parts.ranks.size(), 2);
  for (const std::size_t count : {2U, 1U}) {
    SCOPED_TRACE(count);
    parts.parts.resize(count);
    parts.ranks.resize(count);
    const std::string text = to_graph_xml(tables, {&parts, 1});
    const std::vector<NodePlans> read = parse_graph_xml(text, "parts.xml", tables);
    ASSERT_EQ(read.size(), 1);
    EXPECT_EQ(read[0].ranks, parts.ranks);
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_TRUE(violations(part_of(tables, read[0], i).paths, read[0].parts[i]).empty());
    EXPECT_EQ(to_graph_xml(tables, read), text);
  }
}

/// Heads and trees of parts, one of which is a GPU alone.
TEST(SplitNode, HasGraphFilesOfPartsOfWhichOneIsAGpuAlone) {
  const PathTables tables(
      topo::read_nccl_xml(LOOM_SEARCH_DATA "/trays-of-two-one-without-nvlink.xml", topo::Model::kNccl)
          .system);
  ASSERT_EQ(tables.parts().size(), 2);
  std::vector<NodePlans> plans;
  for (const Pattern pattern :
       {Pattern::kTree, Pattern::kSplitTree, Pattern::kBalancedTree, Pattern::kNvls}) {
    NodePlans node;
    for (const auto& part : tables.parts()) {
      Request request;
      request.nodes = 2;
      request.pattern = part->ranks.size() == 1 ? Pattern::kTree : pattern;
      node.parts.push_back(beside_others(find_channels(part->paths, request)));
      node.ranks.push_back(part->ranks);
    }
    plans.push_back(std::move(node));
  }
  const std::string text = to_graph_xml(tables, plans);
  const std::vector<NodePlans> read = parse_graph_xml(text, "parts.xml", tables, 2);
  ASSERT_EQ(read.size(), plans.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].ranks, plans[i].ranks);
    for (std::size_t part = 0; part < 2; ++part)
      EXPECT_EQ(read[i].parts[part].pattern, plans[i].parts[part].pattern);
  }
  EXPECT_EQ(to_graph_xml(tables, read), text);
}

/// Parts would have heads and a tree: the node has no heads.
TEST(SplitNode, DoesNotStandInForAPatternThatAGpuDoesNotHave) {
  const topo::System system =
      topo::read_nccl_xml(LOOM_SEARCH_DATA "/trays-of-two-one-without-nvlink.xml", topo::Model::kNccl).system;
  const PathTables tables(system);
  for (const int nodes : {1, 2}) {
    Request request;
    request.pattern = Pattern::kNvls;
    request.nodes = nodes;
    const NodePlans plans = find_plans(tables, request);
    EXPECT_EQ(plans.total_gbps, 0);
    for (const ChannelPlan& plan : plans.parts) {
      EXPECT_TRUE(plan.channels.empty());
      EXPECT_EQ(plan.pattern, Pattern::kNvls);
      EXPECT_NE(plan.absent.find("does not hang from the NVSwitch"), std::string::npos) << plan.absent;
    }
  }
}

/// Two GPUs and two ports with attributes of their own.
topo::System with_two_ports(const std::string& first, const std::string& second) {
  std::string text =
      "<system version='1'><cpu numaid='0' affinity='f' arch='x86_64' vendor='AuthenticAMD' familyid='143' "
      "modelid='1'><pci busid='0000:01:00.0' class='0x060400' link_speed='32.0 GT/s PCIe' link_width='16'>";
  for (const int gpu : {0, 1})
    text += loom::format(
        "<pci busid='0000:0{}:00.0' class='0x030200' link_speed='32.0 GT/s PCIe' link_width='16'>"
        "<gpu dev='{}' sm='90' rank='{}' gdr='1'/></pci>",
        gpu + 2, gpu, gpu);
  text += loom::format(
      "<pci busid='0000:04:00.0' class='0x020000' link_speed='32.0 GT/s PCIe' link_width='16'><nic>"
      "<net name='n0' dev='0' gdr='1' {}/><net name='n1' dev='1' gdr='1' "
      "{}/></nic></pci></pci></cpu></system>",
      first, second);
  return topo::parse_nccl_xml(text, "ports.xml", topo::Model::kNccl).system;
}

double rings_over(const std::string& first, const std::string& second) {
  const topo::System system = with_two_ports(first, second);
  const NodePlans plans = ring_of(system, 2);
  expect_valid(system, plans);
  return plans.total_gbps;
}

TEST(SharedCable, IsAsFastAsTheSlowestOfItsPorts) {
  const std::string slow = "speed='100000' guid='0x5' port='1'", fast = "speed='200000' guid='0x5' port='1'";
  EXPECT_NEAR(rings_over(slow, fast), 12.5, 1e-3);
  EXPECT_NEAR(rings_over(fast, slow), 12.5, 1e-3);
}

TEST(SharedCable, IsOfOnePortNumber) {
  EXPECT_NEAR(rings_over("speed='100000' guid='0x5' port='1'", "speed='100000' guid='0x5' port='2'"), 25,
              1e-3);
}

TEST(Ports, PairOnOneRailOrWhereRailsAreNotKnownOnOneCable) {
  const auto pair = [](const char* first, const char* second, int cross_nic) {
    const topo::System system = with_two_ports(first, second);
    const topo::Paths paths(system, whole_rules());
    return HopTable(paths, true, false, false).may_pair(0, 1, cross_nic);
  };
  EXPECT_TRUE(pair("rail='1'", "rail='1' guid='0x5'", 0));
  EXPECT_FALSE(pair("rail='1' guid='0x5' port='1'", "rail='2' guid='0x5' port='1'", 0));
  EXPECT_TRUE(pair("rail='1' guid='0x5' port='1'", "rail='2' guid='0x5' port='1'", 1));
  EXPECT_TRUE(pair("rail='1' guid='0x5' port='1'", "guid='0x5' port='1'", 0));
  EXPECT_FALSE(pair("guid='0x5' port='1'", "guid='0x5' port='2'", 0));
  EXPECT_FALSE(pair("", "", 0));
  EXPECT_FALSE(pair("plane='0' rail='1'", "plane='1' rail='1'", 2));
}

/// Half of one step is not "as many as the GPUs need".
TEST(SplitNode, TakesFewStepsWhereFewAreGiven) {
  for (const char* file :
       {"parts-of-unequal-ports", "three-sockets-two-ports", "twelve-gpus-three-sockets"}) {
    SCOPED_TRACE(file);
    const PathTables tables(
        topo::read_nccl_xml(loom::format("{}/{}.xml", LOOM_SEARCH_DATA, file), topo::Model::kNccl).system);
    ASSERT_GT(tables.parts().size(), 1U);
    for (const Pattern pattern : kAllPatterns) {
      Request request;
      request.pattern = pattern;
      request.nodes = 2;
      request.max_steps = 1;
      const NodePlans plans = find_plans(tables, request);
      expect_valid(tables, plans);
      std::int64_t steps = 0;
      for (const ChannelPlan& plan : plans.parts) steps += plan.steps;
      EXPECT_LT(steps, 400'000) << name_of(pattern);
    }
  }
}

/// What has no amounts yet when the steps end has some all the same.
TEST(FewSteps, FindHeads) {
  const topo::System system = machine("dgxh100.xml");
  for (const int nodes : {1, 2}) {
    Request request;
    request.pattern = Pattern::kNvls;
    request.nodes = nodes;
    request.max_steps = 1;
    const NodePlans plans = find_plans(system, request);
    EXPECT_GT(plans.total_gbps, 20) << nodes << " nodes: " << plans.parts[0].absent;
    expect_valid(system, plans);
  }
}

/// Eight GPUs in two ways of listing: groups of them are the same.
TEST(SplitNode, HasTheSamePartsInWhateverOrderGpusAreListed) {
  int split = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    const topo::System system = random_machine(seed * 7);
    const auto parts_of = [&](const topo::System& listed) {
      std::set<std::set<int>> parts;  // of devices
      const PathTables tables(listed);
      for (const auto& part : tables.parts()) {
        std::set<int> devices;
        for (const int rank : part->ranks) devices.insert(listed.node(listed.gpu_of_rank(rank)).gpu().device);
        parts.insert(devices);
      }
      return parts;
    };
    const std::set<std::set<int>> parts = parts_of(system);
    split += parts.size() > 1 ? 1 : 0;
    for (const unsigned order : {1U, 2U, 3U})
      if (const topo::System other = renumbered(system, order);
          charges_by_name(other) == charges_by_name(system)) {
        EXPECT_EQ(parts_of(other), parts) << "seed " << seed * 7 << ", order " << order;
      }
  }
  EXPECT_GT(split, 10);
}

}  // namespace
}  // namespace loom::search
