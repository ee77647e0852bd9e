// arborescence.hpp -- the cheapest way to reach every place from one.
#pragma once

#include <span>
#include <vector>

#include "search/steps.hpp"

namespace loom::search {

struct Arborescence {
  double cost = 0;
  std::vector<int> before;  ///< by place: where the way to it comes from; -1: the root
};

/// costs[i * places + j]: of going from i to j. Exact, also where ways branch (Edmonds, "Optimum branchings",
/// 1967). Of equally cheap ways the one from the nearest place before is taken, round and round. kNever in
/// the cost: some place cannot be reached.
Arborescence cheapest_arborescence(std::span<const double> costs, int places, int root, Steps& steps);

}  // namespace loom::search
