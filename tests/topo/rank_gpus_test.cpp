#include "topo/rank_gpus.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "test_data.hpp"
#include "topo/check.hpp"
#include "topo/paths.hpp"

namespace loom::topo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

System machine(const std::string& name) {
  return read_system(data_file(name)).system;
}

/// Of all GPUs of a machine, in its order.
std::vector<BusId> bus_ids_of(const System& system) {
  std::vector<BusId> ids;
  for (const NodeId gpu : system.of_kind(NodeKind::kGpu)) ids.push_back(system.node(gpu).pci->bus_id);
  return ids;
}

std::array<std::byte, 16> uuid(int number) {
  std::array<std::byte, 16> uuid{};
  uuid[0] = static_cast<std::byte>(number);
  return uuid;
}

RankGpu gpu_for(int rank, const BusId& bus_id, int number = 0, int capability = 0) {
  return {.rank = rank, .bus_id = bus_id, .uuid = uuid(number), .compute_capability = capability};
}

NodeId node_at(const System& system, const BusId& bus_id) {
  for (const NodeId gpu : system.of_kind(NodeKind::kGpu))
    if (system.node(gpu).pci && system.node(gpu).pci->bus_id == bus_id) return gpu;
  return kNoNode;
}

/// The machine without one of its GPUs.
System without(const System& system, const BusId& bus_id) {
  Draft draft{.nodes = source_nodes(system), .hosts = {0}, .notes = {}};
  std::vector<bool> gone;
  for (const Node& node : draft.nodes)
    gone.push_back(node.kind() == NodeKind::kGpu && node.pci->bus_id == bus_id);
  erase_leaves(draft, gone);
  return build(std::move(draft), system.model()).system;
}

TEST(RankGpus, GiveEachGpuTheRankThatHasItAndOthersNone) {
  const System dgx = machine("dgxh100.xml");
  const std::vector<BusId> ids = bus_ids_of(dgx);
  const MachineOfRanks found =
      with_rank_gpus(dgx, std::vector{gpu_for(0, ids[6]), gpu_for(1, ids[2]), gpu_for(2, ids[4])});
  EXPECT_THAT(found.notes, IsEmpty());
  EXPECT_THAT(check(found.system), IsEmpty());
  ASSERT_EQ(found.system.gpus().size(), 3);
  EXPECT_EQ(found.system.gpu_of_rank(0), node_at(found.system, ids[6]));
  EXPECT_EQ(found.system.gpu_of_rank(1), node_at(found.system, ids[2]));
  EXPECT_EQ(found.system.of_kind(NodeKind::kGpu).size(), 8);
  EXPECT_THAT(found.sharers, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(RankGpus, TellWhetherNetworkCardsReachThemWhereNobodyHasDescribedTheMachine) {
  const System dgx = machine("dgxh100.xml");
  const NodeId id = dgx.gpus().front();
  const bool guessed = dgx.node(id).gpu().gpu_direct;
  RankGpu gpu = gpu_for(0, dgx.node(id).pci->bus_id);
  const auto gpu_direct = [&] {
    const System system = with_rank_gpus(dgx, std::vector{gpu}).system;
    return system.node(system.gpus().front()).gpu().gpu_direct;
  };
  EXPECT_EQ(gpu_direct(), guessed);
  gpu.gpu_direct = !guessed;
  EXPECT_EQ(gpu_direct(), !guessed);
}

TEST(RankGpus, AreTheMachineItselfWhereRanksAreItsOwn) {
  for (const char* name : {"dgx1v.xml", "dgxa100.xml", "dgxh100.xml", "pcie-2socket.xml", "gh200.xml"}) {
    const System system = machine(name);
    std::vector<RankGpu> gpus;
    for (const NodeId gpu : system.gpus())
      gpus.push_back({.rank = system.node(gpu).gpu().rank, .bus_id = system.node(gpu).pci->bus_id});
    EXPECT_EQ(with_rank_gpus(system, gpus).system, system) << name;
  }
}

TEST(RankGpus, ThatAreSharedCarryTheLowestOfTheirRanks) {
  const System dgx = machine("dgx1v.xml");
  const std::vector<BusId> ids = bus_ids_of(dgx);
  const MachineOfRanks found = with_rank_gpus(
      dgx, std::vector{gpu_for(3, ids[0]), gpu_for(0, ids[5]), gpu_for(1, ids[0]), gpu_for(2, ids[5])});
  EXPECT_THAT(found.sharers, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  ASSERT_EQ(found.system.gpus().size(), 2);
  EXPECT_EQ(found.system.gpu_of_rank(1), node_at(found.system, ids[0]));
}

TEST(RankGpus, ThatAreInstancesOfOneGpuAreSeenOnceUnlessTheMachineHasPartitions) {
  const System dgx = machine("dgxa100.xml");
  const BusId bus_id = bus_ids_of(dgx)[1];
  const std::vector gpus{gpu_for(0, bus_id, 1), gpu_for(1, bus_id, 2)};
  EXPECT_THAT(with_rank_gpus(dgx, gpus).sharers, ElementsAre(ElementsAre(0, 1)));
  const auto split = parse_system(
      "<system version='1'><cpu numaid='0' affinity='f' arch='arm64'><pci busid='0000:05:00.0' "
      "class='0x030200'>"
      "<gpu dev='0' sm='100' mlopart='0' rank='0'/><gpu dev='1' sm='100' mlopart='1' "
      "rank='1'/></pci></cpu></system>",
      "split");
  const BusId at = bus_ids_of(split.system)[0];
  const std::vector partitions{gpu_for(0, at, 1), gpu_for(1, at, 2), gpu_for(2, at, 1)};
  EXPECT_THAT(with_rank_gpus(split.system, partitions).sharers,
              ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(RankGpus, ThatTheMachineDoesNotHaveAreAtItsFirstNumaNodeWithANote) {
  const System dgx = machine("pcie-2socket.xml");
  const std::vector<BusId> ids = bus_ids_of(dgx);
  const BusId hidden = *BusId::parse("0000:fe:00.0");
  const MachineOfRanks found =
      with_rank_gpus(dgx, std::vector{gpu_for(0, ids[7]), gpu_for(1, hidden, 0, 90)});
  EXPECT_THAT(check(found.system), IsEmpty());
  const NodeId gpu = found.system.gpu_of_rank(1);
  ASSERT_NE(gpu, kNoNode);
  EXPECT_EQ(found.system.node(gpu).parent, found.system.of_kind(NodeKind::kCpu).front());
  EXPECT_EQ(found.system.node(gpu).gpu().device, 8);
  EXPECT_EQ(found.system.node(gpu).gpu().compute_capability, 90);
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("no GPU 0000:fe:00.0, which rank 1 has")));
}

TEST(RankGpus, AreKeptApartWhereADriverDeniesAccess) {
  const System dgx = machine("dgxa100.xml");
  const std::vector<BusId> ids = bus_ids_of(dgx);
  std::vector gpus{gpu_for(0, ids[3]), gpu_for(1, ids[1])};
  const auto type = [&] {
    const MachineOfRanks found = with_rank_gpus(dgx, gpus);
    return Paths(found.system).between(found.system.gpu_of_rank(0), found.system.gpu_of_rank(1)).type;
  };
  EXPECT_EQ(type(), PathType::kNvl);
  gpus[0].denied = {ids[1]};
  EXPECT_GT(type(), PathType::kPxb);
}

TEST(RankGpus, WhoseDriversContradictTheMachineAreTold) {
  const System dgx = machine("dgxa100.xml");  // 80
  EXPECT_THAT(with_rank_gpus(dgx, std::vector{gpu_for(0, bus_ids_of(dgx)[0], 0, 90)}).notes,
              ElementsAre(HasSubstr("compute capability 80, the driver of rank 0 says 90")));
}

TEST(GpuOfAnotherView, ComesToItsPlaceWithItsLinks) {
  for (const char* name : {"dgx1v.xml", "dgxa100.xml", "dgxh100.xml", "pcie-2socket.xml"}) {
    const System whole = machine(name);
    const BusId id = bus_ids_of(whole)[5];
    const System again = with_gpu_of(without(whole, id), whole, id);
    EXPECT_THAT(check(again), IsEmpty());
    const NodeId before = node_at(whole, id), after = node_at(again, id);
    ASSERT_NE(after, kNoNode) << name;
    EXPECT_EQ(label_on_host(again, again.node(after).parent),
              label_on_host(whole, whole.node(before).parent));
    EXPECT_EQ(again.node(after).gpu().nvlinks, whole.node(before).gpu().nvlinks);
    EXPECT_EQ(again.links_of(after).size(), whole.links_of(before).size());
  }
}

TEST(GpuOfAnotherView, BringsSwitchesAlongThatTheMachineDoesNotHave) {
  const System whole = machine("dgxh100.xml");
  const BusId id = bus_ids_of(whole)[5];
  Draft draft{.nodes = source_nodes(whole), .hosts = {0}, .notes = {}};
  const BusId above =
      draft.node(draft.nodes[static_cast<std::size_t>(node_at(whole, id))].parent).pci->bus_id;
  const auto is_below = [&](NodeId node) {
    for (; node != kNoNode; node = draft.node(node).parent)
      if (draft.node(node).pci && draft.node(node).pci->bus_id == above) return true;
    return false;
  };
  std::vector<Node> kept;
  std::vector<NodeId> now;
  for (NodeId node = 0; node < static_cast<NodeId>(draft.nodes.size()); ++node) {
    now.push_back(static_cast<NodeId>(kept.size()));
    if (is_below(node)) continue;
    kept.push_back(draft.node(node));
    if (kept.back().parent != kNoNode) kept.back().parent = now[static_cast<std::size_t>(kept.back().parent)];
  }
  const System bare = build_system(kept, {0}).system;
  ASSERT_EQ(node_at(bare, id), kNoNode);
  const System again = with_gpu_of(bare, whole, id);
  const Node& gpu = again.node(node_at(again, id));
  EXPECT_EQ(again.node(gpu.parent).pci->bus_id, above);
  EXPECT_EQ(again.node(again.node(gpu.parent).parent).cpu().numa_id, 1);
}

TEST(GpuOfAnotherView, ThatDoesNotHaveItEitherChangesNothing) {
  const System whole = machine("dgxh100.xml");
  EXPECT_EQ(with_gpu_of(whole, machine("gh200.xml"), *BusId::parse("0000:fe:00.0")), whole);
}

TEST(GpuOfAnotherView, KeepsWhatIsDeniedByBusId) {
  const System whole = machine("dgxa100.xml");
  const std::vector<BusId> ids = bus_ids_of(whole);
  Draft draft{.nodes = source_nodes(whole), .hosts = {0}, .notes = {}};
  std::get<GpuInfo>(draft.node(node_at(whole, ids[5])).info).p2p_denied = {2};
  const System view = build(std::move(draft), whole.model()).system;
  const System again = with_gpu_of(without(whole, ids[5]), view, ids[5]);
  EXPECT_THAT(again.node(node_at(again, ids[5])).gpu().p2p_denied,
              ElementsAre(again.node(node_at(again, ids[2])).gpu().device));
}

}  // namespace
}  // namespace loom::topo
