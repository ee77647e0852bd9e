// The channels of search and connect, as kernels run them.
#include "component/select/kernel_channels.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/steps/collective.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/paths.hpp"

namespace loom {
namespace {

connect::TreeLinks below(int parent) {
  connect::TreeLinks links;
  links.parent = parent;
  return links;
}

TEST(KernelChannels, HaveAShareOfTheirKindByTheirSpeed) {
  connect::GpuChannels found;
  found.ranks = 3;
  found.rings = {{{2, 0, 1}, 20}, {{0, 1, 2}, 5}};
  const std::vector<connect::TreeLinks> chain = {below(1), below(-1), below(0)},
                                        other = {below(-1), below(0), below(0)};
  found.trees = {{{chain, chain}, 8}, {{chain, other}, 8}, {{other, other}, 2}};
  found.types = {std::vector(9, topo::PathType::kNvl)};
  const device::cuda::KernelChannels channels = kernel_channels_of(found, {.may_ll128 = true});
  ASSERT_EQ(channels.shapes.size(), 3U);
  EXPECT_EQ(channels.count(device::steps::LinkKind::kRing), 2);
  EXPECT_EQ(channels.count(device::steps::LinkKind::kTree), 3);
  EXPECT_EQ(channels.shapes[0].ring, (std::vector<int>{2, 0, 1}));
  EXPECT_EQ(channels.shapes[0].weight, 4 * channels.shapes[1].weight);
  EXPECT_EQ(channels.shapes[0].tree_weight, channels.shapes[1].tree_weight);
  EXPECT_EQ(channels.shapes[0].tree_weight, 4 * channels.shapes[2].tree_weight);
  EXPECT_EQ(channels.shapes[0].trees[0], (std::vector<int>{1, -1, 0}));
  EXPECT_TRUE(channels.shapes[0].trees[1].empty()) << "the same as the first";
  EXPECT_EQ(channels.shapes[1].trees[1], (std::vector<int>{-1, 0, 0}));
  EXPECT_EQ(channels.ring_gbps, 20);
  EXPECT_EQ(channels.tree_gbps, 8);
  EXPECT_TRUE(channels.may_ll128);
  EXPECT_TRUE(channels.over_nvlink);
  found.types[0][1] = topo::PathType::kPhb;
  EXPECT_FALSE(kernel_channels_of(found).over_nvlink);
}

TEST(KernelChannels, HaveGridsOfTheirOwnBesideRings) {
  connect::GpuChannels found;
  found.ranks = 4, found.hosts = 2;
  found.rings = {{{0, 1, 3, 2}, 20}};
  found.trees = {{{std::vector{below(-1), below(0), below(1), below(2)}, {}}, 8}};
  found.grids = {{{1, 0, 2, 3}, 12}, {{0, 1, 3, 2}, 6}};
  found.all_gather.grids = 30;
  const device::cuda::KernelChannels channels = kernel_channels_of(found, {.hosts = {0, 0, 1, 1}});
  ASSERT_EQ(channels.shapes.size(), 2U);
  EXPECT_EQ(channels.count(device::steps::LinkKind::kGrid), 2);
  EXPECT_EQ(channels.count(device::steps::LinkKind::kRing), 1);
  EXPECT_EQ(channels.shapes[0].grid, (std::vector<int>{1, 0, 2, 3}));
  EXPECT_EQ(channels.shapes[0].columns, 2);
  EXPECT_EQ(channels.shapes[0].weight_of(device::steps::LinkKind::kGrid),
            2 * channels.shapes[1].weight_of(device::steps::LinkKind::kGrid));
  EXPECT_EQ(channels.grid_gbps, 12);
  EXPECT_NEAR(channels.grid_gather_gbps, 20, 1e-6);
  found.grids.clear();
  EXPECT_EQ(kernel_channels_of(found, {.hosts = {0, 0, 1, 1}}).shapes[0].grid, (std::vector<int>{0, 1, 3, 2}))
      << "in the order of the ring";
}

/// A rank on each GPU of a machine file.
topo::MachineOfRanks machine(const char* name) {
  const topo::System system = topo::read_system(std::string(LOOM_TEST_DATA "/") + name + ".xml").system;
  std::vector<topo::RankGpu> gpus;
  for (const topo::NodeId gpu : system.gpus())
    gpus.push_back({.rank = static_cast<int>(gpus.size()), .bus_id = system.node(gpu).pci->bus_id});
  return topo::with_rank_gpus(system, gpus);
}
constexpr const char* kMachines[] = {"dgx1v", "dgxa100", "dgxh100", "pcie-2socket", "gh200"};

TEST(KernelChannels, FitTheLayoutOfKernels) {
  for (const char* name : kMachines) {
    const connect::GpuChannels found = connect::gpu_channels(machine(name));
    const device::cuda::KernelChannels channels = kernel_channels_of(found);
    EXPECT_EQ(channels.count(device::steps::LinkKind::kRing), static_cast<int>(found.rings.size()));
    EXPECT_EQ(channels.count(device::steps::LinkKind::kTree), static_cast<int>(found.trees.size()));
    // A rank that is alone has no links.
    EXPECT_EQ(device::cuda::kernel_bytes(found.ranks, channels) > 0, found.ranks > 1) << name;
  }
}

/// What an all-reduce of one byte sends over each link.
class Loads {
 public:
  explicit Loads(const topo::System& system)
      : paths_(system, within_host()), bytes_(system.links().size(), 0) {}
  void add(int from, int to, double bytes) {
    const topo::System& system = paths_.system();
    for (const topo::LinkId link : paths_.route(system.gpu_of_rank(from), system.gpu_of_rank(to)))
      bytes_[static_cast<std::size_t>(link)] += bytes;
  }
  /// Nanoseconds of the slowest link.
  double ns() const {
    double most = 0;
    for (std::size_t link = 0; link < bytes_.size(); ++link)
      if (bytes_[link] > 0)
        most = std::max(most, bytes_[link] / static_cast<double>(
                                                 paths_.system().link(static_cast<topo::LinkId>(link)).gbps));
    return most;
  }

 private:
  static topo::PathRules within_host() {
    topo::PathRules rules;
    rules.network_inside_host = false;
    return rules;
  }
  topo::Paths paths_;
  std::vector<double> bytes_;
};

/// An all-reduce by the channels' shares takes no link longer than what the search promises.
TEST(KernelChannels, TakeNoMoreOfALinkThanTheSearchReserves) {
  constexpr double kRounding = 1.02;
  for (const char* name : kMachines) {
    SCOPED_TRACE(name);
    const topo::MachineOfRanks ranked = machine(name);
    const connect::GpuChannels found = connect::gpu_channels(ranked);
    const device::cuda::KernelChannels channels = kernel_channels_of(found);
    double rings = 0, trees = 0;
    for (const device::steps::ChannelShape& shape : channels.shapes) {
      rings += shape.has(device::steps::LinkKind::kRing) ? shape.weight : 0;
      trees += shape.has(device::steps::LinkKind::kTree) ? shape.tree_weight : 0;
    }
    const auto ranks = static_cast<std::size_t>(found.ranks);
    const double around = 2.0 * (found.ranks - 1) / found.ranks;
    Loads of_rings(ranked.system), of_trees(ranked.system);
    for (const device::steps::ChannelShape& shape : channels.shapes) {
      for (std::size_t i = 0; i < shape.ring.size(); ++i)
        of_rings.add(shape.ring[i], shape.ring[(i + 1) % ranks], around * shape.weight / rings);
      ASSERT_TRUE(shape.trees[1].empty()) << "inside a host both trees are one chain";
      for (std::size_t rank = 0; rank < shape.trees[0].size(); ++rank) {
        const int parent = shape.trees[0][rank];
        if (parent < 0) continue;
        of_trees.add(static_cast<int>(rank), parent, shape.tree_weight / trees);
        of_trees.add(parent, static_cast<int>(rank), shape.tree_weight / trees);
      }
    }
    EXPECT_LE(of_rings.ns(), kRounding * around / found.ring.gbps);
    EXPECT_LE(of_trees.ns(), kRounding * 2 / found.tree.gbps);
  }
}

TEST(KernelChannels, BeginTreesWhereConnectCountsOnIt) {
  constexpr int kBlocks = 1600;
  for (int channel = 0; channel < 2 * device::cuda::kMostChannels; ++channel) {
    const auto begins = device::steps::beginning_of(static_cast<unsigned>(channel), 2, kBlocks);
    EXPECT_EQ(begins.block, connect::tree_begin(channel) * kBlocks) << channel;
    EXPECT_EQ(begins.tree, channel / 2 % 2) << channel;
  }
}

}  // namespace
}  // namespace loom
