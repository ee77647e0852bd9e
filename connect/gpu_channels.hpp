// gpu_channels.hpp -- the channels that GPUs run: what search finds on each host (gpu_host.hpp) and connect
// makes of that, for all ranks. The plugin's kernels go by them, and the tools show them. Pure functions:
// every rank gets the same.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "connect/gpu_host.hpp"
#include "connect/view.hpp"
#include "topo/rank_gpus.hpp"

namespace loom::connect {

/// GB/s of the whole while all channels of a kind all-gather, or reduce-scatter; 0: not known.
struct AllGatherGbps {
  double rings = 0, grids = 0, trees = 0;
};

struct GpuChannels {
  struct RingChannel {
    std::vector<int> order;  ///< ranks, in the order in which data passes them
    float gbps = 0;          ///< its share of the message is as its speed; 0: nobody knows, all have the same
  };
  struct TreeChannel {
    std::array<std::vector<TreeLinks>, 2> trees;  ///< by rank; each for half of the data
    float gbps = 0;
  };

  struct GridChannel {
    std::vector<int> ranks;  ///< host after host, those of each in the order in which data passes them
    float gbps = 0;          ///< in a row
  };

  int ranks = 1, gpus = 1, hosts = 1;
  std::vector<RingChannel> rings;  ///< fastest first; one at least
  std::vector<TreeChannel> trees;  ///< the same
  std::vector<GridChannel>
      grids;  ///< the same; none: rows go along the rings, if hosts have equally many ranks
  ChannelTotal ring, tree;
  /// What each rank sends while all send as much to each of the others; 0: not known, as between hosts, or
  /// there are none.
  double exchange_gbps = 0;
  AllGatherGbps all_gather;
  Job job;  ///< that they are of: see connect()

  /// "8 GPUs, NVSwitch; 16 rings, 370.8 of at most 370.8 GB/s; ..."; it ends with `all_gather`.
  std::string summary;
  std::vector<std::string> notes;        ///< what had to be assumed, in whole sentences
  std::vector<search::NodePlans> plans;  ///< of one host: see GpuHostPlan

  /// The way of what a rank's GPU stores in another's memory: kLoc where they share it, kNet to another host,
  /// kDis where it is not known.
  topo::PathType between(int from, int to) const;
  /// By host, of every two of its ranks by local index; empty: not known.
  std::vector<std::vector<topo::PathType>> types;
  std::vector<std::vector<std::string>> ports;                    ///< by host: see GpuHost
  std::vector<std::vector<std::vector<std::int16_t>>> near;       ///< the same
  std::vector<std::vector<std::vector<GpuHost::Direct>>> direct;  ///< the same
};

/// The ports of its host that a rank's ends of a channel go through to other hosts.
struct ChannelPorts {
  struct Port {
    std::string name;        ///< as UCX has it; empty: none, or it is not known
    GpuHost::Direct to_gpu;  ///< whether it may read and write the memory of the rank's GPU by itself
  };
  Port ring_in, ring_out;
  Port tree;     ///< both trees'
  Port nearest;  ///< to the rank's GPU; those that are equally near in turn. Of a grid, and of exchanges
};
/// By channel: as many as there are rings, trees or grids.
std::vector<ChannelPorts> ports_of(const GpuChannels& channels, int rank);

/// Over hosts, hosts[n] of node n, of the same ranks as in `placement`. Rings enter a host next to one port,
/// pass all its GPUs and leave it next to another; trees are chains in a host and double binary trees between
/// them. As many channels as suit the hosts together, `max_channels` at the most, each as fast as on the
/// slowest. Where one host has none: one ring and one tree in order of rank.
GpuChannels gpu_channels(const Placement& placement, std::span<const GpuHost> hosts, int max_channels);
/// The same in a line, without what each rank does. hosts[n] is of node n of `job`, and has channels.
std::string summary_of(const Job& job, std::span<const GpuHost* const> hosts);
/// Of one host alone. The ranks of `machine` are 0, 1, 2, ... Otherwise as plan_gpu_host().
GpuChannels gpu_channels(const topo::MachineOfRanks& machine, const GpuChannelRequest& request = {},
                         const GraphFile* graph = nullptr);
/// One ring and one tree in order of rank, because of `why`, a sentence.
GpuChannels gpu_channels_in_order(int ranks, int gpus, const std::string& why);

/// The channels in NCCL's graph XML, as a GraphFile. Throws Error (kBadInput) where nothing fitted.
std::string to_graph_xml(const topo::MachineOfRanks& machine, const GpuChannels& channels);

}  // namespace loom::connect
