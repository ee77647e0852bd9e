#include "connect/placement.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::connect {

Placement::Placement(std::span<const std::int32_t> leaders) {
  node_of_.resize(leaders.size());
  for (std::size_t rank = 0; rank < leaders.size(); ++rank) {
    const auto leader = static_cast<std::size_t>(leaders[rank]);
    if (leader > rank || leaders[leader] != leaders[rank])
      throw Error(ErrorCode::kInternal,
                  loom::format("Rank {} says that rank {} is the lowest on its node, and rank {} does not.",
                               rank, leaders[rank], leaders[rank]));
    if (leader == rank) first_.push_back(0);
    node_of_[rank] = leader == rank ? nodes() - 1 : node_of_[leader];
    ++first_[static_cast<std::size_t>(node_of_[rank]) + 1];
  }
  for (int node = 0; node < nodes(); ++node)
    first_[static_cast<std::size_t>(node) + 1] += first_[static_cast<std::size_t>(node)];
  std::vector<std::int32_t> next(first_.begin(), first_.end() - 1);
  members_.resize(leaders.size());
  for (std::size_t rank = 0; rank < leaders.size(); ++rank)
    members_[static_cast<std::size_t>(next[static_cast<std::size_t>(node_of_[rank])]++)] =
        static_cast<std::int32_t>(rank);
  ranks_per_node_ = nodes() > 0 ? ranks_on(0) : 0;
  for (int node = 0; node < nodes(); ++node)
    if (ranks_on(node) != ranks_on(0)) ranks_per_node_ = 0;
}

Placement Placement::of_nodes(std::span<const std::vector<int>> nodes) {
  std::size_t count = 0;
  for (const auto& ranks : nodes) count += ranks.size();
  std::vector<std::int32_t> leaders(count, -1);
  for (const auto& ranks : nodes) {
    const int leader = ranks.empty() ? 0 : *std::min_element(ranks.begin(), ranks.end());
    for (const int rank : ranks) {
      if (rank < 0 || rank >= static_cast<int>(count) || leaders[static_cast<std::size_t>(rank)] >= 0)
        throw Error(ErrorCode::kInternal,
                    loom::format("Rank {} of {} is on two nodes, or is no rank.", rank, count));
      leaders[static_cast<std::size_t>(rank)] = leader;
    }
  }
  return Placement(leaders);
}

}  // namespace loom::connect
