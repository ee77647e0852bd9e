#include "search/flow.hpp"

#include <algorithm>
#include <queue>

namespace loom::search {
namespace {

constexpr double kLeast = 1e-9;

}  // namespace

Flow::Flow(const topo::System& system, Steps& steps, std::span<const double> scales)
    : edges_of_(static_cast<std::size_t>(system.size()) * scales.size()), steps_(steps) {
  int first = 0;
  for (const double scale : scales) {
    for (const topo::Link& link : system.links()) add(first + link.from, first + link.to, scale * link.gbps);
    first += system.size();
  }
}

int Flow::add_node() {
  edges_of_.emplace_back();
  return static_cast<int>(edges_of_.size()) - 1;
}

std::size_t Flow::add(int from, int to, double capacity) {
  const std::size_t edge = edges_.size();
  edges_of_[static_cast<std::size_t>(from)].push_back(edge);
  edges_.push_back({to, capacity, capacity});
  edges_of_[static_cast<std::size_t>(to)].push_back(edges_.size());
  edges_.push_back({from, 0, 0});
  return edge;
}

double Flow::between(int from, int to) {
  for (Edge& edge : edges_) edge.left = edge.capacity;
  double total = 0;
  while (find_layers(from, to)) {
    steps_.take(4 * static_cast<std::int64_t>(edges_.size()));
    next_.assign(edges_of_.size(), 0);
    while (const double pushed = push(from, to)) total += pushed;
  }
  return total;
}

bool Flow::find_layers(int from, int to) {
  layer_.assign(edges_of_.size(), -1);
  std::queue<int> queue;
  layer_[static_cast<std::size_t>(from)] = 0;
  for (queue.push(from); !queue.empty(); queue.pop())
    for (const std::size_t id : edges_of_[static_cast<std::size_t>(queue.front())]) {
      int& layer = layer_[static_cast<std::size_t>(edges_[id].to)];
      if (layer >= 0 || edges_[id].left <= kLeast) continue;
      layer = layer_[static_cast<std::size_t>(queue.front())] + 1;
      queue.push(edges_[id].to);
    }
  return layer_[static_cast<std::size_t>(to)] >= 0;
}

/// One path along the layers, without recursion; 0: none is left.
double Flow::push(int from, int to) {
  std::vector<std::size_t> path;
  for (int here = from; here != to;) {
    const std::vector<std::size_t>& edges = edges_of_[static_cast<std::size_t>(here)];
    std::size_t& next = next_[static_cast<std::size_t>(here)];
    while (next < edges.size() && !leads_on(here, edges_[edges[next]])) ++next;
    if (next < edges.size()) {
      path.push_back(edges[next]);
      here = edges_[edges[next]].to;
    } else {
      if (path.empty()) return 0;
      here = edges_[path.back() ^ 1].to;
      ++next_[static_cast<std::size_t>(here)];
      path.pop_back();
    }
  }
  double least = edges_[path.front()].left;
  for (const std::size_t id : path) least = std::min(least, edges_[id].left);
  for (const std::size_t id : path) edges_[id].left -= least, edges_[id ^ 1].left += least;
  return least;
}

bool Flow::leads_on(int here, const Edge& edge) const {
  return edge.left > kLeast &&
         layer_[static_cast<std::size_t>(edge.to)] == layer_[static_cast<std::size_t>(here)] + 1;
}

}  // namespace loom::search
