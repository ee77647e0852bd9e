#include "tools/forest_views.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "search/resources.hpp"
#include "search/spanning_trees.hpp"
#include "tools/search_views.hpp"

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

std::string use_text(const topo::System& system, const char* does, const char* lead, const Forest& forest,
                     bool explain) {
  std::string text = loom::format(
      "forest: {} {:.5g} of at most {:.5g} GB/s, {:.1f} %; {} trees, {} for each root\n", does, forest.gbps,
      forest.bound_gbps, 100 * forest.gbps / forest.bound_gbps, forest.trees.size(), trees_of_a_root(forest));
  text += loom::format("  whatever way data take, at most {:.5g}: {:.5g} GB/s of links lead {} GPUs {}\n",
                       forest.cut.gbps, forest.cut.links_gbps, lead, loom::join(forest.cut.side, " "));
  if (!explain) return text;
  text += loom::format(
      "  no more than {:.6g} GB/s over the hops of kernels: at these prices a GB/s costs at least 1, and all "
      "there is costs that much:\n",
      forest.bound_gbps);
  const search::Resources resources(system);
  for (const search::Proof::Price& price : forest.proof.prices)
    text += loom::format("    {}, {:.6g} GB/s at {:.4g}\n", resources.label(price.number), price.gbps,
                         price.price);
  for (const RootedTree& tree : forest.trees) {
    text += loom::format("  {:.5g} GB/s, root {}:", tree.gbps, tree.root);
    for (const auto& [from, to] : tree.edges) text += loom::format(" {}>{}", from, to);
    text += "\n";
  }
  return text;
}

nlohmann::json use_json(const topo::System& system, const Forest& forest, bool explain) {
  nlohmann::json trees = nlohmann::json::array(), prices = nlohmann::json::array();
  for (const RootedTree& tree : forest.trees)
    trees.push_back({{"root", tree.root}, {"bandwidth_gbps", tree.gbps}, {"edges", tree.edges}});
  nlohmann::json use = {
      {"total_bandwidth_gbps", forest.gbps},
      {"bound_gbps", forest.bound_gbps},
      {"cut",
       {{"side", forest.cut.side}, {"links_gbps", forest.cut.links_gbps}, {"bound_gbps", forest.cut.gbps}}},
      {"trees", std::move(trees)}};
  if (!explain) return use;
  const search::Resources resources(system);
  for (const search::Proof::Price& price : forest.proof.prices)
    prices.push_back({{"of", resources.label(price.number)}, {"gbps", price.gbps}, {"price", price.price}});
  use["prices"] = std::move(prices);
  return use;
}

}  // namespace

Forests find_forests(const topo::Paths& paths, int max_trees) {
  Forests forests;
  const auto start = std::chrono::steady_clock::now();
  forests.all_gather = search::plan_forest(paths, search::ForestUse::kAllGather, max_trees);
  forests.reduce_scatter = search::plan_forest(paths, search::ForestUse::kReduceScatter, max_trees);
  forests.search_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  search::Request request;
  if (const search::ChannelPlan rings = search::find_channels(paths, request);
      !rings.in_order && !rings.channels.empty())
    forests.rings_gbps = search::all_gather_gbps(paths, rings);
  request.pattern = search::Pattern::kTree;
  if (const search::ChannelPlan chains = search::find_channels(paths, request);
      !chains.in_order && !chains.channels.empty())
    forests.chains_gbps = search::all_reduce_gbps(paths, chains);
  if (paths.system().gpus().size() <= kMostGpusForTrees)
    forests.trees_gbps = search::pack_spanning_trees(paths).gbps;
  return forests;
}

std::string forest_text(const topo::System& system, const Forests& forests, bool explain) {
  if (forests.all_gather.trees.empty())
    return "forest: not on this machine: it takes two GPUs or more that reach each other\n";
  std::string text = use_text(system, "all-gathers", "out of", forests.all_gather, explain) +
                     use_text(system, "reduce-scatters", "into", forests.reduce_scatter, explain);
  text += loom::format("beside: rings all-gather {:.5g} GB/s; chains all-reduce {:.5g}", forests.rings_gbps,
                       forests.chains_gbps);
  if (forests.trees_gbps > 0) text += loom::format(", trees of any shape {:.5g}", forests.trees_gbps);
  return text + loom::format("; {:.0f} us\n", forests.search_us);
}

nlohmann::json to_json(const topo::System& system, const Forests& forests, bool explain) {
  nlohmann::json result = {{"pattern", "forest"},
                           {"rings_all_gather_gbps", forests.rings_gbps},
                           {"chains_all_reduce_gbps", forests.chains_gbps},
                           {"packed_trees_gbps", forests.trees_gbps},
                           {"search_us", forests.search_us}};
  if (forests.all_gather.trees.empty()) {
    result["absent"] = "it takes two GPUs or more that reach each other";
    return result;
  }
  result["all_gather"] = use_json(system, forests.all_gather, explain);
  result["reduce_scatter"] = use_json(system, forests.reduce_scatter, explain);
  return result;
}

}  // namespace loom::tools
