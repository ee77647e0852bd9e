// bounds.hpp -- what no search can beat.
#pragma once

#include <span>
#include <vector>

#include "search/channel_plan.hpp"
#include "search/hop_table.hpp"
#include "search/steps.hpp"

namespace loom::search {

/// Every ring passes every cut: the least that can flow from a GPU to another one over all links (the
/// min-cut), or with the network from all ports to a GPU, or back. Holds whatever paths are taken.
Proof ring_cut_bound(const topo::System& system, const HopTable& table, bool network, Steps& steps);

/// What enters and leaves GPUs and ports bounds every pattern, at little cost: every channel enters
/// every GPU but the one where it begins, and leaves every one but where it ends. Of `max_channels` channels
/// that begin somewhere, all enter some GPU where there are more GPUs.
Proof end_bound(const HopTable& table, Pattern pattern, bool network, int max_channels);

/// `prices` without tiny ones, which a hop's cost leaves and which prove nothing.
std::vector<double> without_rounding(std::span<const double> prices);
/// The proof by `prices`, one for each of `resources`, at which no channel costs less than `least`.
Proof price_bound(std::span<const Resource> resources, std::span<const double> prices, double least);

}  // namespace loom::search
