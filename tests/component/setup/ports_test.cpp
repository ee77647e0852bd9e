// Which network ports loom goes over.
#include "component/setup/ports.hpp"

#include <gmock/gmock.h>

#include "base/format.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom {
namespace {

using ::testing::ElementsAre;

topo::Place at(int numa_node) {
  topo::Place place;
  place.numa_node = numa_node;
  place.first_cpu = 4 * numa_node;
  return place;
}

using Ports = std::vector<std::string>;

TEST(PortsNear, AreThoseOfTheNumaNodeThatTheProcessIsBoundTo) {
  const topo::System machine = topo::parse_system(
                                   "<system version='1'>"
                                   "<cpu numaid='0' affinity='f' arch='arm64'><nic><net dev='0' "
                                   "name='mlx5_0' port='1' speed='100000'/></nic></cpu>"
                                   "<cpu numaid='1' affinity='f0' arch='arm64'><nic><net dev='1' "
                                   "name='mlx5_1' port='1' speed='100000'/></nic></cpu>"
                                   "</system>",
                                   "two ports")
                                   .system;
  const std::vector<topo::Place> places{at(0), at(1), at(0)};
  EXPECT_EQ(ports_near(machine, places, 0), Ports{"mlx5_0:1"});
  EXPECT_EQ(ports_near(machine, places, 1), Ports{"mlx5_1:1"});
  EXPECT_EQ(ports_near(machine, places, 2), Ports{"mlx5_0:1"});
  EXPECT_EQ(ports_near(topo::parse_system(
                           "<system version='1'><cpu numaid='0' affinity='f' arch='arm64'/></system>", "none")
                           .system,
                       places, 1),
            Ports{});
}

TEST(PortsNear, AreSharedByRanksThatAreAsNear) {
  const auto ports = [](int numa_node) {
    std::string nets;
    for (int port = 2 * numa_node; port < 2 * numa_node + 2; ++port)
      nets += loom::format("<nic><net dev='{}' name='mlx5_{}' port='1' speed='100000'/></nic>", port, port);
    return loom::format("<cpu numaid='{}' affinity='{}' arch='arm64'>{}</cpu>", numa_node,
                        numa_node == 0 ? "f" : "f0", nets);
  };
  const topo::System machine =
      topo::parse_system("<system version='1'>" + ports(0) + ports(1) + "</system>", "four ports").system;
  const auto chosen = [&](const std::vector<topo::Place>& places) {
    std::vector<Ports> all;
    for (std::size_t self = 0; self < places.size(); ++self) all.push_back(ports_near(machine, places, self));
    return all;
  };
  const Ports a{"mlx5_0:1"}, b{"mlx5_1:1"}, c{"mlx5_2:1"}, d{"mlx5_3:1"};
  EXPECT_EQ(chosen({at(0)}), (std::vector<Ports>{{"mlx5_0:1", "mlx5_1:1"}}));
  EXPECT_EQ(chosen({at(0), at(0), at(1), at(1)}), (std::vector<Ports>{a, b, c, d}));
  EXPECT_EQ(chosen({at(0), at(1), at(0), at(1)}), (std::vector<Ports>{a, c, b, d}));
  EXPECT_EQ(chosen({at(0), at(1)}), (std::vector<Ports>{{"mlx5_0:1", "mlx5_1:1"}, {"mlx5_2:1", "mlx5_3:1"}}));
  EXPECT_EQ(chosen({at(0), at(0), at(0), at(0)}), (std::vector<Ports>{a, b, a, b}));
}

std::vector<std::string> ports_in(const topo::System& machine) {
  std::vector<std::string> names;
  for (const topo::NodeId port : machine.of_kind(topo::NodeKind::kNet))
    names.push_back(topo::ucx_name(machine.node(port).net()));
  return names;
}

/// Two InfiniBand ports and an Ethernet device.
topo::System three_ports() {
  std::string nets;
  for (const char* net :
       {"name='mlx5_0' port='1' dev='0'", "name='mlx5_1' port='1' dev='1'", "name='eth0' dev='2'"})
    nets += loom::format("<nic><net {} speed='100000'/></nic>", net);
  return topo::parse_system(
             "<system version='1'><cpu numaid='0' affinity='f' arch='arm64'>" + nets + "</cpu></system>",
             "three ports")
      .system;
}

const std::vector<topo::UcxPort> kKnown = {{.name = "mlx5_0", .port = 1, .speed_mbps = 100'000},
                                           {.name = "mlx5_1", .port = 1, .speed_mbps = 100'000},
                                           {.name = "eth0"}};

TEST(PortChoice, TakesWhatUcxKnowsWellUnlessTheUserNamesPorts) {
  const topo::System machine = three_ports();
  const PortChoice any("", kKnown), all("all", kKnown), ethernet("eth0", kKnown),
      device("mlx5_1, eth9", kKnown), without("^mlx5_0:1,eth1", kKnown);
  for (const PortChoice& choice : {any, all}) {
    EXPECT_FALSE(choice.are_named());
    EXPECT_THAT(ports_in(choice.planned(machine, false)), ElementsAre("mlx5_0:1", "mlx5_1:1"));
    EXPECT_TRUE(choice.may_use("mlx5_0:1"));
    EXPECT_FALSE(choice.may_use("eth0"));
    EXPECT_FALSE(choice.may_use("mlx5_2:1"));
  }
  EXPECT_TRUE(ethernet.are_named());
  EXPECT_THAT(ports_in(ethernet.planned(machine, false)), ElementsAre("eth0"));
  EXPECT_THAT(ports_in(without.planned(machine, false)), ElementsAre("mlx5_1:1"));
  EXPECT_FALSE(without.are_named());
  EXPECT_FALSE(without.may_use("eth0")) << "it is not named";
  EXPECT_THAT(ports_in(device.planned(machine, false)), ElementsAre("mlx5_1:1"));
  EXPECT_TRUE(device.may_use("mlx5_1:1"));
  EXPECT_TRUE(device.may_plan("eth9"));
  EXPECT_FALSE(device.may_use("eth9")) << "UCX does not have it";
}

topo::UcxPort of_fabric(const char* name, double gbit, const char* fabric) {
  return {.name = name, .port = 1, .speed_mbps = gbit * 1000, .fabric = fabric};
}

TEST(PortChoice, TakesThoseOfTheFastestFabrics) {
  const auto may_plan = [](const char* named, std::vector<topo::UcxPort> known) {
    const PortChoice choice(named, known);
    Ports ports;
    for (const topo::UcxPort& port : known)
      if (choice.may_plan(port.name + ":1")) ports.push_back(port.name);
    return ports;
  };
  const std::vector<topo::UcxPort> with_storage{
      of_fabric("a", 400, "InfiniBand 1"), of_fabric("b", 400, "InfiniBand 1"),
      of_fabric("c", 200, "Ethernet"), of_fabric("d", 400, "InfiniBand 2")};
  EXPECT_THAT(may_plan("", with_storage), ElementsAre("a", "b"));
  EXPECT_THAT(may_plan("^a,b", with_storage), ElementsAre("d"));
  EXPECT_THAT(may_plan("a,c", with_storage), ElementsAre("a", "c")) << "the user knows better";
  const std::vector<topo::UcxPort> rails{of_fabric("a", 400, "InfiniBand 1"),
                                         of_fabric("b", 400, "InfiniBand 2"),
                                         of_fabric("c", 200, "Ethernet")};
  EXPECT_THAT(may_plan("", rails), ElementsAre("a", "b"));
}

TEST(NearestPorts, AreOfTheFastestFabric) {
  const std::vector<topo::Place> places{at(0)};
  EXPECT_EQ(nearest_ports({of_fabric("no_such0", 200, "Ethernet"), of_fabric("no_such1", 400, "InfiniBand")},
                          places, 0),
            "no_such1:1");
  EXPECT_EQ(nearest_ports({of_fabric("no_such0", 200, "Ethernet"), {.name = "eth0"}}, places, 0), "")
      << "there is nothing to choose";
}

TEST(PortChoice, LeavesADescribedMachineItsPortsUnlessTheUserNamesSome) {
  const topo::System machine = three_ports();
  EXPECT_EQ(PortChoice("", {}).planned(machine, true), machine);
  EXPECT_THAT(ports_in(PortChoice("eth0", {}).planned(machine, true)), ElementsAre("eth0"));
  EXPECT_THAT(ports_in(PortChoice("^mlx5_0", kKnown).planned(machine, true)),
              ElementsAre("mlx5_1:1", "eth0"));
  EXPECT_EQ(PortChoice("eth1", kKnown).planned(machine, true), machine) << "none of them is there";
  EXPECT_EQ(PortChoice("", {}).planned(machine, false), machine) << "UCX knows none";
  EXPECT_TRUE(PortChoice("eth0", {}).may_use("eth0")) << "UCX cannot be asked";
}

}  // namespace
}  // namespace loom
