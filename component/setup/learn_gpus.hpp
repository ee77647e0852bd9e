// learn_gpus.hpp -- which channels the GPUs of a communicator run: one rank of each host looks at it and
// plans, and tells all others what it has found. All make the same of what they hear, without a further word.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "component/setup/process.hpp"
#include "connect/gpu_channels.hpp"
#include "topo/discover.hpp"
#include "topo/rank_gpus.hpp"

namespace loom {

/// What ranks tell each other by. Both are collective; what they throw ends the communicator.
struct RankExchange {
  int rank = 0, size = 1;
  std::function<bool(bool)> holds_everywhere;
  /// Each rank's bytes into `all`, by rank.
  std::function<void(const void* mine, void* all, std::size_t bytes)> all_gather;
  std::string where = {};  ///< for messages: the communicator and rank
};

/// This host with these GPUs, as this process sees it.
using Discover = std::function<topo::Discovered(const std::vector<topo::BusId>& gpus)>;

/// Collective; gpus[r] is rank r's, `gpus` and `placement` the same on all ranks. The machine is that of
/// coll_loom_topo_file, which stands for every host, or the one that the lowest rank of a host sees, with the
/// GPUs that are hidden from it as their own ranks see them. Channels are those of coll_loom_graph_file, or
/// what search finds. Rank 0 writes both for its host where it is asked to, and tells of the channels at
/// coll_loom_verbose 1; the lowest rank of each host tells what had to be assumed for it.
///
/// Where a host cannot be seen: channels in order of rank, with a note. Where the graph file does not fit a
/// host: its lowest rank shows a message, and search finds channels. Throws on all ranks or on none, Error:
/// where a rank has no memory.
connect::GpuChannels learn_gpu_channels(Process& process, const RankExchange& exchange,
                                        const connect::Placement& placement,
                                        std::span<const topo::RankGpu> gpus,
                                        const connect::GpuChannelRequest& request, const Discover& discover);
/// The same with Process::machine_with().
connect::GpuChannels learn_gpu_channels(Process& process, const RankExchange& exchange,
                                        const connect::Placement& placement,
                                        std::span<const topo::RankGpu> gpus,
                                        const connect::GpuChannelRequest& request = {});

}  // namespace loom
