#include <gmock/gmock.h>

#include "base/format.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

NodePlans plans_of(const topo::System& system, Pattern pattern, int nodes = 1) {
  Request request;
  request.pattern = pattern;
  request.nodes = nodes;
  return find_plans(system, request);
}

TEST(FindChannels, ReachesAllNvlinkBandwidthBehindSwitches) {
  const topo::System system = machine("dgxh100.xml");
  const NodePlans plans = plans_of(system, Pattern::kRing);
  expect_valid(system, plans);
  EXPECT_NEAR(plans.total_gbps, 18 * 20.6, 1e-3);
  EXPECT_NEAR(plans.parts[0].bound_gbps, 18 * 20.6, 1e-2);
}

TEST(FindChannels, FindsTheRingsOfACubeMesh) {
  const topo::System system = machine("dgx1v.xml");
  const NodePlans plans = plans_of(system, Pattern::kRing);
  expect_valid(system, plans);
  EXPECT_EQ(plans.parts[0].type_intra, topo::PathType::kNvl);
  EXPECT_NEAR(plans.total_gbps, 120, 1e-3);
}

TEST(FindChannels, HasNoPlanWithoutPortsOrSwitches) {
  const auto absent = [](const char* file, Pattern pattern, int nodes) {
    const NodePlans plans = plans_of(machine(file), pattern, nodes);
    EXPECT_EQ(plans.parts[0].pattern, pattern);
    EXPECT_TRUE(plans.parts[0].channels.empty());
    return plans.parts[0].absent;
  };
  EXPECT_EQ(absent("dgx1v.xml", Pattern::kNvls, 1), "it has no NVSwitch");
  EXPECT_EQ(absent("dgxh100.xml", Pattern::kCollnetDirect, 1),
            "what the network reduces comes from several nodes");
  EXPECT_EQ(absent("dgxh100.xml", Pattern::kCollnetDirect, 2), "it has no port whose network reduces");
  const topo::System alone = topo::trimmed_to(machine("dgxh100.xml"), std::vector<int>{3});
  EXPECT_EQ(plans_of(alone, Pattern::kNvls).parts[0].absent, "a GPU alone has nothing to multicast to");
  EXPECT_EQ(plans_of(alone, Pattern::kBalancedTree).parts[0].pattern, Pattern::kTree);
}

/// GPUs of sm_`sm` with so many NVLinks to `target` each.
topo::System with_nvlinks(int gpus, int sm, int links, bool to_switch) {
  std::string text =
      "<system version='1'><cpu numaid='0' affinity='f' arch='x86_64' vendor='AuthenticAMD' familyid='143' "
      "modelid='1'>";
  for (int gpu = 0; gpu < gpus; ++gpu) {
    text += loom::format(
        "<pci busid='0000:0{}:00.0' class='0x030200' link_speed='32.0 GT/s PCIe' link_width='16'>"
        "<gpu dev='{}' sm='{}' rank='{}' gdr='1'>",
        gpu + 1, gpu, sm, gpu);
    for (int peer = 0; peer < (to_switch ? 1 : gpus); ++peer)
      if (to_switch || peer != gpu)
        text += loom::format("<nvlink target='0000:0{}:00.0' count='{}' tclass='{}'/>",
                             to_switch ? 9 : peer + 1, links, to_switch ? "0x068000" : "0x030200");
    text += "</gpu></pci>";
  }
  return topo::parse_nccl_xml(text + "</cpu></system>", "nvlinks.xml", topo::Model::kNccl).system;
}

/// 130 links of 40.1 GB/s are 5213; the memory of a GPU takes and gives 5000.
TEST(FindChannels, SharesTheWayToAGpusMemory) {
  const topo::System mesh = with_nvlinks(2, 100, 130, false), switched = with_nvlinks(2, 100, 130, true);
  for (const topo::System* system : {&mesh, &switched}) {
    const NodePlans rings = plans_of(*system, Pattern::kRing);
    expect_valid(*system, rings);
    EXPECT_NEAR(rings.total_gbps, 5000, 1e-2);
    EXPECT_NEAR(rings.parts[0].bound_gbps, 5000, 1e-2);
  }
  const NodePlans heads = plans_of(switched, Pattern::kNvls);
  expect_valid(switched, heads);
  EXPECT_NEAR(heads.total_gbps, 5000.0 * 2 / 3, 1e-2) << "each head reads twice";

  ChannelPlan plan = plans_of(mesh, Pattern::kRing).parts[0];
  for (Channel& channel : plan.channels) channel.intra_gbps = channel.inter_gbps *= 1.01;
  EXPECT_THAT(violations(topo::Paths(mesh, whole_rules()), plan),
              Contains(HasSubstr("its memory has 5000 GB/s")));
}

/// A hop takes what its first GPU's memory gives and what its last one's takes.
TEST(FindChannels, ChargesTheMemoriesAtBothEndsOfAHop) {
  const topo::System mesh = with_nvlinks(2, 100, 130, false);
  const topo::Paths paths(mesh, whole_rules());
  const HopTable table(paths, false, false, false);
  const Resources resources(mesh);
  std::vector<int> memories;
  for (const Load& load : table.loads(table.hop(0, 1)))
    if (const int number = table.resources()[static_cast<std::size_t>(load.resource)].number;
        !resources.is_link(number))
      memories.push_back(number);
  EXPECT_THAT(memories, ::testing::UnorderedElementsAre(resources.out_of_memory(mesh.gpus()[0]),
                                                        resources.into_memory(mesh.gpus()[1])));
}

TEST(FindChannels, HasNoMulticastWhereSwitchesDoNot) {
  EXPECT_EQ(plans_of(with_nvlinks(2, 80, 12, true), Pattern::kNvls).parts[0].absent,
            "rank 0's GPU is sm_80, and switches multicast from sm_90 on");
  EXPECT_FALSE(plans_of(with_nvlinks(2, 90, 18, true), Pattern::kNvls).parts[0].channels.empty());
}

/// The port is beside the first GPU and on another socket than the second one, which sends it a half.
TEST(FindChannels, CountsTheSecondGpusPathToThePortOfBalancedTrees) {
  const auto socket = [](int number, const std::string& inside) {
    return loom::format(
        "<cpu numaid='{}' affinity='{}' arch='x86_64' vendor='GenuineIntel' familyid='6' "
        "modelid='85'>{}</cpu>",
        number, number + 1, inside);
  };
  const auto slot = [](int bus, const char* kind, const std::string& inside) {
    return loom::format(
        "<pci busid='0000:0{}:00.0' class='{}' link_speed='16.0 GT/s PCIe' link_width='16'>{}</pci>", bus,
        kind, inside);
  };
  const std::string text =
      "<system version='1'>" +
      socket(
          0,
          slot(1, "0x030200", "<gpu dev='0' sm='80' rank='0' gdr='1'/>") +
              slot(2, "0x020700",
                   "<nic><net name='mlx5_0' dev='0' speed='100000' port='1' gdr='1' maxconn='64'/></nic>")) +
      socket(1, slot(3, "0x030200", "<gpu dev='1' sm='80' rank='1' gdr='1'/>")) + "</system>";
  const topo::System system = topo::parse_nccl_xml(text, "two.xml", topo::Model::kNccl).system;
  Request request;
  request.pattern = Pattern::kBalancedTree;
  request.nodes = 2;
  const topo::Paths paths(system, whole_rules());
  ChannelPlan plan = find_channels(paths, request);
  ASSERT_TRUE(violations(paths, plan).empty());
  ASSERT_EQ(paths.between(system.gpus()[0], system.of_kind(topo::NodeKind::kNet)[0]).type,
            topo::PathType::kPhb);
  EXPECT_EQ(plan.type_inter, topo::PathType::kSys);
  plan.type_inter = topo::PathType::kPhb;
  EXPECT_THAT(violations(paths, plan), Contains("Paths to ports are up to SYS, the plan says PHB."));
}

TEST(FindChannels, SplitsChannelsWithoutChangingTheTotal) {
  const topo::System system = machine("dgxh100.xml");
  const topo::Paths paths(system, whole_rules());
  Request request;
  request.most_gbps = 30;
  const ChannelPlan plan = find_channels(paths, request);
  EXPECT_TRUE(violations(paths, plan).empty());
  EXPECT_GE(plan.channels.size(), 13);
  EXPECT_NEAR(plan.total_gbps, 18 * 20.6, 1e-3);
  for (const Channel& channel : plan.channels) EXPECT_LE(channel.intra_gbps, 30 * (1 + 1e-6));
}

TEST(FindChannels, StaysWithinMaxChannels) {
  const topo::System system = machine("dgx1v.xml");
  const topo::Paths paths(system, whole_rules());
  Request request;
  for (request.max_channels = 1; request.max_channels <= 6; ++request.max_channels) {
    const ChannelPlan plan = find_channels(paths, request);
    EXPECT_LE(static_cast<int>(plan.channels.size()), request.max_channels);
    EXPECT_TRUE(violations(paths, plan).empty());
  }
}

TEST(FindChannels, StopsAtTheBudgetWithAValidPlan) {
  const topo::System system = machine("dgx1v.xml");
  const topo::Paths paths(system, whole_rules());
  Request request;
  request.max_steps = 1;
  const ChannelPlan plan = find_channels(paths, request);
  EXPECT_FALSE(plan.channels.empty());
  EXPECT_TRUE(violations(paths, plan).empty());
}

TEST(FindChannels, FindsTheSameTwice) {
  const topo::System system = machine("dgx1v.xml");
  const NodePlans a = plans_of(system, Pattern::kRing), b = plans_of(system, Pattern::kRing);
  ASSERT_EQ(a.parts[0].channels.size(), b.parts[0].channels.size());
  EXPECT_EQ(a.parts[0].steps, b.parts[0].steps);
  for (std::size_t i = 0; i < a.parts[0].channels.size(); ++i) {
    EXPECT_EQ(a.parts[0].channels[i].ranks, b.parts[0].channels[i].ranks);
    EXPECT_EQ(a.parts[0].channels[i].intra_gbps, b.parts[0].channels[i].intra_gbps);
  }
}

TEST(Validator, SeesWhatIsWrong) {
  const topo::System system = machine("dgx1v.xml");
  const topo::Paths paths(system, whole_rules());
  Request request;
  request.nodes = 2;
  const ChannelPlan good = find_channels(paths, request);
  ASSERT_TRUE(violations(paths, good).empty());
  const auto complaint = [&](const auto& spoil) {
    ChannelPlan plan = good;
    spoil(plan);
    const std::vector<std::string> found = violations(paths, plan);
    return found.empty() ? "" : found.front();
  };
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.channels[0].ranks[1] = p.channels[0].ranks[0]; }),
              HasSubstr("twice"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.channels[0].ranks.pop_back(); }), HasSubstr("leaves out"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.channels[0].nets.clear(); }), HasSubstr("ports"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.channels[0].inter_gbps *= 3; }), HasSubstr("channels take"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.total_gbps += 1; }), HasSubstr("in sum"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.bound_gbps /= 2; }), HasSubstr("bound"));
  for (const topo::PathType wrong : {topo::PathType::kLoc, topo::PathType::kSys}) {
    EXPECT_THAT(complaint([&](ChannelPlan& p) { p.type_intra = p.limits.type_intra = wrong; }),
                HasSubstr(wrong == topo::PathType::kLoc ? "allowed is up to LOC" : "the plan says SYS"));
    EXPECT_THAT(complaint([&](ChannelPlan& p) { p.type_intra = wrong; }), HasSubstr("Paths between GPUs"));
    EXPECT_THAT(complaint([&](ChannelPlan& p) { p.type_inter = wrong; }), HasSubstr("Paths to ports"));
  }
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.channels[0].intra_gbps = 0; }), HasSubstr("between GPUs"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { ++p.hops; }), HasSubstr("links"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.same_channels = !p.same_channels; }),
              HasSubstr("order of GPUs"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.limits.type_intra = topo::PathType::kLoc; }),
              HasSubstr("allowed is up to LOC"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.limits.type_inter = topo::PathType::kLoc; }),
              HasSubstr("allowed is up to LOC"));
  EXPECT_THAT(complaint([](ChannelPlan& p) { p.channels[0].nets[0] = -1; }), HasSubstr("a port is none"));
}

/// The first complaint about a plan of `pattern` on two nodes that is spoilt.
template <class Spoil>
std::string complaint_about(const std::string& file, Pattern pattern, int cross_nic, const Spoil& spoil) {
  const topo::System system = machine(file);
  const topo::Paths paths(system, whole_rules());
  Request request;
  request.pattern = pattern;
  request.nodes = 2;
  request.cross_nic = cross_nic;
  ChannelPlan plan = find_channels(paths, request);
  EXPECT_FALSE(plan.channels.empty());
  EXPECT_TRUE(violations(paths, plan).empty());
  spoil(plan);
  const std::vector<std::string> found = violations(paths, plan);
  return found.empty() ? "" : found.front();
}

TEST(Validator, KnowsTheHopsOfEveryPattern) {
  for (const Pattern pattern :
       {Pattern::kTree, Pattern::kSplitTree, Pattern::kBalancedTree, Pattern::kRing, Pattern::kNvls}) {
    SCOPED_TRACE(name_of(pattern));
    EXPECT_THAT(complaint_about("dgxh100.xml", pattern, 2, [](ChannelPlan& p) { ++p.hops; }),
                HasSubstr("links"));
    EXPECT_THAT(complaint_about("dgxh100.xml", pattern, 2,
                                [](ChannelPlan& p) {
                                  for (Channel& channel : p.channels)
                                    channel.inter_gbps *= 3, channel.intra_gbps *= 3;
                                }),
                HasSubstr("channels take"));
  }
}

TEST(Validator, RefusesHeadsOfGpusThatDoNotMulticast) {
  const topo::System system = machine("dgxh100.xml");
  Request request;
  request.pattern = Pattern::kNvls;
  const ChannelPlan plan = find_channels(topo::Paths(system, whole_rules()), request);
  ASSERT_TRUE(violations(topo::Paths(system, whole_rules()), plan).empty());
  std::vector<topo::Node> nodes = topo::source_nodes(system);
  std::get<topo::GpuInfo>(nodes[static_cast<std::size_t>(system.gpus()[3])].info).compute_capability = 80;
  const topo::System older = topo::build_system(std::move(nodes), {0}, topo::Model::kNccl).system;
  EXPECT_THAT(violations(topo::Paths(older, whole_rules()), plan),
              ::testing::ElementsAre("Rank 3's GPU is sm_80; switches multicast from sm_90 on."));
}

TEST(Validator, RefusesHeadsThatMulticastNothing) {
  EXPECT_THAT(
      complaint_about("dgxh100.xml", Pattern::kNvls, 2, [](ChannelPlan& p) { p.channels[0].intra_gbps = 0; }),
      HasSubstr("between GPUs"));
}

TEST(Validator, RefusesPortsOfHeadsAboveTwiceTheirMulticast) {
  EXPECT_THAT(
      complaint_about("dgxh100.xml", Pattern::kNvls, 2,
                      [](ChannelPlan& p) { p.channels[0].intra_gbps = p.channels[0].inter_gbps / 3; }),
      HasSubstr("at its ports twice that is of use"));
}

TEST(Validator, RefusesPortsThatMayNotPair) {
  const auto cross = [](ChannelPlan& p) { p.channels[0].nets[1] = p.channels.back().nets[0]; };
  EXPECT_THAT(complaint_about("dgxh100.xml", Pattern::kRing, 0, cross), HasSubstr("cross-NIC 0"));
  EXPECT_THAT(complaint_about("dgxh100.xml", Pattern::kRing, 2,
                              [&](ChannelPlan& p) { p.limits.cross_nic = 2, cross(p); }),
              HasSubstr("no partner"));
}

/// Two GPUs, the second one behind NVLink that only leads to it: the way back is PCI.
TEST(Validator, LooksAtTheWayBackOfTrees) {
  const char* const text =
      "<system version='1'><cpu numaid='0' affinity='f' arch='x86_64' vendor='AuthenticAMD' familyid='143' "
      "modelid='1'>"
      "<pci busid='0000:01:00.0' class='0x030200' link_speed='32.0 GT/s PCIe' link_width='16'>"
      "<gpu dev='0' sm='90' rank='0' gdr='1'><nvlink target='0000:02:00.0' count='4' "
      "tclass='0x030200'/></gpu></pci>"
      "<pci busid='0000:02:00.0' class='0x030200' link_speed='32.0 GT/s PCIe' link_width='16'>"
      "<gpu dev='1' sm='90' rank='1' gdr='1'/></pci></cpu></system>";
  const topo::System system = topo::parse_nccl_xml(text, "oneway.xml", topo::Model::kNccl).system;
  const topo::Paths paths(system, whole_rules());
  Request request;
  request.pattern = Pattern::kTree;
  ChannelPlan plan = find_channels(paths, request);
  ASSERT_TRUE(violations(paths, plan).empty());
  ASSERT_EQ(plan.type_intra, topo::PathType::kPhb);
  plan.type_intra = plan.limits.type_intra = topo::PathType::kNvl;
  const std::vector<std::string> found = violations(paths, plan);
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found.front(), HasSubstr("allowed is up to NVL"));
}

// ---- random machines

class RandomMachine : public ::testing::TestWithParam<unsigned> {};

TEST_P(RandomMachine, GetsValidPlansOfEveryPattern) {
  const topo::System system = random_machine(GetParam());
  for (const Pattern pattern : kAllPatterns)
    for (const int nodes : {1, 2}) {
      SCOPED_TRACE(std::string(name_of(pattern)) + (nodes == 2 ? ", two nodes" : ""));
      expect_valid(system, plans_of(system, pattern, nodes));
    }
}

TEST_P(RandomMachine, IsNeverBelowTheSimpleOrder) {
  const topo::System system = random_machine(GetParam());
  const topo::Paths paths(system, whole_rules());
  const ChannelPlan plan = find_channels(paths, {});
  EXPECT_GE(plan.total_gbps, simple_order_gbps(paths) * (1 - 1e-6));
  EXPECT_GE(plan.total_gbps, plan.bound_gbps * 0.95);
  EXPECT_FALSE(plan.in_order);
}

TEST_P(RandomMachine, GetsAsMuchWhateverItsGpusAreCalled) {
  const topo::System system = random_machine(GetParam());
  const topo::System other = renumbered(system, GetParam());
  Request request;
  request.max_channels = 64;
  const double a = find_channels(topo::Paths(system, whole_rules()), request).total_gbps;
  const double b = find_channels(topo::Paths(other, whole_rules()), request).total_gbps;
  EXPECT_NEAR(a, b, a * 1e-4);
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomMachine, seeds(60));

// ---- something is missing

class Degraded : public ::testing::TestWithParam<const char*> {};

TEST_P(Degraded, StillGetsAPlanWithoutAnyOneNode) {
  const topo::System system = machine(GetParam());
  const std::vector<topo::Node> nodes = topo::source_nodes(system);
  for (std::size_t missing = 0; missing < nodes.size(); ++missing) {
    if (nodes[missing].kind() != topo::NodeKind::kGpu && nodes[missing].kind() != topo::NodeKind::kNet)
      continue;
    std::vector<topo::Node> left;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (i == missing) continue;
      left.push_back(nodes[i]);
      if (left.back().parent > static_cast<topo::NodeId>(missing)) --left.back().parent;
    }
    const topo::System rest = topo::build_system(std::move(left), {0}, topo::Model::kNccl).system;
    for (const int count : {1, 2}) {
      const NodePlans plans = plans_of(rest, Pattern::kRing, count);
      expect_valid(rest, plans);
      EXPECT_TRUE(count == 2 || !plans.parts[0].in_order);
    }
  }
}

TEST_P(Degraded, StillGetsAPlanWithoutTheNvlinksOfOneGpu) {
  const topo::System system = machine(GetParam());
  for (const topo::NodeId gpu : system.gpus()) {
    std::vector<topo::Node> nodes = topo::source_nodes(system);
    std::get<topo::GpuInfo>(nodes[static_cast<std::size_t>(gpu)].info).nvlinks.clear();
    const topo::System rest = topo::build_system(std::move(nodes), {0}, topo::Model::kLoom).system;
    const NodePlans plans = plans_of(rest, Pattern::kRing);
    expect_valid(rest, plans);
    EXPECT_FALSE(plans.parts[0].in_order);
    EXPECT_GT(plans.total_gbps, 1);
  }
}
INSTANTIATE_TEST_SUITE_P(Machines, Degraded,
                         ::testing::Values("dgx1v.xml", "dgxh100.xml", "dgxa100.xml", "pcie-2socket.xml"),
                         [](const ::testing::TestParamInfo<const char*>& machine_file) {
                           std::string name = machine_file.param;
                           name.resize(name.find('.'));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace loom::search
