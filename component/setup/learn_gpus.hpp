// learn_gpus.hpp -- which channels the GPUs of a host run: one rank looks at the machine, all ranks plan.
//
// The machine travels and not the plan: its description is text that exists anyway (a file that rank 0 could
// have read instead), no second form of channels has to be written and read, and the search takes less time
// than the text. All compute the same from the same text, because searches count steps, not seconds.
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

/// What the ranks of a host tell each other by. Both are collective; what they throw ends the communicator.
struct HostExchange {
  int rank = 0, size = 1;
  std::function<bool(bool)> holds_everywhere;
  /// Each rank's bytes into `all`, by rank.
  std::function<void(const void* mine, void* all, std::size_t bytes)> all_gather;
  std::string where = {};  ///< for messages: the communicator and rank
};

/// This host with these GPUs, as this process sees it.
using Discover = std::function<topo::Discovered(const std::vector<topo::BusId>& gpus)>;

/// Collective over the ranks of a communicator on one host; gpus[r] is rank r's, `gpus` the same on all. The
/// machine is that of coll_loom_topo_file, or the one that rank 0 sees, with the GPUs that are hidden from it
/// as their own ranks see them. Channels are those of coll_loom_graph_file, or what search finds. Rank 0
/// writes both where it is asked to, and tells of them at coll_loom_verbose 1.
///
/// Where the machine cannot be seen: channels in order of rank, with a note. Where the graph file does not
/// fit: rank 0 shows a message, and search finds channels. Throws on all ranks or on none, Error: where a
/// rank has no memory.
connect::GpuChannels learn_gpu_channels(Process& process, const HostExchange& exchange,
                                        std::span<const topo::RankGpu> gpus,
                                        const connect::GpuChannelRequest& request, const Discover& discover);
/// The same with Process::machine_with().
connect::GpuChannels learn_gpu_channels(Process& process, const HostExchange& exchange,
                                        std::span<const topo::RankGpu> gpus,
                                        const connect::GpuChannelRequest& request = {});

}  // namespace loom
