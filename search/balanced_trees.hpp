// balanced_trees.hpp -- inside search: the trees that a forest begins with.
#pragma once

#include <span>

#include "search/forest_edges.hpp"
#include "search/steps.hpp"
#include "search/symmetry.hpp"

namespace loom::search {

struct BalancedTreesRequest {
  const HopTable& table;
  const Edges& edges;
  std::span<const Symmetry> symmetries;
  std::span<const int> roots;  ///< whose trees the symmetries move to all others
  int nodes_told, last_stands_for;
};

/// Trees that grow by the edge whose links are used least so far, by all trees and their images: a first
/// column that is often the best. By root; empty: some GPU cannot be reached.
Bundle balanced_trees(const BalancedTreesRequest& request, Steps& steps);

}  // namespace loom::search
