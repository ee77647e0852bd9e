#include "search/packing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "search/orders.hpp"

namespace loom::search {
namespace {

constexpr std::int64_t kPlenty = 1'000'000'000;

TEST(Packing, FindsTheOptimumOfAKnownProgram) {
  // x + y <= 4, x + 3 y <= 6, x <= 3: the best of 3 x + 5 y is 14, at x = 3, y = 1.
  Steps steps(kPlenty);
  Packing packing(std::vector<double>{4, 6, 3}, steps);
  const std::vector<Load> x_loads = {{0, 1}, {1, 1}, {2, 1}}, y_loads = {{0, 1}, {1, 3}};
  const int x = packing.add(x_loads, 3), y = packing.add(y_loads, 5);
  ASSERT_TRUE(packing.optimize());
  EXPECT_NEAR(packing.total(), 14, 1e-9);
  EXPECT_NEAR(packing.amount(x), 3, 1e-9);
  EXPECT_NEAR(packing.amount(y), 1, 1e-9);
}

TEST(Packing, PricesBoundWhatANewColumnAdds) {
  Steps steps(kPlenty);
  Packing packing(std::vector<double>{10, 10}, steps);
  const std::vector<Load> both = {{0, 1}, {1, 1}}, first = {{0, 1}}, second = {{1, 1}};
  packing.add(both, 1);
  packing.optimize();
  EXPECT_NEAR(packing.gain(both, 1), 0, 1e-9);
  packing.add(first, 1);
  packing.add(second, 1);
  packing.optimize();
  EXPECT_NEAR(packing.total(), 20, 1e-9);
}

TEST(Packing, StaysFeasibleWhereManyColumnsTie) {
  Steps steps(kPlenty);
  Packing packing(std::vector<double>(12, 20.0), steps);
  std::mt19937 random(7);
  std::vector<std::vector<Load>> columns;
  for (int j = 0; j < 200; ++j) {
    std::vector<Load> loads;
    for (int i = 0; i < 12; ++i)
      if (random() % 3 == 0) loads.push_back({i, 1});
    if (loads.empty()) continue;
    columns.push_back(std::move(loads));
    packing.add(columns.back(), 1);
    ASSERT_TRUE(packing.optimize());
  }
  std::vector<double> taken(12, 0);
  double worth = 0;
  for (std::size_t j = 0; j < columns.size(); ++j)
    for (const Load& load : columns[j])
      taken[load.resource] += load.factor * packing.amount(static_cast<int>(j));
  for (int i = 0; i < 12; ++i) {
    EXPECT_LE(taken[i], 20 + 1e-6);
    worth += packing.prices()[i] * 20;
  }
  EXPECT_NEAR(worth, packing.total(), 1e-6) << "prices prove the optimum";
}

std::vector<double> random_costs(int places, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> costs;
  for (int i = 0; i < places * places; ++i) costs.push_back(static_cast<double>(random() % 100) / 100);
  return costs;
}

double cheapest_by_trying_all(const std::vector<double>& costs, int places) {
  std::vector<int> order(places);
  std::iota(order.begin(), order.end(), 0);
  double best = kNever;
  do best = std::min(best, round_trip_cost(costs, places, order));
  while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

class Orders : public ::testing::TestWithParam<unsigned> {};

TEST_P(Orders, AreTheCheapestAndBoundsAreBelow) {
  constexpr int kPlaces = 7;
  const std::vector<double> costs = random_costs(kPlaces, GetParam());
  const double cheapest = cheapest_by_trying_all(costs, kPlaces);
  std::vector<double> tail;
  for (int i = 0; i < kPlaces; ++i) tail.push_back(costs[i * kPlaces]);
  ExactOrders exact(kPlaces);
  Steps steps(kPlenty);
  exact.solve(costs, tail, steps);
  EXPECT_NEAR(exact.cost(0), cheapest, 1e-12);
  EXPECT_NEAR(round_trip_cost(costs, kPlaces, exact.order(0)), cheapest, 1e-12);
  double cheapest_end = kNever;  // of orders to one end, which the same tables find one after another
  for (int end = 0; end < kPlaces; ++end) {
    std::vector<double> one(kPlaces, kNever);
    one[end] = tail[end];
    exact.solve(costs, one, steps);
    if (end == 0) {
      EXPECT_FALSE(is_possible(exact.cost(0))) << "it begins there";
    } else {
      EXPECT_EQ(exact.order(0).back(), end);
      cheapest_end = std::min(cheapest_end, exact.cost(0));
    }
  }
  EXPECT_NEAR(cheapest_end, cheapest, 1e-12);
  exact.solve(costs, tail, steps);
  EXPECT_NEAR(exact.cost(0), cheapest, 1e-12);
  EXPECT_LE(assignment_bound(costs, kPlaces, steps), cheapest + 1e-12);
  EXPECT_LE(arborescence_bound(costs, kPlaces, 0, steps), cheapest + 1e-12);
  std::vector<int> trip = short_round_trip(costs, kPlaces, static_cast<int>(GetParam()), steps);
  EXPECT_GE(round_trip_cost(costs, kPlaces, trip), cheapest - 1e-12);
  EXPECT_LE(round_trip_cost(costs, kPlaces, trip), cheapest * 1.8);
  EXPECT_EQ(trip[0], 0);
  std::sort(trip.begin(), trip.end());
  for (int i = 0; i < kPlaces; ++i) EXPECT_EQ(trip[i], i);
}
INSTANTIATE_TEST_SUITE_P(Random, Orders, ::testing::Range(1U, 21U));

TEST(OrderBounds, KnowThatGroupsMustBeCrossed) {
  // Two groups of two, free inside, 1 to cross: an assignment stays inside, a way that reaches all does not.
  std::vector<double> costs(16, 1.0);
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 0), std::pair(2, 3), std::pair(3, 2)})
    costs[a * 4 + b] = 0;
  Steps steps(kPlenty);
  EXPECT_NEAR(assignment_bound(costs, 4, steps), 0, 1e-12);
  EXPECT_NEAR(arborescence_bound(costs, 4, 0, steps), 1, 1e-12);
}

}  // namespace
}  // namespace loom::search
