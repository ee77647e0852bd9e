// machine.hpp -- where the cores of a machine are: which share their last-level cache, their NUMA node, their
// socket.
#pragma once

#include <string>
#include <vector>

namespace loom::cores {

/// Indices, each counted over the whole machine.
struct Core {
  int cache = 0, numa_node = 0, socket = 0;
};

/// What two cores have in common at best.
enum class Distance { kSameCache, kSameNode, kSameSocket, kOtherSocket };
inline constexpr std::size_t kDistances = 4;

constexpr Distance distance(const Core& a, const Core& b) {
  if (a.cache == b.cache) return Distance::kSameCache;
  if (a.numa_node == b.numa_node) return Distance::kSameNode;
  return a.socket == b.socket ? Distance::kSameSocket : Distance::kOtherSocket;
}

struct Machine {
  std::string name;
  std::vector<Core> cores;  ///< in hwloc's order; one for each PU
};

/// A file of hwloc's XML whose PUs all lie below a package, a NUMA node and an L3 cache. Throws Error.
Machine read_machine(const std::string& path);

/// Rank r's core. packed: the first ones of the machine, as by `mpirun --map-by core`; else evenly spread
/// over all.
std::vector<Core> cores_of_ranks(const Machine& machine, int ranks, bool packed = true);

}  // namespace loom::cores
