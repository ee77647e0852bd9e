// tree_columns.cpp -- ColumnSource for chains: which GPU talks to which port, and the cheapest chain behind it.
#include <algorithm>

#include "search/columns.hpp"

namespace loom::search {

/// The cheapest ways to begin: the first GPU, the second one where it matters, and the ports.
std::vector<ColumnSource::Beginning> ColumnSource::beginnings() const {
  std::vector<Beginning> all;
  if (k_ == 0) {
    for (int first = 0; first < n_; ++first) all.push_back({first, -1, -1, -1, 0});
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
      Beginning cheapest{first, -1, from, to, kNever};
      for (int second = 0; second < n_ && is_possible(begin); ++second) {
        if (second == first || !is_possible(chain(first, second))) continue;
        const double cost = begin + (balanced ? out_any(to, second) / 2 : out(to, second));
        if (!is_possible(cost)) continue;
        if (is_exact())
          all.push_back({first, second, from, to, cost});
        else if (cheapest.second < 0 || cost + chain(first, second) < cheapest.cost + chain(first, cheapest.second))
          cheapest = {first, second, from, to, cost};
      }
      if (cheapest.second >= 0) all.push_back(cheapest);
    }
  return all;
}

/// The cheapest chain behind a beginning.
double ColumnSource::chain_behind(const Beginning& beginning, int seed, std::vector<int>& gpus) {
  const auto [first, second, from, to, cost] = beginning;
  if (is_exact()) {
    const unsigned taken = 1U << first;
    const double rest = second < 0 ? exact_.cost(first) : chain(first, second) + exact_.cost(second, taken);
    return cost + rest;
  }
  std::vector<double> start(static_cast<std::size_t>(n_), kNever), tail = zeros_;
  start[static_cast<std::size_t>(first)] = 0;
  double total = cost + path(start, tail, seed, gpus);
  if (second >= 0 && gpus.size() > 1 && gpus[1] != second) {
    gpus.erase(std::find(gpus.begin(), gpus.end(), second));
    gpus.insert(gpus.begin() + 1, second);
    total = cost;
    for (std::size_t i = 0; i + 1 < gpus.size(); ++i) total += chain(gpus[i], gpus[i + 1]);
  }
  return total;
}

void ColumnSource::find_trees(int round) {
  if (is_exact()) exact_.solve(chain_, zeros_);
  std::vector<Beginning> ways = beginnings();
  steps_ += static_cast<std::int64_t>(ways.size());
  if (!is_exact()) {
    // Cheapest first, each first GPU and each port once, for each chain takes a local search.
    std::stable_sort(ways.begin(), ways.end(), [](const Beginning& a, const Beginning& b) { return a.cost < b.cost; });
    std::vector<bool> first_seen(static_cast<std::size_t>(n_)), port_seen(static_cast<std::size_t>(k_));
    std::vector<Beginning> few;
    for (const Beginning& way : ways) {
      const bool new_port = way.to >= 0 && !port_seen[static_cast<std::size_t>(way.to)];
      if (first_seen[static_cast<std::size_t>(way.first)] && !new_port) continue;
      first_seen[static_cast<std::size_t>(way.first)] = true;
      if (way.to >= 0) port_seen[static_cast<std::size_t>(way.to)] = true;
      few.push_back(way);
    }
    ways = std::move(few);
  }
  std::vector<double> cheapest_at(static_cast<std::size_t>(n_ * std::max(1, k_)), kNever);
  for (const Beginning& way : ways) {
    std::vector<int> gpus;
    const double cost = chain_behind(way, round, gpus);
    double& cheapest = cheapest_at[static_cast<std::size_t>(way.first * std::max(1, k_) + std::max(0, way.to))];
    if (!is_possible(cost) || cost >= cheapest) continue;
    cheapest = cost;
    least_ = std::min(least_, cost);
    if (cost > 1 - 1e-9) continue;
    if (is_exact()) {
      gpus = exact_.order(way.second < 0 ? way.first : way.second, way.second < 0 ? 0U : 1U << way.first);
      if (way.second >= 0) gpus.insert(gpus.begin(), way.first);
    }
    add({{std::move(gpus), way.in, way.to}}, cost);
    if (!is_exact() && found_.size() >= 8) return;
  }
}

/// A lower bound for many GPUs: every GPU has one successor, a port in the circle.
double ColumnSource::least_long_cost() {
  if (k_ == 0 && pattern_ == Pattern::kRing) return assignment_bound(chain_, n_);
  const int places = n_ + 1;
  std::vector<double> costs(static_cast<std::size_t>(places * places), kNever);
  double least_second = kNever;
  for (int gpu = 0; gpu < n_; ++gpu) {
    std::copy_n(&chain_[static_cast<std::size_t>(gpu * n_)], n_,
                &costs[static_cast<std::size_t>((gpu + 1) * places + 1)]);
    double begin = k_ == 0 ? 0 : kNever, end = pattern_ == Pattern::kRing && k_ > 0 ? kNever : 0;
    for (int net = 0; net < k_; ++net) {
      const double go_out = pattern_ == Pattern::kBalancedTree ? out_any(net, gpu) / 2 : out(net, gpu);
      const bool first_goes_out = pattern_ != Pattern::kRing && pattern_ != Pattern::kSplitTree;
      begin = std::min(begin, in(net, gpu) + (first_goes_out ? go_out : 0));
      if (pattern_ == Pattern::kRing) end = std::min(end, out(net, gpu));
      least_second = std::min(least_second, go_out);
    }
    costs[static_cast<std::size_t>(gpu + 1)] = begin;
    costs[static_cast<std::size_t>((gpu + 1) * places)] = end;
  }
  const bool second_pays = k_ > 0 && (pattern_ == Pattern::kSplitTree || pattern_ == Pattern::kBalancedTree);
  return assignment_bound(costs, places) + (second_pays ? least_second : 0);
}

}  // namespace loom::search
