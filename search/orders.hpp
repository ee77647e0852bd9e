// orders.hpp -- the cheapest order in which to visit n places, where going from each to each has a cost:
// exactly where there are few, by local search where there are many, and a lower bound for any number. Knows
// no machines.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "search/steps.hpp"

namespace loom::search {

/// The cost of what is not allowed; no order of allowed steps costs as much.
inline constexpr double kNever = 1e6;
constexpr bool is_possible(double cost) {
  return cost < kNever / 2;
}

/// All cheapest orders of up to kMost places at once, by dynamic programming over the sets of places still to
/// visit: 2^n * n^2 steps and 2^n * n * 8 bytes.
class ExactOrders {
 public:
  static constexpr int kMost = 16;
  explicit ExactOrders(int places);

  /// The steps that one solve() of so many places takes.
  static constexpr std::int64_t steps_of(int places) {
    return (std::int64_t{1} << places) * places * places / 4;
  }
  /// costs[i * places + j]: from i to j. tail[i]: of ending at i.
  void solve(std::span<const double> costs, std::span<const double> tail, Steps& steps);
  /// Of the cheapest order that begins at `first` and visits all places but those of `without`, a bit mask.
  double cost(int first, unsigned without = 0) const;
  std::vector<int> order(int first, unsigned without = 0) const;

 private:
  int places_;
  std::span<const double> costs_;
  std::vector<double> best_;  // [set * places + first]
};

/// A cheap round trip through all places that begins (and ends) at place 0: the nearest place first, the walk
/// beginning at `seed`; then runs of places move elsewhere or turn round (Or-opt, 2-opt) as long as that
/// helps.
std::vector<int> short_round_trip(std::span<const double> costs, int places, int seed, Steps& steps);
double round_trip_cost(std::span<const double> costs, int places, std::span<const int> order);

/// No round trip costs less: the cheapest way to give every place one successor (which may be several round
/// trips).
double assignment_bound(std::span<const double> costs, int places, Steps& steps);

/// No order that begins at `root` costs less: the cheapest way to reach every place from it (which may
/// branch).
double arborescence_bound(std::span<const double> costs, int places, int root, Steps& steps);

}  // namespace loom::search
