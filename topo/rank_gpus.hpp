// rank_gpus.hpp -- from the GPUs that the ranks of a host have, as each rank's own driver names them, to the
// System in which channels for them are searched. Pure functions: ranks that are told the same get the same.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topo/system.hpp"

namespace loom::topo {

/// A rank's GPU.
struct RankGpu {
  int rank = kNoRank;  ///< in the communicator
  BusId bus_id;
  std::array<std::byte, 16> uuid{};  ///< of the GPU, or of an instance of it
  int compute_capability = 0;        ///< times ten; 0: not known
  std::vector<BusId> denied{};       ///< GPUs whose memory its driver denies it
  std::optional<bool> gpu_direct{};  ///< what its driver says of that, where nobody has described the machine
};

/// A host as its ranks use it.
struct MachineOfRanks {
  /// A GPU that ranks have carries the lowest of them. All other GPUs carry none.
  System system;
  /// The ranks of each GPU, ascending; GPUs in order of their lowest rank.
  std::vector<std::vector<int>> sharers;
  std::vector<std::string> notes;
};

/// `machine`, one host, whose own ranks do not count. GPUs that it does not have are put at its first NUMA
/// node, with a note. Instances of one GPU are its partitions where the machine has such nodes, else one GPU.
/// What the machine says of a GPU wins over its rank, save what is denied: that adds up.
MachineOfRanks with_rank_gpus(const System& machine, std::span<const RankGpu> gpus);

/// `machine` with what `view`, another look at the same host, knows of the GPU at `bus_id`: its links, and
/// its place where the machine does not have it, below the closest switch or NUMA node that both know. The
/// same as `machine` where the view does not have it either.
System with_gpu_of(const System& machine, const System& view, const BusId& bus_id);

}  // namespace loom::topo
