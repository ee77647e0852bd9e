#include "search/arborescence.hpp"

#include <algorithm>
#include <limits>

namespace loom::search {
namespace {

struct Edge {
  int from, to;
  double cost;
  int id;  ///< of the costs
};

/// Places of which some stand for circles of the level below.
struct Level {
  std::vector<int> way_in;    ///< by place: the id of its cheapest edge; -1: the root
  std::vector<int> above;     ///< by place: where it is a level further up
  std::vector<int> circle;    ///< by place: which it is on; -1: none
  std::vector<int> place_of;  ///< by place of the lowest level
};

/// Numbers the circles of `before`, from 0, in `circle` (-1: on none), and returns how many there are.
int find_circles(std::span<const int> before, int root, std::vector<int>& circle) {
  std::vector<int> seen_by(before.size(), -1);
  int circles = 0;
  for (int place = 0; place < static_cast<int>(before.size()); ++place) {
    int here = place;
    while (here != root && seen_by[static_cast<std::size_t>(here)] != place &&
           circle[static_cast<std::size_t>(here)] < 0) {
      seen_by[static_cast<std::size_t>(here)] = place;
      here = before[static_cast<std::size_t>(here)];
    }
    if (here == root || circle[static_cast<std::size_t>(here)] >= 0) continue;
    for (int on = before[static_cast<std::size_t>(here)]; on != here;
         on = before[static_cast<std::size_t>(on)])
      circle[static_cast<std::size_t>(on)] = circles;
    circle[static_cast<std::size_t>(here)] = circles++;
  }
  return circles;
}

/// From the highest level down: a circle is entered where its way in leads, and its other places keep theirs.
std::vector<int> ways_in(std::span<const Level> levels, int places) {
  std::vector<int> ways = levels.back().way_in;
  for (std::size_t i = levels.size() - 1; i-- > 0;) {
    const Level& level = levels[i];
    std::vector<int> below = level.way_in;
    for (std::size_t place = 0; place < below.size(); ++place) {
      const int way = ways[static_cast<std::size_t>(level.above[place])];
      if (level.circle[place] < 0)
        below[place] = way;
      else if (way >= 0 && level.place_of[static_cast<std::size_t>(way % places)] == static_cast<int>(place))
        below[place] = way;
    }
    ways = std::move(below);
  }
  return ways;
}

}  // namespace

/// Every place takes its cheapest way in; circles that this makes become one place, until there is none.
Arborescence cheapest_arborescence(std::span<const double> costs, int places, int root, Steps& steps) {
  const int all = places;
  std::vector<Edge> edges;
  edges.reserve(costs.size());
  // Where all cost the same, the ways from the place before each make a chain, and no circle.
  for (int back = 1; back < places; ++back)
    for (int to = 0; to < places; ++to) {
      const int from = (to - back + places) % places, id = from * places + to;
      edges.push_back({from, to, costs[static_cast<std::size_t>(id)], id});
    }
  std::vector<int> place_of(static_cast<std::size_t>(places));
  for (int place = 0; place < places; ++place) place_of[static_cast<std::size_t>(place)] = place;
  std::vector<Level> levels;
  Arborescence result;
  for (;;) {
    const auto count = static_cast<std::size_t>(places);
    steps.take(4 * static_cast<std::int64_t>(edges.size()));
    std::vector<double> cheapest(count, std::numeric_limits<double>::max());
    std::vector<int> before(count, -1), circle(count, -1);
    Level level{std::vector<int>(count, -1), {}, {}, place_of};
    for (const Edge& edge : edges)
      if (const auto to = static_cast<std::size_t>(edge.to); edge.cost < cheapest[to])
        cheapest[to] = edge.cost, before[to] = edge.from, level.way_in[to] = edge.id;
    cheapest[static_cast<std::size_t>(root)] = 0;
    level.way_in[static_cast<std::size_t>(root)] = -1;
    for (const double cost : cheapest) result.cost += cost;
    int circles = find_circles(before, root, circle);
    level.circle = circle;
    if (circles == 0) {
      levels.push_back(std::move(level));
      break;
    }
    for (int& number : circle)
      if (number < 0) number = circles++;
    level.above = circle;
    levels.push_back(std::move(level));
    for (Edge& edge : edges) {
      edge.cost -= cheapest[static_cast<std::size_t>(edge.to)];
      edge.from = circle[static_cast<std::size_t>(edge.from)];
      edge.to = circle[static_cast<std::size_t>(edge.to)];
    }
    std::erase_if(edges, [](const Edge& edge) { return edge.from == edge.to; });
    for (int& place : place_of) place = circle[static_cast<std::size_t>(place)];
    root = circle[static_cast<std::size_t>(root)];
    places = circles;
  }
  for (const int way : ways_in(levels, all)) result.before.push_back(way < 0 ? -1 : way / all);
  return result;
}

}  // namespace loom::search
