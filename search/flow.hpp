// flow.hpp -- how much could flow on a machine's links from one place to another, whatever way it took.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "search/steps.hpp"
#include "topo/system.hpp"

namespace loom::search {

inline constexpr double kOneCopy[] = {1};

/// Maximum flow by shortest augmenting paths in layers (Dinic), on a machine's links.
class Flow {
 public:
  /// Copies of the machine, not joined: node i of copy k is k * system.size() + i, and its links have
  /// scales[k] times their bandwidth.
  Flow(const topo::System& system, Steps& steps, std::span<const double> scales = kOneCopy);

  /// A node more. Edges that it gets are not limited.
  int add_node();
  /// Returns the edge's number.
  std::size_t add(int from, int to, double capacity);
  void set_capacity(std::size_t edge, double capacity) { edges_[edge].capacity = capacity; }

  /// GB/s.
  double between(int from, int to);
  /// On the side of `from` of the cut that limited the last between(): links from there to the other side are
  /// used up.
  bool is_before(int node) const { return layer_[static_cast<std::size_t>(node)] >= 0; }

 private:
  struct Edge {
    int to;
    double capacity, left;
  };

  bool find_layers(int from, int to);
  double push(int from, int to);
  bool leads_on(int here, const Edge& edge) const;

  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<Edge> edges_;
  std::vector<int> layer_;
  std::vector<std::size_t> next_;
  Steps& steps_;
};

}  // namespace loom::search
