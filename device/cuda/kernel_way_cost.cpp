// kernel_way_cost.cpp -- what a way is predicted to take.
#include <algorithm>

#include "device/cuda/kernel_way.hpp"
#include "device/schedule/kernel_costs.hpp"

namespace loom::device::cuda {
namespace {

using steps::Algorithm;
using steps::LinkKind;
using steps::Protocol;

constexpr double kBytesPerUs = 1000;  // of one GB/s
// What a message costs a block beside its bytes: two waits, two barriers, a fence (an estimate, not
// measured). No prediction counts that, for other blocks use the links meanwhile.
constexpr double kUsPerSlice = 3;

const ProtocolCosts& costs_of(Protocol protocol) {
  return protocol == Protocol::kLL      ? kCostsOfLL
         : protocol == Protocol::kLL128 ? kCostsOfLL128
                                        : kCostsOfSimple;
}

}  // namespace

/// Block after block. All links are as busy as when all trees all-gather, and no block of threads moves more
/// than this. Where two blocks come from the two ends of a chain, the second waits until the first has come
/// all the way; ranks stand in no order, so some half of them do. To other hosts that is as often as the next
/// rank is on another one, and at the beginning and the end.
double KernelWays::us_in_blocks_over_trees(const KernelWay& way, double bytes) const {
  const ProtocolCosts& costs = costs_of(way.protocol);
  const double hop_us = over_nvlink_ ? costs.tree.nvlink_us : costs.tree.pci_us;
  const double gbps = gather_gbps_ > 0 ? gather_gbps_ : trees_.gbps / 2;
  const int hops = std::min(2 * trees_.hops, ranks_ - 1),
            far = trees_.hops > 0 ? trees_.far_hops * hops / trees_.hops : 0;
  // Of a reduce-scatter all channels take the first block at once, and cross between hosts the same way.
  const double again = far > 0 && way.algorithm == Algorithm::kReduceScatterTree ? 2.0 / ranks_ : 0;
  const auto bytes_per_us = [&](double of_links) {
    return kBytesPerUs * costs.efficiency * std::min(of_links, kSomeGbps);
  };
  const double channel_bytes_per_us = bytes_per_us(gbps / trees_.channels),
               flow_bytes_per_us = bytes_per_us(gbps / trees_.channels / (1 + again));
  const steps::FifoForm form = form_of(way);
  const double block = bytes / ranks_ / way.channels;
  const double slice =
      std::min(block, way.slice_bytes > 0 ? static_cast<double>(way.slice_bytes)
                                          : static_cast<double>(form.slot_bytes) * costs.efficiency);
  const double messages = ranks_ * std::max(1.0, block / std::max(1.0, slice)),
               slice_us = slice / channel_bytes_per_us,
               back_us = 2 * (far > 0 ? costs.tree.net_us : hop_us) + slice_us,
               late_us = std::max(kUsPerSlice, back_us / static_cast<double>(form.slot_count)) - slice_us,
               turns = std::max(1.0, ranks_ / 2.0), far_turns = 2.0 + host_changes_;
  return costs.tree.call_us + turns * (hops - far) * (hop_us + slice_us) +
         far_turns * far * (costs.tree.net_us + slice_us) + bytes / way.channels / flow_bytes_per_us +
         messages * std::max(0.0, late_us);
}

double KernelWays::us_over_links(const KernelWay& way, double bytes) const {
  const LinkKind links = steps::links_of(way.algorithm);
  const Kind& kind = kind_of(way.algorithm);
  const ProtocolCosts& costs = costs_of(way.protocol);
  const Latencies& latencies = links == LinkKind::kTree ? costs.tree : costs.ring;
  const bool near = links == LinkKind::kPairwise ? speeds_.over_nvlink : over_nvlink_;
  const double hop_us = near ? latencies.nvlink_us : latencies.pci_us;
  const double channel_bytes_per_us = kBytesPerUs * costs.efficiency * kind.gbps / kind.channels,
               bytes_per_us = channel_bytes_per_us * way.channels;
  const auto in_chunks = [&](int ranks) { return bytes * (ranks - 1) / ranks / bytes_per_us; };
  // A whole message flows through in slices: the first one is late by its own length at each hop, too. The
  // next ones come as fast as links, blocks and slots allow: a slot is free again after the way there and
  // back.
  const auto flowing = [&](int hops, int times) {
    const int far = std::min(hops, kind.hops > 0 ? kind.far_hops * hops / kind.hops : 0);
    const steps::FifoForm form = form_of(way);
    const double slice_bytes = way.slice_bytes > 0 ? static_cast<double>(way.slice_bytes)
                                                   : static_cast<double>(form.slot_bytes) * costs.efficiency,
                 slice_us = std::min(bytes / way.channels, slice_bytes) / channel_bytes_per_us,
                 back_us = 2 * (far > 0 ? latencies.net_us : hop_us) + slice_us,
                 late_us =
                     std::max(kUsPerSlice, back_us / static_cast<double>(form.slot_count)) - times * slice_us,
                 more_slices = std::max(0.0, bytes / way.channels / slice_bytes - 1);
    return latencies.call_us + (hops - far) * hop_us + far * latencies.net_us + hops * slice_us +
           (way.protocol == Protocol::kSimple ? more_slices * std::max(0.0, late_us) : 0) +
           times * bytes / bytes_per_us;
  };
  const double round_us = (kind.hops - kind.far_hops) * hop_us + kind.far_hops * latencies.net_us;
  // Between hosts at the speed of a ring that crosses them once, and inside them no slower, where nobody
  // knows. Both at a time, but for the first row and the last.
  const auto in_grid = [&](int times) {
    const double rail_us = (kind.rows - 1) * latencies.net_us,
                 rows_us = kind.rows * (kind.columns - 1) * hop_us;
    const double flow_us =
        grid_gather_gbps_ > 0
            ? bytes / (kBytesPerUs * costs.efficiency * grid_gather_gbps_ / kind.channels * way.channels)
            : std::max(in_chunks(kind.rows), in_chunks(kind.columns));
    return latencies.call_us + times * (rail_us + rows_us + flow_us);
  };
  // What the ranks of a host send to others leaves it as fast as the rings do.
  const auto exchanged_with_hosts = [&] {
    const double far = bytes * most_on_a_host_ * (ranks_ - most_on_a_host_) / ranks_;
    return std::max(far / (kBytesPerUs * costs.efficiency * rings_.gbps),
                    bytes / (kBytesPerUs * costs.efficiency * way.channels * kSomeGbps));
  };
  // A block moves no more than this, and each rank sends to all others in turn.
  const double exchanged_per_us =
      kBytesPerUs * costs.efficiency * std::min(speeds_.exchange_gbps, way.channels * kSomeGbps);
  switch (way.algorithm) {
    case Algorithm::kOneShot:
      return latencies.call_us + hop_us + bytes * (ranks_ - 1) / exchanged_per_us;
    case Algorithm::kTwoShot:
      return latencies.call_us + 2 * hop_us + 2 * bytes * (ranks_ - 1) / ranks_ / exchanged_per_us;
    case Algorithm::kAllToAll:
      return latencies.call_us + latencies.net_us + exchanged_with_hosts();
    case Algorithm::kAllreduceRing:
      return latencies.call_us + 2 * round_us + 2 * in_chunks(ranks_);
    case Algorithm::kReduceScatterRing:
    case Algorithm::kAllGatherRing:
      return latencies.call_us + round_us + in_chunks(ranks_);
    case Algorithm::kAllreduceHier:
      return in_grid(2);
    case Algorithm::kReduceScatterHier:
    case Algorithm::kAllGatherHier:
      return in_grid(1);
    // The search reserves one direction of a tree's links. An all-reduce uses both, and so does a call whose
    // root is in the middle.
    case Algorithm::kAllreduceTree:
      return flowing(2 * kind.hops, 2);
    case Algorithm::kAllGatherTree:
    case Algorithm::kReduceScatterTree:
      return us_in_blocks_over_trees(way, bytes);
    case Algorithm::kBroadcastTree:
    case Algorithm::kReduceTree:
      return flowing(std::min(2 * kind.hops, ranks_ - 1), 2);
    default:
      return flowing(kind.hops, 1);
  }
}

double KernelWays::us(const KernelWay& way, std::size_t bytes) const {
  const double over_links = us_over_links(way, static_cast<double>(bytes));
  // Slots are written and read beside the buffers.
  const bool reduces_all = way.algorithm == Algorithm::kAllreduceRing ||
                           way.algorithm == Algorithm::kAllreduceHier ||
                           way.algorithm == Algorithm::kAllreduceTree ||
                           way.algorithm == Algorithm::kTwoShot || way.algorithm == Algorithm::kOneShot;
  const double call_us = (steps::links_of(way.algorithm) == LinkKind::kTree ? costs_of(way.protocol).tree
                                                                            : costs_of(way.protocol).ring)
                             .call_us;
  return std::max(over_links, call_us + memory_us(speeds_, reduces_all ? 5 : 3, bytes));
}

}  // namespace loom::device::cuda
