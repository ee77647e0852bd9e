#include "search/balanced_trees.hpp"

#include <algorithm>

#include "search/orders.hpp"

namespace loom::search {
namespace {

constexpr double kLeast = 1e-9;  // GB/s

class BalancedTrees {
 public:
  BalancedTrees(const BalancedTreesRequest& of, Steps& steps)
      : of_(of), gpus_(of.table.gpus()), steps_(steps), used_(of.table.resources().size()) {}

  Bundle grow_all() {
    Bundle trees;
    for (const int root : of_.roots) {
      Tree& tree = trees.emplace_back(static_cast<std::size_t>(gpus_ * of_.nodes_told));
      if (!grow(tree, 0, root)) return {};
      for (int node = 1; node < of_.nodes_told; ++node) {
        const auto [way, entered] = emptiest_between();
        if (way.out < 0) return {};
        take(tree, node * gpus_ + entered, way);
        if (!grow(tree, node, entered)) return {};
      }
    }
    return trees;
  }

 private:
  /// Nodes that a place stands for.
  int weight(int place) const { return place / gpus_ == of_.nodes_told - 1 ? of_.last_stands_for : 1; }

  /// How full a hop would be with a GB/s more.
  double fullness(const Hop& hop) const {
    if (hop.count == 0) return kNever;
    double most = 0;
    for (const Load& load : of_.table.loads(hop)) {
      const auto i = static_cast<std::size_t>(load.resource);
      most = std::max(most, (used_[i] + load.factor) / std::max(of_.table.resources()[i].gbps, kLeast));
    }
    return most;
  }
  /// For the images of the tree, too.
  void take(Tree& tree, int place, const WayIn& way) {
    of_.edges.for_loads(way, place, [&](const Load& load) {
      for (const Symmetry& symmetry : of_.symmetries)
        used_[static_cast<std::size_t>(symmetry.resource[static_cast<std::size_t>(load.resource)])] +=
            weight(place) * load.factor;
    });
    tree[static_cast<std::size_t>(place)] = way;
  }

  /// The emptiest way into another node. out: -1: there is none.
  std::pair<WayIn, int> emptiest_between() const {
    const auto nets = static_cast<std::size_t>(of_.table.nets());
    std::vector<double> out(nets, kNever), in(nets, kNever);
    std::vector<int> from(nets, -1), to(nets, -1);
    for (int net = 0; net < of_.table.nets(); ++net)
      for (int gpu = 0; gpu < gpus_; ++gpu) {
        const auto i = static_cast<std::size_t>(net);
        if (const double full = fullness(of_.edges.way_out(gpu, net)); full < out[i])
          out[i] = full, from[i] = gpu;
        if (const double full = fullness(of_.edges.way_in(net, gpu)); full < in[i]) in[i] = full, to[i] = gpu;
      }
    WayIn way;
    int entered = -1;
    double least = kNever;
    for (const auto& [leave, enter] : of_.edges.pairs())
      if (const double full =
              std::max(out[static_cast<std::size_t>(leave)], in[static_cast<std::size_t>(enter)]);
          full < least) {
        least = full;
        way = {from[static_cast<std::size_t>(leave)], leave, enter};
        entered = to[static_cast<std::size_t>(enter)];
      }
    return {way, entered};
  }

  /// Grows a tree inside a node from the GPU that it has there. False: some GPU cannot be reached.
  bool grow(Tree& tree, int node, int first) {
    std::vector<int> reached{first};
    std::vector<bool> is_reached(static_cast<std::size_t>(gpus_), false);
    is_reached[static_cast<std::size_t>(first)] = true;
    while (static_cast<int>(reached.size()) < gpus_) {
      double least = kNever;
      int from = -1, to = -1;
      for (const int here : reached)
        for (int gpu = 0; gpu < gpus_; ++gpu) {
          if (is_reached[static_cast<std::size_t>(gpu)]) continue;
          const double full = fullness(of_.edges.hop(here, gpu));
          if (full < least) least = full, from = here, to = gpu;
        }
      steps_.take(static_cast<std::int64_t>(reached.size()) * gpus_ * 8);
      if (to < 0) return false;
      take(tree, node * gpus_ + to, {node * gpus_ + from});
      is_reached[static_cast<std::size_t>(to)] = true;
      reached.push_back(to);
    }
    return true;
  }

  const BalancedTreesRequest& of_;
  int gpus_;
  Steps& steps_;
  std::vector<double> used_;  ///< by resource
};

}  // namespace

Bundle balanced_trees(const BalancedTreesRequest& request, Steps& steps) {
  return BalancedTrees(request, steps).grow_all();
}

}  // namespace loom::search
