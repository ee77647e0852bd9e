// kernel_way.hpp -- by which links and which protocol kernels perform a call, and how much memory the links
// take. Pure arithmetic on what all ranks share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "device/call.h"
#include "device/cuda/zero_copy_cost.hpp"
#include "device/steps/layout.hpp"

namespace loom::device::cuda {

inline constexpr int kMostChannels = 16;
/// Between more ranks, links of every two take too much memory, and too long to make (an estimate).
inline constexpr int kMostExchanging = 64;

/// Slots as they suit a GPU (estimates, not measured): a slot of a ring keeps one block busy for some 10 us.
/// Every two ranks have as much for small messages, whatever the number of channels, which share it.
/// Links between hosts carry whole slots, with one flag for each: Simple alone. exchanging: ranks of which
/// every two have links for all-to-alls, with smaller slots the more they are; 0: none.
constexpr steps::ChannelForm kernel_form(int channels, bool may_ll128, bool between_hosts = false,
                                         int exchanging = 0) {
  constexpr int kSimple = static_cast<int>(steps::Protocol::kSimple),
                kLL = static_cast<int>(steps::Protocol::kLL),
                kLL128 = static_cast<int>(steps::Protocol::kLL128);
  constexpr std::size_t kKiB = 1024;
  // Of every two ranks, in each direction; a channel has at least a slot of so much.
  constexpr std::size_t kPairLL = 256 * kKiB, kPairLL128 = 512 * kKiB, kPairSlots = 4;
  const auto pair_slot = [&](std::size_t bytes, std::size_t most) {
    return std::min(most, bytes / kPairSlots / static_cast<std::size_t>(channels) / 128 * 128);
  };
  steps::ChannelForm form;
  form.ring[kSimple] = {.slot_bytes = 128 * kKiB, .slot_count = 8};
  form.tree[kSimple] = {.slot_bytes = 64 * kKiB, .slot_count = 4};
  if (exchanging > 0)
    form.exchange[kSimple] = {.slot_bytes = (exchanging <= 16   ? 64
                                             : exchanging <= 32 ? 32
                                                                : 16) *
                                            kKiB,
                              .slot_count = 4};
  if (between_hosts) return form;
  form.ring[kLL] = {.slot_bytes = 8 * kKiB, .slot_count = 8};
  form.tree[kLL] = {.slot_bytes = 8 * kKiB, .slot_count = 4};
  form.pairwise[kLL] = {.slot_bytes = pair_slot(kPairLL, 16 * kKiB), .slot_count = kPairSlots};
  if (!may_ll128) return form;
  form.ring[kLL128] = {.slot_bytes = 32 * kKiB, .slot_count = 8};
  form.tree[kLL128] = {.slot_bytes = 16 * kKiB, .slot_count = 4};
  form.pairwise[kLL128] = {.slot_bytes = pair_slot(kPairLL128, 32 * kKiB), .slot_count = kPairSlots};
  return form;
}

/// What all ranks know of the channels of their kernels.
struct KernelChannels {
  /// Fastest first. Those with rings come before those without, and likewise those with trees, and with
  /// grids.
  std::vector<steps::ChannelShape> shapes = {};
  std::vector<int> hosts = {};  ///< by rank; empty: all are on one
  bool may_ll128 = false;       ///< lines of 128 bytes stay whole between all ranks (nvlink_peers_for_ll128)
  bool exchange = false;        ///< every two ranks have links for all-to-alls; only with `hosts`
  bool over_nvlink = false;     ///< nothing slower lies between neighbours in rings, trees and rows
  /// Of the first channel's ring, of its trees, and of a row of its grid; 0: not known.
  double ring_gbps = 0, tree_gbps = 0, grid_gbps = 0;
  /// Of the parts that the first channel's trees and grid have of the whole, while all of these all-gather;
  /// 0: not known. Then trees between hosts carry whole messages alone.
  double gather_gbps = 0, grid_gather_gbps = 0;
  GpuSpeeds speeds = {};

  bool between_hosts() const;
  /// That have such links.
  int count(steps::LinkKind kind) const;
  steps::ChannelForm form() const {
    return kernel_form(static_cast<int>(shapes.size()), may_ll128, between_hosts(),
                       exchange ? static_cast<int>(hosts.size()) : 0);
  }
  steps::Layout layout(int ranks) const { return {form(), ranks, shapes, hosts}; }
};
/// Rings and trees in order of rank.
KernelChannels plain_kernel_channels(int ranks, int channels, bool may_ll128 = true);

/// Bytes of memory of each rank's GPU; with those of the host memory that links to other hosts lie in.
std::size_t kernel_bytes(int ranks, const KernelChannels& channels);
std::size_t kernel_bytes_with_far(int ranks, const KernelChannels& channels);

/// How kernels perform a call.
struct KernelWay {
  steps::Algorithm algorithm;
  steps::Protocol protocol;
  int channels;
  std::size_t slice_bytes = 0;  ///< see steps::Task
};
/// By what a call may go.
enum class KernelLinkage { kAny, kRings, kTrees, kGrids };

bool kernels_carry(Collective collective, KernelLinkage linkage);
/// Those for which every two ranks must have links; between hosts, and of up to kMostExchanging ranks.
constexpr bool exchanges(Collective collective) {
  return collective == Collective::kAllToAll || collective == Collective::kAllToAllV ||
         collective == Collective::kAllToAllW;
}

/// The ways of one communicator.
class KernelWays {
 public:
  KernelWays(int ranks, const KernelChannels& channels);
  /// For a collective that kernels_carry(), of two ranks or more. bytes: of the message, all blocks together.
  KernelWay way(Collective collective, std::size_t bytes, KernelLinkage linkage) const;
  /// What a way is predicted to take, by kernel_costs.hpp and the speed of the links. It compares ways; no
  /// call has been measured.
  double us(const KernelWay& way, std::size_t bytes) const;

 private:
  static constexpr double kSomeGbps = 12;  ///< of a channel whose speed nobody knows
  /// The channels of one kind.
  struct Kind {
    int channels = 0;
    int hops = 0;      ///< of a tree from its root to the farthest rank; of a ring to the last one
    int far_hops = 0;  ///< those of them that lead to another host
    double gbps = 0;
    int rows = 0, columns = 0;  ///< of grids
  };
  static Kind kind_of(const KernelChannels& channels, steps::LinkKind links, int ranks);
  const Kind& kind_of(steps::Algorithm algorithm) const;
  steps::FifoForm form_of(const KernelWay& way) const;
  double us_in_blocks_over_trees(const KernelWay& way, double bytes) const;
  double us_over_links(const KernelWay& way, double bytes) const;

  int ranks_, channels_, most_on_a_host_, host_changes_;
  bool may_ll128_, over_nvlink_, between_hosts_;
  Kind rings_, trees_, grids_;
  double gather_gbps_, grid_gather_gbps_;  ///< of all channels; 0: not known
  GpuSpeeds speeds_;
};

/// A Task of a call's sizes (see steps::Task). Chunks are whole lines, so that vectors
/// stay aligned. count: of a block, where the collective has equal ones.
steps::Task divide(const KernelWay& way, std::size_t count, std::size_t elem_bytes, int size);
/// The same for blocks of any lengths, in elements, as Task::blocks lists them, which is left to the caller.
steps::Task divide(const KernelWay& way, std::span<const Part> blocks);

}  // namespace loom::device::cuda
