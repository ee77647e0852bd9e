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
  double trees = 0;               ///< of the host alone; where there are others, of two like it
  std::array<double, 3> grids{};  ///< of two hosts like it, of four, and of ever so many
  friend bool operator==(const GatherGbps&, const GatherGbps&) = default;
};

/// machine.ranks: by local index, of ranks that share a GPU the same one, which is in its System. near: by
/// local index the ports of a rank, as grids take them in turn. rows: of grids; none where there are no
/// grids.
GatherGbps gather_gbps(const Machine& machine, const NodeSummary& summary,
                       std::span<const ChannelSummary> rows, std::span<const std::vector<std::int16_t>> near,
                       bool between_hosts);

/// Of grids over so many hosts like it, from two on: no more than they reach.
double grids_gbps(const GatherGbps& gather, int hosts);

}  // namespace loom::connect
