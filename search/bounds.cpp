#include "search/bounds.hpp"

#include <algorithm>
#include <queue>
#include <span>
#include <vector>

namespace loom::search {
namespace {

constexpr double kLeast = 1e-9;

/// Maximum flow by shortest augmenting paths in layers (Dinic), on a machine's links.
class Flow {
 public:
  Flow(const topo::System& system, Steps& steps)
      : edges_of_(static_cast<std::size_t>(system.size())), steps_(steps) {
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
      steps_.take(4 * static_cast<std::int64_t>(edges_.size()));
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
  Steps& steps_;
};

}  // namespace

namespace {

constexpr double kUnlimited = 1e9;

/// The sum of the links that hops `from`[i] -> `to`[i] take at `end`, the last ones of those that come in or
/// the first ones of those that go out.
double ends_at(const HopTable& table, int end, bool in, int first_other, int last_other) {
  std::vector<Load> least_factor;  // each resource once
  for (int other = first_other; other < last_other; ++other) {
    if (other == end) continue;
    const Hop& hop = in ? table.hop(other, end) : table.hop(end, other);
    if (hop.count == 0) continue;
    const std::span<const Load> loads = table.loads(hop);
    const auto is_there = [&](const Load& load) {
      const topo::LinkId link = table.resources()[static_cast<std::size_t>(load.resource)].link;
      if (link == topo::kNoLink) return false;
      const topo::Link& crossed = table.system().link(link);
      return (in ? crossed.to : crossed.from) == table.node(end);
    };
    const auto last = std::find_if(loads.rbegin(), loads.rend(), is_there);
    if (last == loads.rend()) return kUnlimited;
    const auto known = std::find_if(least_factor.begin(), least_factor.end(),
                                    [&](const Load& load) { return load.resource == last->resource; });
    if (known == least_factor.end())
      least_factor.push_back(*last);
    else
      known->factor = std::min(known->factor, last->factor);
  }
  double sum = 0;
  for (const Load& load : least_factor)
    sum += table.resources()[static_cast<std::size_t>(load.resource)].gbps / load.factor;
  return sum;
}

/// What ports can carry together, in one direction.
double ports_sum(const HopTable& table, bool in, double* widest) {
  double sum = 0;
  for (int net = 0; net < table.nets(); ++net) {
    const double gbps = ends_at(table, table.net(net), !in, 0, table.gpus());
    *widest = std::max(*widest, gbps);
    sum += gbps;
  }
  return sum;
}

/// Every channel passes all these ends but the one where it begins (or ends): b GB/s that begin at end e
/// spare its `gbps`. So m of them carry T GB/s only if m T <= sum + T, and one at which no channel begins all
/// of T.
double chain_bound(std::vector<double> gbps, int max_channels) {
  std::sort(gbps.begin(), gbps.end());
  double bound = kUnlimited, sum = 0;
  for (std::size_t m = 1; m <= gbps.size(); ++m) {
    sum += gbps[m - 1];
    if (m > static_cast<std::size_t>(max_channels)) return std::min(bound, gbps[m - 1]);
    if (m > 1) bound = std::min(bound, sum / static_cast<double>(m - 1));
  }
  return bound;
}

}  // namespace

double end_bound(const HopTable& table, Pattern pattern, bool network, int max_channels) {
  double bound = kUnlimited;
  if (network) {
    double widest = 0;
    bound = std::min(ports_sum(table, true, &widest), ports_sum(table, false, &widest));
    bound = std::min(bound, widest * max_channels);
  }
  if (pattern == Pattern::kNvls || pattern == Pattern::kCollnetDirect || table.gpus() < 2) return bound;
  std::vector<double> in, out;
  for (int gpu = 0; gpu < table.gpus(); ++gpu) {
    in.push_back(ends_at(table, gpu, true, 0, table.gpus()));
    out.push_back(ends_at(table, gpu, false, 0, table.gpus()));
  }
  const int ends = table.gpus() + table.nets();
  for (int gpu = 0; network && gpu < table.gpus(); ++gpu) {  // from a port every channel enters every GPU
    const auto i = static_cast<std::size_t>(gpu);            // ports only add to what other GPUs can send
    if (in[i] < bound) bound = std::min(bound, ends_at(table, gpu, true, 0, ends));
    if (pattern == Pattern::kRing && out[i] < bound)
      bound = std::min(bound, ends_at(table, gpu, false, 0, ends));
  }
  if (pattern == Pattern::kRing && !network)
    return std::min(*std::min_element(in.begin(), in.end()), *std::min_element(out.begin(), out.end()));
  return std::min(
      {bound, chain_bound(std::move(in), max_channels), chain_bound(std::move(out), max_channels)});
}

double ring_cut_bound(const topo::System& system, const HopTable& table, bool network, Steps& steps) {
  double bound = kUnlimited;
  if (network) {  // every channel comes from outside to every GPU, and goes back
    Flow in(system, steps), out(system, steps);
    const int outside = in.add_node();
    out.add_node();
    for (int net = 0; net < table.nets(); ++net) {
      in.add(outside, table.node(table.net(net)), kUnlimited);
      out.add(table.node(table.net(net)), outside, kUnlimited);
    }
    for (int gpu = 0; gpu < table.gpus() && !steps.are_spent(); ++gpu)
      bound = std::min({bound, in.between(outside, table.node(gpu)), out.between(table.node(gpu), outside)});
    return bound;
  }
  Flow flow(system, steps);
  for (int gpu = 1; gpu < table.gpus() && !steps.are_spent(); ++gpu)
    bound = std::min(
        {bound, flow.between(table.node(0), table.node(gpu)), flow.between(table.node(gpu), table.node(0))});
  return bound;
}

}  // namespace loom::search
