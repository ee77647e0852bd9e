#include "search/forest.hpp"

#include <cmath>
#include <set>

#include "search_cases.hpp"
#include "topo/bandwidth.hpp"

namespace loom::search {
namespace {

constexpr ForestUse kUses[] = {ForestUse::kAllGather, ForestUse::kReduceScatter};

/// What a hop takes of Resources, by number, or data that come back over it.
std::vector<std::pair<int, double>> taken_by(const topo::Paths& paths, ForestUse use, topo::NodeId from,
                                             topo::NodeId to) {
  return use == ForestUse::kAllGather ? charges(paths, from, to) : charges(paths, to, from);
}

/// Every root has its part of the whole, in spanning trees, and those of all nodes fit together.
void expect_valid(const topo::Paths& paths, const ForestRequest& request, const Forest& forest) {
  const topo::System& system = paths.system();
  const int told = std::min(request.nodes, kMostNodesTold);
  const std::size_t gpus = system.gpus().size(), places = gpus * static_cast<std::size_t>(told);
  const double whole = static_cast<double>(gpus) * request.nodes;
  std::map<int, double> of_root;
  std::map<int, double>
      taken;  // by resource, of every node: what a tree takes of any node, another one does there
  for (const RootedTree& tree : forest.trees) {
    EXPECT_GT(tree.gbps, 0);
    of_root[tree.root] += tree.gbps;
    std::set<Place> reached{{0, tree.root}};
    for (const TreeEdge& edge : tree.edges) {
      EXPECT_TRUE(reached.contains(edge.from));
      EXPECT_TRUE(reached.insert(edge.to).second)
          << "node " << edge.to.node << " rank " << edge.to.rank << " twice";
      const topo::NodeId from = system.gpu_of_rank(edge.from.rank), to = system.gpu_of_rank(edge.to.rank);
      EXPECT_EQ(edge.out == topo::kNoNode, edge.from.node == edge.to.node);
      const double nodes = edge.to.node == told - 1 ? request.nodes - told + 1 : 1;
      const auto take = [&](topo::NodeId here, topo::NodeId there) {
        for (const auto& [resource, factor] : taken_by(paths, request.use, here, there))
          taken[resource] += factor * tree.gbps * nodes;
      };
      if (edge.out == topo::kNoNode) {
        take(from, to);
      } else {
        take(from, edge.out);
        take(edge.in, to);
        const topo::NetInfo &out = system.node(edge.out).net(), &in = system.node(edge.in).net();
        EXPECT_TRUE(request.cross_nic != 0 || edge.out == edge.in || (out.rail && out.rail == in.rail));
      }
    }
    EXPECT_EQ(reached.size(), places);
  }
  EXPECT_EQ(of_root.size(), gpus);
  for (const auto& [root, gbps] : of_root)
    EXPECT_NEAR(gbps, forest.gbps / whole, forest.gbps * 1e-6) << "root " << root;
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

/// What the trees of a node's roots cost at the proof's prices, for a GB/s of the whole: all trees are tried.
double cheapest_forest(const topo::Paths& paths, const ForestRequest& request, const Proof& proof) {
  std::map<int, double> prices;
  for (const Proof::Price& price : proof.prices) prices[price.number] += price.price;
  const auto price_of = [&](topo::NodeId from, topo::NodeId to) {
    double sum = 0;
    const auto taken = taken_by(paths, request.use, from, to);
    if (taken.empty()) return std::numeric_limits<double>::infinity();
    for (const auto& [resource, factor] : taken) sum += factor * prices[resource];
    return sum;
  };
  const auto gpus = paths.system().gpus();
  const int g = static_cast<int>(gpus.size()), n = g * request.nodes;
  std::map<std::pair<int, int>, double> costs;
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to) {
      if (from == to) continue;
      const topo::NodeId here = gpus[static_cast<std::size_t>(from % g)],
                         there = gpus[static_cast<std::size_t>(to % g)];
      double& cost = costs[{from, to}] = std::numeric_limits<double>::infinity();
      if (from / g == to / g) {
        cost = price_of(here, there);
        continue;
      }
      for (const topo::NodeId out : paths.system().of_kind(topo::NodeKind::kNet))
        for (const topo::NodeId in : paths.system().of_kind(topo::NodeKind::kNet)) {
          const topo::NetInfo &a = paths.system().node(out).net(), &b = paths.system().node(in).net();
          if (a.is_net && b.is_net && (!a.plane || !b.plane || a.plane == b.plane))
            cost = std::min(cost, price_of(here, out) + price_of(in, there));
        }
    }
  double sum = 0;
  for (int root = 0; root < g; ++root) {
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
    const ForestRequest request{.use = use};
    const Forest forest = plan_forest(paths, request);
    // Seven eighths of the whole come into a GPU.
    EXPECT_NEAR(forest.gbps, 18 * 20.6 * 8 / 7, 1e-3);
    EXPECT_NEAR(forest.bound_gbps, forest.gbps, 1e-3);
    // Data could take the GPU's PCI link, too; kernels do not.
    EXPECT_NEAR(forest.cut.gbps, (18 * 20.6 + 48) * 8 / 7, 1e-3);
    EXPECT_EQ(forest.cut.side.size(), 7U);
    expect_valid(paths, request, forest);
  }
}

TEST(Forest, FillsThePortsOfNodes) {
  const topo::System system = machine("dgxh100.xml");
  const topo::Paths paths(system, whole_rules());
  double ports = 0;
  for (const topo::NodeId net : system.of_kind(topo::NodeKind::kNet))
    ports += topo::net_gbps(system.node(net).net().speed_mbps);
  for (const int nodes : {2, 3, 4, 100, 1000}) {
    SCOPED_TRACE(loom::format("{} nodes", nodes));
    const ForestRequest request{.nodes = nodes};
    const Forest forest = plan_forest(paths, request);
    EXPECT_LE(forest.gbps, ports * nodes / (nodes - 1) * (1 + 1e-6));  // what all others have comes in
    EXPECT_GE(forest.gbps, forest.bound_gbps * (1 - 1e-4));
    expect_valid(paths, request, forest);
  }
}

TEST(Forest, OfOneGpuIsEmpty) {
  const topo::System system = topo::trimmed_to(machine("dgxh100.xml"), std::vector{3});
  EXPECT_TRUE(plan_forest(topo::Paths(system, whole_rules())).trees.empty());
}

TEST(Forest, OfManyNodesIsThatOfThreeButForTheirShare) {
  const topo::System system = machine("dgx1v.xml");
  const topo::Paths paths(system, whole_rules());
  const double gpus = static_cast<double>(system.gpus().size());
  double before = 0;
  for (const int nodes : {3, 4, 10, 1000000}) {
    SCOPED_TRACE(loom::format("{} nodes", nodes));
    const ForestRequest request{.nodes = nodes};
    const Forest forest = plan_forest(paths, request);
    expect_valid(paths, request, forest);
    EXPECT_GE(forest.gbps, forest.bound_gbps * (1 - 1e-4));
    EXPECT_LE(forest.gbps, forest.at_most() * (1 + 1e-6));
    EXPECT_EQ(forest.cut.gbps, forest.cut.links_gbps / forest.cut.gpus * gpus * nodes);
    if (before > 0) {
      EXPECT_LT(forest.gbps, before);  // the more nodes, the larger the part that comes in
    }
    before = forest.gbps;
  }
}

TEST(Forest, OfOneRailDoesNotCross) {
  const topo::System system = machine("dgxh100.xml");
  const ForestRequest request{.nodes = 3, .cross_nic = 0};
  const topo::Paths paths(system, whole_rules());
  const Forest forest = plan_forest(paths, request);
  EXPECT_GE(forest.gbps, forest.bound_gbps * (1 - 1e-4));
  expect_valid(paths, request, forest);
}

TEST(Forest, OfFewTreesCarriesMoreTheMoreThereAre) {
  for (const char* file : {"dgxh100.xml", "dgx1v.xml", "pcie-2socket.xml"}) {
    const topo::System system = machine(file);
    const topo::Paths paths(system, whole_rules());
    for (const int nodes : {1, 3}) {
      SCOPED_TRACE(loom::format("{}, {} nodes", file, nodes));
      const Forest best = plan_forest(paths, {.nodes = nodes});
      if (best.trees.empty()) continue;
      double before = best.gbps / 3;  // of one tree for each root
      for (const int trees : {1, 2, 4, 16}) {
        const ForestRequest request{.nodes = nodes, .max_trees = trees};
        const Forest forest = plan_forest(paths, request);
        expect_valid(paths, request, forest);
        EXPECT_LE(forest.trees.size(), system.gpus().size() * static_cast<std::size_t>(trees));
        EXPECT_GE(forest.gbps, before * (1 - 1e-9)) << trees;
        EXPECT_LE(forest.gbps, best.gbps * (1 + 1e-9)) << trees;
        before = forest.gbps;
      }
    }
  }
}

/// Without ports.
topo::System nvswitch_of(int gpus) {
  int drawn = 0;
  return machine_from([&] { return drawn++ == 1 ? static_cast<unsigned>(gpus - 2) : 0U; }, true, gpus);
}

TEST(Forest, SaysWhyThereIsNone) {
  const topo::System one = topo::trimmed_to(machine("dgxh100.xml"), std::vector{3});
  EXPECT_EQ(plan_forest(topo::Paths(one, whole_rules())).absent, "there is one GPU");
  const topo::System no_ports = nvswitch_of(4);
  EXPECT_EQ(plan_forest(topo::Paths(no_ports, whole_rules()), {.nodes = 2}).absent,
            "no two ports join nodes");
}

TEST(Forest, OfTooManyGpusIsRefused) {
  const topo::System system = nvswitch_of(90);
  const topo::Paths paths(system, whole_rules());
  EXPECT_FALSE(plan_forest(paths).trees.empty());
  EXPECT_THROW(plan_forest(paths, {.nodes = 3}), Error);
}

class ForestOnRandomMachines : public ::testing::TestWithParam<unsigned> {};

TEST_P(ForestOnRandomMachines, IsTheOptimum) {
  const topo::System system = random_machine(GetParam());
  const topo::Paths paths(system, whole_rules());
  for (const int nodes : {1, 2}) {
    Request channels;
    channels.nodes = nodes;
    const ChannelPlan rings = find_channels(paths, channels);
    if (rings.in_order || rings.channels.empty()) continue;  // they do not reach each other
    for (const ForestUse use : kUses) {
      SCOPED_TRACE(loom::format("{} nodes, use {}", nodes, static_cast<int>(use)));
      const ForestRequest request{.use = use, .nodes = nodes};
      const Forest forest = plan_forest(paths, request);
      expect_valid(paths, request, forest);
      EXPECT_GE(forest.gbps, forest.bound_gbps * (1 - 1e-4));
      EXPECT_LE(forest.gbps, forest.bound_gbps * (1 + 1e-6));
      EXPECT_LE(forest.gbps, forest.cut.gbps * (1 + 1e-6));
      if (use == ForestUse::kAllGather) {  // what rings take on their way back differs
        EXPECT_GE(forest.gbps, all_gather_gbps(paths, rings, nodes) * (1 - 1e-5));
      }
      double worth = 0;
      for (const Proof::Price& price : forest.proof.prices) worth += price.price * price.gbps;
      EXPECT_NEAR(worth, forest.bound_gbps, forest.bound_gbps * 1e-9);
      const bool shares_cables = std::ranges::any_of(
          forest.proof.prices, [](const Proof::Price& price) { return price.number < 0; });
      if (static_cast<int>(system.gpus().size()) * nodes <= 6 && !shares_cables) {
        EXPECT_GE(cheapest_forest(paths, request, forest.proof), 1 - 1e-9);
      }
      if (system.size() <= 14 && nodes == 1) {
        EXPECT_NEAR(forest.cut.gbps, narrowest(system, use), forest.cut.gbps * 1e-6);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, ForestOnRandomMachines, seeds(60));

TEST(Forest, IsNeverBelowRings) {
  for (const std::filesystem::path& file : machine_files()) {
    SCOPED_TRACE(file.filename().string());
    const topo::System system = topo::read_nccl_xml(file.string(), topo::Model::kNccl).system;
    if (system.gpus().size() < 2 || system.gpus().size() > 16) continue;
    const topo::Paths paths(system, whole_rules());
    const ChannelPlan rings = find_channels(paths, Request{});
    if (rings.in_order || rings.channels.empty()) continue;
    const ForestRequest one_tree{.max_trees = 1};
    const Forest forest = plan_forest(paths), few = plan_forest(paths, one_tree);
    expect_valid(paths, {}, forest);
    expect_valid(paths, one_tree, few);
    EXPECT_EQ(few.trees.size(), system.gpus().size());
    EXPECT_LE(few.gbps, forest.gbps * (1 + 1e-9));
    EXPECT_GE(forest.gbps, all_gather_gbps(paths, rings) * (1 - 1e-5));
    EXPECT_LE(forest.gbps, forest.bound_gbps * (1 + 1e-6));
    EXPECT_LE(forest.gbps, forest.cut.gbps * (1 + 1e-6));
  }
}

}  // namespace
}  // namespace loom::search
