// gpu_host.hpp -- the channels that fit the GPUs of one host, as it tells them to the others: what search
// finds on it, with the ports through which they leave it where there are other hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "connect/gather_flows.hpp"
#include "connect/summary.hpp"
#include "topo/rank_gpus.hpp"

namespace loom::connect {

/// A block of threads performs a channel, so there may be as many as a kernel may have blocks, and more
/// bandwidth than a block moves is cut. Both are estimates; no GPU has been asked.
struct GpuChannelRequest {
  int max_channels = 16;
  double most_gbps = 12;
  int cross_nic = 2;  ///< between hosts: see search::Request
};

/// A file of channels in NCCL's graph XML, in place of a search.
struct GraphFile {
  std::string text;
  std::string name;  ///< for messages
};

/// Of all channels of a kind, and what no channels exceed; 0: not known.
struct ChannelTotal {
  double gbps = 0, bound_gbps = 0;
  friend bool operator==(const ChannelTotal&, const ChannelTotal&) = default;
};

/// Free of the ranks' numbers in the communicator: equal hosts tell the same.
struct GpuHost {
  NodeSummary summary;  ///< rings and trees over its ranks; those that share a GPU come one after the other
  /// Where there are other hosts like it: rings of this one alone for the rows of grids, fastest first. None
  /// where rows along the rings that cross hosts are as fast, or where a file says what rings there are.
  FamilySummary rows;
  int gpus = 1;
  ChannelTotal ring, tree;
  /// What each rank sends while all of the host send as much to each of the others; 0: there are none.
  double exchange_gbps = 0;
  GatherGbps gather;
  bool has_switch = false;         ///< of NVLinks
  std::vector<std::string> ports;  ///< as UCX names them, by their index in `summary`
  /// By local index, the ports nearest to the rank's GPU, as it takes them in turn in its channels.
  std::vector<std::vector<std::int16_t>> near;
  /// By local index, and port: how the port reaches the memory of the rank's GPU by itself.
  struct Direct {
    bool reads = false, writes = false;
    friend bool operator==(const Direct&, const Direct&) = default;
  };
  std::vector<std::vector<Direct>> direct;
  /// By local index, and local index: see GpuChannels::between().
  std::vector<topo::PathType> types;
  std::string
      why_not;  ///< a sentence: why it has no channels. Then nothing but the numbers of ranks and GPUs

  friend bool operator==(const GpuHost&, const GpuHost&) = default;
};

/// With what the host alone needs to know.
struct GpuHostPlan {
  GpuHost host;
  std::vector<std::string> notes;        ///< what had to be assumed, in whole sentences
  std::vector<search::NodePlans> plans;  ///< over GPUs, each by the lowest of its ranks; empty: nothing fits
};

/// between_hosts: the ranks of `machine` are not all of the communicator, and channels begin and end at
/// ports, each next to the GPU there. Patterns that a graph file does not have are searched for. A pure
/// function. Throws Error (kBadInput) for a graph file that does not fit.
GpuHostPlan plan_gpu_host(const topo::MachineOfRanks& machine, const GpuChannelRequest& request,
                          bool between_hosts, const GraphFile* graph = nullptr);
/// Of so many ranks and GPUs, of which no more is known.
GpuHost unknown_gpu_host(int ranks, int gpus, std::string why_not);

/// The plans in NCCL's graph XML, as a GraphFile. Throws Error (kBadInput) where there are none.
std::string to_graph_xml(const topo::MachineOfRanks& machine, std::span<const search::NodePlans> plans);

/// Equal hosts have equal bytes.
std::vector<std::byte> encode(const GpuHost& host);
/// Throws Error (kInternal) unless encode() may have made `bytes`.
GpuHost decode_gpu_host(std::span<const std::byte> bytes);

}  // namespace loom::connect
