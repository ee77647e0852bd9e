#include "device/steps/shape.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"
#include "device/schedule/tree_schedule.hpp"

namespace loom::device::steps {
namespace {

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

void check_ring(const std::vector<int>& ring, int ranks, int channel) {
  std::vector<int> sorted = ring, all(index(ranks));
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), 0);
  if (!ring.empty() && sorted != all)
    throw Error(ErrorCode::kInternal,
                loom::format("The ring of channel {} does not pass each of {} ranks once.", channel, ranks));
}

int root_above(const std::vector<int>& parents, int rank) {
  const int ranks = static_cast<int>(parents.size());
  for (int step = 0; step < ranks && rank >= 0 && rank < ranks; ++step) {
    if (parents[index(rank)] == kNobody) return rank;
    rank = parents[index(rank)];
  }
  return kNobody;
}

void check_tree(const std::vector<int>& parents, int ranks, int channel) {
  if (parents.empty()) return;
  bool right = static_cast<int>(parents.size()) == ranks;
  for (int rank = 0; right && rank < ranks; ++rank)
    right = root_above(parents, rank) != kNobody && root_above(parents, rank) == root_above(parents, 0) &&
            std::ranges::count(parents, rank) <= kMostChildren;
  if (!right)
    throw Error(ErrorCode::kInternal,
                loom::format("Channel {} has no tree of {} ranks with up to {} children each.", channel,
                             ranks, kMostChildren));
}

}  // namespace

void ChannelShape::check(int ranks, int channel) const {
  check_ring(ring, ranks, channel);
  for (const auto& tree : trees) check_tree(tree, ranks, channel);
  if (grid.empty()) return;
  check_ring(grid, ranks, channel);
  if (columns < 2 || ranks % columns != 0 || ranks == columns)
    throw Error(ErrorCode::kInternal,
                loom::format("Channel {} has no grid of {} ranks in rows of {}.", channel, ranks, columns));
}

unsigned ChannelShape::weight_of(LinkKind kind) const {
  if (!has(kind)) return 0;
  if (kind == LinkKind::kPairwise || kind == LinkKind::kExchange) return 1;
  return kind == LinkKind::kTree ? tree_weight : kind == LinkKind::kGrid ? grid_weight : weight;
}

void ChannelShape::add_grid(const std::vector<int>& hosts) {
  std::vector<int> order;  // of hosts
  for (const int rank : ring)
    if (!hosts.empty() && std::ranges::find(order, hosts[index(rank)]) == order.end())
      order.push_back(hosts[index(rank)]);
  if (order.size() < 2 || ring.size() % order.size() != 0 || ring.size() == order.size()) return;
  std::vector<int> rows;
  for (const int host : order) {
    const std::size_t before = rows.size();
    std::ranges::copy_if(ring, std::back_inserter(rows),
                         [&](int rank) { return hosts[index(rank)] == host; });
    if (rows.size() - before != ring.size() / order.size()) return;
  }
  grid = std::move(rows);
  grid_weight = weight;
  columns = static_cast<int>(ring.size() / order.size());
}

std::vector<ChannelShape> plain_channels(int ranks, int channels, const std::vector<int>& hosts) {
  ChannelShape shape;
  for (int rank = 0; rank < ranks; ++rank) {
    shape.ring.push_back(rank);
    shape.trees[0].push_back(rank == 0 ? kNobody : rank - 1);
  }
  shape.add_grid(hosts);
  return std::vector<ChannelShape>(index(channels), shape);
}

}  // namespace loom::device::steps
