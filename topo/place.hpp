// place.hpp -- where the ranks of a communicator run, and the hosts that this makes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topo/system.hpp"

namespace loom::topo {

/// Names one operating system instance in which processes can see each other: they may share memory through
/// /proc/<pid>/fd and watch each other by process id. Ranks with equal HostIds are on one host.
struct HostId {
  std::uint64_t high = 0, low = 0;
  friend bool operator==(const HostId&, const HostId&) = default;
};

/// Where a rank runs on its host. Plain data: it travels between ranks as bytes.
struct Place {
  HostId host;
  std::int32_t numa_node = 0;  ///< operating system index of the NUMA node, 0 where there is just one
  std::int32_t first_cpu = 0;  ///< lowest operating system index among the CPUs that the rank may run on
  std::int32_t cpu_count = 1;  ///< number of CPUs that the rank may run on
  /// Lowest index of a CPU that shares the last-level cache of first_cpu; kSeveralCaches: the rank may also
  /// run on CPUs that do not.
  std::int32_t first_of_cache = 0;
  static constexpr std::int32_t kSeveralCaches = -1;
};

/// One host of a communicator.
struct Host {
  HostId id;
  System
      system;  ///< its NUMA nodes, and in each a virtual GPU for every rank there, in order of its first CPU
};

/// The hosts of a communicator from the places of its ranks (places[r] is rank r's): in order of their lowest
/// rank.
std::vector<Host> hosts_of(std::span<const Place> places);
/// The one with these ranks, ascending (places[i] is that of ranks[i]).
Host host_of(std::span<const Place> places, std::span<const int> ranks);

/// A virtual GPU for each rank in place of the real GPUs of `system`, if any: at the NUMA node that the rank
/// is bound to, or at the first one where the System does not know that node.
System with_virtual_gpus(const System& system, std::span<const Place> places, std::span<const int> ranks);

/// What of `system` with_virtual_gpus leaves out, and which ranks are not bound to where it says.
std::vector<std::string> placement_notes(const System& system, std::span<const Place> places,
                                         std::span<const int> ranks);

/// More virtual GPUs than CPUs for them: whoever waits here must give the CPU away.
bool oversubscribed(const System& system);

}  // namespace loom::topo
