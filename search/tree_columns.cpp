// tree_columns.cpp -- ColumnSource for chains: which GPU talks to which port, and the cheapest chain behind
// it.
#include <algorithm>

#include "search/columns.hpp"

namespace loom::search {
namespace {

constexpr std::size_t kMostColumns = 24;  // of one call
constexpr double kGain = 1e-9;

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
      const int from = best_in_[static_cast<std::size_t>(to * n_ + first)];
      double begin = in(from, first);
      if (balanced) begin += out(to, first) / 2;
      for (int second = 0; second < n_ && is_possible(begin); ++second) {
        if (second == first || !is_possible(chain(first, second))) continue;
        const double cost = begin + out(to, second) / (balanced ? 2 : 1);
        if (is_possible(cost)) all.push_back({first, second, from, to, cost});
      }
    }
  return all;
}

void ColumnSource::find_trees() {
  if (!exact_) exact_.emplace(n_);
  exact_->solve(chain_, zeros_, steps_);
  const std::vector<Beginning> ways = beginnings();
  const auto taken_by = [](const Beginning& way) { return way.second < 0 ? 0U : 1U << way.first; };
  std::vector<std::pair<double, std::size_t>> cheap;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const Beginning& way = ways[i];
    const double cost =
        way.cost + (way.second < 0 ? exact_->cost(way.first)
                                   : chain(way.first, way.second) + exact_->cost(way.second, taken_by(way)));
    least_ = std::min(least_, cost);
    if (cost <= 1 - kGain) cheap.emplace_back(cost, i);
  }
  steps_.take(static_cast<std::int64_t>(ways.size()) * 8);
  const auto end = cheap.begin() + static_cast<std::ptrdiff_t>(std::min(cheap.size(), kMostColumns));
  std::partial_sort(cheap.begin(), end, cheap.end());
  cheap.erase(end, cheap.end());
  for (const auto& [cost, i] : cheap) {
    const Beginning& way = ways[i];
    std::vector<int> gpus = exact_->order(way.second < 0 ? way.first : way.second, taken_by(way));
    if (way.second >= 0) gpus.insert(gpus.begin(), way.first);
    add({{std::move(gpus), way.in, way.to}}, cost);
  }
}

}  // namespace loom::search
