#include "search/forest.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <tuple>

#include "base/error.hpp"
#include "base/format.hpp"
#include "search/arborescence.hpp"
#include "search/balanced_trees.hpp"
#include "search/bounds.hpp"
#include "search/forest_cut.hpp"
#include "search/orders.hpp"
#include "search/packing.hpp"

namespace loom::search {
namespace {

constexpr double kGain = 1e-9, kProven = 1e-6;
constexpr double kWeight = 0.85;  // of the best prices; Wentges, "Weighted Dantzig-Wolfe decomposition", 1997
constexpr int kMostRounds = 2000, kNone = -1;
constexpr std::int64_t kMostStepsToChoose = 1'000'000'000;

class ForestPacking {
 public:
  ForestPacking(const HopTable& table, const ForestRequest& request)
      : table_(table),
        edges_(table, request),
        gpus_(table.gpus()),
        nodes_told_(std::min(request.nodes, kMostNodesTold)),
        places_(gpus_ * nodes_told_),
        last_stands_for_(request.nodes - nodes_told_ + 1),
        whole_(static_cast<double>(gpus_) * request.nodes),
        steps_(request.most_steps),
        symmetries_(symmetries(table, request.cross_nic)) {
    for (const Resource& resource : table.resources()) capacities_.push_back(resource.gbps);
    find_rows();
    std::vector<bool> is_moved_to(static_cast<std::size_t>(gpus_), false);
    for (int gpu = 0; gpu < gpus_; ++gpu) {
      if (is_moved_to[static_cast<std::size_t>(gpu)]) continue;
      roots_.push_back(gpu);
      for (const Symmetry& symmetry : symmetries_)
        is_moved_to[static_cast<std::size_t>(symmetry.gpu[static_cast<std::size_t>(gpu)])] = true;
    }
  }

  Forest pack(int max_trees) {
    Packing packing(row_capacities_, steps_);
    Forest forest;
    forest.bound_gbps = std::numeric_limits<double>::infinity();
    const Bundle first =
        balanced_trees({table_, edges_, symmetries_, roots_, nodes_told_, last_stands_for_}, steps_);
    if (first.empty()) {
      forest.absent = nodes_told_ > 1 && edges_.pairs().empty() ? "no two ports join nodes"
                                                                : "some GPUs do not reach each other";
      return forest;
    }
    add(spread(first), packing);
    std::vector<double> best(
        capacities_.size());  // the prices that prove most so far, at which a GB/s costs at least 1
    for (std::size_t i = 0; i < best.size(); ++i) best[i] = 1 / std::max(capacities_[i], kGain);
    double weight = 1;  // of these; 1: they have proven nothing yet
    for (int round = 0; round < kMostRounds && !steps_.are_spent(); ++round) {
      packing.optimize();
      forest.gbps = packing.total();
      // Prices of the optimum so far jump from round to round. Between them and the best ones columns are
      // found that last.
      std::vector<double> prices(best.size());
      for (std::size_t i = 0; i < prices.size(); ++i)
        prices[i] = weight * best[i] + (1 - weight) * price_of(i, packing);
      prices = without_rounding(prices);
      double cost = 0;
      Bundle next = cheapest(prices, cost);
      if (Proof proof = price_bound(table_.resources(), prices, cost); proof.gbps < forest.bound_gbps) {
        forest.bound_gbps = proof.gbps;
        forest.proof = std::move(proof);
        for (std::size_t i = 0; i < best.size(); ++i) best[i] = prices[i] / cost;
      }
      if (forest.gbps >= forest.bound_gbps * (1 - kProven)) break;
      const bool adds = packing.gain(loads_of(next), 1) > kGain;
      if (!adds && weight == 0) break;
      if (adds) add(std::move(next), packing);
      weight = adds ? kWeight : 0;
    }
    std::vector<double> amounts;
    for (std::size_t i = 0; i < columns_.size(); ++i) amounts.push_back(packing.amount(static_cast<int>(i)));
    if (max_trees > 0) forest.gbps = keep_best(static_cast<std::size_t>(max_trees), amounts);
    forest.trees = trees_of(amounts);
    return forest;
  }

 private:
  struct Column {
    Bundle trees;
    std::vector<Load> loads;
  };

  /// Resources that symmetries exchange are as full as each other, so one of them is a row for all.
  void find_rows() {
    row_of_.assign(capacities_.size(), kNone);
    row_sizes_.clear();
    for (std::size_t i = 0; i < capacities_.size(); ++i) {
      if (row_of_[i] != kNone) continue;
      int size = 0;
      for (const Symmetry& symmetry : symmetries_) {
        int& row = row_of_[static_cast<std::size_t>(symmetry.resource[i])];
        if (row == kNone) row = static_cast<int>(row_sizes_.size()), ++size;
      }
      first_of_row_.push_back(static_cast<int>(i));
      row_sizes_.push_back(size);
      row_capacities_.push_back(capacities_[i]);
    }
  }

  /// They share the price of their row.
  double price_of(std::size_t resource, const Packing& packing) const {
    const auto row = static_cast<std::size_t>(row_of_[resource]);
    return packing.prices()[row] / row_sizes_[row];
  }

  /// With the trees of all roots.
  Bundle spread(const Bundle& of_roots) const {
    Bundle all(static_cast<std::size_t>(gpus_));
    for (std::size_t i = 0; i < roots_.size(); ++i)
      for (const Symmetry& symmetry : symmetries_)
        all[static_cast<std::size_t>(symmetry.gpu[static_cast<std::size_t>(roots_[i])])] =
            moved(of_roots[i], symmetry);
    return all;
  }

  Tree moved(const Tree& tree, const Symmetry& symmetry) const {
    const auto place_of = [&](int place) {
      return place < 0 ? place
                       : place / gpus_ * gpus_ + symmetry.gpu[static_cast<std::size_t>(place % gpus_)];
    };
    const auto net_of = [&](int net) { return net < 0 ? net : symmetry.net[static_cast<std::size_t>(net)]; };
    Tree there(tree.size());
    for (int place = 0; place < places_; ++place) {
      const WayIn& way = tree[static_cast<std::size_t>(place)];
      there[static_cast<std::size_t>(place_of(place))] = {place_of(way.before), net_of(way.out),
                                                          net_of(way.in)};
    }
    return there;
  }

  double price(const Hop& hop, const std::vector<double>& prices) const {
    if (hop.count == 0) return kNever;
    double sum = 0;
    for (const Load& load : table_.loads(hop))
      sum += prices[static_cast<std::size_t>(load.resource)] * load.factor;
    return sum;
  }

  /// The cheapest way between nodes for every two GPUs, by from * GPUs + to.
  void find_ways_between(const std::vector<double>& prices, std::vector<double>& costs,
                         std::vector<Ports>& ports) const {
    const auto gpus = static_cast<std::size_t>(gpus_), nets = static_cast<std::size_t>(table_.nets());
    costs.assign(gpus * gpus, kNever);
    ports.assign(gpus * gpus, {-1, -1});
    std::vector<double> into(nets * gpus);
    for (int net = 0; net < table_.nets(); ++net)
      for (int gpu = 0; gpu < gpus_; ++gpu)
        into[static_cast<std::size_t>(net * gpus_ + gpu)] = price(edges_.way_in(net, gpu), prices);
    for (int from = 0; from < gpus_; ++from) {
      std::vector<double> out(nets), at(nets, kNever);
      std::vector<int> by(nets, -1);
      for (int net = 0; net < table_.nets(); ++net)
        out[static_cast<std::size_t>(net)] = price(edges_.way_out(from, net), prices);
      for (const auto& [leave, enter] : edges_.pairs())
        if (const double cost = out[static_cast<std::size_t>(leave)];
            cost < at[static_cast<std::size_t>(enter)])
          at[static_cast<std::size_t>(enter)] = cost, by[static_cast<std::size_t>(enter)] = leave;
      for (int to = 0; to < gpus_; ++to)
        for (int net = 0; net < table_.nets(); ++net) {
          const double cost =
              at[static_cast<std::size_t>(net)] + into[static_cast<std::size_t>(net * gpus_ + to)];
          const auto i = static_cast<std::size_t>(from * gpus_ + to);
          if (cost < costs[i]) costs[i] = cost, ports[i] = {by[static_cast<std::size_t>(net)], net};
        }
    }
  }

  /// Nodes that a place stands for.
  int weight(int place) const { return place / gpus_ == nodes_told_ - 1 ? last_stands_for_ : 1; }

  /// cost: no trees of all roots cost less, for a GB/s of the whole.
  Bundle cheapest(const std::vector<double>& prices, double& cost) {
    const auto gpus = static_cast<std::size_t>(gpus_), places = static_cast<std::size_t>(places_);
    std::vector<double> inside(gpus * gpus, 0.0), between;
    std::vector<Ports> ports;
    for (int from = 0; from < gpus_; ++from)
      for (int to = 0; to < gpus_; ++to)
        if (from != to)
          inside[static_cast<std::size_t>(from * gpus_ + to)] = price(edges_.hop(from, to), prices);
    if (places_ > gpus_) find_ways_between(prices, between, ports);
    std::vector<double> costs(places * places, 0.0);
    for (std::size_t from = 0; from < places; ++from)
      for (std::size_t to = 0; to < places; ++to)
        costs[from * places + to] = std::min(
            kNever, weight(static_cast<int>(to)) *
                        (from / gpus == to / gpus ? inside : between)[from % gpus * gpus + to % gpus]);
    const Arborescences arborescences(costs, places_, steps_);
    Bundle trees;
    cost = 0;
    for (const int root : roots_) {
      const Arborescence found = arborescences.from(root);
      cost += static_cast<double>(symmetries_.size()) * found.cost / whole_;
      Tree& tree = trees.emplace_back();
      for (int place = 0; place < places_; ++place) {
        WayIn way{found.before[static_cast<std::size_t>(place)]};
        if (way.before >= 0 && way.before / gpus_ != place / gpus_)
          std::tie(way.out, way.in) =
              ports[static_cast<std::size_t>(way.before % gpus_ * gpus_ + place % gpus_)];
        tree.push_back(way);
      }
    }
    if (last_stands_for_ > 1) cost = cheapest_by_nodes(inside, between);
    return spread(trees);
  }

  /// Of any number of nodes no less: each is reached by itself, wherever data enter it; so is the root's,
  /// which may be entered, too.
  double cheapest_by_nodes(const std::vector<double>& inside, const std::vector<double>& between) {
    const int outside = gpus_, places = gpus_ + 1;
    std::vector<double> costs(static_cast<std::size_t>(places * places), 0.0);  // nothing to leave
    const auto cost_of = [&](int from, int to) -> double& {
      return costs[static_cast<std::size_t>(from * places + to)];
    };
    for (int to = 0; to < gpus_; ++to) {
      cost_of(outside, to) = kNever;
      for (int from = 0; from < gpus_; ++from) {
        const auto i = static_cast<std::size_t>(from * gpus_ + to);
        cost_of(from, to) = inside[i];
        cost_of(outside, to) = std::min(cost_of(outside, to), between[i]);
      }
    }
    const Arborescences node(costs, places, steps_);
    const double entered = node.from(outside).cost, others = whole_ / gpus_ - 1;
    double sum = 0;
    for (int root = 0; root < gpus_; ++root) sum += node.from(root).cost + others * entered;
    return sum / whole_;
  }

  /// Of rows.
  std::vector<Load> loads_of(const Bundle& trees) const {
    LoadSum sum(row_sizes_.size());
    for (const Tree& tree : trees)
      for (int place = 0; place < places_; ++place)
        if (const WayIn& way = tree[static_cast<std::size_t>(place)]; way.before >= 0)
          edges_.for_loads(way, place, [&](const Load& load) {
            const int row = row_of_[static_cast<std::size_t>(load.resource)];
            if (first_of_row_[static_cast<std::size_t>(row)] == load.resource)
              sum.add(row, weight(place) * load.factor / whole_);
          });
    return sum.take();
  }

  void add(Bundle trees, Packing& packing) {
    columns_.push_back(std::make_unique<Column>(Column{std::move(trees), {}}));
    columns_.back()->loads = loads_of(columns_.back()->trees);
    packing.add(columns_.back()->loads, 1);
  }

  /// The most that so many columns carry: the best one, and then again and again the one with which all of
  /// them carry most.
  double keep_best(std::size_t most, std::vector<double>& amounts) {
    Steps steps(kMostStepsToChoose);
    std::vector<std::size_t> kept;
    double total = 0;
    std::ranges::fill(amounts, 0.0);
    for (std::size_t best = 0; best < columns_.size() && kept.size() < most;) {
      best = columns_.size();
      std::vector<double> best_amounts;
      for (std::size_t column = 0; column < columns_.size() && !steps.are_spent(); ++column) {
        if (std::ranges::find(kept, column) != kept.end()) continue;
        Packing packing(row_capacities_, steps);
        for (const std::size_t other : kept) packing.add(columns_[other]->loads, 1);
        packing.add(columns_[column]->loads, 1);
        if (!packing.optimize() || packing.total() <= total * (1 + kGain)) continue;
        best = column;
        total = packing.total();
        best_amounts.clear();
        for (std::size_t i = 0; i <= kept.size(); ++i)
          best_amounts.push_back(packing.amount(static_cast<int>(i)));
      }
      if (best == columns_.size()) break;
      kept.push_back(best);
      for (std::size_t i = 0; i < kept.size(); ++i) amounts[kept[i]] = best_amounts[i];
    }
    return total;
  }

  std::vector<RootedTree> trees_of(const std::vector<double>& amounts) const {
    std::vector<RootedTree> trees;
    for (int root = 0; root < gpus_; ++root) {
      std::map<Tree, double> widths;  // columns share trees
      for (std::size_t column = 0; column < columns_.size(); ++column)
        if (amounts[column] > kGain)
          widths[columns_[column]->trees[static_cast<std::size_t>(root)]] += amounts[column] / whole_;
      for (const auto& [tree, gbps] : widths)
        trees.push_back({table_.rank(root), edges_of(tree, root), gbps});
    }
    return trees;
  }

  Place place(int place) const { return {place / gpus_, table_.rank(place % gpus_)}; }
  topo::NodeId port(int net) const { return net < 0 ? topo::kNoNode : table_.node(table_.net(net)); }

  /// From the root on, level by level.
  std::vector<TreeEdge> edges_of(const Tree& tree, int root) const {
    std::vector<TreeEdge> edges;
    std::vector<int> reached{root};
    for (std::size_t i = 0; i < reached.size(); ++i)
      for (int to = 0; to < places_; ++to)
        if (const WayIn& way = tree[static_cast<std::size_t>(to)]; way.before == reached[i]) {
          edges.push_back({place(way.before), place(to), port(way.out), port(way.in)});
          reached.push_back(to);
        }
    return edges;
  }

  const HopTable& table_;
  Edges edges_;
  int gpus_, nodes_told_, places_;
  int last_stands_for_;  ///< nodes
  double whole_;         ///< GPUs of all nodes
  Steps steps_;
  std::vector<double> capacities_;  ///< by resource
  std::vector<Symmetry> symmetries_;
  std::vector<int> roots_;  ///< whose trees the symmetries move to all others
  std::vector<int> row_of_, first_of_row_, row_sizes_;
  std::vector<double> row_capacities_;
  std::vector<std::unique_ptr<Column>> columns_;
};

}  // namespace

Forest plan_forest(const topo::Paths& paths, const ForestRequest& request) {
  const int gpus = static_cast<int>(paths.system().gpus().size());
  if (gpus * std::min(request.nodes, kMostNodesTold) > kMostPlaces)
    throw Error(ErrorCode::kBadInput,
                loom::format("A forest of {} GPUs on each of {} nodes: it takes at most {} on a node.", gpus,
                             request.nodes, kMostPlaces / std::min(request.nodes, kMostNodesTold)));
  if (static_cast<std::int64_t>(gpus) * request.nodes < 2) {
    Forest forest;
    forest.absent = "there is one GPU";
    return forest;
  }
  const HopTable table(paths, request.nodes > 1, false, false);
  Forest forest = ForestPacking(table, request).pack(request.max_trees);
  if (!forest.trees.empty()) forest.cut = narrowest_cut(paths.system(), table, request);
  return forest;
}

double all_gather_gbps(const topo::Paths& paths, const ChannelPlan& rings, int nodes) {
  const double gpus = static_cast<double>(paths.system().gpus().size()) * nodes;
  return gpus < 2 ? rings.total_gbps : rings.total_gbps * gpus / (gpus - 1);
}

}  // namespace loom::search
