#include "search/bounds.hpp"

#include <algorithm>
#include <queue>
#include <vector>

namespace loom::search {
namespace {

constexpr double kLeast = 1e-9;

/// Maximum flow by shortest augmenting paths in layers (Dinic), on a machine's links.
class Flow {
 public:
  explicit Flow(const topo::System& system) : edges_of_(static_cast<std::size_t>(system.size())) {
    for (const topo::Link& link : system.links()) add(link.from, link.to, link.gbps);
  }

  /// A node more. Edges that it gets are not limited.
  int add_node() {
    edges_of_.emplace_back();
    return static_cast<int>(edges_of_.size()) - 1;
  }
  void add(int from, int to, double capacity) {
    edges_of_[static_cast<std::size_t>(from)].push_back(edges_.size());
    edges_.push_back({to, capacity, capacity});
    edges_of_[static_cast<std::size_t>(to)].push_back(edges_.size());
    edges_.push_back({from, 0, 0});
  }

  double between(int from, int to) {
    for (Edge& edge : edges_) edge.left = edge.capacity;
    double total = 0;
    while (find_layers(from, to)) {
      next_.assign(edges_of_.size(), 0);
      while (const double pushed = push(from, to)) total += pushed;
    }
    return total;
  }

 private:
  struct Edge {
    int to;
    double capacity, left;
  };

  bool find_layers(int from, int to) {
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
  double push(int from, int to) {
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
  bool leads_on(int here, const Edge& edge) const {
    return edge.left > kLeast &&
           layer_[static_cast<std::size_t>(edge.to)] == layer_[static_cast<std::size_t>(here)] + 1;
  }

  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<Edge> edges_;
  std::vector<int> layer_;
  std::vector<std::size_t> next_;
};

}  // namespace

double ring_cut_bound(const topo::System& system, const HopTable& table, bool network) {
  constexpr double kUnlimited = 1e9;
  double bound = kUnlimited;
  if (network) {  // every channel comes from outside to every GPU, and goes back
    Flow in(system), out(system);
    const int outside = in.add_node();
    out.add_node();
    for (int net = 0; net < table.nets(); ++net) {
      in.add(outside, table.node(table.net(net)), kUnlimited);
      out.add(table.node(table.net(net)), outside, kUnlimited);
    }
    for (int gpu = 0; gpu < table.gpus(); ++gpu)
      bound = std::min({bound, in.between(outside, table.node(gpu)), out.between(table.node(gpu), outside)});
    return bound;
  }
  Flow flow(system);
  for (int gpu = 1; gpu < table.gpus(); ++gpu)
    bound = std::min(
        {bound, flow.between(table.node(0), table.node(gpu)), flow.between(table.node(gpu), table.node(0))});
  return bound;
}

}  // namespace loom::search
