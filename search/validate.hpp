// validate.hpp -- does a plan fit the machine? Has its own list of each pattern's hops and its own rule for
// pairs of ports; with the search it shares what a hop takes from links, which is the field's.
#pragma once

#include <string>
#include <vector>

#include "search/channel_plan.hpp"
#include "search/path_tables.hpp"

namespace loom::search {

/// What is wrong with `plan` on the machine of `paths`, in whole sentences; empty: nothing. Every GPU once
/// per channel (heads: one GPU each), hops that exist and are within the plan's limits (of trees the way back
/// too), no link and no shared port charged beyond its bandwidth, ports in pairs that the plan's cross_nic
/// allows, channels that carry between GPUs what they carry at the ports, types that are those of the worst
/// hops, hops, same_channels and totals that are the sum of the channels and not above the bound. A plan in
/// simple order claims no bandwidth and is not charged.
std::vector<std::string> violations(const topo::Paths& paths, const ChannelPlan& plan);

/// What is wrong with the parts of `plans` at the same time: what is wrong with each, where there are several
/// with its number; GPUs in two of them; what overloads() has; a total that is not the slowest part's, or
/// above a bound.
std::vector<std::string> violations(const PathTables& tables, const NodePlans& plans);
/// The links, memories and cables of which several parts together take more than there is.
std::vector<std::string> overloads(const PathTables& tables, const NodePlans& plans);

/// What each of Resources carries under `plan`, GB/s: links by LinkId, memories behind them.
std::vector<double> link_loads(const topo::Paths& paths, const ChannelPlan& plan);

}  // namespace loom::search
