#include "topo/place.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "test_data.hpp"
#include "topo/cpu_mask.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom::topo {
namespace {

constexpr HostId kA{1, 1}, kB{2, 2};

const GpuInfo& gpu(const Host& host, std::size_t i) {
  return host.system.node(host.system.gpus()[i]).gpu();
}

int numa_of(const Host& host, std::size_t i) {
  return host.system.node(host.system.node(host.system.gpus()[i]).parent).cpu().numa_id;
}

TEST(Hosts, AreGroupedInOrderOfTheirLowestRank) {
  const std::vector<Place> places = {{kB, 0, 0, 2}, {kA, 0, 0, 2}, {kB, 1, 4, 2}, {kA, 0, 2, 2}};
  const std::vector<Host> hosts = hosts_of(places);
  ASSERT_EQ(hosts.size(), 2);
  EXPECT_EQ(hosts[0].id, kB);
  ASSERT_EQ(hosts[0].system.gpus().size(), 2);
  EXPECT_EQ(gpu(hosts[0], 1).rank, 2);
  EXPECT_EQ(numa_of(hosts[0], 1), 1);
  EXPECT_EQ(gpu(hosts[1], 0).rank, 1);
  EXPECT_EQ(gpu(hosts[1], 1).first_cpu, 2);
}

TEST(Host, IsTheSameAloneAndAmongAll) {
  const std::vector<Place> places = {{kB, 0, 0, 2}, {kA, 0, 0, 2}, {kB, 1, 4, 2}, {kA, 0, 2, 2}};
  for (const std::size_t first : {0U, 1U}) {
    const std::vector<Place> mates = {places[first], places[first + 2]};
    const std::vector<int> ranks = {static_cast<int>(first), static_cast<int>(first) + 2};
    const Host host = host_of(mates, ranks);
    EXPECT_EQ(host.id, places[first].host);
    EXPECT_EQ(host.system, hosts_of(places)[first].system);
  }
}

TEST(Host, IsOversubscribedWhenRanksOutnumberTheCpusOfTheirBinding) {
  const auto oversubscribed_by = [](const std::vector<Place>& places) {
    return oversubscribed(hosts_of(places).at(0).system);
  };
  EXPECT_FALSE(oversubscribed_by({{kA, 0, 0, 2}, {kA, 0, 0, 2}}));  // unbound, two CPUs
  EXPECT_TRUE(oversubscribed_by({{kA, 0, 0, 2}, {kA, 0, 0, 2}, {kA, 0, 0, 2}}));
  EXPECT_FALSE(oversubscribed_by({{kA, 0, 0, 1}, {kA, 0, 1, 1}}));  // one core each
  EXPECT_TRUE(oversubscribed_by({{kA, 0, 0, 1}, {kA, 0, 0, 1}}));   // the same core
}

/// Two NUMA nodes with three GPUs, all near the first, and a port near the second.
System machine_with_gpus() {
  const char* text =
      "<system version='1'><cpu numaid='0' affinity='f' arch='x86_64'>"
      "<pci busid='0000:01:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'><gpu dev='0' "
      "sm='80'/></pci>"
      "<pci busid='0000:02:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'><gpu dev='1' "
      "sm='80'/></pci>"
      "<pci busid='0000:03:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'><gpu dev='2' "
      "sm='80'/></pci></cpu>"
      "<cpu numaid='1' affinity='f0' arch='x86_64'><nic><net dev='0' name='eth7' speed='1000'/></nic></cpu>"
      "</system>";
  return parse_system(text, "machine.xml").system;
}

/// By rank 0, 1, ...: the NUMA nodes of the virtual GPUs.
std::vector<int> nodes_of_ranks(const System& system) {
  std::vector<int> nodes;
  for (int rank = 0; rank < static_cast<int>(system.gpus().size()); ++rank) {
    const Node& gpu = system.node(system.gpu_of_rank(rank));
    EXPECT_TRUE(gpu.gpu().is_virtual);
    EXPECT_EQ(gpu.gpu().rank, rank);
    nodes.push_back(system.node(gpu.parent).cpu().numa_id);
  }
  return nodes;
}

TEST(VirtualGpus, AreOneForEachRankHoweverTheyShareCoresAndGpus) {
  const System machine = machine_with_gpus();
  const auto nodes_with = [&](const std::vector<Place>& places) {
    std::vector<int> ranks(places.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    const System system = with_virtual_gpus(machine, places, ranks);
    EXPECT_EQ(system.of_kind(NodeKind::kNet).size(), 1U) << "ports stay";
    return nodes_of_ranks(system);
  };
  // Two ranks on one core and a third on its own; the last ones far from any GPU.
  EXPECT_EQ(nodes_with({{kA, 0, 0, 1}, {kA, 0, 0, 1}, {kA, 0, 1, 1}}), (std::vector{0, 0, 0}));
  EXPECT_EQ(nodes_with({{kA, 0, 0, 1}, {kA, 1, 4, 1}, {kA, 1, 4, 1}}), (std::vector{0, 1, 1}));
  // More ranks than GPUs, and a node of which the description says nothing.
  EXPECT_EQ(nodes_with({{kA, 0, 0, 4}, {kA, 0, 0, 4}, {kA, 0, 0, 4}, {kA, 0, 0, 4}, {kA, 1, 4, 4}}),
            (std::vector{0, 0, 0, 0, 1}));
  EXPECT_EQ(nodes_with({{kA, 7, 12, 1}}), std::vector{0});
}

TEST(VirtualGpus, OnOneCoreAreTwoPlacesForARing) {
  const Host host = hosts_of(std::vector<Place>{{kA, 0, 3, 1}, {kA, 0, 3, 1}}).at(0);
  EXPECT_EQ(nodes_of_ranks(host.system), (std::vector{0, 0}));
  EXPECT_NE(host.system.gpu_of_rank(0), host.system.gpu_of_rank(1));
}

TEST(PlacementNotes, SayWhatIsLeftOutAndWhoStandsElsewhere) {
  const System system = read_system(data_file("dgxh100.xml")).system;
  const std::vector<int> cpus = cpus_of(system.node(system.of_kind(NodeKind::kCpu)[1]).cpu().affinity);
  const std::vector<Place> places = {{kA, 0, 0, 1}, {kA, 9, 0, 1}, {kA, 1, cpus[0], 1}, {kA, 0, cpus[0], 1}};
  const std::vector<int> ranks = {4, 5, 6, 7};
  EXPECT_THAT(
      placement_notes(system, places, ranks),
      ::testing::ElementsAre(
          "For calls on host memory each rank is a virtual GPU at its NUMA node; its 8 GPUs count for "
          "calls on GPUs alone.",
          "It has no NUMA node 9, where rank 5 may run: its first is taken.",
          "The CPUs of its NUMA node 0 are not those that rank 7 may run on."));
  EXPECT_THAT(
      placement_notes(with_virtual_gpus(system, {}, {}), std::vector(1, places[0]), std::vector(1, 0)),
      ::testing::IsEmpty());
}

}  // namespace
}  // namespace loom::topo
