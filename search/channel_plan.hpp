// channel_plan.hpp -- which channels fit inside one host?
#pragma once

#include <vector>

#include "topo/system.hpp"

namespace loom::search {

/// A ring's part on one host: ranks in the order in which the data passes them.
struct Channel {
  std::vector<int> ranks;
};

struct ChannelPlan {
  std::vector<Channel> channels;  ///< at least one; each visits every GPU of the System exactly once
};

/// The ring of a host without GPU links: neighbours in the ring are neighbours on the machine, so that the ring crosses
/// from one NUMA node to another as seldom as it can. A pure function of the System: every rank finds the same.
ChannelPlan find_ring(const topo::System& system);

}  // namespace loom::search
