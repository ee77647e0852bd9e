#include "device/cuda/kernel_way.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "device/schedule/divide_up.hpp"
#include "device/schedule/tree_schedule.hpp"

namespace loom::device::cuda {
namespace {

using steps::Algorithm;
using steps::LinkKind;
using steps::Protocol;

constexpr std::size_t kKiB = 1024;
// Estimates, not measured: up to which size an exchange between all ranks may be the fastest, because of its
// small slots, and how many bytes keep a block busy.
constexpr std::size_t kMostOneShot = 64 * kKiB, kMostTwoShot = 2048 * kKiB;
constexpr std::size_t kBytesPerChannel = 32 * kKiB, kBytesPerPairwiseChannel = 16 * kKiB;
// Likewise: what keeps the threads of a block busy at once.
constexpr std::size_t kLeastSlice = 16 * kKiB;
constexpr std::size_t kLine = 128;

struct ProtocolLimit {
  Protocol protocol;
  std::size_t most_bytes;  ///< then a block's instructions count more than its latency (estimates)
};
constexpr ProtocolLimit kProtocols[] = {{Protocol::kLL, 64 * kKiB},
                                        {Protocol::kLL128, 512 * kKiB},
                                        {Protocol::kSimple, ~std::size_t{0}}};

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
    for (const ProtocolLimit& limit : kProtocols) {
      if (bytes > limit.most_bytes || (simple_alone && limit.protocol != Protocol::kSimple)) continue;
      KernelWay way{*algorithm, limit.protocol, channels_for(bytes, kBytesPerChannel, kind.channels)};
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
