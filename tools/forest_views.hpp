// forest_views.hpp -- a machine's forests for people and programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "search/forest.hpp"

namespace loom::tools {

struct Forests {
  int nodes = 1;
  search::Forest all_gather, reduce_scatter;
  double rings_gbps = 0;   ///< at which rings all-gather; 0: there are none
  double chains_gbps = 0;  ///< at which chains all-reduce, on one node
  double trees_gbps = 0;   ///< at which trees do whose edges pass what is reduced and what is broadcast
  double search_us = 0;    ///< of both forests
};

/// Whatever use `request` names.
Forests find_forests(const topo::Paths& paths, search::ForestRequest request);

/// What the forests carry, and why none carries more; `explain`: also the prices that prove it, and all
/// trees.
std::string forest_text(const topo::System& system, const Forests& forests, bool explain);
/// On one node: the trees of the first GPU over the machine, and what all trees take of its links.
std::string forest_svg(const topo::Paths& paths, const search::Forest& forest, const std::string& title);
/// The fields of docs/search.md.
nlohmann::json to_json(const topo::System& system, const Forests& forests, bool explain);

}  // namespace loom::tools
