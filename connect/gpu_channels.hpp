// gpu_channels.hpp -- the channels that the GPUs of one host run: what search finds on it and connect makes
// of that, for all ranks there. The plugin's kernels go by them, and the tools show them. A pure function:
// every rank gets the same.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "connect/view.hpp"
#include "search/channel_plan.hpp"
#include "topo/rank_gpus.hpp"

namespace loom::connect {

/// A block of threads performs a channel, so there may be as many as a kernel may have blocks, and more
/// bandwidth than a block moves is cut. Both are estimates; no GPU has been asked.
struct GpuChannelRequest {
  int max_channels = 16;
  double most_gbps = 12;
};

/// A file of channels in NCCL's graph XML, in place of a search.
struct GraphFile {
  std::string text;
  std::string name;  ///< for messages
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
  struct Total {
    double gbps = 0, bound_gbps = 0;  ///< of all channels, and what no channels exceed; 0: not known
  };

  int ranks = 1, gpus = 1;
  std::vector<RingChannel> rings;  ///< fastest first; one at least
  std::vector<TreeChannel> trees;  ///< the same
  Total ring, tree;
  /// What each rank sends while all send as much to each of the others; 0: not known, or there are none.
  double exchange_gbps = 0;
  Job job;  ///< that they are of: see connect()

  std::string summary;                   ///< "8 GPUs, NVSwitch; 16 rings, 370.8 of at most 370.8 GB/s; ..."
  std::vector<std::string> notes;        ///< what had to be assumed, in whole sentences
  std::vector<search::NodePlans> plans;  ///< over GPUs, each by the lowest of its ranks; empty: nothing fits

  /// The way of what a rank's GPU stores in another's memory: kLoc where they share it, kDis where it is not
  /// known.
  topo::PathType between(int from, int to) const {
    return types[static_cast<std::size_t>(from * ranks + to)];
  }
  std::vector<topo::PathType> types;  ///< by rank, and rank
};

/// The ranks of `machine` are 0, 1, 2, ...; those that share a GPU come one after the other. Patterns that a
/// graph file does not have are searched for. Where nothing fits: one ring and one tree in order of rank.
/// Throws Error (kBadInput) for a graph file that does not fit.
GpuChannels gpu_channels(const topo::MachineOfRanks& machine, const GpuChannelRequest& request = {},
                         const GraphFile* graph = nullptr);
/// One ring and one tree in order of rank, because of `why`, a sentence.
GpuChannels gpu_channels_in_order(int ranks, int gpus, const std::string& why);

/// The channels in NCCL's graph XML, as a GraphFile. Throws Error (kBadInput) where nothing fitted.
std::string to_graph_xml(const topo::MachineOfRanks& machine, const GpuChannels& channels);

}  // namespace loom::connect
