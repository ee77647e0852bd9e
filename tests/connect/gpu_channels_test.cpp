#include "connect/gpu_channels.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include "base/error.hpp"
#include "base/format.hpp"
#include "connect/checks.hpp"
#include "connect/node_plans.hpp"
#include "search/forest.hpp"
#include "search/graph_xml.hpp"
#include "tools/offline_job.hpp"
#include "topo/bandwidth.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom::connect {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using topo::MachineOfRanks;
using topo::PathType;
using topo::RankGpu;

std::vector<topo::BusId> bus_ids_of(const topo::System& system) {
  std::vector<topo::BusId> ids;
  for (const topo::NodeId gpu : system.gpus()) ids.push_back(system.node(gpu).pci->bus_id);
  return ids;
}

/// gpu_of[r] is the GPU of rank r, in the machine's order.
MachineOfRanks with_ranks(const topo::System& system, const std::vector<int>& gpu_of) {
  const std::vector<topo::BusId> ids = bus_ids_of(system);
  std::vector<RankGpu> gpus;
  for (std::size_t rank = 0; rank < gpu_of.size(); ++rank)
    gpus.push_back({.rank = static_cast<int>(rank), .bus_id = ids[static_cast<std::size_t>(gpu_of[rank])]});
  return topo::with_rank_gpus(system, gpus);
}

std::vector<int> in_turn(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

double sum_of(const auto& channels) {
  double sum = 0;
  for (const auto& channel : channels) sum += channel.gbps;
  return sum;
}

/// Whatever the machine and its ranks: all ranks in every ring and tree, and no more than there is.
void expect_sound(const GpuChannels& found) {
  EXPECT_THAT(violations(found.job), IsEmpty());
  ASSERT_THAT(found.rings, Not(IsEmpty()));
  ASSERT_THAT(found.trees, Not(IsEmpty()));
  for (const GpuChannels::RingChannel& ring : found.rings) {
    std::vector<int> order = ring.order;
    std::ranges::sort(order);
    EXPECT_EQ(order, in_turn(found.ranks));
  }
  for (const GpuChannels::TreeChannel& channel : found.trees)
    for (const std::vector<TreeLinks>& tree : channel.trees) {
      ASSERT_EQ(tree.size(), static_cast<std::size_t>(found.ranks));
      int roots = 0;
      for (int rank = 0; rank < found.ranks; ++rank) {
        const TreeLinks& mine = tree[static_cast<std::size_t>(rank)];
        roots += mine.parent == kNobody ? 1 : 0;
        for (int i = 0; i < mine.child_count; ++i)
          EXPECT_EQ(tree[static_cast<std::size_t>(mine.children[static_cast<std::size_t>(i)])].parent, rank);
      }
      EXPECT_EQ(roots, 1);
    }
  EXPECT_NEAR(sum_of(found.rings), found.ring.gbps, 1e-4 * found.ring.gbps);
  EXPECT_NEAR(sum_of(found.trees), found.tree.gbps, 1e-4 * found.tree.gbps);
  EXPECT_LE(found.ring.gbps, found.ring.bound_gbps * (1 + 1e-5));
  EXPECT_LE(found.tree.gbps, found.tree.bound_gbps * (1 + 1e-5));
}

/// What search says of a pattern on the machine, without its network.
double searched(const MachineOfRanks& machine, search::Pattern pattern) {
  search::Request request;
  request.pattern = pattern;
  request.max_channels = GpuChannelRequest{}.max_channels;
  request.most_gbps = GpuChannelRequest{}.most_gbps;
  topo::PathRules rules;
  rules.network_inside_host = false;
  return search::find_plans(machine.system, request, rules).total_gbps;
}

class EveryMachine : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const char* folder : {LOOM_TEST_DATA, LOOM_SHARED_TOPOLOGIES})
      if (const auto path = std::filesystem::path(folder) / (GetParam() + ".xml");
          std::filesystem::exists(path)) {
        system = topo::read_system(path.string()).system;
        file = path.string();
      }
    if (system.gpus().empty()) GTEST_SKIP() << GetParam() << ": the file is not there";
    gpus = static_cast<int>(system.gpus().size());
  }
  std::vector<int> shuffled(unsigned seed) const {
    std::vector<int> gpu_of = in_turn(gpus);
    std::mt19937 random(seed);
    for (std::size_t i = gpu_of.size(); i > 1; --i) std::swap(gpu_of[i - 1], gpu_of[random() % i]);
    return gpu_of;
  }
  topo::System system;
  std::string file;
  int gpus = 0;
};

TEST_P(EveryMachine, RunsWhatSearchFinds) {
  const MachineOfRanks machine = with_ranks(system, in_turn(gpus));
  const GpuChannels found = gpu_channels(machine);
  expect_sound(found);
  EXPECT_THAT(found.notes, IsEmpty());
  EXPECT_LE(found.rings.size(), 16);
  EXPECT_DOUBLE_EQ(found.ring.gbps, searched(machine, search::Pattern::kRing));
  EXPECT_DOUBLE_EQ(found.tree.gbps, searched(machine, search::Pattern::kTree));
  for (const auto pattern : {search::Pattern::kSplitTree, search::Pattern::kBalancedTree})
    EXPECT_LE(searched(machine, pattern), found.tree.gbps * (1 + 1e-9)) << "one host has plain trees";
}

TEST_P(EveryMachine, CarriesAsMuchWhateverItsRanksAreCalled) {
  const GpuChannels in_order = gpu_channels(with_ranks(system, in_turn(gpus)));
  for (const unsigned seed : {1U, 2U}) {
    const std::vector<int> gpu_of = shuffled(seed);
    const GpuChannels found = gpu_channels(with_ranks(system, gpu_of));
    expect_sound(found);
    EXPECT_NEAR(found.ring.gbps, in_order.ring.gbps, 1e-6 * in_order.ring.gbps);
    EXPECT_NEAR(found.tree.gbps, in_order.tree.gbps, 1e-6 * in_order.tree.gbps);
  }
}

TEST_P(EveryMachine, MaySendOnlySomeOfItsGpus) {
  std::vector<int> gpu_of = shuffled(3);
  gpu_of.resize(static_cast<std::size_t>(gpus + 1) / 2);
  const GpuChannels found = gpu_channels(with_ranks(system, gpu_of));
  expect_sound(found);
  EXPECT_EQ(found.gpus, (gpus + 1) / 2);
}

TEST_P(EveryMachine, PutsRanksOfOneGpuOneAfterTheOther) {
  std::vector<int> gpu_of = shuffled(4);
  const std::vector<int> once = gpu_of;
  gpu_of.insert(gpu_of.end(), once.rbegin(), once.rend());
  const GpuChannels found = gpu_channels(with_ranks(system, gpu_of));
  expect_sound(found);
  EXPECT_EQ(found.ranks, 2 * gpus);
  EXPECT_EQ(found.gpus, gpus);
  for (const GpuChannels::RingChannel& ring : found.rings)
    for (std::size_t at = 0; at < ring.order.size(); at += 2) {
      EXPECT_LT(ring.order[at], ring.order[at + 1]);
      EXPECT_EQ(found.between(ring.order[at], ring.order[at + 1]), PathType::kLoc);
      EXPECT_EQ(gpu_of[static_cast<std::size_t>(ring.order[at])],
                gpu_of[static_cast<std::size_t>(ring.order[at + 1])]);
    }
}

TEST_P(EveryMachine, IsDumpedAsItIsReadAgain) {
  const MachineOfRanks machine = with_ranks(system, shuffled(5));
  const GpuChannels found = gpu_channels(machine);
  const GraphFile graph{to_graph_xml(machine, found), "dumped"};
  const GpuChannels again = gpu_channels(machine, {}, &graph);
  expect_sound(again);
  ASSERT_EQ(again.rings.size(), found.rings.size());
  for (std::size_t ring = 0; ring < found.rings.size(); ++ring)
    EXPECT_EQ(again.rings[ring].order, found.rings[ring].order);
  EXPECT_NEAR(again.ring.bound_gbps, found.ring.bound_gbps, 1e-6 * found.ring.bound_gbps);
  EXPECT_EQ(again.summary, found.summary);
}

TEST_P(EveryMachine, HasThePlansOfANodeThatIsAlone) {
  const MachineOfRanks machine = with_ranks(system, in_turn(gpus));
  const GpuChannels found = gpu_channels(machine);
  const std::vector<NodePlan> plans = plan_nodes(
      machine.system,
      {.max_channels = GpuChannelRequest{}.max_channels, .most_gbps = GpuChannelRequest{}.most_gbps});
  ASSERT_EQ(plans.size(), 1);
  const NodeSummary shown = summarize(machine.system, plans[0].ranks, plans[0].plans);
  for (const Family family : {Family::kRing, Family::kTree})
    EXPECT_EQ(shown.family(family), found.job.summary(0).family(family));
}

/// What `loom connect --nodes 1` prints, option by option as the plugin asks.
TEST_P(EveryMachine, IsWhatLoomConnectShows) {
  const GpuChannels found = gpu_channels(with_ranks(system, in_turn(gpus)));
  tools::JobRequest request;
  request.machines = {{file, 1}};
  const tools::OfflineJob shown = tools::build_job(request);
  EXPECT_FALSE(shown.is_offline);
  EXPECT_THAT(violations(shown.job), IsEmpty());
  ASSERT_EQ(shown.job.ranks(), found.ranks);
  const Agreed &rings = shown.job.agreed(Family::kRing), &trees = shown.job.agreed(Family::kTree);
  ASSERT_EQ(rings.channels, static_cast<int>(found.rings.size()));
  ASSERT_EQ(trees.channels, static_cast<int>(found.trees.size()));
  for (std::size_t c = 0; c < found.rings.size(); ++c) {
    EXPECT_EQ(ring_order(shown.job, static_cast<int>(c), found.rings[c].order.front()), found.rings[c].order);
    EXPECT_EQ(rings.inter_gbps[c], found.rings[c].gbps);
  }
  for (std::size_t c = 0; c < found.trees.size(); ++c) {
    EXPECT_EQ(trees.inter_gbps[c], found.trees[c].gbps);
    for (int rank = 0; rank < found.ranks; ++rank)
      for (std::size_t t = 0; t < 2; ++t)
        EXPECT_EQ(tree_of(shown.job, static_cast<int>(c), rank).trees[t].parent,
                  found.trees[c].trees[t][static_cast<std::size_t>(rank)].parent);
  }
}

INSTANTIATE_TEST_SUITE_P(GpuChannels, EveryMachine,
                         ::testing::Values("dgx1v", "dgxa100", "dgxh100", "pcie-2socket", "gh200",
                                           "alps-4xGH200", "dgx2-16xV100-hwloc", "16xPCIe-2socket-cascade",
                                           "8x3090-skl-plx", "gb200-tray-4x", "perlmutter-4xA100"),
                         [](const auto& machine_name) {
                           std::string name = machine_name.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

topo::System machine(const char* name) {
  return topo::read_system(std::string(LOOM_TEST_DATA "/") + name).system;
}

TEST(GpuChannels, OfOneGpuHaveItsRanksInOrder) {
  const GpuChannels found = gpu_channels(with_ranks(machine("dgxh100.xml"), {5, 5, 5}));
  expect_sound(found);
  for (const GpuChannels::RingChannel& ring : found.rings) EXPECT_THAT(ring.order, ElementsAre(0, 1, 2));
  EXPECT_EQ(found.between(0, 2), PathType::kLoc);
  // All data of a ring passes the GPU's memory once for each rank.
  EXPECT_NEAR(found.ring.gbps, 5000.0 / 3, 0.1);
  EXPECT_THAT(found.summary, HasSubstr("3 ranks on 1 GPU; "));
}

TEST(GpuChannels, SayInALineWhatTheyAre) {
  EXPECT_EQ(gpu_channels(with_ranks(machine("dgxh100.xml"), in_turn(8))).summary.substr(0, 56),
            "8 GPUs, NVSwitch; 16 rings, 370.8 of at most 370.8 GB/s;");
  EXPECT_THAT(gpu_channels(with_ranks(machine("dgx1v.xml"), in_turn(8))).summary,
              HasSubstr("8 GPUs, NVLink; 12 rings, 120 of at most 120 GB/s; "));
  EXPECT_THAT(gpu_channels(with_ranks(machine("pcie-2socket.xml"), {0, 4, 0})).summary,
              HasSubstr("3 ranks on 2 GPUs, PCIe and links between NUMA nodes; "));
}

TEST(GpuChannels, TellHowGpusReachEachOther) {
  const GpuChannels dgx = gpu_channels(with_ranks(machine("dgx1v.xml"), in_turn(8)));
  EXPECT_EQ(dgx.between(0, 0), PathType::kLoc);
  EXPECT_EQ(dgx.between(0, 1), PathType::kNvl);
  EXPECT_EQ(dgx.between(0, 5), PathType::kSys) << "no GPU passes on what another one stores";
  const GpuChannels pcie = gpu_channels(with_ranks(machine("pcie-2socket.xml"), in_turn(8)));
  EXPECT_GT(pcie.between(0, 7), PathType::kPhb);
}

TEST(GpuChannels, GoWhereDriversAllowIt) {
  const topo::System dgx = machine("dgxa100.xml");
  const std::vector<topo::BusId> ids = bus_ids_of(dgx);
  std::vector<RankGpu> gpus;
  for (int rank = 0; rank < 4; ++rank)
    gpus.push_back({.rank = rank, .bus_id = ids[static_cast<std::size_t>(rank)]});
  gpus[0].denied = {ids[1]};
  gpus[1].denied = {ids[0]};
  const GpuChannels found = gpu_channels(topo::with_rank_gpus(dgx, gpus));
  expect_sound(found);
  EXPECT_GT(found.between(0, 1), PathType::kPxb);
  for (const GpuChannels::RingChannel& ring : found.rings)
    for (std::size_t at = 0; at < 4; ++at)
      EXPECT_NE(ring.order[at] + ring.order[(at + 1) % 4], 1) << "0 and 1 are neighbours";
}

TEST(GpuChannels, AreOneRingInOrderWhereNothingFits) {
  const GpuChannels found = gpu_channels_in_order(4, 3, "Nobody knows this machine.");
  EXPECT_THAT(violations(found.job), IsEmpty());
  ASSERT_EQ(found.rings.size(), 1);
  EXPECT_THAT(found.rings[0].order, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(found.trees[0].trees[1][2].parent, 1);
  EXPECT_EQ(found.between(0, 1), PathType::kDis);
  EXPECT_EQ(found.between(1, 1), PathType::kLoc);
  EXPECT_THAT(found.notes, ElementsAre("Nobody knows this machine."));
  EXPECT_EQ(found.summary, "4 ranks on 3 GPUs, ranks in order; 1 ring; 1 tree");
}

TEST(GpuChannels, OfARankAloneAreSound) {
  expect_sound(gpu_channels(with_ranks(machine("gh200.xml"), {0})));
  EXPECT_THAT(violations(gpu_channels_in_order(1, 1, "Why not.").job), IsEmpty());
}

TEST(GraphOfGpus, MayHaveRingsAlone) {
  const MachineOfRanks four = with_ranks(machine("dgxa100.xml"), {0, 1, 2, 3});
  const GraphFile graph{
      "<graphs version='1'><graph id='0' pattern='4' crossnic='0' nchannels='1' speedintra='10' "
      "speedinter='10' "
      "latencyinter='0' typeintra='NVL' typeinter='LOC' samechannels='1'><channel><gpu rank='2'/><gpu "
      "rank='0'/>"
      "<gpu rank='3'/><gpu rank='1'/></channel></graph></graphs>",
      "ring.xml"};
  const GpuChannels found = gpu_channels(four, {}, &graph);
  expect_sound(found);
  ASSERT_EQ(found.rings.size(), 1);
  EXPECT_THAT(found.rings[0].order, ElementsAre(2, 0, 3, 1));
  EXPECT_EQ(found.ring.gbps, 10);
  EXPECT_EQ(found.ring.bound_gbps, 240);
  EXPECT_DOUBLE_EQ(found.tree.gbps, searched(four, search::Pattern::kTree));
}

TEST(GraphOfGpus, ThatDoesNotFitIsRefused) {
  const topo::System dgx = machine("dgxa100.xml");
  const MachineOfRanks all = with_ranks(dgx, in_turn(8)), four = with_ranks(dgx, {0, 1, 2, 3});
  const GraphFile graph{to_graph_xml(all, gpu_channels(all)), "eight.xml"};
  EXPECT_THAT([&] { gpu_channels(four, {}, &graph); },
              ::testing::ThrowsMessage<Error>(HasSubstr("eight.xml:")));
  EXPECT_THAT(
      [&] { gpu_channels(all, {.max_channels = 4}, &graph); },
      ::testing::ThrowsMessage<Error>(HasSubstr("eight.xml: it has 16 channels, of which GPUs run 4")));
}

/// What each rank gets through to all others at once. On a DGX-1V 12 pairs in each direction have but the
/// link between the sockets, of 6 GB/s.
TEST(GpuChannels, KnowWhatAnExchangeBetweenAllRanksGets) {
  const auto exchange = [](const char* name, const std::vector<int>& gpu_of) {
    return gpu_channels(with_ranks(machine(name), gpu_of)).exchange_gbps;
  };
  EXPECT_NEAR(exchange("dgxh100.xml", in_turn(8)), 370.8, 0.1);
  EXPECT_NEAR(exchange("dgxh100.xml", {3, 0}), 370.8, 0.1);
  EXPECT_NEAR(exchange("dgx1v.xml", in_turn(8)), 7 * 6.0 / 12, 0.1);
  EXPECT_NEAR(exchange("dgx1v.xml", in_turn(4)), 3 * 20, 0.1);
  // From three ranks of one GPU to two of another one, six pairs by its NVLinks.
  EXPECT_NEAR(exchange("dgxh100.xml", {0, 0, 0, 1, 1}), 370.8 / 6 * 4, 0.1);
  EXPECT_EQ(exchange("dgxh100.xml", {5}), 0);
}

/// As fast as any trees could over NVSwitches, and nearly over PCIe, where each socket's half crosses once,
/// each way, and what passes an Intel CPU is charged more.
TEST(GpuChannels, GatherAlongChainsAsFastAsAForest) {
  const auto gather = [](const char* name, const std::vector<int>& gpu_of) {
    return gpu_channels(with_ranks(machine(name), gpu_of)).all_gather.trees;
  };
  const auto forest = [](const char* name) {
    topo::PathRules rules;
    rules.network_inside_host = false;
    const topo::System system = machine(name);
    return search::plan_forest(topo::Paths(system, rules)).gbps;
  };
  EXPECT_NEAR(gather("dgxh100.xml", in_turn(8)), forest("dgxh100.xml"), 0.1);
  EXPECT_LE(gather("pcie-2socket.xml", in_turn(8)), forest("pcie-2socket.xml") * (1 + 1e-6));
  EXPECT_GE(gather("pcie-2socket.xml", in_turn(8)), forest("pcie-2socket.xml") * 0.97);
  // A chain brings what two of three ranks have over the NVLinks to the third, and one third back.
  EXPECT_NEAR(gather("dgxh100.xml", {0, 0, 1}), 370.8 * 3 / 2, 0.1);
}

/// Rings bring each of 8 GPUs 7 parts.
TEST(GpuChannels, SayWhatAllGathersGet) {
  const GpuChannels pcie = gpu_channels(with_ranks(machine("pcie-2socket.xml"), in_turn(8)));
  EXPECT_DOUBLE_EQ(pcie.all_gather.rings, pcie.ring.gbps * 8 / 7);
  EXPECT_THAT(pcie.summary, EndsWith(loom::format("; rings all-gather {:.5g} GB/s, trees {:.5g}",
                                                  pcie.all_gather.rings, pcie.all_gather.trees)));
  const GpuChannels alone = gpu_channels(with_ranks(machine("dgxh100.xml"), {5}));
  EXPECT_EQ(alone.all_gather.rings, 0);
  EXPECT_THAT(alone.summary, Not(HasSubstr("all-gather")));
  EXPECT_THAT(gpu_channels_in_order(8, 8, "").summary, Not(HasSubstr("all-gather")));
}

/// GPUs 0 and 5 of a DGX-1V have NVLinks through GPU 4 or 1, which nobody passes data on by.
TEST(GpuChannels, DoNotCountOnGpusThatPassDataOn) {
  const GpuChannels pair = gpu_channels(with_ranks(machine("dgx1v.xml"), {0, 5}));
  EXPECT_THAT(pair.summary, HasSubstr("PCIe and links between NUMA nodes"));
  EXPECT_LE(pair.ring.gbps, 12);
}

}  // namespace
}  // namespace loom::connect
