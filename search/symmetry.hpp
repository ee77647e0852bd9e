// symmetry.hpp -- in which ways a machine looks the same once its GPUs and ports have changed places.
#pragma once

#include <vector>

#include "search/hop_table.hpp"

namespace loom::search {

/// What takes the place of each GPU, port and resource of a table, by number: every hop takes of the
/// resources in their new places what the hop took whose ends it has, and the same pairs of ports join nodes.
struct Symmetry {
  std::vector<int> gpu, net, resource;
};

/// A commutative group of them, the first one of which changes nothing; all others move every GPU. Blocks of
/// GPUs turn among those that follow one another, as the boards of a host or the GPUs of a board: the largest
/// group that is found so. On machines whose GPUs are numbered otherwise it may be smaller than there is, on
/// those without such blocks one alone.
std::vector<Symmetry> symmetries(const HopTable& table, int cross_nic);

}  // namespace loom::search
