#include "search/symmetry.hpp"

#include <algorithm>
#include <set>

#include "search/forest.hpp"
#include "search_cases.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom::search {
namespace {

std::size_t symmetries_of(const topo::System& system, bool network = true) {
  const topo::Paths paths(system, whole_rules());
  return symmetries(HopTable(paths, network, false, false), 1).size();
}

/// Boards of four GPUs on two CPUs, a port for each GPU, all on one NVSwitch.
topo::System boards(int count) {
  std::string xml = "<system version=\"1\">";
  for (int cpu = 0; cpu < 2 * count; ++cpu) {
    xml += loom::format("<cpu numaid=\"{}\" affinity=\"{:x}\" arch=\"arm64\">", cpu, cpu + 1);
    for (int gpu = 2 * cpu; gpu < 2 * cpu + 2; ++gpu)
      xml += loom::format(
          "<pci busid=\"{0:04x}:01:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
          "<gpu dev=\"{0}\" sm=\"100\" rank=\"{0}\" gdr=\"1\">"
          "<nvlink target=\"fffffff:ffff:ff\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>"
          "<pci busid=\"{0:04x}:02:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
          "<nic><net name=\"port{0}\" dev=\"{0}\" speed=\"400000\" port=\"1\" guid=\"0x{1:x}\" "
          "gdr=\"1\"/></nic>"
          "</pci>",
          gpu, gpu + 1);
    xml += "</cpu>";
  }
  return topo::parse_system(xml + "</system>", "boards").system;
}

/// By hop, what it takes of everything.
std::map<int, double> taken_by(const HopTable& table, int from, int to) {
  std::map<int, double> taken;
  for (const Load& load : table.loads(table.hop(from, to))) taken[load.resource] += load.factor;
  return taken;
}

void expect_symmetric(const HopTable& table, int cross_nic, const Symmetry& symmetry) {
  const auto at = [](const std::vector<int>& places, int i) { return places[static_cast<std::size_t>(i)]; };
  for (const std::vector<int>* places : {&symmetry.gpu, &symmetry.net, &symmetry.resource})
    EXPECT_EQ(std::set<int>(places->begin(), places->end()).size(), places->size());
  for (std::size_t i = 0; i < symmetry.resource.size(); ++i)
    EXPECT_EQ(table.resources()[i].gbps,
              table.resources()[static_cast<std::size_t>(symmetry.resource[i])].gbps);
  const auto end = [&](int i) {
    return i < table.gpus() ? at(symmetry.gpu, i) : table.net(at(symmetry.net, i - table.gpus()));
  };
  for (int from = 0; from < table.gpus() + table.nets(); ++from)
    for (int to = 0; to < table.gpus() + table.nets(); ++to) {
      std::map<int, double> moved;
      for (const auto& [resource, factor] : taken_by(table, from, to))
        moved[at(symmetry.resource, resource)] += factor;
      ASSERT_EQ(moved, taken_by(table, end(from), end(to))) << from << " to " << to;
    }
  for (int in = 0; in < table.nets(); ++in)
    for (int out = 0; out < table.nets(); ++out)
      EXPECT_EQ(table.may_pair(in, out, cross_nic),
                table.may_pair(at(symmetry.net, in), at(symmetry.net, out), cross_nic));
}

TEST(Symmetry, LeavesEveryHopWhatItTakes) {
  for (const std::filesystem::path& file : machine_files()) {
    SCOPED_TRACE(file.filename().string());
    const topo::System system = topo::read_nccl_xml(file.string(), topo::Model::kNccl).system;
    if (system.gpus().empty() || system.gpus().size() > 16) continue;
    const topo::Paths paths(system, whole_rules());
    for (const bool network : {false, true})
      for (const int cross_nic : {0, 1}) {
        const HopTable table(paths, network, false, false);
        const std::vector<Symmetry> group = symmetries(table, cross_nic);
        ASSERT_FALSE(group.empty());
        std::set<std::vector<int>> gpus, nets, resources;
        for (const Symmetry& symmetry : group) {
          expect_symmetric(table, cross_nic, symmetry);
          gpus.insert(symmetry.gpu);
          nets.insert(symmetry.net);
          resources.insert(symmetry.resource);
          for (int gpu = 0; gpu < table.gpus(); ++gpu) {
            EXPECT_EQ(symmetry.gpu[static_cast<std::size_t>(gpu)] == gpu, &symmetry == &group.front());
          }
        }
        EXPECT_EQ(gpus.size(), group.size());
        // One after the other is one of them, whichever comes first.
        for (const Symmetry& a : group)
          for (const Symmetry& b : group) {
            std::vector<int> gpu, net, resource, other_way;
            for (const int place : a.gpu) gpu.push_back(b.gpu[static_cast<std::size_t>(place)]);
            for (const int place : a.net) net.push_back(b.net[static_cast<std::size_t>(place)]);
            for (const int place : a.resource)
              resource.push_back(b.resource[static_cast<std::size_t>(place)]);
            for (const int place : b.resource)
              other_way.push_back(a.resource[static_cast<std::size_t>(place)]);
            EXPECT_TRUE(gpus.contains(gpu));
            EXPECT_TRUE(nets.contains(net));
            EXPECT_TRUE(resources.contains(resource));
            EXPECT_EQ(resource, other_way);
          }
      }
  }
}

TEST(Symmetry, OfGpusAlikeMovesEachToEach) {
  EXPECT_EQ(symmetries_of(machine("dgxh100.xml")), 8U);
  EXPECT_EQ(symmetries_of(machine("pcie-2socket.xml"), false), machine("pcie-2socket.xml").gpus().size());
  EXPECT_EQ(symmetries_of(boards(3)), 12U);
  EXPECT_EQ(symmetries_of(boards(18)), 72U);
}

TEST(Symmetry, OfGpusThatDifferIsNone) {
  const topo::System system =
      topo::read_nccl_xml(LOOM_SEARCH_DATA "/unequal-nvlinks.xml", topo::Model::kNccl).system;
  EXPECT_EQ(symmetries_of(system), 1U);
}

/// Nothing but what comes into each GPU limits: over NVLink and, with the others, through the ports.
TEST(Symmetry, BringsForestsOfManyGpusToTheOptimum) {
  const topo::System system = boards(18);
  const topo::Paths paths(system, whole_rules());
  for (const ForestUse use : {ForestUse::kAllGather, ForestUse::kReduceScatter})
    for (const int nodes : {1, 2, 5}) {
      const Forest forest = plan_forest(paths, {.use = use, .nodes = nodes});
      EXPECT_GE(forest.gbps, forest.at_most() * (1 - 1e-5)) << nodes << " nodes";
      EXPECT_LE(forest.gbps, forest.at_most() * (1 + 1e-6)) << nodes << " nodes";
    }
}

/// With GPUs in another order, in which their symmetries may not be found, forests carry as much.
TEST(Symmetry, ChangesNoForest) {
  int fewer = 0;  // machines some of whose symmetries are not found in that order
  for (const std::filesystem::path& file : machine_files()) {
    SCOPED_TRACE(file.filename().string());
    const topo::System system = topo::read_nccl_xml(file.string(), topo::Model::kNccl).system;
    const auto shares = [&](topo::NodeId gpu) {
      return system.node(gpu).gpu().partition || topo::shares_function(system, gpu);
    };
    if (system.gpus().size() < 2 || system.gpus().size() > 8) continue;
    if (std::ranges::any_of(system.gpus(), shares) || system.hosts().size() > 1) continue;
    const topo::System other = renumbered(system, 3);
    const topo::Paths paths(system, whole_rules()), other_paths(other, whole_rules());
    fewer += symmetries_of(other) < symmetries_of(system);
    for (const ForestUse use : {ForestUse::kAllGather, ForestUse::kReduceScatter})
      for (const int nodes : {1, 2, 3, 5})
        for (const int cross_nic : {0, 2}) {
          if (nodes == 1 && cross_nic == 0) continue;
          SCOPED_TRACE(
              loom::format("use {}, {} nodes, cross-NIC {}", static_cast<int>(use), nodes, cross_nic));
          const ForestRequest request{.use = use, .nodes = nodes, .cross_nic = cross_nic};
          const Forest forest = plan_forest(paths, request), same = plan_forest(other_paths, request);
          EXPECT_EQ(forest.absent, same.absent);
          if (!forest.absent.empty()) continue;
          EXPECT_NEAR(forest.gbps, same.gbps, forest.gbps * 1e-4);
          EXPECT_NEAR(forest.bound_gbps, same.bound_gbps, forest.bound_gbps * 1e-4);
        }
  }
  EXPECT_GT(fewer, 0);
}

}  // namespace
}  // namespace loom::search
