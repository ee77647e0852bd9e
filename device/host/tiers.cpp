#include "device/host/tiers.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace loom::device {

int most_in_cache(std::span<const TierPlace> places) {
  std::map<std::pair<std::int32_t, std::int32_t>, int> ranks_of;
  int most = 1;
  for (const TierPlace& place : places)
    if (place.cache >= 0) most = std::max(most, ++ranks_of[{place.numa_node, place.cache}]);
  return most;
}

Tiers::Tiers(std::span<const TierPlace> places, int most)
    : position_of_(places.size()), rank_at_(places.size()) {
  std::iota(rank_at_.begin(), rank_at_.end(), 0);
  const auto place = [&](int rank) { return places[static_cast<std::size_t>(rank)]; };
  // Groups come in the order of their first ranks, so that placements in the order of the machine keep the
  // order of ranks whatever the machine calls its parts.
  std::vector<int> first_of_node(places.size()), first_of_cache(places.size());
  const auto same_node = [&](int a, int b) { return place(a).numa_node == place(b).numa_node; };
  const auto same_cache = [&](int a, int b) { return same_node(a, b) && place(a).cache == place(b).cache; };
  const auto first_like = [&](int rank, auto&& same) {
    return *std::ranges::find_if(rank_at_, [&](int other) { return same(other, rank); });
  };
  for (const int rank : rank_at_) {
    first_of_node[static_cast<std::size_t>(rank)] = first_like(rank, same_node);
    first_of_cache[static_cast<std::size_t>(rank)] = first_like(rank, same_cache);
  }
  std::ranges::stable_sort(rank_at_, {}, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return std::tuple(first_of_node[at], first_of_cache[at]);
  });
  for (int position = 0; position < ranks(); ++position)
    position_of_[static_cast<std::size_t>(rank_at(position))] = position;

  std::vector<int> each(places.size() + 1);
  std::iota(each.begin(), each.end(), 0);
  add(std::move(each));
  gather([&](int a, int b) { return same_cache(rank_at(a), rank_at(b)); }, most);
  gather([](int, int) { return true; }, most);
}

void Tiers::add(std::vector<int> starts) {
  int longest = 0;
  for (std::size_t i = 1; i < starts.size(); ++i) longest = std::max(longest, starts[i] - starts[i - 1]);
  starts_.push_back(std::move(starts));
  longest_.push_back(longest);
}

/// Joins the subtrees of the highest tier that share a domain, in as many tiers as that takes.
/// domain(a, b): whether two positions do.
template <class Domain>
void Tiers::gather(Domain&& domain, int most) {
  for (bool is_split = true; is_split;) {
    const std::vector<int>& below = starts_.back();
    const std::size_t subtrees = below.size() - 1;
    std::vector<int> starts;
    is_split = false;
    for (std::size_t first = 0, end; first < subtrees; first = end) {
      for (end = first + 1; end < subtrees && domain(below[first], below[end]);) ++end;
      const std::size_t members = end - first, limit = static_cast<std::size_t>(most);
      const std::size_t groups = (members + limit - 1) / limit;
      for (std::size_t group = 0; group < groups; ++group)
        starts.push_back(below[first + members * group / groups]);
      is_split |= groups > 1;
    }
    starts.push_back(below.back());
    if (starts.size() == below.size()) return;  // each is alone in its domain
    add(std::move(starts));
  }
}

Tiers::Subtree Tiers::subtree(int tier, int position) const {
  const std::vector<int>& starts = starts_[static_cast<std::size_t>(tier)];
  const auto end = std::ranges::upper_bound(starts, position);
  return {*std::prev(end), *end};
}

int Tiers::most_in_group(int ranks) {
  int most = 2;
  while (most < 8 && most * most < ranks) ++most;
  return most;
}

}  // namespace loom::device
