// gather_flows.hpp -- how fast the kernels of a host's GPUs all-gather over trees and grids: what flows
// through its links at the same time. Reduce-scatters do the same backwards.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "connect/node_loads.hpp"
#include "connect/summary.hpp"

namespace loom::connect {

/// GB/s of the whole; 0: there is nothing to gather by, or it is not known.
struct GatherGbps {
  using Grids = std::array<double, 3>;  ///< of two hosts like it, of four, and of ever so many
  double trees = 0;                     ///< of the host alone; where there are others, of two like it
  Grids grids_by_rings{};               ///< whose rows go along the rings that cross hosts
  Grids grids{};                        ///< whose rows go along rings of the host alone; 0: there are none
  friend bool operator==(const GatherGbps&, const GatherGbps&) = default;
};

/// machine.ranks: by local index, of ranks that share a GPU the same one, which is in its System. near: by
/// local index the ports of a rank, as grids take them in turn. Leaves grids along rings of the host alone
/// out.
GatherGbps gather_gbps(const Machine& machine, const NodeSummary& summary,
                       std::span<const std::vector<std::int16_t>> near, bool between_hosts);
/// Along such rows, one at least, of all of the host's ranks. most_gbps: of a row, whatever its links carry;
/// 0: no limit.
GatherGbps::Grids grids_gbps(const Machine& machine, std::span<const ChannelSummary> rows,
                             std::span<const std::vector<std::int16_t>> near, double most_gbps);

/// With which block a channel's all-gather by trees begins, of all as 1: see device::steps::beginning_of().
double tree_begin(int channel);

/// Over so many hosts like it, from two on: no more than they reach.
double grids_gbps(const GatherGbps::Grids& grids, int hosts);

}  // namespace loom::connect
