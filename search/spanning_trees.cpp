#include "search/spanning_trees.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "search/orders.hpp"
#include "search/packing.hpp"
#include "search/validate.hpp"

namespace loom::search {
namespace {

constexpr double kGain = 1e-9, kProven = 1e-6;
constexpr std::int64_t kMostSteps = 200'000'000;

struct Edge {
  int from, to;
};

class Trees {
 public:
  explicit Trees(const HopTable& table) : table_(table) {
    for (const Resource& resource : table.resources()) capacities_.push_back(resource.gbps);
  }

  TreePacking pack(int max_rounds) {
    Steps steps(kMostSteps);
    Packing packing(capacities_, steps);
    std::vector<std::unique_ptr<std::vector<Load>>> columns;
    TreePacking best;
    best.bound_gbps = std::numeric_limits<double>::max();
    std::vector<double> prices(capacities_.size());
    for (std::size_t i = 0; i < prices.size(); ++i) prices[i] = 1 / std::max(capacities_[i], kGain);
    for (int round = 0; round < max_rounds; ++round) {
      double cost = 0, worth = 0;
      std::vector<Load> loads = loads_of(cheapest(prices, cost));
      if (loads.empty()) return {};
      for (std::size_t i = 0; i < prices.size(); ++i) worth += prices[i] * capacities_[i];
      if (cost > 0) best.bound_gbps = std::min(best.bound_gbps, worth / cost);
      if (best.gbps >= best.bound_gbps * (1 - kProven)) break;
      if (round > 0 && packing.gain(loads, 1) <= kGain) break;
      columns.push_back(std::make_unique<std::vector<Load>>(std::move(loads)));
      packing.add(*columns.back(), 1);
      packing.optimize();
      best.gbps = packing.total();
      prices.assign(packing.prices().begin(), packing.prices().end());
    }
    for (std::size_t j = 0; j < columns.size(); ++j)
      best.trees += packing.amount(static_cast<int>(j)) > kGain ? 1 : 0;
    return best;
  }

 private:
  double price(int from, int to, const std::vector<double>& prices) const {
    const Hop& hop = table_.hop(from, to);
    if (hop.count == 0) return kNever;
    double sum = 0;
    for (const Load& load : table_.loads(hop))
      sum += prices[static_cast<std::size_t>(load.resource)] * load.factor;
    return sum;
  }

  /// Prim's; empty: some GPU cannot be reached.
  std::vector<Edge> cheapest(const std::vector<double>& prices, double& cost) const {
    const int n = table_.gpus();
    std::vector<double> nearest(static_cast<std::size_t>(n), kNever);
    std::vector<int> by(static_cast<std::size_t>(n), 0);
    std::vector<bool> inside(static_cast<std::size_t>(n), false);
    std::vector<Edge> edges;
    for (int here = 0; static_cast<int>(edges.size()) + 1 < n;) {
      inside[static_cast<std::size_t>(here)] = true;
      int next = -1;
      for (int gpu = 0; gpu < n; ++gpu) {
        const auto i = static_cast<std::size_t>(gpu);
        if (inside[i]) continue;
        const double both = price(here, gpu, prices) + price(gpu, here, prices);
        if (both < nearest[i]) nearest[i] = both, by[i] = here;
        if (next < 0 || nearest[i] < nearest[static_cast<std::size_t>(next)]) next = gpu;
      }
      if (!is_possible(nearest[static_cast<std::size_t>(next)])) return {};
      cost += nearest[static_cast<std::size_t>(next)];
      edges.push_back({by[static_cast<std::size_t>(next)], next});
      here = next;
    }
    return edges;
  }

  std::vector<Load> loads_of(const std::vector<Edge>& edges) const {
    LoadSum sum(capacities_.size());
    for (const Edge& edge : edges)
      for (const Hop& hop : {table_.hop(edge.from, edge.to), table_.hop(edge.to, edge.from)})
        for (const Load& load : table_.loads(hop)) sum.add(load.resource, load.factor);
    return sum.take();
  }

  const HopTable& table_;
  std::vector<double> capacities_;
};

}  // namespace

double all_reduce_gbps(const topo::Paths& paths, const ChannelPlan& plan) {
  const double gpus = static_cast<double>(paths.system().gpus().size());
  if (gpus < 2 || plan.network) return plan.total_gbps;
  if (plan.pattern == Pattern::kRing) return plan.total_gbps * gpus / (2 * (gpus - 1));
  ChannelPlan back = plan;
  for (Channel& channel : back.channels) std::reverse(channel.ranks.begin(), channel.ranks.end());
  const std::vector<double> down = link_loads(paths, plan), up = link_loads(paths, back);
  const Resources resources(paths.system());
  double share = 1;
  for (std::size_t i = 0; i < down.size(); ++i)
    if (const double load = down[i] + up[i]; load > 0)
      share = std::min(share, resources.gbps(static_cast<int>(i)) / load);
  return plan.total_gbps * share;
}

TreePacking pack_spanning_trees(const topo::Paths& paths, int max_rounds) {
  const HopTable table(paths, false, false, false);
  return table.gpus() < 2 ? TreePacking{} : Trees(table).pack(max_rounds);
}

}  // namespace loom::search
