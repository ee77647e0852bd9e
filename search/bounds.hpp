// bounds.hpp -- what no search can beat.
#pragma once

#include "search/hop_table.hpp"

namespace loom::search {

/// Every ring passes every cut: the least that can flow from a GPU to another one over all links (the
/// min-cut), or with the network from all ports to a GPU, or back. GB/s; holds whatever paths are taken.
double ring_cut_bound(const topo::System& system, const HopTable& table, bool network);

}  // namespace loom::search
