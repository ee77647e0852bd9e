// validate.hpp -- does a plan fit the machine? Has its own list of each pattern's hops and its own rule for
// pairs of ports; with the search it shares the charges of a hop alone, which are the field's.
#pragma once

#include <string>
#include <vector>

#include "search/channel_plan.hpp"

namespace loom::search {

/// What is wrong with `plan` on the machine of `paths`, in whole sentences; empty: nothing. Every GPU once
/// per channel (heads: one GPU each), hops that exist and are within the plan's types (of trees the way back
/// too), which are within its limits, no link and no shared port charged beyond its bandwidth, ports in pairs
/// that the plan's cross_nic allows, channels that carry between GPUs what they carry at the ports, hops,
/// same_channels and totals that are the sum of the channels and not above the bound. A plan in simple order
/// claims no bandwidth and is not charged.
std::vector<std::string> violations(const topo::Paths& paths, const ChannelPlan& plan);

/// What each of Resources carries under `plan`, GB/s: links by LinkId, memories behind them.
std::vector<double> link_loads(const topo::Paths& paths, const ChannelPlan& plan);

}  // namespace loom::search
