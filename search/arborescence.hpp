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

/// Of one complete graph, from whatever root. Exact, also where ways branch (Edmonds, "Optimum branchings",
/// 1967). Circles are contracted until one place is left, which no root changes (Gabow, Galil, Spencer and
/// Tarjan, "Efficient algorithms for finding minimum spanning trees", 1986); a root only opens those that it
/// is on. Of equally cheap ways the one from the nearest place before is taken, round and round.
class Arborescences {
 public:
  /// costs[i * places + j]: of going from i to j; they must live on. Each step looks at one of them.
  Arborescences(std::span<const double> costs, int places, Steps& steps);

  /// kNever in the cost: some place cannot be reached.
  Arborescence from(int root) const;

 private:
  /// Places of which some stand for circles of the level below.
  struct Level {
    std::vector<int> way_in;    ///< by place: the cheapest, as a number of the costs
    std::vector<int> above;     ///< by place: what it is part of, a level further up
    std::vector<int> place_of;  ///< by place of the lowest level
  };

  std::span<const double> costs_;
  int places_;
  std::vector<Level> levels_;  ///< from the lowest; the one place at the top has none
};

}  // namespace loom::search
