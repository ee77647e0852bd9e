// long_columns.cpp -- ColumnSource for more GPUs than all orders can be gone through: chains are turns of
// round trips, and what no chain can cost less than.
#include <algorithm>

#include "search/columns.hpp"

namespace loom::search {
namespace {

constexpr int kMostTurns = 80;     // of one round trip, each way
constexpr int kPortsPerRound = 6;  // that get a search of their own
constexpr int kPairsPerRound = 4;  // the same, of pairs of ports
constexpr std::size_t kMostPairs = 24;
constexpr int kKeptGpus = 256;  // in all trips together that are kept
constexpr double kGain = 1e-9;
constexpr std::int64_t kMostSwaps = 4'000'000;  // pairs of ports times GPUs
constexpr double kOneBeginning = 1e4;           // dear enough for just one

template <class Values>
auto row(Values& values, int number, int width) {
  return std::span(values).subspan(static_cast<std::size_t>(number * width), static_cast<std::size_t>(width));
}

/// `trip` beginning at position `first`.
std::vector<int> turned(const std::vector<int>& trip, std::size_t first) {
  std::vector<int> order(trip);
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first), order.end());
  return order;
}

}  // namespace

/// What leaving costs at port `to`.
double ColumnSource::end_cost(int first, int second, int last, int to) const {
  switch (pattern_) {
    case Pattern::kRing:
      return out(to, last);
    case Pattern::kSplitTree:
      return out(to, second);
    case Pattern::kBalancedTree:
      return (out(to, first) + out(to, second)) / 2;
    default:
      return out(to, first);
  }
}

/// What beginning at each GPU costs a channel that leaves at port `to`, as far as its first GPU decides.
std::vector<double> ColumnSource::costs_of_beginning(int to) const {
  std::vector<double> costs(static_cast<std::size_t>(n_), kNever);
  for (int gpu = 0; gpu < n_; ++gpu) {
    double& cost = costs[static_cast<std::size_t>(gpu)];
    cost = in(best_in_[static_cast<std::size_t>(to * n_ + gpu)], gpu);
    if (pattern_ == Pattern::kBalancedTree) cost += out(to, gpu) / 2;
    if (pattern_ == Pattern::kTree || pattern_ == Pattern::kCollnetChain) cost = in(to, gpu) + out(to, gpu);
  }
  return costs;
}

/// Keeps a cheap way through all GPUs with the costs of beginning and ending.
void ColumnSource::keep_path(std::span<const double> begin, std::span<const double> end, int seed) {
  const int places = n_ + 1;  // place 0 stands for the port
  std::vector<double> costs(static_cast<std::size_t>(places * places), kNever);
  for (int i = 0; i < n_; ++i) {
    costs[static_cast<std::size_t>(i + 1)] = begin[static_cast<std::size_t>(i)];
    costs[static_cast<std::size_t>((i + 1) * places)] = end[static_cast<std::size_t>(i)];
    std::copy_n(&chain_[static_cast<std::size_t>(i * n_)], n_,
                &costs[static_cast<std::size_t>((i + 1) * places + 1)]);
  }
  std::vector<int> trip = short_round_trip(costs, places, seed, steps_);
  trip.erase(trip.begin());
  for (int& gpu : trip) --gpu;
  keep(std::move(trip));
}

/// Adds all turns of a new trip, there and back. The newest trips are kept.
void ColumnSource::keep(std::vector<int> trip) {
  if (std::find(trips_.begin(), trips_.end(), trip) != trips_.end()) return;
  std::vector<int> back(trip.rbegin(), trip.rend());
  add_turns(trip);
  add_turns(back);
  trips_.insert(trips_.begin(), {std::move(trip), std::move(back)});
  const auto most = static_cast<std::size_t>(std::max(8, 2 * kKeptGpus / n_));
  if (trips_.size() > most) trips_.resize(most);
}

/// Every GPU but the one where it begins costs a channel its cheapest way in, every GPU but the last its way
/// out, if both are of the chain alone.
double ColumnSource::least_of_ends() {
  const bool closed = k_ == 0 && pattern_ == Pattern::kRing;
  double least = 0;
  for (const bool in : {true, false}) {
    double sum = 0, dearest = 0;
    for (int gpu = 0; gpu < n_; ++gpu) {
      double cheapest = kNever;
      for (int other = 0; other < n_; ++other)
        cheapest = std::min(cheapest, in ? chain(other, gpu) : chain(gpu, other));
      sum += cheapest;
      dearest = std::max(dearest, cheapest);
    }
    least = std::max(least, closed ? sum : sum - dearest);
  }
  steps_.take(std::int64_t{2} * n_ * n_);
  return least;
}

void ColumnSource::find_long(int round) {
  if (least_of_ends() > 1) return;  // no channel is worth its links
  const bool ring = pattern_ == Pattern::kRing;
  for (const std::vector<int>& trip : trips_) add_turns(trip);
  keep(short_round_trip(chain_, n_, round, steps_));
  const auto wants_more = [&] {  // nothing more begins once the steps are taken, unless nothing is there
    return found_.size() < most_columns() && (found_.empty() || !steps_.are_spent());
  };
  if (k_ == 0 && !ring) keep_path(zeros_, zeros_, round);
  for (int i = 0; i < std::min(k_, kPortsPerRound) && wants_more(); ++i) {
    const int to = (round * kPortsPerRound + i) % k_;
    keep_path(costs_of_beginning(to), ring ? row(out_, to, n_) : std::span<const double>(zeros_), 0);
  }
  if (ring && limits_.cross_nic == 2 && wants_more()) find_long_pairs();
}

/// A chain may begin at any place of a round trip: every turn of it, with every port.
void ColumnSource::add_turns(const std::vector<int>& trip) {
  const auto step = [&](std::size_t i) { return chain(trip[i], trip[i + 1 < trip.size() ? i + 1 : 0]); };
  double around = 0;
  int missing = 0;
  for (std::size_t i = 0; i < trip.size(); ++i) is_possible(step(i)) ? around += step(i) : missing += 1;
  if (k_ == 0 && pattern_ == Pattern::kRing) {
    if (missing == 0) add({{trip}}, around);
    return;
  }
  struct Turn {
    double cost;
    std::size_t first;
    int in, out;
  };
  std::vector<Turn> turns;
  for (std::size_t first = 0; first < trip.size(); ++first) {
    const std::size_t before = first > 0 ? first - 1 : trip.size() - 1;
    const double closing = step(before);
    if (missing > (is_possible(closing) ? 0 : 1)) continue;
    const double inside = around - (is_possible(closing) ? closing : 0);
    if (inside > 1) continue;
    const int head = trip[first], second = trip[first + 1 < trip.size() ? first + 1 : 0], last = trip[before];
    if (k_ == 0 && inside <= 1 - kGain) turns.push_back({inside, first, -1, -1});
    for (int to = 0; to < k_; ++to) {
      const int best = best_in_[static_cast<std::size_t>(to * n_ + head)];
      const double cost = inside + end_cost(head, second, last, to) + in(best, head);
      if (cost <= 1 - kGain) turns.push_back({cost, first, best, to});
    }
    steps_.take(4 * k_ + 4);
  }
  steps_.take(static_cast<std::int64_t>(turns.size()) * 8);
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.cost < b.cost; });
  std::vector<int> heads(static_cast<std::size_t>(n_), 0), ports(static_cast<std::size_t>(k_ + 1), 0);
  int left = kMostTurns;
  for (const Turn& turn : turns) {  // different ones first: each head and each port at most twice
    if (left == 0) break;
    int &head = heads[static_cast<std::size_t>(trip[turn.first])],
        &used = ports[static_cast<std::size_t>(turn.out + 1)];
    if (head >= 2 || (used >= 2 && k_ > 0)) continue;
    ++head, ++used, --left;
    add({{turned(trip, turn.first), turn.in, turn.out}}, turn.cost);
  }
}

/// The cheapest chain known from each GPU to each other one, a turn of a trip: [first * n_ + last].
std::vector<ColumnSource::Chain> ColumnSource::chains_between() const {
  std::vector<Chain> chains(static_cast<std::size_t>(n_) * static_cast<std::size_t>(n_));
  for (const std::vector<int>& trip : trips_) {
    double around = 0;
    int missing = 0;
    for (std::size_t i = 0; i < trip.size(); ++i) {
      const double step = chain(trip[i], trip[i + 1 < trip.size() ? i + 1 : 0]);
      is_possible(step) ? around += step : missing += 1;
    }
    for (std::size_t first = 0; first < trip.size(); ++first) {
      const int last = trip[first > 0 ? first - 1 : trip.size() - 1];
      const double closing = chain(last, trip[first]);
      if (missing > (is_possible(closing) ? 0 : 1)) continue;
      const double cost = around - (is_possible(closing) ? closing : 0);
      Chain& best = chains[static_cast<std::size_t>(trip[first] * n_ + last)];
      if (cost < best.cost) best = {cost, &trip, first};
    }
  }
  return chains;
}

/// Two rings with their ports swapped, each the cheapest chain known between its ports. The cheapest pairs
/// get searches of their own for the next round.
void ColumnSource::find_long_pairs() {
  if (static_cast<std::int64_t>(k_) * k_ * n_ > kMostSwaps) return;
  const std::vector<Chain> chains = chains_between();
  const auto places = static_cast<std::size_t>(k_) * static_cast<std::size_t>(n_);
  std::vector<double> reach(places, kNever);  // from a port to the GPU where the chain ends
  std::vector<int> first_of(places, 0);
  for (int from = 0; from < k_; ++from)
    for (int first = 0; first < n_; ++first)
      for (int last = 0; last < n_; ++last) {
        const double cost = in(from, first) + chains[static_cast<std::size_t>(first * n_ + last)].cost;
        const auto place = static_cast<std::size_t>(from * n_ + last);
        if (cost < reach[place]) reach[place] = cost, first_of[place] = first;
      }
  const auto best = [&](int from, int to) {
    std::pair<double, int> least{2 * kNever, 0};  // and its last GPU
    for (int last = 0; last < n_; ++last)
      least = std::min(least, {reach[static_cast<std::size_t>(from * n_ + last)] + out(to, last), last});
    return least;
  };
  struct Pair {
    double cost;
    int a, b, last_there, last_back;
  };
  std::vector<Pair> pairs;
  for (int a = 0; a < k_; ++a)
    for (int b = a + 1; b < k_; ++b) {
      if (!table_.may_pair(a, b, 2)) continue;
      const auto [there, last_there] = best(a, b);
      const auto [back, last_back] = best(b, a);
      pairs.push_back({there + back, a, b, last_there, last_back});
    }
  steps_.take(static_cast<std::int64_t>(k_) * n_ * (n_ + 2 * k_));
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& x, const Pair& y) { return x.cost < y.cost; });
  if (pairs.size() > kMostPairs) pairs.resize(kMostPairs);
  const auto order = [&](int from, int to, int last) {
    const int first = first_of[static_cast<std::size_t>(from * n_ + last)];
    const Chain& chain = chains[static_cast<std::size_t>(first * n_ + last)];
    return Order{turned(*chain.trip, chain.first), from, to};
  };
  for (const Pair& pair : pairs)
    if (pair.cost < 2 * (1 - kGain))
      add({order(pair.a, pair.b, pair.last_there), order(pair.b, pair.a, pair.last_back)}, pair.cost);
  for (std::size_t i = 0; i < std::min<std::size_t>(pairs.size(), kPairsPerRound); ++i) {
    keep_path(row(in_, pairs[i].a, n_), row(out_, pairs[i].b, n_), 0);
    keep_path(row(in_, pairs[i].b, n_), row(out_, pairs[i].a, n_), 0);
  }
}

/// The least that beginning at `first` can cost, ports and second GPU included.
double ColumnSource::least_beginning(int first) const {
  if (k_ == 0) return 0;
  const bool balanced = pattern_ == Pattern::kBalancedTree, split = pattern_ == Pattern::kSplitTree;
  double least = kNever;
  for (int to = 0; to < k_; ++to) {
    const double come_in = in(best_in_[static_cast<std::size_t>(to * n_ + first)], first);
    double leave = balanced || split ? kNever : out(to, first);
    for (int second = 0; (balanced || split) && second < n_; ++second)
      if (second != first) leave = std::min(leave, end_cost(first, second, second, to));
    const bool same_port = !balanced && !split;
    least = std::min(least, (same_port ? in(to, first) : come_in) + leave);
  }
  return least;
}

/// A lower bound for many GPUs: every GPU has one successor, and is reached from the first one.
double ColumnSource::least_long_cost() {
  if (k_ == 0 && pattern_ == Pattern::kRing)
    return std::max(assignment_bound(chain_, n_, steps_), arborescence_bound(chain_, n_, 0, steps_));
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
    const double assigned = assignment_bound(costs, places, steps_);
    double least_end = kNever;
    for (int gpu = 1; gpu < places; ++gpu)
      least_end = std::min(least_end, at(gpu, 0)), at(0, gpu) += kOneBeginning;
    return std::max(assigned, arborescence_bound(costs, places, 0, steps_) - kOneBeginning + least_end);
  };
  if (pattern_ != Pattern::kRing) return both();
  const std::int64_t for_each_port = std::int64_t{8} * k_ * n_ * n_ * n_;
  if (for_each_port > steps_.left()) {  // every end at its own cheapest port
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

/// The same of rings between ports, by the cheapest orders to any port of a group, from any that one of the
/// group may pair with.
double ColumnSource::least_ring_in_groups(std::int64_t groups) {
  if (!exact_) exact_.emplace(n_);
  double least = kNever;
  for (std::int64_t group = 0; group < groups; ++group) {
    std::vector<double> begin(static_cast<std::size_t>(n_), kNever), end = begin;
    for (int to = 0; to < k_; ++to) {
      if (to * groups / k_ != group) continue;
      for (int from = 0; from < k_; ++from) {
        if (!table_.may_pair(from, to, limits_.cross_nic)) continue;
        for (int gpu = 0; gpu < n_; ++gpu)
          begin[static_cast<std::size_t>(gpu)] =
              std::min(begin[static_cast<std::size_t>(gpu)], in(from, gpu));
      }
      for (int gpu = 0; gpu < n_; ++gpu)
        end[static_cast<std::size_t>(gpu)] = std::min(end[static_cast<std::size_t>(gpu)], out(to, gpu));
    }
    exact_->solve(chain_, end, steps_);
    for (int gpu = 0; gpu < n_; ++gpu)
      least = std::min(least, begin[static_cast<std::size_t>(gpu)] + exact_->cost(gpu));
  }
  return least;
}

}  // namespace loom::search
