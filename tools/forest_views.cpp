#include "tools/forest_views.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "search/spanning_trees.hpp"
#include "tools/search_views.hpp"
#include "tools/words.hpp"

namespace loom::tools {
namespace {

using search::Forest;
using search::RootedTree;

/// As many as `pack_spanning_trees` takes in a second.
constexpr std::size_t kMostGpusForTrees = 32;

/// "1" or "2 to 5".
std::string trees_of_a_root(const Forest& forest) {
  std::map<int, int> of_root;
  for (const RootedTree& tree : forest.trees) ++of_root[tree.root];
  const auto [least, most] =
      std::ranges::minmax_element(of_root, {}, [](const auto& entry) { return entry.second; });
  return least->second == most->second ? loom::format("{}", most->second)
                                       : loom::format("{} to {}", least->second, most->second);
}

/// "0", and where it stands for all others "1-9".
std::string node_text(int node, int last, int nodes) {
  return node == last && nodes > last + 1 ? loom::format("{}-{}", node, nodes - 1) : loom::format("{}", node);
}

/// "3", of several nodes "1:3".
std::string name_of(const search::Place& place, int nodes) {
  if (nodes == 1) return loom::format("{}", place.rank);
  return loom::format("{}:{}", node_text(place.node, search::kMostNodesTold - 1, nodes), place.rank);
}

/// "0-3,6", of several nodes "0:1-7 1-9:0-7".
std::string names_of(const search::Cut& cut, int nodes) {
  std::map<int, std::vector<int>> ranks;
  for (const search::Place& place : cut.side) ranks[place.node].push_back(place.rank);
  std::string text;
  for (auto& [node, of] : ranks) {
    std::ranges::sort(of);
    if (!text.empty()) text += ' ';
    if (nodes > 1) text += node_text(node, 1, nodes) + ":";
    text += ranges_text(of);
  }
  return text;
}

std::string use_text(const topo::System& system, const char* does, const char* lead, const Forest& forest,
                     int nodes, bool explain) {
  std::string text =
      loom::format("forest: {} {:.5g} of at most {:.5g} GB/s, {:.1f} %; {} trees, {} for each root{}\n", does,
                   forest.gbps, forest.at_most(), 100 * forest.gbps / forest.at_most(), forest.trees.size(),
                   trees_of_a_root(forest), nodes == 1 ? "" : " of a node");
  text += loom::format("  whatever way data take, at most {:.5g}: {:.5g} GB/s of links lead {} {} ({})\n",
                       forest.cut.gbps, forest.cut.links_gbps, lead, counted(forest.cut.gpus, "GPU"),
                       names_of(forest.cut, nodes));
  if (!explain) return text;
  text += loom::format(
      "  no more than {:.6g} GB/s over the hops of kernels: at these prices{} a GB/s costs at least 1, and "
      "all there is costs that "
      "much:\n",
      forest.bound_gbps, nodes == 1 ? "" : ", the same on every node,");
  for (const search::Proof::Price& price : forest.proof.prices)
    text += loom::format("    {}, {:.6g} GB/s at {:.4g}\n", label(system, price), price.gbps, price.price);
  for (const RootedTree& tree : forest.trees) {
    text += loom::format("  {:.5g} GB/s, root {}:", tree.gbps, name_of({0, tree.root}, nodes));
    for (const search::TreeEdge& edge : tree.edges) {
      text += loom::format(" {}>", name_of(edge.from, nodes));
      if (edge.out != topo::kNoNode)
        text += loom::format("{}>{}>", topo::label(system, edge.out), topo::label(system, edge.in));
      text += name_of(edge.to, nodes);
    }
    text += "\n";
  }
  return text;
}

nlohmann::json json_of(const search::Place& place) {
  return nlohmann::json::array({place.node, place.rank});
}

nlohmann::json use_json(const topo::System& system, const Forest& forest, bool explain) {
  nlohmann::json trees = nlohmann::json::array(), side = nlohmann::json::array();
  for (const search::Place& place : forest.cut.side) side.push_back(json_of(place));
  for (const RootedTree& tree : explain ? forest.trees : std::vector<RootedTree>()) {
    nlohmann::json edges = nlohmann::json::array();
    for (const search::TreeEdge& edge : tree.edges) {
      nlohmann::json way = {edge.from.node, edge.from.rank, edge.to.node, edge.to.rank};
      if (edge.out != topo::kNoNode)
        way.insert(way.end(), {topo::label(system, edge.out), topo::label(system, edge.in)});
      edges.push_back(std::move(way));
    }
    trees.push_back({{"root", tree.root}, {"bandwidth_gbps", tree.gbps}, {"edges", std::move(edges)}});
  }
  nlohmann::json use = {{"total_bandwidth_gbps", forest.gbps},
                        {"bound_gbps", forest.bound_gbps},
                        {"cut",
                         {{"side", std::move(side)},
                          {"gpus", forest.cut.gpus},
                          {"links_gbps", forest.cut.links_gbps},
                          {"bound_gbps", forest.cut.gbps}}},
                        {"tree_count", forest.trees.size()}};
  if (explain) {
    use["trees"] = std::move(trees);
    use["proof"] = tools::to_json(system, forest.proof);
  }
  return use;
}

}  // namespace

Forests find_forests(const topo::Paths& paths, search::ForestRequest request) {
  Forests forests;
  forests.nodes = request.nodes;
  const auto start = std::chrono::steady_clock::now();
  request.use = search::ForestUse::kAllGather;
  forests.all_gather = search::plan_forest(paths, request);
  request.use = search::ForestUse::kReduceScatter;
  forests.reduce_scatter = search::plan_forest(paths, request);
  forests.search_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  search::Request channels;
  channels.nodes = request.nodes;
  if (request.cross_nic == 0) channels.cross_nic = 0;
  if (request.max_trees > 0) channels.max_channels = request.max_trees;
  const auto found = [&](search::Pattern pattern) {
    channels.pattern = pattern;
    search::ChannelPlan plan = search::find_channels(paths, channels);
    if (plan.in_order) plan.channels.clear();
    return plan;
  };
  if (const search::ChannelPlan rings = found(search::Pattern::kRing); !rings.channels.empty())
    forests.rings_gbps = search::all_gather_gbps(paths, rings, request.nodes);
  if (request.nodes > 1) return forests;
  if (const search::ChannelPlan chains = found(search::Pattern::kTree); !chains.channels.empty())
    forests.chains_gbps = search::all_reduce_gbps(paths, chains);
  if (paths.system().gpus().size() <= kMostGpusForTrees)
    forests.trees_gbps = search::pack_spanning_trees(paths).gbps;
  return forests;
}

std::string forest_text(const topo::System& system, const Forests& forests, bool explain) {
  for (const Forest* forest : {&forests.all_gather, &forests.reduce_scatter})
    if (forest->trees.empty()) return loom::format("forest: not on this machine: {}\n", forest->absent);
  std::string text =
      use_text(system, "all-gathers", "out of", forests.all_gather, forests.nodes, explain) +
      use_text(system, "reduce-scatters", "into", forests.reduce_scatter, forests.nodes, explain);
  text += loom::format("beside: rings all-gather {:.5g} GB/s", forests.rings_gbps);
  if (forests.chains_gbps > 0) text += loom::format("; chains all-reduce {:.5g}", forests.chains_gbps);
  if (forests.trees_gbps > 0) text += loom::format(", trees of any shape {:.5g}", forests.trees_gbps);
  return text + loom::format("; {:.0f} us\n", forests.search_us);
}

nlohmann::json to_json(const topo::System& system, const Forests& forests, bool explain) {
  nlohmann::json result = {{"pattern", "forest"},
                           {"nodes", forests.nodes},
                           {"rings_all_gather_gbps", forests.rings_gbps},
                           {"search_us", forests.search_us}};
  if (forests.nodes == 1) {
    result["chains_all_reduce_gbps"] = forests.chains_gbps;
    result["packed_trees_gbps"] = forests.trees_gbps;
  }
  for (const Forest* forest : {&forests.all_gather, &forests.reduce_scatter})
    if (forest->trees.empty()) {
      result["absent"] = forest->absent;
      return result;
    }
  result["all_gather"] = use_json(system, forests.all_gather, explain);
  result["reduce_scatter"] = use_json(system, forests.reduce_scatter, explain);
  return result;
}

}  // namespace loom::tools
