#include "search/orders.hpp"

#include <algorithm>
#include <limits>

#include "search/arborescence.hpp"

namespace loom::search {

ExactOrders::ExactOrders(int places)
    : places_(places), best_((std::size_t{1} << places) * static_cast<std::size_t>(places), kNever) {}

void ExactOrders::solve(std::span<const double> costs, std::span<const double> tail, Steps& steps) {
  costs_ = costs;
  const unsigned all = 1U << places_;
  const auto places = static_cast<std::size_t>(places_);
  unsigned ends = 0;
  for (std::size_t place = 0; place < places; ++place) ends |= is_possible(tail[place]) ? 1U << place : 0U;
  for (unsigned set = 1; set < all; ++set) {
    if ((set & ends) == 0) {  // no order of these ends where it may
      std::fill_n(&best_[set * places], places, kNever);
      continue;
    }
    for (unsigned firsts = set; firsts != 0; firsts &= firsts - 1) {
      const auto first = static_cast<std::size_t>(__builtin_ctz(firsts));
      const unsigned rest = set & ~(1U << first);
      if (rest != 0 && (rest & ends) == 0) {
        best_[set * places + first] = kNever;
        continue;
      }
      double best = rest == 0 ? tail[first] : kNever;
      const double* const next_costs = &costs[first * places];
      const double* const next_best = &best_[rest * places];
      for (unsigned nexts = rest; nexts != 0; nexts &= nexts - 1) {
        const auto next = static_cast<std::size_t>(__builtin_ctz(nexts));
        best = std::min(best, next_costs[next] + next_best[next]);
      }
      best_[set * places + first] = best;
    }
  }
  const bool one_end = (ends & (ends - 1)) == 0;  // half of the sets
  steps.take(one_end ? steps_of(places_) / 2 : steps_of(places_));
}

double ExactOrders::cost(int first, unsigned without) const {
  const unsigned set = ((1U << places_) - 1) & ~without;
  return best_[set * static_cast<std::size_t>(places_) + static_cast<std::size_t>(first)];
}

std::vector<int> ExactOrders::order(int first, unsigned without) const {
  const auto places = static_cast<std::size_t>(places_);
  std::vector<int> order = {first};
  for (unsigned rest = ((1U << places_) - 1) & ~without & ~(1U << first); rest != 0;) {
    int best = -1;
    double best_cost = 0;
    for (int next = 0; next < places_; ++next) {
      if ((rest & (1U << next)) == 0) continue;
      const double cost =
          costs_[static_cast<std::size_t>(order.back()) * places + static_cast<std::size_t>(next)] +
          best_[rest * places + static_cast<std::size_t>(next)];
      if (best < 0 || cost < best_cost) best = next, best_cost = cost;
    }
    order.push_back(best);
    rest &= ~(1U << best);
  }
  return order;
}

namespace {

constexpr double kSaving = 1e-10;
constexpr double kFar = 64;       // as good as never; larger costs would drown savings in rounding
constexpr int kLongRuns = 8'192;  // runs that move are so long, divided by the places' square

class RoundTrip {
 public:
  RoundTrip(std::span<const double> costs, int places, Steps& steps)
      : costs_(costs.begin(), costs.begin() + places * places), places_(places), steps_(steps) {
    for (double& cost : costs_) cost = std::min(cost, kFar);
  }

  std::vector<int> order;

  void walk(int seed) {
    std::vector<bool> visited(static_cast<std::size_t>(places_), false);
    for (int here = seed;;) {
      order.push_back(here);
      visited[static_cast<std::size_t>(here)] = true;
      if (static_cast<int>(order.size()) == places_) break;
      int nearest = -1;
      for (int k = 1; k < places_; ++k) {  // of equals, the next one in the machine's order
        const int there = here + k < places_ ? here + k : here + k - places_;
        if (!visited[static_cast<std::size_t>(there)] &&
            (nearest < 0 || cost(here, there) < cost(here, nearest)))
          nearest = there;
      }
      here = nearest;
      steps_.take(places_);
    }
    std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
  }

  /// Moves and turns runs as long as that saves cost, each where it first does.
  void improve() {
    longest_run_ = std::min(std::max(kLongRuns / (places_ * places_), 3), places_);
    do {
      move_runs();
    } while (!steps_.are_spent() && turn_runs());
  }

 private:
  void move_runs() {
    for (int first = 1, idle = 0; idle < places_ && !steps_.are_spent(); first = first % (places_ - 1) + 1)
      idle = move_from(first) ? 0 : idle + 1;
  }
  /// Moves a run that begins at position `first` behind another place, as it is or turned round.
  bool move_from(int first) {
    double there = 0, back = 0;  // inside the run
    for (int last = first; last < std::min(places_, first + longest_run_); ++last) {
      if (last > first) there += cost(at(last - 1), at(last)), back += cost(at(last), at(last - 1));
      const int before = at(first - 1), after = at((last + 1) % places_), head = at(first), tail = at(last);
      const double saved = cost(before, head) + cost(tail, after) - cost(before, after);
      if (saved + std::max(0.0, there - back) <= kSaving) continue;
      steps_.take(2 * places_);
      for (int k = 0; k < places_; ++k) {
        if (k >= first - 1 && k <= last) continue;
        const int from = at(k), to = at(k + 1 < places_ ? k + 1 : 0);
        const double gap = saved + cost(from, to) - kSaving;
        const bool turned = cost(from, head) + cost(tail, to) >= gap;
        if (turned && cost(from, tail) + cost(head, to) + back - there >= gap) continue;
        if (turned) std::reverse(order.begin() + first, order.begin() + last + 1);
        move_run(first, last, k);
        return true;
      }
    }
    return false;
  }
  /// Turns one run round where it stands; false: nothing is saved by that.
  bool turn_runs() {
    for (int first = 1; first < places_; ++first) {
      double there = 0, back = 0;
      const int before = at(first - 1), head = at(first);
      for (int last = first + 1; last < places_; ++last) {
        there += cost(at(last - 1), at(last)), back += cost(at(last), at(last - 1));
        const int tail = at(last), after = at(last + 1 < places_ ? last + 1 : 0);
        if (cost(before, tail) + back + cost(head, after) >=
            cost(before, head) + there + cost(tail, after) - kSaving)
          continue;
        std::reverse(order.begin() + first, order.begin() + last + 1);
        return true;
      }
      steps_.take(3 * (places_ - first));
    }
    return false;
  }
  double cost(int from, int to) const { return costs_[static_cast<std::size_t>(from * places_ + to)]; }
  int at(int position) const { return order[static_cast<std::size_t>(position)]; }
  void move_run(int first, int last, int behind) {
    const auto begin = order.begin();
    if (behind > last)
      std::rotate(begin + first, begin + last + 1, begin + behind + 1);
    else
      std::rotate(begin + behind + 1, begin + first, begin + last + 1);
  }

  std::vector<double> costs_;
  int places_, longest_run_ = 1;
  Steps& steps_;
};

}  // namespace

std::vector<int> short_round_trip(std::span<const double> costs, int places, int seed, Steps& steps) {
  RoundTrip trip(costs, places, steps);
  trip.walk(seed % places);
  if (places > 2) trip.improve();
  return std::move(trip.order);
}

double round_trip_cost(std::span<const double> costs, int places, std::span<const int> order) {
  double cost = 0;
  for (std::size_t i = 0; i < order.size(); ++i)
    cost += costs[static_cast<std::size_t>(order[i] * places + order[(i + 1) % order.size()])];
  return cost;
}

/// The Hungarian method with potentials: one shortest augmenting path for each place.
double assignment_bound(std::span<const double> costs, int places, Steps& steps) {
  if (places <= 1) return places == 1 ? costs[0] : 0;
  const auto n = static_cast<std::size_t>(places);
  const auto cost = [&](std::size_t row, std::size_t column) {
    return row == column ? kNever : costs[(row - 1) * n + column - 1];
  };
  std::vector<double> row_price(n + 1, 0), column_price(n + 1, 0), slack(n + 1);
  std::vector<std::size_t> row_of(n + 1, 0), previous(n + 1);
  std::vector<bool> done(n + 1);
  for (std::size_t row = 1; row <= n; ++row) {
    row_of[0] = row;
    std::size_t column = 0;
    std::fill(slack.begin(), slack.end(), std::numeric_limits<double>::max());
    std::fill(done.begin(), done.end(), false);
    do {
      steps.take(4 * places);
      done[column] = true;
      const std::size_t here = row_of[column];
      double least = std::numeric_limits<double>::max();
      std::size_t next = 0;
      for (std::size_t j = 1; j <= n; ++j) {
        if (done[j]) continue;
        const double reduced = cost(here, j) - row_price[here] - column_price[j];
        if (reduced < slack[j]) slack[j] = reduced, previous[j] = column;
        if (slack[j] < least) least = slack[j], next = j;
      }
      for (std::size_t j = 0; j <= n; ++j) {
        if (done[j])
          row_price[row_of[j]] += least, column_price[j] -= least;
        else
          slack[j] -= least;
      }
      column = next;
    } while (row_of[column] != 0);
    while (column != 0) {
      row_of[column] = row_of[previous[column]];
      column = previous[column];
    }
  }
  double total = 0;
  for (std::size_t j = 1; j <= n; ++j) total += cost(row_of[j], j);
  return total;
}

double arborescence_bound(std::span<const double> costs, int places, int root, Steps& steps) {
  return Arborescences(costs, places, steps).from(root).cost;
}

}  // namespace loom::search
