#include "search/arborescence.hpp"

#include <limits>

namespace loom::search {
namespace {

/// Ways between places that may stand for circles.
struct Ways {
  int places;
  std::vector<double> costs;  ///< by from * places + to
  std::vector<int> of;        ///< which of the lowest level's each is
};

/// What each place is part of once the circles of `before` are contracted; how many there are then.
std::pair<std::vector<int>, int> contracted(std::span<const int> before) {
  std::vector<int> seen_by(before.size(), -1), part(before.size(), -1);
  int parts = 0;
  for (int place = 0; place < static_cast<int>(before.size()); ++place) {
    int here = place;
    while (seen_by[static_cast<std::size_t>(here)] < 0) {
      seen_by[static_cast<std::size_t>(here)] = place;
      here = before[static_cast<std::size_t>(here)];
    }
    if (seen_by[static_cast<std::size_t>(here)] != place) continue;  // seen before: its circle has a number
    for (int on = here; part[static_cast<std::size_t>(on)] < 0; on = before[static_cast<std::size_t>(on)])
      part[static_cast<std::size_t>(on)] = parts;
    ++parts;
  }
  for (int& number : part)
    if (number < 0) number = parts++;
  return {std::move(part), parts};
}

}  // namespace

Arborescences::Arborescences(std::span<const double> costs, int places, Steps& steps)
    : costs_(costs), places_(places) {
  Ways ways{places, {costs.begin(), costs.end()}, std::vector<int>(costs.size())};
  for (std::size_t i = 0; i < costs.size(); ++i) ways.of[i] = static_cast<int>(i);
  std::vector<int> place_of(static_cast<std::size_t>(places));
  for (int place = 0; place < places; ++place) place_of[static_cast<std::size_t>(place)] = place;
  while (ways.places > 1) {
    const int n = ways.places;
    const auto at = [](int from, int to, int all) { return static_cast<std::size_t>(from * all + to); };
    std::vector<double> cheapest(static_cast<std::size_t>(n), std::numeric_limits<double>::max());
    std::vector<int> before(static_cast<std::size_t>(n), -1);
    Level level{std::vector<int>(static_cast<std::size_t>(n)), {}, place_of};
    // Where all cost the same, the ways from the place before each make one circle through all.
    for (int to = 0; to < n; ++to)
      for (int back = 1; back < n; ++back) {
        const int from = to >= back ? to - back : to - back + n;
        if (const double cost = ways.costs[at(from, to, n)]; cost < cheapest[static_cast<std::size_t>(to)]) {
          cheapest[static_cast<std::size_t>(to)] = cost;
          before[static_cast<std::size_t>(to)] = from;
          level.way_in[static_cast<std::size_t>(to)] = ways.of[at(from, to, n)];
        }
      }
    const auto [part, parts] = contracted(before);
    steps.take(3 * static_cast<std::int64_t>(n) * n);
    Ways next{
        parts,
        std::vector<double>(static_cast<std::size_t>(parts * parts), std::numeric_limits<double>::max()),
        std::vector<int>(static_cast<std::size_t>(parts * parts), -1)};
    for (int back = 1; back < n; ++back)
      for (int to = 0; to < n; ++to) {
        const int from = to >= back ? to - back : to - back + n;
        const int here = part[static_cast<std::size_t>(from)], there = part[static_cast<std::size_t>(to)];
        if (here == there) continue;
        const double cost = ways.costs[at(from, to, n)] - cheapest[static_cast<std::size_t>(to)];
        const std::size_t i = at(here, there, parts);
        if (cost < next.costs[i]) next.costs[i] = cost, next.of[i] = ways.of[at(from, to, n)];
      }
    for (int& place : place_of) place = part[static_cast<std::size_t>(place)];
    level.above = part;
    levels_.push_back(std::move(level));
    ways = std::move(next);
  }
}

/// From the top down: a circle is entered where its way in leads, or where the root is, and its other places
/// keep theirs.
Arborescence Arborescences::from(int root) const {
  std::vector<int> ways{-1};
  for (std::size_t i = levels_.size(); i-- > 0;) {
    const Level& level = levels_[i];
    std::vector<int> below = level.way_in;
    for (std::size_t place = 0; place < below.size(); ++place) {
      const int way = ways[static_cast<std::size_t>(level.above[place])];
      const int to = way < 0 ? root : way % places_;
      if (level.place_of[static_cast<std::size_t>(to)] == static_cast<int>(place)) below[place] = way;
    }
    ways = std::move(below);
  }
  Arborescence result;
  for (const int way : ways) {
    result.before.push_back(way < 0 ? -1 : way / places_);
    if (way >= 0) result.cost += costs_[static_cast<std::size_t>(way)];
  }
  return result;
}

}  // namespace loom::search
