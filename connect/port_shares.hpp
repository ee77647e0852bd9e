// port_shares.hpp -- what the ports of all nodes are to carry, summed over the views of all ranks, against
// what their nodes planned for them.
#pragma once

#include <string>

#include "connect/checks.hpp"

namespace loom::connect {

/// Tells `fail` of every port that gets more than its node planned. Rings send and receive on every edge
/// between nodes; of the trees the reduction counts, each of the two with half of the data (the way back is
/// its mirror image). Views have to name ports of the node; kNoPort counts as one more port. Family kRing or
/// kTree.
void check_ports_of(const Job& job, const Wires& wires, Family family,
                    const std::function<void(const std::string&)>& fail);

}  // namespace loom::connect
