// system.hpp -- what is this machine? The values that topo hands to search and connect.
// Knows nothing of channels, communicators or transports.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
  std::int32_t padding = 0;
};

/// A place where data is reduced: on a host without GPUs each rank is one virtual GPU.
struct Gpu {
  int rank = 0;  ///< in the communicator
  int numa_node = 0;
  int first_cpu = 0;
  int cpu_count = 1;
};

/// One host as a communicator sees it. Constant once built.
struct System {
  HostId host;
  std::vector<Gpu> gpus;  ///< in order of rank

  /// More ranks than CPUs for them: whoever waits here must give the CPU away.
  bool oversubscribed() const;
};

/// The hosts of a communicator from the places of its ranks (places[r] is rank r's): in order of their lowest rank.
std::vector<System> hosts_of(std::span<const Place> places);

}  // namespace loom::topo
