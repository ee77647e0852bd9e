// validate.hpp -- does a plan fit the machine? Looks at nothing but the plan and the paths, not at how it was
// found; the table of hops, their charges and which ports pair are the search's.
#pragma once

#include <string>
#include <vector>

#include "search/channel_plan.hpp"

namespace loom::search {

/// What is wrong with `plan` on the machine of `paths`, in whole sentences; empty: nothing. Every GPU once
/// per channel (heads: one GPU each), hops that exist and are within the plan's types, no link and no shared
/// port charged beyond its bandwidth, ports in pairs that the plan's cross_nic allows, channels that
/// carry between GPUs what they carry at the ports, hops, same_channels and totals that are the
/// sum of the channels and not above the bound. A plan in simple order claims no bandwidth and is not
/// charged.
std::vector<std::string> violations(const topo::Paths& paths, const ChannelPlan& plan);

/// What each link carries under `plan`, GB/s by LinkId.
std::vector<double> link_loads(const topo::Paths& paths, const ChannelPlan& plan);

}  // namespace loom::search
