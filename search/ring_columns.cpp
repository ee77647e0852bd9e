// ring_columns.cpp -- ColumnSource for rings, exactly.
#include <algorithm>

#include "search/columns.hpp"

namespace loom::search {
namespace {

constexpr std::size_t kMostColumns = 24;  // of one call, the cheapest
constexpr std::size_t kLookedAt = 96;     // of these
constexpr double kGain = 1e-9;

}  // namespace

void ColumnSource::find_rings() {
  std::vector<double> tail;
  for (int gpu = 0; gpu < n_; ++gpu) tail.push_back(chain(gpu, 0));
  if (!exact_) exact_.emplace(n_);
  exact_->solve(chain_, tail, steps_);
  if (n_ == 1) return add({{{0}}}, exact_->cost(0));
  for (int second = 1; second < n_; ++second) {
    const double cost = chain(0, second) + exact_->cost(second, 1);
    if (!is_possible(cost)) continue;
    std::vector<int> order = exact_->order(second, 1);
    order.insert(order.begin(), 0);
    add({{std::move(order)}}, cost);
  }
}

/// The cheapest orders from every GPU to every port: for each port, or where there are more ports than GPUs
/// for each GPU that may be the last.
void ColumnSource::solve_ends() {
  const int ends = std::min(k_, n_);
  const auto places = static_cast<std::size_t>(n_);
  while (static_cast<int>(ends_.size()) < ends) ends_.emplace_back(n_);
  std::vector<double> tail(places, kNever);
  for (int end = 0; end < ends; ++end) {
    if (ends == n_) tail[static_cast<std::size_t>(end)] = 0;
    ends_[static_cast<std::size_t>(end)].solve(
        chain_, ends == n_ ? std::span<const double>(tail) : out_to(end), steps_);
    tail[static_cast<std::size_t>(end)] = kNever;
  }
  to_port_.assign(static_cast<std::size_t>(k_) * places, {});
  for (int to = 0; to < k_; ++to)
    for (int first = 0; first < n_; ++first) {
      ToPort& way = to_port_[static_cast<std::size_t>(to * n_ + first)];
      if (ends != n_) {
        way = {ends_[static_cast<std::size_t>(to)].cost(first), to};
        continue;
      }
      for (int last = 0; last < n_; ++last)
        if (const double cost = ends_[static_cast<std::size_t>(last)].cost(first) + out(to, last);
            cost < way.cost)
          way = {cost, last};
    }
}

/// The cheapest way in from port `from` and out at `to`, after solve_ends().
double ColumnSource::ring_between_ports(int from, int to, int* first) const {
  int best = 0;
  for (int gpu = 1; gpu < n_; ++gpu)
    if (in(from, gpu) + to_port(to, gpu).cost < in(from, best) + to_port(to, best).cost) best = gpu;
  *first = best;
  return in(from, best) + to_port(to, best).cost;
}

Order ColumnSource::order_between(int from, int to, int first) const {
  return {ends_[static_cast<std::size_t>(to_port(to, first).end)].order(first), from, to};
}

void ColumnSource::find_rings_between_ports(int round) {
  solve_ends();
  struct Way {
    double cost;
    int from, to, first;
  };
  std::vector<Way> cheap;
  for (int i = 0; i < k_ && all_seen_; ++i) {  // other ports first in every round
    const int to = (i + round) % k_;
    for (const int from : partners_[static_cast<std::size_t>(to)])
      for (int gpu = 0; gpu < n_; ++gpu) {
        const double cost = in(from, gpu) + to_port(to, gpu).cost;
        least_ = std::min(least_, cost);
        if (cost < 1 - kGain) cheap.push_back({cost, from, to, gpu});
      }
    steps_.take(static_cast<std::int64_t>(partners_[static_cast<std::size_t>(to)].size()) * n_ * 2);
    all_seen_ = hop_cost_ == 0 || cheap.size() < kLookedAt || i == k_ - 1;
  }
  std::stable_sort(cheap.begin(), cheap.end(), [](const Way& a, const Way& b) { return a.cost < b.cost; });
  if (cheap.size() > kMostColumns) cheap.resize(kMostColumns);
  for (const Way& way : cheap) add({order_between(way.from, way.to, way.first)}, way.cost);
  if (limits_.cross_nic != 2 || !all_seen_) return;
  if (found_.empty() || hop_cost_ == 0)
    find_pairs_of_rings();
  else
    all_seen_ = false;
}

/// Two rings with their ports swapped: one comes back where the other went out.
void ColumnSource::find_pairs_of_rings() {
  struct Pair {
    double cost;
    int a, b, first, second;
  };
  std::vector<Pair> pairs;
  for (int a = 0; a < k_; ++a)
    for (int b = a + 1; b < k_; ++b) {
      if (!table_.may_pair(a, b, 2)) continue;
      Pair pair{0, a, b, 0, 0};
      pair.cost = ring_between_ports(a, b, &pair.first) + ring_between_ports(b, a, &pair.second);
      least_ = std::min(least_, pair.cost / 2);
      if (pair.cost < 2 * (1 - kGain)) pairs.push_back(pair);
    }
  steps_.take(static_cast<std::int64_t>(k_) * k_ * n_);
  if (hop_cost_ == 0) return;
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& x, const Pair& y) { return x.cost < y.cost; });
  if (pairs.size() > kMostColumns) pairs.resize(kMostColumns);
  for (const Pair& pair : pairs)
    add({order_between(pair.a, pair.b, pair.first), order_between(pair.b, pair.a, pair.second)}, pair.cost);
}

}  // namespace loom::search
