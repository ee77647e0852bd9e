// packed.hpp -- inside search: columns with their bandwidths, and how they become a plan.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "search/columns.hpp"

namespace loom::search {

/// What was found under one entry of the list of limits. Columns belong to the search.
struct Packed {
  std::vector<std::pair<const Column*, double>> columns;  ///< with GB/s of each of their channels
  std::vector<double> prices;
  double total = 0;         ///< GB/s, of `columns`
  double unlimited = 0;     ///< GB/s, before the number of channels was limited
  bool impossible = false;  ///< no channel keeps to the limits, however narrow
};

/// The columns that carry most together, of those given; once the steps are spent, each what the ones before
/// left.
Packed pack_best(const std::vector<const Column*>& columns, std::span<const double> capacities, Steps& steps);

/// What each channel of such a column could carry where so much is left of the links.
double width_in(std::span<const double> left, std::span<const Load> loads);
void take_from(std::vector<double>& left, std::span<const Load> loads, double gbps);

/// Channels of one bandwidth whose ports are each other's swapped.
bool is_partner(const Channel& a, const Channel& b);

/// Writes channels, totals, types and hops of `packed` into `plan`, which says pattern, network and limits.
void fill_plan(ChannelPlan& plan, const HopTable& table, const Packed& packed,
               std::span<const double> capacities);

/// Splits channels into equal ones until each carries at most `most_gbps` (0: any) and there are
/// `min_channels`, as long as there are no more than `max_channels`.
void split_channels(ChannelPlan& plan, const HopTable& table, const Request& request);

/// One channel through the GPUs in the machine's order, which is all there is when no channel fits.
void take_simple_order(ChannelPlan& plan, const topo::Paths& paths, const HopTable& table);

}  // namespace loom::search
