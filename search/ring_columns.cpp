// ring_columns.cpp -- ColumnSource for rings, and for every chain through many GPUs: round trips, and the
// turns of them.
#include <algorithm>

#include "search/columns.hpp"

namespace loom::search {
namespace {

constexpr std::size_t kMostColumns =
    24;                         // of exact orders, in one call; more are looked for, the cheapest are taken
constexpr int kMostTurns = 80;  // of one round trip
constexpr int kPortsPerRound = 6;
constexpr double kGain = 1e-9;
constexpr std::int64_t kLocalSearchSteps = 400'000;
constexpr std::int64_t kMostSwaps = 4'000'000;  // pairs of ports times GPUs

}  // namespace

void ColumnSource::find_rings(int round) {
  if (!is_exact()) {
    const std::vector<int> trip = short_round_trip(chain_, n_, round, kLocalSearchSteps, steps_);
    add({{trip}}, round_trip_cost(chain_, n_, trip));
    return;
  }
  std::vector<double> tail;
  for (int gpu = 0; gpu < n_; ++gpu) tail.push_back(chain(gpu, 0));
  exact_.solve(chain_, tail);
  if (n_ == 1) return add({{{0}}}, exact_.cost(0));
  for (int second = 1; second < n_; ++second) {
    const double cost = chain(0, second) + exact_.cost(second, 1);
    if (!is_possible(cost)) continue;
    std::vector<int> order = exact_.order(second, 1);
    order.insert(order.begin(), 0);
    add({{std::move(order)}}, cost);
  }
}

/// A chain may begin at any place of a round trip: every turn of it, with every port.
void ColumnSource::add_turns(std::vector<int> trip, int most) {
  for (const bool backwards : {false, true}) {
    if (backwards) std::reverse(trip.begin(), trip.end());
    add_turns_forward(trip, most);
  }
}

void ColumnSource::add_turns_forward(const std::vector<int>& trip, int most) {
  double around = 0;
  int missing = 0;
  const auto step = [&](std::size_t i) { return chain(trip[i], trip[(i + 1) % trip.size()]); };
  for (std::size_t i = 0; i < trip.size(); ++i) is_possible(step(i)) ? around += step(i) : missing += 1;
  struct Turn {
    double cost;
    std::size_t first;
    int in, out;
  };
  std::vector<Turn> turns;
  for (std::size_t first = 0; first < trip.size(); ++first) {
    const double closing = step((first + trip.size() - 1) % trip.size());
    if (missing > (is_possible(closing) ? 0 : 1)) continue;
    const double inside = around - (is_possible(closing) ? closing : 0);
    const int head = trip[first], second = trip[(first + 1) % trip.size()];
    const int last = trip[(first + trip.size() - 1) % trip.size()];
    if (k_ == 0 && inside <= 1 - kGain) turns.push_back({inside, first, -1, -1});
    for (int to = 0; to < k_; ++to) {
      const double end = end_cost(head, second, last, to);
      if (inside + end > 1) continue;
      int best = to;
      for (const int from : partners_[static_cast<std::size_t>(to)])
        if (in(from, head) < in(best, head)) best = from;
      if (const double cost = inside + end + in(best, head); cost <= 1 - kGain)
        turns.push_back({cost, first, best, to});
    }
  }
  if (pattern_ == Pattern::kRing && limits_.cross_nic == 2) add_swapped_turns(trip, around, missing);
  steps_ += static_cast<std::int64_t>(turns.size());
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.cost < b.cost; });
  std::vector<int> heads(static_cast<std::size_t>(n_), 0), ports(static_cast<std::size_t>(k_ + 1), 0);
  for (const Turn& turn : turns) {  // different ones first: each head and each port at most twice
    if (most == 0) break;
    int &head = heads[static_cast<std::size_t>(trip[turn.first])],
        &used = ports[static_cast<std::size_t>(turn.out + 1)];
    if (head >= 2 || (used >= 2 && k_ > 0)) continue;
    ++head, ++used, --most;
    std::vector<int> gpus(trip);
    std::rotate(gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(turn.first), gpus.end());
    add({{std::move(gpus), turn.in, turn.out}}, turn.cost);
  }
}

/// Two turns of one round trip whose ports are each other's swapped.
void ColumnSource::add_swapped_turns(const std::vector<int>& trip, double around, int missing) {
  if (static_cast<std::int64_t>(k_) * k_ * n_ > kMostSwaps || missing > 0) return;
  const auto turned = [&](std::size_t first, int from, int to) {
    std::vector<int> gpus(trip);
    std::rotate(gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(first), gpus.end());
    return Order{std::move(gpus), from, to};
  };
  const auto best = [&](int from, int to) {
    std::pair<double, std::size_t> least{kNever, 0};
    for (std::size_t first = 0; first < trip.size(); ++first) {
      const int last = trip[(first + trip.size() - 1) % trip.size()];
      least =
          std::min(least, {around - chain(last, trip[first]) + in(from, trip[first]) + out(to, last), first});
    }
    return least;
  };
  steps_ += static_cast<std::int64_t>(k_) * k_ * n_;
  for (int a = 0; a < k_; ++a)
    for (int b = a + 1; b < k_; ++b) {
      if (!table_.may_pair(a, b, 2)) continue;
      const auto [there, first] = best(a, b);
      const auto [back, second] = best(b, a);
      if (there + back < 2 * (1 - kGain)) add({turned(first, a, b), turned(second, b, a)}, there + back);
    }
}

/// What leaving costs at port `to`.
double ColumnSource::end_cost(int first, int second, int last, int to) const {
  switch (pattern_) {
    case Pattern::kRing:
      return out(to, last);
    case Pattern::kSplitTree:
      return out(to, second);
    case Pattern::kBalancedTree:
      return (out_any(to, first) + out_any(to, second)) / 2;
    default:
      return out(to, first);
  }
}

/// A cheap way through all GPUs with the costs of beginning and ending.
std::vector<int> ColumnSource::path(std::span<const double> begin, std::span<const double> end, int seed) {
  const int places = n_ + 1;  // place 0 stands for the port
  std::vector<double> costs(static_cast<std::size_t>(places * places), kNever);
  for (int i = 0; i < n_; ++i) {
    costs[static_cast<std::size_t>(i + 1)] = begin[static_cast<std::size_t>(i)];
    costs[static_cast<std::size_t>((i + 1) * places)] = end[static_cast<std::size_t>(i)];
    std::copy_n(&chain_[static_cast<std::size_t>(i * n_)], n_,
                &costs[static_cast<std::size_t>((i + 1) * places + 1)]);
  }
  std::vector<int> trip = short_round_trip(costs, places, seed, kLocalSearchSteps, steps_);
  trip.erase(trip.begin());
  for (int& gpu : trip) --gpu;
  return trip;
}

/// Many GPUs: a few round trips, each turned every way.
void ColumnSource::find_long(int round) {
  add_turns(short_round_trip(chain_, n_, round, kLocalSearchSteps, steps_), kMostTurns);
  for (int i = 0; i < std::min(k_, kPortsPerRound) && static_cast<int>(found_.size()) < kMostTurns; ++i) {
    const int net = (round * kPortsPerRound + i) % k_;
    const auto begin =
        std::span(in_).subspan(static_cast<std::size_t>(net * n_), static_cast<std::size_t>(n_));
    add_turns(path(begin, pattern_ == Pattern::kRing ? out_to(net) : zeros_, 0), kMostTurns);
  }
  if (k_ == 0) add_turns(path(zeros_, zeros_, round), kMostTurns);
}

/// The cheapest orders from every GPU to every port: for each port, or where there are more ports than GPUs for
/// each GPU that may be the last.
void ColumnSource::solve_ends() {
  const int ends = std::min(k_, n_);
  const auto places = static_cast<std::size_t>(n_);
  while (static_cast<int>(ends_.size()) < ends) ends_.emplace_back(n_);
  std::vector<double> tail(places, kNever);
  for (int end = 0; end < ends; ++end) {
    if (ends == n_) tail[static_cast<std::size_t>(end)] = 0;
    ends_[static_cast<std::size_t>(end)].solve(chain_, ends == n_ ? std::span<const double>(tail) : out_to(end));
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
        if (const double cost = ends_[static_cast<std::size_t>(last)].cost(first) + out(to, last); cost < way.cost)
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
  for (int i = 0; i < k_; ++i) {
    const int to = (i + round) % k_;
    for (const int from : partners_[static_cast<std::size_t>(to)]) {
      int first = 0;
      least_ = std::min(least_, ring_between_ports(from, to, &first));
      if (hop_cost_ == 0) continue;
      for (int gpu = 0; gpu < n_; ++gpu)
        if (const double cost = in(from, gpu) + to_port(to, gpu).cost; cost < 1 - kGain)
          add({order_between(from, to, gpu)}, cost);
    }
    if (found_.size() >= 4 * kMostColumns) return;
  }
  if (limits_.cross_nic == 2 && (found_.empty() || hop_cost_ == 0)) find_pairs_of_rings();
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
  if (hop_cost_ == 0) return;
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& x, const Pair& y) { return x.cost < y.cost; });
  if (pairs.size() > kMostColumns) pairs.resize(kMostColumns);
  for (const Pair& pair : pairs)
    add({order_between(pair.a, pair.b, pair.first), order_between(pair.b, pair.a, pair.second)}, pair.cost);
}

}  // namespace loom::search
