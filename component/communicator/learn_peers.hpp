// learn_peers.hpp -- the first part of a communicator's set-up: who are the peers, and which rings join them?
#pragma once

#include "component/setup/agreement.hpp"
#include "component/setup/member.hpp"

namespace loom {

/// Collective. Fills member.group, from an earlier communicator over the same processes if all ranks have it.
/// Takes nothing that others would miss. Throws as the agreement's exchanges, and Error.
void learn_peers(Member& member, Agreement& agreement);

}  // namespace loom
