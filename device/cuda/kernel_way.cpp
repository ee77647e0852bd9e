#include "device/cuda/kernel_way.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "device/schedule/divide_up.hpp"
#include "device/schedule/kernel_costs.hpp"
#include "device/schedule/tree_schedule.hpp"

namespace loom::device::cuda {
namespace {

using steps::Algorithm;
using steps::LinkKind;
using steps::Protocol;

constexpr std::size_t kKiB = 1024;
constexpr double kBytesPerUs = 1000;  // of one GB/s
/// Of a channel whose speed nobody knows.
constexpr double kSomeGbps = 12;

// Estimates, not measured: up to which size an exchange between all ranks may be the fastest, because of its
// small slots, and how many bytes keep a block busy.
constexpr std::size_t kMostOneShot = 64 * kKiB, kMostTwoShot = 2048 * kKiB;
constexpr std::size_t kBytesPerChannel = 32 * kKiB, kBytesPerPairwiseChannel = 16 * kKiB;
// Likewise: what keeps the threads of a block busy at once, and what a message costs a block beside its
// bytes: two waits, two barriers, a fence. No prediction counts that, for other blocks use the links
// meanwhile.
constexpr std::size_t kLeastSlice = 16 * kKiB;
constexpr double kUsPerSlice = 3;
constexpr std::size_t kLine = 128;

struct Costs {
  Protocol protocol;
  const ProtocolCosts& costs;
  std::size_t most_bytes;  ///< then a block's instructions count more than its latency (estimates)
};
constexpr Costs kCosts[] = {{Protocol::kLL, kCostsOfLL, 64 * kKiB},
                            {Protocol::kLL128, kCostsOfLL128, 512 * kKiB},
                            {Protocol::kSimple, kCostsOfSimple, ~std::size_t{0}}};

const ProtocolCosts& costs_of(Protocol protocol) {
  return std::ranges::find(kCosts, protocol, &Costs::protocol)->costs;
}

std::optional<Algorithm> by_rings(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
      return Algorithm::kAllreduceRing;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      return Algorithm::kReduceScatterRing;
    case Collective::kAllGather:
    case Collective::kAllGatherV:
      return Algorithm::kAllGatherRing;
    case Collective::kBroadcast:
      return Algorithm::kBroadcastChain;
    case Collective::kReduce:
      return Algorithm::kReduceChain;
    default:
      return {};
  }
}
std::optional<Algorithm> by_trees(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
      return Algorithm::kAllreduceTree;
    case Collective::kBroadcast:
      return Algorithm::kBroadcastTree;
    case Collective::kReduce:
      return Algorithm::kReduceTree;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      return Algorithm::kReduceScatterTree;
    case Collective::kAllGather:
    case Collective::kAllGatherV:
      return Algorithm::kAllGatherTree;
    default:
      return {};
  }
}

std::optional<Algorithm> by_grids(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
      return Algorithm::kAllreduceHier;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      return Algorithm::kReduceScatterHier;
    case Collective::kAllGather:
    case Collective::kAllGatherV:
      return Algorithm::kAllGatherHier;
    default:
      return {};
  }
}

/// Of the host that has most; 0: all are on one.
int most_on_a_host(const std::vector<int>& hosts) {
  std::ptrdiff_t most = 0;
  for (const int host : hosts) most = std::max(most, std::ranges::count(hosts, host));
  return static_cast<int>(most);
}

bool differ(const std::vector<int>& hosts, int a, int b) {
  return !hosts.empty() && hosts[static_cast<std::size_t>(a)] != hosts[static_cast<std::size_t>(b)];
}

/// How often the next rank is on another host.
int host_changes(const std::vector<int>& hosts) {
  int changes = 0;
  for (int rank = 1; rank < static_cast<int>(hosts.size()); ++rank) changes += differ(hosts, rank - 1, rank);
  return changes;
}

struct Path {
  int hops = 0, far_hops = 0;
  auto operator<=>(const Path&) const = default;
};
/// From the root to the farthest rank; and of all ways there the most that lead to other hosts.
Path longest_path(const std::vector<int>& parents, const std::vector<int>& hosts) {
  Path longest;
  for (int leaf = 0; leaf < static_cast<int>(parents.size()); ++leaf) {
    Path path;
    for (int rank = leaf, parent; (parent = parents[static_cast<std::size_t>(rank)]) != kNobody;
         rank = parent)
      ++path.hops, path.far_hops += differ(hosts, rank, parent);
    longest = {std::max(longest.hops, path.hops), std::max(longest.far_hops, path.far_hops)};
  }
  return longest;
}

/// Of a ring, all the way to the last rank.
int far_hops_of(const std::vector<int>& ring, const std::vector<int>& hosts) {
  int far = 0;
  for (std::size_t i = 1; i < ring.size(); ++i) far += differ(hosts, ring[i - 1], ring[i]);
  return far;
}

/// Whether a whole message goes from rank to rank, and not its blocks around a ring.
bool flows(Algorithm algorithm) {
  return steps::links_of(algorithm) == LinkKind::kTree || algorithm == Algorithm::kBroadcastChain ||
         algorithm == Algorithm::kReduceChain;
}

int channels_for(std::size_t bytes, std::size_t bytes_per_channel, int most) {
  return static_cast<int>(
      std::clamp<std::size_t>(bytes / bytes_per_channel, 1, static_cast<std::size_t>(most)));
}

std::size_t whole_lines(std::size_t elems, std::size_t elem_bytes) {
  const std::size_t line = std::max<std::size_t>(1, kLine / elem_bytes);
  return divide_up(elems, line) * line;
}

}  // namespace

KernelChannels plain_kernel_channels(int ranks, int channels, bool may_ll128) {
  return {.shapes = steps::plain_channels(ranks, channels), .may_ll128 = may_ll128};
}

std::size_t kernel_bytes(int ranks, const KernelChannels& channels) {
  return channels.layout(ranks).bytes(static_cast<int>(channels.shapes.size()));
}

std::size_t kernel_bytes_with_far(int ranks, const KernelChannels& channels) {
  const steps::Layout layout = channels.layout(ranks);
  return layout.bytes(layout.channels()) + layout.most_far_bytes(layout.channels());
}

bool kernels_carry(Collective collective, KernelLinkage linkage) {
  if (linkage == KernelLinkage::kAny && exchanges(collective)) return true;
  return (linkage == KernelLinkage::kTrees   ? by_trees(collective)
          : linkage == KernelLinkage::kGrids ? by_grids(collective)
                                             : by_rings(collective))
      .has_value();
}

bool KernelChannels::between_hosts() const {
  return std::ranges::any_of(hosts, [&](int host) { return host != hosts.front(); });
}

int KernelChannels::count(LinkKind kind) const {
  return static_cast<int>(
      std::ranges::count_if(shapes, [&](const steps::ChannelShape& shape) { return shape.has(kind); }));
}

KernelWays::Kind KernelWays::kind_of(const KernelChannels& channels, LinkKind links, int ranks) {
  const bool of_trees = links == LinkKind::kTree;
  Kind kind{.channels = channels.count(links), .hops = of_trees ? 0 : ranks - 1};
  const double known = of_trees                   ? channels.tree_gbps
                       : links == LinkKind::kGrid ? channels.grid_gbps
                                                  : channels.ring_gbps;
  double weights = 0, first = 0;
  for (const steps::ChannelShape& shape : channels.shapes) {
    if (!shape.has(links)) continue;
    const double weight = shape.weight_of(links);
    if (first == 0) first = weight;
    weights += weight;
    if (links == LinkKind::kGrid)
      kind.columns = shape.columns, kind.rows = static_cast<int>(shape.grid.size()) / shape.columns;
    if (!of_trees) kind.far_hops = std::max(kind.far_hops, far_hops_of(shape.ring, channels.hosts));
    for (const std::vector<int>& parents : shape.trees) {
      if (!of_trees) break;
      const Path path = longest_path(parents, channels.hosts);
      kind.hops = std::max(kind.hops, path.hops);
      kind.far_hops = std::max(kind.far_hops, path.far_hops);
    }
  }
  if (first > 0) kind.gbps = (known > 0 ? known : kSomeGbps) * weights / first;
  return kind;
}

KernelWays::KernelWays(int ranks, const KernelChannels& channels)
    : ranks_(ranks),
      channels_(static_cast<int>(channels.shapes.size())),
      most_on_a_host_(most_on_a_host(channels.hosts)),
      host_changes_(host_changes(channels.hosts)),
      may_ll128_(channels.may_ll128),
      over_nvlink_(channels.over_nvlink),
      between_hosts_(channels.between_hosts()),
      rings_(kind_of(channels, LinkKind::kRing, ranks)),
      trees_(kind_of(channels, LinkKind::kTree, ranks)),
      grids_(kind_of(channels, LinkKind::kGrid, ranks)),
      gather_gbps_(channels.tree_gbps > 0 ? channels.gather_gbps * trees_.gbps / channels.tree_gbps : 0),
      grid_gather_gbps_(channels.grid_gbps > 0 ? channels.grid_gather_gbps * grids_.gbps / channels.grid_gbps
                                               : 0),
      speeds_(channels.speeds) {
  if (speeds_.exchange_gbps <= 0) speeds_.exchange_gbps = rings_.gbps;
}

const KernelWays::Kind& KernelWays::kind_of(Algorithm algorithm) const {
  switch (steps::links_of(algorithm)) {
    case LinkKind::kTree:
      return trees_;
    case LinkKind::kGrid:
      return grids_;
    default:
      return rings_;
  }
}

steps::FifoForm KernelWays::form_of(const KernelWay& way) const {
  const steps::ChannelForm form = kernel_form(kMostChannels, may_ll128_, between_hosts_);
  return steps::forms_of(way.algorithm, form)[static_cast<int>(way.protocol)];
}

/// Block after block. All links are as busy as when all trees all-gather, and no block of threads moves more
/// than this. Where two blocks come from the two ends of a chain, the second waits until the first has come
/// all the way; ranks stand in no order, so some half of them do. To other hosts that is as often as the next
/// rank is on another one, and at the beginning and the end.
double KernelWays::us_in_blocks_over_trees(const KernelWay& way, double bytes) const {
  const ProtocolCosts& costs = costs_of(way.protocol);
  const double hop_us = over_nvlink_ ? costs.tree.nvlink_us : costs.tree.pci_us;
  const double gbps = gather_gbps_ > 0 ? gather_gbps_ : trees_.gbps / 2;
  const double channel_bytes_per_us =
      kBytesPerUs * costs.efficiency * std::min(gbps / trees_.channels, kSomeGbps);
  const int hops = std::min(2 * trees_.hops, ranks_ - 1),
            far = trees_.hops > 0 ? trees_.far_hops * hops / trees_.hops : 0;
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
         far_turns * far * (costs.tree.net_us + slice_us) + bytes / way.channels / channel_bytes_per_us +
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

KernelWay KernelWays::way(Collective collective, std::size_t bytes, KernelLinkage linkage) const {
  if (exchanges(collective)) return {Algorithm::kAllToAll, Protocol::kSimple, channels_};
  std::optional<KernelWay> best;
  double best_us = 0;
  const auto consider = [&](const KernelWay& way) {
    if (way.protocol == Protocol::kLL128 && !may_ll128_) return;
    if (way.protocol != Protocol::kSimple && between_hosts_) return;
    if (const double takes_us = us(way, bytes); !best || takes_us < best_us) best = way, best_us = takes_us;
  };
  const auto consider_all = [&](std::optional<Algorithm> algorithm, const Kind& kind) {
    if (!algorithm || kind.channels == 0) return;
    if (steps::is_in_blocks(*algorithm) && between_hosts_ && gather_gbps_ <= 0) return;
    const bool simple_alone = steps::links_of(*algorithm) == LinkKind::kGrid;
    for (const Costs& costs : kCosts) {
      if (bytes > costs.most_bytes || (simple_alone && costs.protocol != Protocol::kSimple)) continue;
      KernelWay way{*algorithm, costs.protocol, channels_for(bytes, kBytesPerChannel, kind.channels)};
      const bool in_blocks = !flows(*algorithm), slices = way.protocol == Protocol::kSimple;
      if (slices && in_blocks && kind.far_hops > 0) way.slice_bytes = kLeastSlice;
      consider(way);
      for (std::size_t slice = form_of(way).slot_bytes / 2; slices && !in_blocks && slice >= kLeastSlice;
           slice /= 2) {
        way.slice_bytes = slice;
        consider(way);
      }
    }
  };
  if (collective == Collective::kAllreduce && linkage == KernelLinkage::kAny &&
      ranks_ <= steps::kMostPairwise && !between_hosts_) {
    const int channels = channels_for(bytes, kBytesPerPairwiseChannel, channels_);
    if (bytes <= kMostOneShot) consider({Algorithm::kOneShot, Protocol::kLL, channels});
    if (bytes <= kMostTwoShot)
      for (const Protocol protocol : {Protocol::kLL, Protocol::kLL128})
        consider({Algorithm::kTwoShot, protocol, channels});
  }
  const auto consider_kinds = [&](KernelLinkage of) {
    const bool any = of == KernelLinkage::kAny;
    if (any || of == KernelLinkage::kRings) consider_all(by_rings(collective), rings_);
    if (any || of == KernelLinkage::kTrees) consider_all(by_trees(collective), trees_);
    if (any || of == KernelLinkage::kGrids) consider_all(by_grids(collective), grids_);
  };
  consider_kinds(linkage);
  if (!best) consider_kinds(KernelLinkage::kAny);  // there are no such links
  return best.value();
}

steps::Task divide(const KernelWay& way, std::size_t count, std::size_t elem_bytes, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  const auto is_any = [&](std::initializer_list<Algorithm> of) {
    return std::ranges::count(of, way.algorithm) > 0;
  };
  const bool blocks = is_any({Algorithm::kReduceScatterRing, Algorithm::kAllGatherRing,
                              Algorithm::kReduceScatterTree, Algorithm::kAllGatherTree,
                              Algorithm::kReduceScatterHier, Algorithm::kAllGatherHier}),
             shares = is_any({Algorithm::kAllreduceRing, Algorithm::kAllreduceHier, Algorithm::kTwoShot});
  steps::Task task;
  task.algorithm = way.algorithm;
  task.protocol = way.protocol;
  task.slice_bytes = way.slice_bytes;
  task.size = size;
  task.count = blocks ? count * ranks : count;
  task.chunk = shares ? whole_lines(divide_up(count, ranks), elem_bytes) : count;
  return task;
}

steps::Task divide(const KernelWay& way, std::span<const Part> blocks) {
  steps::Task task;
  task.algorithm = way.algorithm;
  task.protocol = way.protocol;
  task.slice_bytes = way.slice_bytes;
  task.size = static_cast<int>(blocks.size());
  if (way.algorithm == Algorithm::kAllToAll) task.size /= 2;
  for (const Part& block : blocks) {
    task.count += block.length;
    task.chunk = std::max(task.chunk, block.length);
  }
  return task;
}

}  // namespace loom::device::cuda
