#include "search/forest.hpp"

#include <cmath>
#include <set>

#include "search_cases.hpp"

namespace loom::search {
namespace {

constexpr ForestUse kUses[] = {ForestUse::kAllGather, ForestUse::kReduceScatter};

/// What the hop of a tree's edge takes of Resources, by number.
std::vector<std::pair<int, double>> taken_by(const topo::Paths& paths, ForestUse use,
                                             std::pair<int, int> edge) {
  const topo::System& system = paths.system();
  if (use == ForestUse::kReduceScatter) std::swap(edge.first, edge.second);
  return charges(paths, system.gpu_of_rank(edge.first), system.gpu_of_rank(edge.second));
}

/// Every root has its part of the whole, in spanning trees, and together they fit.
void expect_valid(const topo::Paths& paths, ForestUse use, const Forest& forest) {
  const topo::System& system = paths.system();
  const std::size_t gpus = system.gpus().size();
  std::map<int, double> of_root;
  std::map<int, double> taken;
  for (const RootedTree& tree : forest.trees) {
    EXPECT_GT(tree.gbps, 0);
    of_root[tree.root] += tree.gbps;
    std::set<int> reached{tree.root};
    for (const auto& edge : tree.edges) {
      EXPECT_TRUE(reached.contains(edge.first));
      EXPECT_TRUE(reached.insert(edge.second).second) << "GPU " << edge.second << " twice";
      for (const auto& [resource, factor] : taken_by(paths, use, edge)) taken[resource] += factor * tree.gbps;
    }
    EXPECT_EQ(reached.size(), gpus);
  }
  EXPECT_EQ(of_root.size(), gpus);
  for (const auto& [root, gbps] : of_root)
    EXPECT_NEAR(gbps, forest.gbps / static_cast<double>(gpus), forest.gbps * 1e-6) << "root " << root;
  const Resources resources(system);
  for (const auto& [resource, gbps] : taken)
    EXPECT_LE(gbps, resources.gbps(resource) * (1 + 1e-6)) << resources.label(resource);
}

/// Each GPU but the root after one of the others, in all ways that make a tree.
void for_trees(int n, int root, const std::function<void(const std::vector<int>&)>& body) {
  std::vector<int> before(static_cast<std::size_t>(n), 0);
  for (;;) {
    bool is_tree = true;
    for (int place = 0; place < n && is_tree; ++place) {
      int here = place;
      for (int walked = 0; here != root && walked <= n; ++walked)
        here = before[static_cast<std::size_t>(here)];
      is_tree = here == root;
    }
    if (is_tree) body(before);
    int place = 0;
    while (place < n && (place == root || ++before[static_cast<std::size_t>(place)] == n))
      before[static_cast<std::size_t>(place++)] = 0;
    if (place == n) return;
  }
}

/// What the trees of all roots cost at the proof's prices, for a GB/s of the whole: all trees are tried.
double cheapest_forest(const topo::Paths& paths, ForestUse use, const Proof& proof) {
  std::map<int, double> prices;
  for (const Proof::Price& price : proof.prices) prices[price.number] += price.price;
  const int n = static_cast<int>(paths.system().gpus().size());
  std::vector<int> ranks;
  for (const topo::NodeId gpu : paths.system().gpus()) ranks.push_back(paths.system().node(gpu).gpu().rank);
  std::map<std::pair<int, int>, double> costs;
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to)
      if (from != to)
        for (const auto& [resource, factor] : taken_by(
                 paths, use, {ranks[static_cast<std::size_t>(from)], ranks[static_cast<std::size_t>(to)]}))
          costs[{from, to}] += factor * prices[resource];
  double sum = 0;
  for (int root = 0; root < n; ++root) {
    double least = std::numeric_limits<double>::infinity();
    for_trees(n, root, [&](const std::vector<int>& before) {
      double cost = 0;
      for (int place = 0; place < n; ++place)
        if (place != root) cost += costs[{before[static_cast<std::size_t>(place)], place}];
      least = std::min(least, cost);
    });
    sum += least / n;
  }
  return sum;
}

/// By all sets of nodes.
double narrowest(const topo::System& system, ForestUse use) {
  double least = std::numeric_limits<double>::infinity();
  for (unsigned set = 1; set < 1U << system.size(); ++set) {
    int inside = 0;
    for (const topo::NodeId gpu : system.gpus()) inside += static_cast<int>(set >> gpu & 1);
    if (inside == 0 || inside == static_cast<int>(system.gpus().size())) continue;
    double links = 0;
    for (const topo::Link& link : system.links()) {
      const bool from = set >> link.from & 1, to = set >> link.to & 1;
      if (use == ForestUse::kAllGather ? from && !to : to && !from) links += link.gbps;
    }
    least = std::min(least, links / inside * static_cast<double>(system.gpus().size()));
  }
  return least;
}

TEST(Forest, FillsTheLinksOfAnNvSwitch) {
  const topo::System system = machine("dgxh100.xml");
  const topo::Paths paths(system, whole_rules());
  for (const ForestUse use : kUses) {
    const Forest forest = plan_forest(paths, use);
    // Seven eighths of the whole come into a GPU.
    EXPECT_NEAR(forest.gbps, 18 * 20.6 * 8 / 7, 1e-3);
    EXPECT_NEAR(forest.bound_gbps, forest.gbps, 1e-3);
    // Data could take the GPU's PCI link, too; kernels do not.
    EXPECT_NEAR(forest.cut.gbps, (18 * 20.6 + 48) * 8 / 7, 1e-3);
    EXPECT_EQ(forest.cut.side.size(), 7U);
    expect_valid(paths, use, forest);
  }
}

TEST(Forest, OfOneGpuIsEmpty) {
  const topo::System system = topo::trimmed_to(machine("dgxh100.xml"), std::vector{3});
  EXPECT_TRUE(plan_forest(topo::Paths(system, whole_rules())).trees.empty());
}

class ForestOnRandomMachines : public ::testing::TestWithParam<unsigned> {};

TEST_P(ForestOnRandomMachines, IsTheOptimum) {
  const topo::System system = random_machine(GetParam());
  const topo::Paths paths(system, whole_rules());
  Request request;
  const ChannelPlan rings = find_channels(paths, request);
  for (const ForestUse use : kUses) {
    const Forest forest = plan_forest(paths, use);
    if (rings.in_order || rings.channels.empty()) continue;  // they do not reach each other
    expect_valid(paths, use, forest);
    EXPECT_GE(forest.gbps, forest.bound_gbps * (1 - 1e-4));
    EXPECT_LE(forest.gbps, forest.bound_gbps * (1 + 1e-6));
    EXPECT_LE(forest.gbps, forest.cut.gbps * (1 + 1e-6));
    EXPECT_GE(forest.gbps, all_gather_gbps(paths, rings) * (1 - 1e-5));
    double worth = 0;
    for (const Proof::Price& price : forest.proof.prices) worth += price.price * price.gbps;
    EXPECT_NEAR(worth, forest.bound_gbps, forest.bound_gbps * 1e-9);
    if (system.gpus().size() <= 6) {
      EXPECT_GE(cheapest_forest(paths, use, forest.proof), 1 - 1e-9);
    }
    if (system.size() <= 14) {
      EXPECT_NEAR(forest.cut.gbps, narrowest(system, use), forest.cut.gbps * 1e-6);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, ForestOnRandomMachines, seeds(40));

TEST(Forest, IsNeverBelowRings) {
  for (const std::filesystem::path& file : machine_files()) {
    SCOPED_TRACE(file.filename().string());
    const topo::System system = topo::read_nccl_xml(file.string(), topo::Model::kNccl).system;
    if (system.gpus().size() < 2 || system.gpus().size() > 16) continue;
    const topo::Paths paths(system, whole_rules());
    const ChannelPlan rings = find_channels(paths, Request{});
    const Forest forest = plan_forest(paths), few = plan_forest(paths, ForestUse::kAllGather, 1);
    if (rings.in_order || rings.channels.empty()) continue;
    expect_valid(paths, ForestUse::kAllGather, forest);
    expect_valid(paths, ForestUse::kAllGather, few);
    EXPECT_EQ(few.trees.size(), system.gpus().size());
    EXPECT_LE(few.gbps, forest.gbps * (1 + 1e-9));
    EXPECT_GE(forest.gbps, all_gather_gbps(paths, rings) * (1 - 1e-5));
    EXPECT_LE(forest.gbps, forest.bound_gbps * (1 + 1e-6));
    EXPECT_LE(forest.gbps, forest.cut.gbps * (1 + 1e-6));
  }
}

}  // namespace
}  // namespace loom::search
