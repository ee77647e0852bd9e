#include "search/forest.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

#include "search/arborescence.hpp"
#include "search/bounds.hpp"
#include "search/flow.hpp"
#include "search/orders.hpp"
#include "search/packing.hpp"

namespace loom::search {
namespace {

constexpr double kGain = 1e-9, kProven = 1e-6;
constexpr int kMostRounds = 400;
constexpr std::int64_t kMostSteps = 4'000'000'000;

/// A tree of every root, by root and place: the place before it, -1 at the root.
using Bundle = std::vector<std::vector<int>>;

class ForestPacking {
 public:
  ForestPacking(const HopTable& table, ForestUse use)
      : table_(table), n_(table.gpus()), reduces_(use == ForestUse::kReduceScatter) {
    for (const Resource& resource : table.resources()) capacities_.push_back(resource.gbps);
  }

  Forest pack(int max_trees) {
    Packing packing(capacities_, steps_);
    Forest forest;
    forest.bound_gbps = std::numeric_limits<double>::infinity();
    Bundle next = balanced();
    if (next.empty()) return {};
    std::vector<double> prices(capacities_.size());
    for (std::size_t i = 0; i < prices.size(); ++i) prices[i] = 1 / std::max(capacities_[i], kGain);
    for (int round = 0; round < kMostRounds && !steps_.are_spent(); ++round) {
      add(std::move(next), packing);
      packing.optimize();
      forest.gbps = packing.total();
      // The first prices are those of no optimum; where all links are used alike they prove one.
      if (round > 0) prices.assign(packing.prices().begin(), packing.prices().end());
      prices = without_rounding(prices);
      double cost = 0;
      next = cheapest(prices, cost);
      if (Proof proof = price_bound(table_.resources(), prices, cost); proof.gbps < forest.bound_gbps) {
        forest.bound_gbps = proof.gbps;
        forest.proof = std::move(proof);
      }
      if (forest.gbps >= forest.bound_gbps * (1 - kProven)) break;
      if (round > 0 && packing.gain(loads_of(next), 1) <= kGain) break;
    }
    std::vector<double> amounts;
    for (std::size_t i = 0; i < columns_.size(); ++i) amounts.push_back(packing.amount(static_cast<int>(i)));
    if (max_trees > 0) forest.gbps = keep_widest(static_cast<std::size_t>(max_trees), amounts);
    forest.trees = trees_of(amounts);
    return forest;
  }

 private:
  struct Column {
    Bundle trees;
    std::vector<Load> loads;
  };

  /// Of the tree's edge, in the direction of the data.
  const Hop& hop(int before, int place) const {
    return reduces_ ? table_.hop(place, before) : table_.hop(before, place);
  }
  double price(int before, int place, const std::vector<double>& prices) const {
    const Hop& taken = hop(before, place);
    if (taken.count == 0) return kNever;
    double sum = 0;
    for (const Load& load : table_.loads(taken))
      sum += prices[static_cast<std::size_t>(load.resource)] * load.factor;
    return sum;
  }

  /// Trees that grow by the edge whose links are used least so far, by all trees: a first column that is
  /// often the best. Empty: some GPU cannot be reached.
  Bundle balanced() {
    std::vector<double> used(capacities_.size(), 0.0);
    const auto fullest = [&](int before, int place) {
      const Hop& taken = hop(before, place);
      if (taken.count == 0) return kNever;
      double most = 0;
      for (const Load& load : table_.loads(taken)) {
        const auto i = static_cast<std::size_t>(load.resource);
        most = std::max(most, (used[i] + load.factor) / std::max(capacities_[i], kGain));
      }
      return most;
    };
    Bundle trees;
    for (int root = 0; root < n_; ++root) {
      std::vector<int> before(static_cast<std::size_t>(n_), -1);
      std::vector<int> inside{root};
      std::vector<bool> is_inside(static_cast<std::size_t>(n_), false);
      is_inside[static_cast<std::size_t>(root)] = true;
      while (static_cast<int>(inside.size()) < n_) {
        double least = kNever;
        int from = -1, to = -1;
        for (const int here : inside)
          for (int place = 0; place < n_; ++place) {
            if (is_inside[static_cast<std::size_t>(place)]) continue;
            const double most = fullest(here, place);
            if (most < least) least = most, from = here, to = place;
          }
        steps_.take(static_cast<std::int64_t>(inside.size()) * n_ * 8);
        if (to < 0) return {};
        for (const Load& load : table_.loads(hop(from, to)))
          used[static_cast<std::size_t>(load.resource)] += load.factor;
        before[static_cast<std::size_t>(to)] = from;
        is_inside[static_cast<std::size_t>(to)] = true;
        inside.push_back(to);
      }
      trees.push_back(std::move(before));
    }
    return trees;
  }

  /// cost: of a GB/s of the whole.
  Bundle cheapest(const std::vector<double>& prices, double& cost) {
    std::vector<double> costs(static_cast<std::size_t>(n_) * static_cast<std::size_t>(n_), 0.0);
    for (int from = 0; from < n_; ++from)
      for (int to = 0; to < n_; ++to)
        if (from != to) costs[static_cast<std::size_t>(from * n_ + to)] = price(from, to, prices);
    Bundle trees;
    cost = 0;
    for (int root = 0; root < n_; ++root) {
      Arborescence tree = cheapest_arborescence(costs, n_, root, steps_);
      cost += tree.cost / n_;
      trees.push_back(std::move(tree.before));
    }
    return trees;
  }

  std::vector<Load> loads_of(const Bundle& trees) const {
    LoadSum sum(capacities_.size());
    for (const std::vector<int>& before : trees)
      for (int place = 0; place < n_; ++place)
        if (const int from = before[static_cast<std::size_t>(place)]; from >= 0)
          for (const Load& load : table_.loads(hop(from, place))) sum.add(load.resource, load.factor / n_);
    return sum.take();
  }

  void add(Bundle trees, Packing& packing) {
    columns_.push_back(std::make_unique<Column>(Column{std::move(trees), {}}));
    columns_.back()->loads = loads_of(columns_.back()->trees);
    packing.add(columns_.back()->loads, 1);
  }

  /// The most that the widest columns carry by themselves.
  double keep_widest(std::size_t most, std::vector<double>& amounts) {
    std::vector<std::size_t> order(amounts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return amounts[a] > amounts[b]; });
    order.resize(std::min(order.size(), most));
    Packing packing(capacities_, steps_);
    for (const std::size_t column : order) packing.add(columns_[column]->loads, 1);
    packing.optimize();
    std::ranges::fill(amounts, 0.0);
    for (std::size_t i = 0; i < order.size(); ++i) amounts[order[i]] = packing.amount(static_cast<int>(i));
    return packing.total();
  }

  std::vector<RootedTree> trees_of(const std::vector<double>& amounts) const {
    std::vector<RootedTree> trees;
    for (int root = 0; root < n_; ++root) {
      std::map<std::vector<int>, double> widths;  // columns share trees
      for (std::size_t column = 0; column < columns_.size(); ++column)
        if (amounts[column] > kGain)
          widths[columns_[column]->trees[static_cast<std::size_t>(root)]] += amounts[column] / n_;
      for (const auto& [before, gbps] : widths)
        trees.push_back({table_.rank(root), edges_of(before, root), gbps});
    }
    return trees;
  }

  /// From the root on, level by level.
  std::vector<std::pair<int, int>> edges_of(const std::vector<int>& before, int root) const {
    std::vector<std::pair<int, int>> edges;
    std::vector<int> reached{root};
    for (std::size_t i = 0; i < reached.size(); ++i)
      for (int place = 0; place < n_; ++place)
        if (before[static_cast<std::size_t>(place)] == reached[i]) {
          edges.emplace_back(table_.rank(reached[i]), table_.rank(place));
          reached.push_back(place);
        }
    return edges;
  }

  const HopTable& table_;
  int n_;
  bool reduces_;
  Steps steps_{kMostSteps};
  std::vector<double> capacities_;
  std::vector<std::unique_ptr<Column>> columns_;
};

/// The GPUs whose links out bring least for each of them: at that rate, and no faster, all that every GPU has
/// flows to each of the others. From a rate that is too high, cut after cut (Dinkelbach).
Cut narrowest_cut(const topo::System& system, const HopTable& table, ForestUse use) {
  Steps steps(kMostSteps);
  Flow flow(system, steps);
  const int outside = flow.add_node();
  const bool reduces = use == ForestUse::kReduceScatter;
  std::vector<std::size_t> ways;
  for (int gpu = 0; gpu < table.gpus(); ++gpu)
    ways.push_back(reduces ? flow.add(table.node(gpu), outside, 0) : flow.add(outside, table.node(gpu), 0));
  const double n = table.gpus();
  Cut cut;
  double rate = 0;  // of each GPU
  for (const topo::Link& link : system.links()) rate += link.gbps;
  for (bool lower = true; lower;) {
    lower = false;
    for (const std::size_t way : ways) flow.set_capacity(way, rate);
    for (int gpu = 0; gpu < table.gpus(); ++gpu) {
      const double flows =
          reduces ? flow.between(table.node(gpu), outside) : flow.between(outside, table.node(gpu));
      if (flows >= n * rate * (1 - 1e-9)) continue;
      Cut found;
      const auto is_in_side = [&](int node) { return flow.is_before(node) != reduces; };
      for (int other = 0; other < table.gpus(); ++other)
        if (is_in_side(table.node(other))) found.side.push_back(table.rank(other));
      for (const topo::Link& link : system.links())
        if (flow.is_before(link.from) && !flow.is_before(link.to)) found.links_gbps += link.gbps;
      if (found.side.empty()) continue;
      const double narrower = found.links_gbps / static_cast<double>(found.side.size());
      if (narrower >= rate) continue;
      rate = narrower;
      found.gbps = n * rate;
      cut = std::move(found);
      lower = true;
      break;
    }
  }
  return cut;
}

}  // namespace

Forest plan_forest(const topo::Paths& paths, ForestUse use, int max_trees) {
  const HopTable table(paths, false, false, false);
  if (table.gpus() < 2) return {};
  Forest forest = ForestPacking(table, use).pack(max_trees);
  if (!forest.trees.empty()) forest.cut = narrowest_cut(paths.system(), table, use);
  return forest;
}

double all_gather_gbps(const topo::Paths& paths, const ChannelPlan& rings) {
  const double gpus = static_cast<double>(paths.system().gpus().size());
  return gpus < 2 ? rings.total_gbps : rings.total_gbps * gpus / (gpus - 1);
}

}  // namespace loom::search
