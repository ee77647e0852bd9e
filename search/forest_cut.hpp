// forest_cut.hpp -- inside search: what no forest can pass, whatever way data take.
#pragma once

#include "search/forest.hpp"
#include "search/hop_table.hpp"

namespace loom::search {

/// The GPUs whose links out bring least for each of them: at that rate, and no faster, all that every GPU has
/// flows to each of the others. From a rate that is too high, cut after cut (Dinkelbach). Ports of all nodes
/// are joined by a network that does not limit. To a GPU of one node all others bring alike, so one with all
/// their links stands for them.
Cut narrowest_cut(const topo::System& system, const HopTable& table, const ForestRequest& request);

}  // namespace loom::search
