// forest_compare.cpp -- `loom search FOLDER --compare --pattern forest`.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format.hpp"
#include "search/beside_nccl.hpp"
#include "search/path_tables.hpp"
#include "tools/forest_views.hpp"
#include "tools/search_compare.hpp"

namespace loom::tools {
namespace {

using nlohmann::json;

constexpr const char* kHeading =
    "| | | all-gather, one node | | | | two nodes | | | | all-reduce, one node | | |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    "| file | GPUs | NCCL | rings | forest | bound | NCCL | rings | forest | bound | rings | trees | forest "
    "|\n";

/// GB/s at which NCCL's rings all-gather; 0: it has none.
double nccl_all_gather(const json& entry, const char* setting, int nodes, double gpus) {
  const json ring = entry.value(json::json_pointer(loom::format("/{}/graphs/ring", setting)), json{});
  if (ring.empty() || gpus < 2) return 0;
  const double total = search::nccl_total(search::Pattern::kRing, nodes > 1, ring.at("totalBw"),
                                          ring.at("bwIntra"), ring.at("nChannels"));
  return total * gpus / (gpus - 1);
}

std::string figure(double gbps) {
  return gbps > 0 ? loom::format("{:g}", std::round(100 * gbps) / 100) : "-";
}

/// All-gathers, then all-reduces.
std::string row(const std::string& name, const json& entry, const topo::System& system, bool& is_less) {
  const auto gpus = static_cast<double>(system.gpus().size());
  std::string gathers = loom::format("| {} | {:g} ", name.substr(0, name.find(".xml")), gpus), reduces;
  const search::PathTables tables(system);
  for (const int nodes : {1, 2}) {
    Forests forests;
    const bool reached = tables.whole() != nullptr && gpus * nodes > 1;
    if (reached) forests = find_forests(tables.whole()->paths, {.nodes = nodes});
    const search::Forest &gather = forests.all_gather, &scatter = forests.reduce_scatter;
    if (reached && !gather.trees.empty() && gather.gbps < forests.rings_gbps * (1 - 1e-5)) is_less = true;
    gathers += loom::format(
        "| {} | {} | {} | {} ", figure(nccl_all_gather(entry, nodes == 1 ? "n1" : "n2", nodes, gpus * nodes)),
        figure(forests.rings_gbps), figure(gather.gbps), figure(gather.trees.empty() ? 0 : gather.at_most()));
    if (nodes > 1) continue;
    const double sum = gather.gbps + scatter.gbps;
    reduces = loom::format("| {} | {} | {} ", figure(forests.rings_gbps / 2),
                           figure(std::max(forests.chains_gbps, forests.trees_gbps)),
                           figure(sum > 0 ? gather.gbps * scatter.gbps / sum : 0));
  }
  return gathers + reduces + "|\n";
}

}  // namespace

bool compare_forests(const std::string& folder, const std::string& reference) {
  bool is_less = false, has_heading = false;
  for_machines(folder, reference,
               [&](const std::string& name, const json& entry, const topo::System& system) {
                 if (!std::exchange(has_heading, true)) loom::print("{}", kHeading);
                 loom::print("{}", row(name, entry, system, is_less));
               });
  return !is_less;
}

}  // namespace loom::tools
