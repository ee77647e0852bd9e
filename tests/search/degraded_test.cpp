// degraded_test.cpp -- real machines of which one GPU, one NIC or one link is missing: there are still
// channels.
#include <cstdlib>

#include "base/format.hpp"
#include "search/path_tables.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

using Nodes = std::vector<topo::Node>;

/// `nodes` without one of them and all that hangs from it.
Nodes without(const Nodes& nodes, std::size_t missing) {
  std::vector<topo::NodeId> now(nodes.size(), topo::kNoNode);
  Nodes left;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const topo::NodeId parent = nodes[i].parent;
    if (i == missing || (parent != topo::kNoNode && now[static_cast<std::size_t>(parent)] == topo::kNoNode))
      continue;
    now[i] = static_cast<topo::NodeId>(left.size());
    left.push_back(nodes[i]);
    if (parent != topo::kNoNode) left.back().parent = now[static_cast<std::size_t>(parent)];
  }
  return left;
}

/// `nodes` without row `row` of a GPU's NVLinks, seen from both ends.
Nodes without_link(Nodes nodes, std::size_t gpu, std::size_t row) {
  auto& rows = std::get<topo::GpuInfo>(nodes[gpu].info).nvlinks;
  const topo::NvLinks link = rows[row];
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(row));
  for (topo::Node& node : nodes)
    if (node.kind() == topo::NodeKind::kGpu && node.pci && node.pci->bus_id == link.target && nodes[gpu].pci)
      std::erase_if(std::get<topo::GpuInfo>(node.info).nvlinks,
                    [&](const topo::NvLinks& other) { return other.target == nodes[gpu].pci->bus_id; });
  return nodes;
}

/// The first, some in the middle and the last: of many alike. LOOM_DEGRADE_ALL in the environment: all of
/// them.
template <class Entry>
std::vector<Entry> sample(const std::vector<Entry>& all, std::size_t most) {
  if (all.size() <= most || std::getenv("LOOM_DEGRADE_ALL") != nullptr) return all;
  std::vector<Entry> some;
  for (std::size_t i = 0; i < most; ++i)
    some.push_back(all[i * (all.size() - 1) / std::max<std::size_t>(1, most - 1)]);
  return some;
}

/// All GPUs reach each other, and with the network some port: then a channel exists.
bool has_channels(const PartOfMachine& part, bool network) {
  const HopTable table(part.paths, network, false, false);
  for (int a = 0; a < table.gpus(); ++a)
    for (int b = 0; b < table.gpus(); ++b)
      if (table.hop(a, b).count == 0) return false;
  for (int net = 0; net < table.nets(); ++net)
    for (int gpu = 0; gpu < table.gpus(); ++gpu)
      if (table.hop(gpu, table.net(net)).count > 0 && table.hop(table.net(net), gpu).count > 0) return true;
  return !network;
}

class DegradedMachine : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  void expect_channels(Nodes nodes, const topo::System& before) {
    const std::vector<std::uint64_t> hosts(before.hosts().begin(), before.hosts().end());
    const topo::System system = topo::build_system(std::move(nodes), hosts, before.model()).system;
    if (system.gpus().empty()) return;
    const PathTables tables(system);
    for (const auto& [pattern, count] :
         {std::pair(Pattern::kRing, 1), {Pattern::kRing, 2}, {Pattern::kBalancedTree, 2}}) {
      SCOPED_TRACE(loom::format("{}, {} nodes", name_of(pattern), count));
      Request request;
      request.pattern = pattern;
      request.nodes = count;
      const NodePlans plans = find_plans(tables, request);
      expect_valid(system, plans);
      const bool whole = tables.whole() != nullptr && plans.ranks.size() == 1;
      if (!whole || !has_channels(*tables.whole(), count > 1)) continue;
      EXPECT_FALSE(plans.parts[0].in_order);
      EXPECT_GT(plans.total_gbps, 0);
    }
  }
};

TEST_P(DegradedMachine, StillHasChannels) {
  const topo::System system = topo::read_nccl_xml(GetParam().string(), topo::Model::kNccl).system;
  const Nodes nodes = topo::source_nodes(system);
  std::vector<std::size_t> gpus, nics;
  std::vector<std::pair<std::size_t, std::size_t>> links;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind() == topo::NodeKind::kNic) nics.push_back(i);
    if (nodes[i].kind() != topo::NodeKind::kGpu) continue;
    gpus.push_back(i);
    for (std::size_t row = 0; row < nodes[i].gpu().nvlinks.size(); ++row) links.emplace_back(i, row);
  }
  const std::size_t most = gpus.size() > 32 ? 2 : 8;
  for (const std::size_t gpu : sample(gpus, most)) {
    SCOPED_TRACE(loom::format("without node {}, a GPU", gpu));
    expect_channels(without(nodes, gpu), system);
  }
  for (const std::size_t nic : sample(nics, most)) {
    SCOPED_TRACE(loom::format("without node {}, a NIC", nic));
    expect_channels(without(nodes, nic), system);
  }
  for (const auto& [gpu, row] : sample(links, 2 * most)) {
    SCOPED_TRACE(loom::format("without NVLinks {} of node {}", row, gpu));
    expect_channels(without_link(nodes, gpu, row), system);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, DegradedMachine, ::testing::ValuesIn(machine_files()),
                         [](const auto& machine) {
                           std::string name = machine.param.parent_path().filename().string() + "_" +
                                              machine.param.stem().string();
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

TEST(DegradedMachines, AreTakenFromASharedFolderToo) {
  if (!std::filesystem::exists(LOOM_SHARED_TOPOLOGIES))
    GTEST_SKIP() << "skipped: no " << LOOM_SHARED_TOPOLOGIES;
  EXPECT_GT(machine_files().size(), 60U);
}

}  // namespace
}  // namespace loom::search
