// tree_columns.cpp -- ColumnSource for chains: which GPU talks to which port, and the cheapest chain behind
// it.
#include <algorithm>

#include "search/columns.hpp"

namespace loom::search {
namespace {

constexpr double kMostPortBounds = 5e7;  // steps that a bound for each port may take
constexpr double kOneBeginning = 1e4;    // dear enough for just one

}  // namespace

/// The cheapest ways to begin: the first GPU, the second one where it matters, and the ports.
std::vector<ColumnSource::Beginning> ColumnSource::beginnings() const {
  std::vector<Beginning> all;
  if (k_ == 0) {
    for (int first = 0; first < n_; ++first) all.push_back({first, -1, -1, -1, n_ == 1 ? chain(0, 0) : 0});
    return all;
  }
  if (pattern_ == Pattern::kTree || pattern_ == Pattern::kCollnetChain) {
    for (int net = 0; net < k_; ++net)
      for (int first = 0; first < n_; ++first)
        if (const double cost = in(net, first) + out(net, first); is_possible(cost))
          all.push_back({first, -1, net, net, cost});
    return all;
  }
  const bool balanced = pattern_ == Pattern::kBalancedTree;
  for (int to = 0; to < k_; ++to)
    for (int first = 0; first < n_; ++first) {
      int from = to;
      for (const int net : partners_[static_cast<std::size_t>(to)])
        if (in(net, first) < in(from, first)) from = net;
      double begin = in(from, first);
      if (balanced) begin += out_any(to, first) / 2;
      for (int second = 0; second < n_ && is_possible(begin); ++second) {
        if (second == first || !is_possible(chain(first, second))) continue;
        const double cost = begin + (balanced ? out_any(to, second) / 2 : out(to, second));
        if (is_possible(cost)) all.push_back({first, second, from, to, cost});
      }
    }
  return all;
}

void ColumnSource::find_trees() {
  exact_.solve(chain_, zeros_);
  const std::vector<Beginning> ways = beginnings();
  steps_ += static_cast<std::int64_t>(ways.size());
  for (const auto& [first, second, from, to, beginning] : ways) {
    const unsigned taken = second < 0 ? 0U : 1U << first;
    const double cost =
        beginning + (second < 0 ? exact_.cost(first) : chain(first, second) + exact_.cost(second, taken));
    if (!is_possible(cost)) continue;
    least_ = std::min(least_, cost);
    if (cost > 1 - 1e-9) continue;
    std::vector<int> gpus = exact_.order(second < 0 ? first : second, taken);
    if (second >= 0) gpus.insert(gpus.begin(), first);
    add({{std::move(gpus), from, to}}, cost);
  }
}

/// The least that beginning at `first` can cost, ports and second GPU included.
double ColumnSource::least_beginning(int first) const {
  if (k_ == 0) return 0;
  const bool balanced = pattern_ == Pattern::kBalancedTree, split = pattern_ == Pattern::kSplitTree;
  double least = kNever;
  for (int to = 0; to < k_; ++to) {
    double come_in = kNever, leave = balanced || split ? kNever : out(to, first);
    for (const int from : partners_[static_cast<std::size_t>(to)])
      come_in = std::min(come_in, in(from, first));
    for (int second = 0; (balanced || split) && second < n_; ++second)
      if (second != first) leave = std::min(leave, end_cost(first, second, second, to));
    const bool same_port = !balanced && !split;
    least = std::min(least, (same_port ? in(to, first) : come_in) + leave);
  }
  return least;
}

/// A lower bound for many GPUs: every GPU has one successor, and is reached from the first one.
double ColumnSource::least_long_cost() const {
  if (k_ == 0 && pattern_ == Pattern::kRing)
    return std::max(assignment_bound(chain_, n_), arborescence_bound(chain_, n_, 0));
  const int places = n_ + 1;
  std::vector<double> costs(static_cast<std::size_t>(places * places), kNever);
  const auto at = [&](int from, int to) -> double& {
    return costs[static_cast<std::size_t>(from * places + to)];
  };
  for (int gpu = 0; gpu < n_; ++gpu) {
    std::copy_n(&chain_[static_cast<std::size_t>(gpu * n_)], n_, &at(gpu + 1, 1));
    at(0, gpu + 1) = least_beginning(gpu);
    at(gpu + 1, 0) = 0;
  }
  const auto both = [&] {
    const double assigned = assignment_bound(costs, places);
    double least_end = kNever;
    for (int gpu = 1; gpu < places; ++gpu)
      least_end = std::min(least_end, at(gpu, 0)), at(0, gpu) += kOneBeginning;
    return std::max(assigned, arborescence_bound(costs, places, 0) - kOneBeginning + least_end);
  };
  if (pattern_ != Pattern::kRing) return both();
  if (static_cast<double>(k_) * n_ * n_ * n_ > kMostPortBounds) {  // every end at its own cheapest port
    for (int gpu = 0; gpu < n_; ++gpu) {
      at(0, gpu + 1) = at(gpu + 1, 0) = kNever;
      for (int net = 0; net < k_; ++net) {
        at(0, gpu + 1) = std::min(at(0, gpu + 1), in(net, gpu));
        at(gpu + 1, 0) = std::min(at(gpu + 1, 0), out(net, gpu));
      }
    }
    return both();
  }
  double least = kNever;
  for (int to = 0; to < k_; ++to) {
    for (int gpu = 0; gpu < n_; ++gpu) {
      at(gpu + 1, 0) = out(to, gpu);
      at(0, gpu + 1) = kNever;
      for (int from = 0; from < k_; ++from)
        if (table_.may_pair(from, to, limits_.cross_nic))
          at(0, gpu + 1) = std::min(at(0, gpu + 1), in(from, gpu));
    }
    least = std::min(least, both());
  }
  return least;
}

}  // namespace loom::search
