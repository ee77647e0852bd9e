#include "connect/wiring.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace loom::connect {
namespace {

Ring ring_at(std::span<const int> order, int position) {
  const int size = static_cast<int>(order.size());
  return {position, size, order[(position + size - 1) % size], order[(position + 1) % size]};
}

}  // namespace

Wiring wire(std::span<const search::ChannelPlan> plans, int rank) {
  Wiring wiring;
  wiring.shape = {0, static_cast<int>(plans.size()), static_cast<int>(plans[0].channels[0].ranks.size())};
  std::vector<int> all;
  std::optional<int> all_position;
  for (const search::ChannelPlan& plan : plans) {
    const std::vector<int>& order = plan.channels[0].ranks;
    if (const auto mine = std::find(order.begin(), order.end(), rank); mine != order.end()) {
      const int position = static_cast<int>(mine - order.begin());
      wiring.local = ring_at(order, position);
      all_position = static_cast<int>(all.size()) + position;
    }
    if (static_cast<int>(order.size()) != wiring.shape.ranks_per_host) wiring.shape.ranks_per_host = 0;
    all.insert(all.end(), order.begin(), order.end());
  }
  if (!all_position) throw Error(ErrorCode::kInternal, fmt::format("Rank {} is in no host's channel plan.", rank));
  wiring.shape.ranks = static_cast<int>(all.size());
  if (wiring.shape.hosts == 1) return wiring;

  if (wiring.shape.ranks_per_host == 0) {
    wiring.flat = ring_at(all, *all_position);
    return wiring;
  }
  std::vector<int> counterparts;
  for (const search::ChannelPlan& plan : plans)
    counterparts.push_back(plan.channels[0].ranks[static_cast<std::size_t>(wiring.local.position)]);
  wiring.rail = ring_at(counterparts, *all_position / wiring.shape.ranks_per_host);
  return wiring;
}

}  // namespace loom::connect
