#include "component/select/kernel_channels.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace loom {
namespace {

/// Weights tell speeds apart to a part in 10,000 of the fastest; theirs is known, or nobody's.
unsigned weight_of(float gbps, float fastest) {
  constexpr float kSteps = 10'000;
  const float share = fastest > 0 ? gbps / fastest : 1;
  return std::max(1U, static_cast<unsigned>(share * kSteps + 0.5F));
}

/// Of all channels of a kind; 0: nobody knows.
template <class Channel>
double share_of_first(const std::vector<Channel>& channels) {
  double all = 0;
  for (const Channel& channel : channels) all += channel.gbps;
  return all > 0 ? channels.front().gbps / all : 0;
}

std::vector<int> parents_of(const std::vector<connect::TreeLinks>& tree) {
  std::vector<int> parents;
  for (const connect::TreeLinks& of_rank : tree) parents.push_back(of_rank.parent);
  return parents;
}

/// Of all rings, trees and rows.
template <class Is>
bool hops_are(Is&& is, const connect::GpuChannels& found) {
  for (const auto& ring : found.rings)
    for (std::size_t i = 0; i < ring.order.size(); ++i)
      if (!is(found.between(ring.order[i], ring.order[(i + 1) % ring.order.size()]))) return false;
  const auto columns = static_cast<std::size_t>(found.ranks / found.hosts);
  for (const auto& grid : found.grids)
    for (std::size_t i = 0; i < grid.ranks.size(); ++i)
      if (!is(found.between(grid.ranks[i], grid.ranks[i / columns * columns + (i + 1) % columns])))
        return false;
  for (const auto& channel : found.trees)
    for (const auto& tree : channel.trees)
      for (std::size_t rank = 0; rank < tree.size(); ++rank)
        if (tree[rank].parent >= 0 && !is(found.between(static_cast<int>(rank), tree[rank].parent)))
          return false;
  return true;
}

}  // namespace

device::cuda::KernelChannels kernel_channels_of(const connect::GpuChannels& found,
                                                device::cuda::KernelChannels channels) {
  channels.shapes.assign(std::max({found.rings.size(), found.trees.size(), found.grids.size()}), {});
  const auto is_near = [](topo::PathType type) { return type <= topo::PathType::kC2c; };
  channels.speeds.over_nvlink = found.types.size() == 1 && std::ranges::all_of(found.types.front(), is_near);
  channels.over_nvlink = hops_are(is_near, found);
  channels.ring_gbps = found.rings.empty() ? 0 : found.rings.front().gbps;
  channels.speeds.exchange_gbps = found.exchange_gbps;
  channels.gather_gbps = found.all_gather.trees * share_of_first(found.trees);
  channels.grid_gather_gbps = found.all_gather.grids * share_of_first(found.grids);
  channels.grid_gbps = found.grids.empty() ? 0 : found.grids.front().gbps;
  channels.tree_gbps = found.trees.empty() ? 0 : found.trees.front().gbps;
  for (std::size_t c = 0; c < found.rings.size(); ++c) {
    channels.shapes[c].ring = found.rings[c].order;
    channels.shapes[c].weight = weight_of(found.rings[c].gbps, found.rings.front().gbps);
    if (found.grids.empty()) channels.shapes[c].add_grid(channels.hosts);
  }
  if (found.grids.empty()) {
    channels.grid_gbps = channels.ring_gbps;
    channels.grid_gather_gbps = found.all_gather.grids * share_of_first(found.rings);
  }
  for (std::size_t c = 0; c < found.grids.size(); ++c) {
    channels.shapes[c].grid = found.grids[c].ranks;
    channels.shapes[c].columns = found.ranks / found.hosts;
    channels.shapes[c].grid_weight = weight_of(found.grids[c].gbps, found.grids.front().gbps);
  }
  for (std::size_t c = 0; c < found.trees.size(); ++c) {
    device::steps::ChannelShape& shape = channels.shapes[c];
    for (std::size_t t = 0; t < found.trees[c].trees.size(); ++t)
      shape.trees[t] = parents_of(found.trees[c].trees[t]);
    if (shape.trees[1] == shape.trees[0]) shape.trees[1].clear();
    shape.tree_weight = weight_of(found.trees[c].gbps, found.trees.front().gbps);
  }
  return channels;
}

void run_channels(device::cuda::GpuLinks::Form& form, const connect::GpuChannels& found) {
  form.kernels = kernel_channels_of(found, form.kernels);
  form.channels = static_cast<int>(form.kernels.shapes.size());
}

}  // namespace loom
