#include "component/select/plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "device/cuda/host_driven_executor.hpp"
#include "device/cuda/kernel_links.hpp"
#include "device/host/dbt_executor.hpp"
#include "device/host/hier_executor.hpp"
#include "device/host/immediate_exchange.hpp"
#include "device/host/single_copy_executor.hpp"
#include "device/host/split_rail_executor.hpp"

namespace loom {
namespace {

// Each of n ranks reads what n offer, so the crossing point with the CICO buffers falls with n.
constexpr std::size_t kImmediateBytesRead = 32 * 1024;
// Of a broadcast, and of what one rank hands another to reduce: each is read by one that needs all of it,
// while the next is being written (2 ranks, 2 MiB of L2 cache each).
constexpr std::size_t kMostImmediateRooted = 64 * 1024;
static_assert(kMostImmediateRooted * 8 + 7 <= device::ExchangeTag::kMask,
              "the flag of an exchange has its bytes");
// What is shorter is over before a system call is.
constexpr std::size_t kMostUnrivalled = 8 * 1024;
// While buffers are in the peers' caches one copy beats two; beyond, the kernel's copy is slower than one
// past the caches. A broadcast's two copies are made by two ranks at once (2 cores with 2 MiB of L2 cache
// each, loom_bench of each collective with coll_loom_single_copy 0 and 1). Of what a rank receives.
constexpr std::size_t kMostSingleCopyBytes = 32 * 1024 * 1024;
constexpr std::size_t kMostSingleCopyBroadcast = 128 * 1024;
// Of the whole message: from here on rings win everywhere.
constexpr std::size_t kRingMinBytes = 512 * 1024;
// From here on trees do with broadcasts, up to this many hosts; between more from twice as much.
constexpr std::size_t kTreeMinBytes = 32 * 1024;
constexpr std::size_t kHostsOfTreeMin = 8;
// A buffer with gaps is gathered in one piece for them.
constexpr std::size_t kMostByTrees = 64 * 1024 * 1024;
// What a host could send while a step waits for its data: 1.5 us at 100 Gbit/s, 0.13 ms at 1 Gbit/s.
constexpr std::size_t kBytesPerStep = 16 * 1024;
// A first rank sends to all others at once; beyond, logarithmic patterns, which the fallback component has,
// need less.
constexpr int kMostHostsAtOnce = 16;
// Below this. They have the whole message on all node leaders before it is scattered (six virtual hosts of
// two ranks, two to eight of one).
constexpr std::size_t kMostScatteredByHier = 16 * 1024, kMostScatteredOfOne = 2 * 1024;
// What a first rank sends to, or receives from, all other hosts together where the fallback component would
// have a tree (three and six virtual hosts of two ranks, two to eight of one).
constexpr std::size_t kMostAtOnce = 64 * 1024;
constexpr std::size_t kMostRootedByHier = 16 * 1024;
constexpr std::size_t kMostGatheredByHier = 16 * 1024;
// 512 KiB of slots for each rank of another host.
constexpr int kMostPairwiseRanks = 64;

/// Along rails, or one ring over unequal hosts.
bool rings_take(device::Collective collective) {
  using device::Collective;
  return device::SplitRailExecutor::takes(collective) || collective == Collective::kBroadcast ||
         collective == Collective::kReduce;
}

/// Of an exchange in which each reads what all offer.
std::size_t most_immediate_bytes(int ranks) {
  return std::min(device::ImmediateArea::kMostOffered, kImmediateBytesRead / static_cast<std::size_t>(ranks));
}

/// Of more than two ranks the root of a reduce should not do the work of all.
bool may_copy_once(device::Collective collective, const connect::Shape& shape, const Abilities& abilities) {
  return abilities.single_copy && device::SingleCopyExecutor::takes(collective) &&
         (collective != device::Collective::kReduce || shape.ranks == 2);
}

/// What a single copy might carry where ranks take turns on the CPUs, so that each wait for others is dear.
/// In a single copy the root of a broadcast waits once, at the end, and through the CICO buffers not before
/// all banks are in use; in an all-to-all ranks wait twice, and through the CICO buffers once for each tile.
/// An all-gather's CICO buffers are read by several, and faster than the kernel reads (4 and 8 ranks on 2
/// cores).
Algorithm plan_in_turns(device::Collective collective, std::size_t offered) {
  using device::CicoBuffer, device::Collective;
  if (collective == Collective::kAllGather || offered > kMostSingleCopyBytes) return Algorithm::kCico;
  const std::size_t banks = collective == Collective::kBroadcast ? CicoBuffer::kBanks - 1 : 1;
  return offered > banks * CicoBuffer::kBankBytes ? Algorithm::kSingleCopy : Algorithm::kCico;
}

/// Below this a tree over the hosts is faster than a ring: it has fewer steps, 2 log2 h for an all-reduce
/// instead of 2 (h - 1), but sends 2 S instead of 2 (h - 1)/h S. With a step's latency t and a host's
/// bandwidth B that is h (h - 1 - log2 h) t B.
std::size_t ring_over_tree_bytes(const connect::Shape& shape) {
  if (shape.ranks_per_host == 0) return 0;
  const auto hosts = static_cast<std::size_t>(shape.hosts);
  const auto depth = static_cast<std::size_t>(std::bit_width(hosts - 1));
  return hosts > depth + 1 ? hosts * (hosts - 1 - depth) * kBytesPerStep : 0;
}

/// The message is as long as what a tree over such hosts carries better than rings do. Along the root's rail
/// a ring is a chain, which has no bandwidth ahead of a tree.
bool tree_is_better(device::Collective collective, const connect::Shape& shape, std::size_t whole) {
  const std::size_t rooted = collective == device::Collective::kAllreduce ? 1 : 4;
  return whole < std::min(rooted * ring_over_tree_bytes(shape), kMostByTrees);
}

/// Below this the latency of the steps costs more than what the fallback component loses in other ways (three
/// to eight virtual hosts of one and two ranks, 1 Gbit/s, with a delay of 200 us and without, against tuned
/// and han). A ring's grow in number with the hosts.
std::size_t least_between_hosts(device::Collective collective, const connect::Shape& shape) {
  const auto hosts = static_cast<std::size_t>(shape.hosts);
  // The flat ring goes round all ranks.
  const std::size_t steps = shape.ranks_per_host > 0 ? hosts : static_cast<std::size_t>(shape.ranks);
  const std::size_t any_ring = std::max(kRingMinBytes, steps * kBytesPerStep);
  const auto ring_from = [&](std::size_t kib) {
    return std::clamp(kib * 1024 / 4 * hosts, kib * 1024, any_ring);
  };
  if (shape.ranks_per_host == 0) return any_ring;
  const bool has_trees = ring_over_tree_bytes(shape) > 0;
  const std::size_t tree_from = hosts <= kHostsOfTreeMin ? kTreeMinBytes : 2 * kTreeMinBytes;
  switch (collective) {
    case device::Collective::kBroadcast:
      return has_trees ? tree_from : ring_from(32);
    case device::Collective::kReduce:
      return has_trees ? 2 * kTreeMinBytes : ring_from(64);
    case device::Collective::kReduceScatter:
    case device::Collective::kReduceScatterV:
      return ring_from(128);
    case device::Collective::kAllreduce:
      return hosts <= kHostsOfTreeMin || (may_use_hier(shape) && shape.ranks > shape.hosts) ? ring_from(256)
                                                                                            : 2 * tree_from;
    default:
      return any_ring;
  }
}

/// Where each host has one rank, the fallback component needs fewer messages for a barrier, and fewer bytes
/// for what is not short (two to eight virtual hosts, with a delay of 100 us and without).
bool hier_takes(device::Collective collective, const connect::Shape& shape, std::size_t whole) {
  if (!may_use_hier(shape) || !device::HierExecutor::takes(collective)) return false;
  const bool several = shape.ranks > shape.hosts;
  const std::size_t most_at_once = kMostAtOnce / static_cast<std::size_t>(shape.hosts - 1);
  switch (collective) {
    case device::Collective::kBarrier:
      return several;
    case device::Collective::kBroadcast:
    case device::Collective::kReduce:
      return several && whole <= std::min(kMostRootedByHier, most_at_once);
    case device::Collective::kAllGather:
      return several && whole <= kMostGatheredByHier;
    case device::Collective::kReduceScatter:
      return whole < (several ? kMostScatteredByHier : kMostScatteredOfOne);
    default:
      return several ? whole < kRingMinBytes
                     : whole <= std::min(device::HierExecutor::kMostShortBytes, most_at_once);
  }
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kCopy:
      return "copy";
    case Algorithm::kImmediate:
      return "direct";
    case Algorithm::kCico:
      return "boards";
    case Algorithm::kSingleCopy:
      return "single copy";
    case Algorithm::kBlocks:
      return "blocks";
    case Algorithm::kScan:
      return "scan";
    case Algorithm::kHier:
      return "two levels";
    case Algorithm::kHierStar:
      return "two-level star";
    case Algorithm::kSplitRail:
      return "rails";
    case Algorithm::kDbt:
      return "trees";
    case Algorithm::kFlatRing:
      return "flat ring";
    case Algorithm::kPairwise:
      return "mesh";
    case Algorithm::kHostDriven:
      return "handed over";
    case Algorithm::kKernel:
      return "persistent";
    case Algorithm::kFallback:
      return "the fallback component";
  }
  return "?";
}

std::string_view name_of(FallbackReason reason) {
  switch (reason) {
    case FallbackReason::kNoKernel:
      return "no_kernel";
    case FallbackReason::kNotConnected:
      return "not_connected";
    case FallbackReason::kNotBetter:
      return "not_better";
    case FallbackReason::kNotOrdered:
      return "not_ordered";
    case FallbackReason::kAnyStartOrder:
      return "any_start_order";
  }
  return "?";
}

std::string_view name_of(device::Collective collective) {
  switch (collective) {
    case device::Collective::kAllreduce:
      return "allreduce";
    case device::Collective::kReduce:
      return "reduce";
    case device::Collective::kReduceScatter:
      return "reduce_scatter_block";
    case device::Collective::kBroadcast:
      return "bcast";
    case device::Collective::kAllGather:
      return "allgather";
    case device::Collective::kAllToAll:
      return "alltoall";
    case device::Collective::kBarrier:
      return "barrier";
    case device::Collective::kReduceScatterV:
      return "reduce_scatter";
    case device::Collective::kScan:
      return "scan";
    case device::Collective::kExscan:
      return "exscan";
    case device::Collective::kGather:
      return "gather";
    case device::Collective::kGatherV:
      return "gatherv";
    case device::Collective::kScatter:
      return "scatter";
    case device::Collective::kScatterV:
      return "scatterv";
    case device::Collective::kAllGatherV:
      return "allgatherv";
    case device::Collective::kAllToAllV:
      return "alltoallv";
    case device::Collective::kAllToAllW:
      return "alltoallw";
  }
  return "?";
}

std::size_t whole_message(device::Collective collective, int ranks, std::size_t bytes) {
  using device::Collective;
  const bool blocks = collective == Collective::kReduceScatter || collective == Collective::kAllGather ||
                      collective == Collective::kAllToAll;
  return blocks ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

std::size_t most_small_bytes(int ranks) {
  return std::min(most_immediate_bytes(ranks), kMostUnrivalled);
}

bool may_use_hier(const connect::Shape& shape) {
  return shape.hosts > 1 && shape.hosts <= kMostHostsAtOnce;
}

bool may_use_pairwise(const connect::Shape& shape) {
  return shape.hosts > 1 && shape.ranks > shape.hosts && shape.ranks <= kMostPairwiseRanks;
}

bool has_tree_sizes(const connect::Shape& shape, Preference preference) {
  if (shape.hosts == 1 || shape.ranks_per_host == 0 || preference == Preference::kRings) return false;
  return preference == Preference::kTrees || ring_over_tree_bytes(shape) > 0;
}

Algorithm plan(device::Collective collective, const connect::Shape& shape, std::size_t bytes,
               const Abilities& abilities) {
  using device::Collective;
  if (shape.ranks == 1) return Algorithm::kCopy;
  if (shape.hosts == 1) {
    if (device::lists_blocks(collective)) return Algorithm::kBlocks;
    if (collective == Collective::kScan || collective == Collective::kExscan) return Algorithm::kScan;
    if (abilities.preference == Preference::kCico && collective != Collective::kBarrier)
      return Algorithm::kCico;
    const bool can_single = may_copy_once(collective, shape, abilities);
    if (abilities.preference == Preference::kSingleCopy && can_single) return Algorithm::kSingleCopy;
    if (collective == Collective::kReduceScatterV) return Algorithm::kCico;
    const std::size_t offered = device::offered_bytes(collective, bytes, shape.ranks);
    const bool rooted =
        collective == Collective::kBroadcast || (collective == Collective::kReduce && shape.ranks == 2);
    if (offered <= (rooted ? kMostImmediateRooted : most_immediate_bytes(shape.ranks)))
      return Algorithm::kImmediate;
    if (!can_single || device::is_reduction(collective)) return Algorithm::kCico;
    if (abilities.oversubscribed) return plan_in_turns(collective, offered);
    const std::size_t received =
        collective == Collective::kAllGather ? offered * static_cast<std::size_t>(shape.ranks) : offered;
    const std::size_t most =
        collective == Collective::kBroadcast ? kMostSingleCopyBroadcast : kMostSingleCopyBytes;
    return received <= most ? Algorithm::kSingleCopy : Algorithm::kCico;
  }
  const std::size_t whole = whole_message(collective, shape.ranks, bytes);
  const bool forced =
      abilities.preference == Preference::kRings || abilities.preference == Preference::kTrees;
  const std::size_t least = forced ? 1 : least_between_hosts(collective, shape);
  if (abilities.hier && whole < least && hier_takes(collective, shape, whole)) return Algorithm::kHier;
  if (collective == Collective::kAllToAll && may_use_pairwise(shape) && whole >= least)
    return Algorithm::kPairwise;
  if (!rings_take(collective) || whole < least) return Algorithm::kFallback;
  if (device::DbtExecutor::takes(collective) && shape.ranks_per_host > 0 &&
      abilities.preference != Preference::kRings &&
      (abilities.preference == Preference::kTrees || tree_is_better(collective, shape, whole)))
    return Algorithm::kDbt;
  return shape.ranks_per_host > 0 ? Algorithm::kSplitRail : Algorithm::kFlatRing;
}

Algorithm plan_resumable(device::Collective collective, const connect::Shape& shape, std::size_t bytes,
                         const Abilities& abilities) {
  const Algorithm planned = plan(collective, shape, bytes, abilities);
  if (planned != Algorithm::kImmediate) return planned;
  return collective == device::Collective::kBarrier ? Algorithm::kBlocks : Algorithm::kCico;
}

std::optional<Algorithm> rival_of(Algorithm usual, device::Collective collective, const connect::Shape& shape,
                                  std::size_t bytes, const Abilities& abilities) {
  if (abilities.preference != Preference::kBest) return {};
  if (shape.hosts != 1 || abilities.oversubscribed || !may_copy_once(collective, shape, abilities)) return {};
  if (device::offered_bytes(collective, bytes, shape.ranks) <= kMostUnrivalled) return {};
  switch (usual) {
    case Algorithm::kImmediate:
    case Algorithm::kCico:
      return Algorithm::kSingleCopy;
    case Algorithm::kSingleCopy:
      return Algorithm::kCico;
    default:
      return {};
  }
}

bool may_carry(Algorithm algorithm, device::Collective collective) {
  using device::Collective;
  const bool scans = collective == Collective::kScan || collective == Collective::kExscan;
  const bool listed = device::lists_blocks(collective);
  switch (algorithm) {
    case Algorithm::kCopy:
      return true;
    case Algorithm::kImmediate:
      return !listed && !scans && collective != Collective::kReduceScatterV;
    case Algorithm::kCico:
      return !listed && !scans && collective != Collective::kBarrier;
    case Algorithm::kSingleCopy:
      return device::SingleCopyExecutor::takes(collective);
    case Algorithm::kBlocks:
      return listed || collective == Collective::kBarrier;
    case Algorithm::kScan:
      return scans;
    case Algorithm::kHier:
    case Algorithm::kHierStar:
      return device::HierExecutor::takes(collective);
    case Algorithm::kSplitRail:
    case Algorithm::kFlatRing:
      return rings_take(collective);
    case Algorithm::kDbt:
      return device::DbtExecutor::takes(collective);
    case Algorithm::kPairwise:
      return collective == Collective::kAllToAll;
    case Algorithm::kHostDriven:
      return device::cuda::HostDrivenExecutor::takes(collective);
    case Algorithm::kKernel:
      return device::cuda::kernel_way(collective, 1, 2).has_value();
    case Algorithm::kFallback:
      return false;
  }
  return false;
}

}  // namespace loom
