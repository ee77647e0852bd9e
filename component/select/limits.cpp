#include "component/select/limits.hpp"

#include <algorithm>

#include "component/select/sizes.hpp"
#include "device/cuda/kernel_way.hpp"
#include "device/cuda/zero_copy_links.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/dbt_executor.hpp"
#include "device/host/hier_executor.hpp"
#include "device/host/immediate_exchange.hpp"
#include "device/host/single_copy_executor.hpp"
#include "device/host/split_rail_executor.hpp"
#include "device/host/tiered_cico_executor.hpp"
#include "device/host/tiered_exchange.hpp"

namespace loom {
namespace {

using connect::Shape;
using device::Collective;
using sizes::depth_of;
using sizes::kBytesPerStep;
using sizes::kKiB;
using sizes::kMiB;
using sizes::kMostSingleCopyBytes;
using sizes::offered;
using sizes::ring_size;
using sizes::rooted_between_two;
using sizes::whole;

// As measured. Between hosts a size is that of the whole message, all blocks together.

// Each of n ranks reads what n offer, so the crossing point with CICO buffers falls with n.
constexpr std::size_t kImmediateBytesRead = 32 * kKiB;
// Of a broadcast, and of what a rank sends to the root of a reduce: one rank reads all of a piece while the
// next piece is written (2 ranks, 2 MiB of L2 cache each).
constexpr std::size_t kMostImmediateRooted = 64 * kKiB;
static_assert(kMostImmediateRooted * 8 + 7 <= device::ExchangeTag::kMask,
              "the flag of an exchange has its bytes");
// From so many ranks on, and up to so many bytes of all operands, which go up to the leaders of the highest
// groups. Not measured: as the model of cache lines says for four machines (docs/results/cores.md), with a
// margin for what it leaves out.
constexpr int kFewestRanksOfTiers = 32;
constexpr std::size_t kMostInGroups = 1 * kMiB;
constexpr std::size_t kMostReducedInTiers = 8 * kKiB, kMostGatheredInTiers = 2 * kKiB;
// A broadcast longer than fits beside its flag is copied once for each tier. That pays where so many ranks
// wait for one cache that its answers in turn are what takes time.
constexpr std::size_t kMostBroadcastInTiers = 1 * kKiB;
constexpr int kManyInCache = 16;
// From here on rings are fastest for every collective.
constexpr std::size_t kRingMinBytes = 512 * kKiB;
// Up to here was measured; between more hosts each step costs more.
constexpr std::size_t kFewHosts = 8;
// From here on chains and trees carry a bcast or a reduce. The fallback component sends what is shorter at
// once, which is up to four times as fast over links of 10 Gbit/s and more, but up to five times as slow over
// 1 Gbit/s, where the cut would be at 32 KiB. There it is for broadcasts between few hosts of several ranks
// (two to six virtual hosts).
constexpr std::size_t kRooted = 64 * kKiB, kBroadcastOfSeveral = 32 * kKiB;
// Between three and more hosts of different numbers of ranks (three to five of 1 to 4; 1 and 10 Gbit/s and
// without a limit). Without one, the fallback component is up to 1.5 times as fast where a reduce begins.
constexpr std::size_t kReducedByFlatChain = 256 * kKiB;
// And allreduces by dbt, between more than few hosts where hier carries none.
constexpr std::size_t kReducedByDbt = 128 * kKiB;
// dbt packs a buffer that is not contiguous in one piece.
constexpr std::size_t kMostByDbt = 64 * kMiB;
// A node leader sends to all others at once. Between more hosts, the logarithmic patterns of the fallback
// component send fewer messages.
constexpr int kMostHostsAtOnce = 16;
// Between two hosts the rails exchange an all-reduce in one step, as the node leaders do. Below this the
// leaders' calls, which end before all is taken, and one gathering inside the hosts cost less: where hosts
// have several ranks, and where each has one (1, 2 and 4 ranks on each of two virtual hosts, 10 Gbit/s and
// without a limit).
constexpr std::size_t kExchangedOfSeveral = 256 * kKiB, kExchangedOfOne = 64 * kKiB;
// From here on a single call is worth making the links, which hier needs as well.
constexpr std::size_t kWorthLinksOfSeveral = 64 * kKiB, kWorthLinksOfOne = 16 * kKiB + 1;
// Up to here hier runs a reduce_scatter where each host has one rank. Where hosts have several: what goes
// one-shot, for the node leaders receive the whole message before they scatter it (two to six virtual hosts,
// 1 and 10 Gbit/s and without a limit).
constexpr std::size_t kMostScatteredOfOne = 1 * kKiB;
// What a leader sends to, or receives from, all other hosts together where the fallback component would use a
// tree (three and six virtual hosts of two ranks, two to eight of one).
constexpr std::size_t kMostAtOnce = 64 * kKiB;
constexpr std::size_t kMostRootedByHier = 16 * kKiB;
// Each rank needs 504 KiB of slots for each rank of another host.
constexpr int kMostPairwiseRanks = 64;

/// Below this, dbt over the hosts is faster than a ring: it has fewer steps, 2 log2 h for an all-reduce
/// instead of 2 (h - 1), but sends 2 S instead of 2 (h - 1)/h S. With a step's latency t and a host's
/// bandwidth B, the two are equal at h (h - 1 - log2 h) t B.
std::size_t ring_over_dbt_bytes(const Shape& shape) {
  if (shape.ranks_per_host == 0) return 0;
  const auto hosts = static_cast<std::size_t>(shape.hosts), depth = depth_of(shape);
  return hosts > depth + 1 ? hosts * (hosts - 1 - depth) * kBytesPerStep : 0;
}

/// The ring of a broadcast or a reduce is a chain, with as much bandwidth as the trees. The last slice passes
/// h - 2 further hosts in the chain and log2 h - 1 in a tree, where each host sends it twice: the chain is
/// shorter up to six hosts (as measured on four and six virtual hosts, and the trees' on eight).
bool tree_is_shorter(const Shape& shape) {
  return 2 * depth_of(shape) < static_cast<std::size_t>(shape.hosts);
}

/// Below this, the latency of loom's steps costs more than the fallback component loses otherwise (three to
/// eight virtual hosts of one and two ranks, 1 Gbit/s, with a delay of 200 us and without, against tuned and
/// han). A ring has more steps between more hosts.
std::size_t least_between_hosts(Collective collective, const Conditions& conditions) {
  const Shape& shape = conditions.shape;
  const auto hosts = static_cast<std::size_t>(shape.hosts);
  const std::size_t any_ring = std::max(kRingMinBytes, ring_size(shape) * kBytesPerStep);
  const auto ring_from = [&](std::size_t kib) {
    return std::clamp(kib * kKiB / 4 * hosts, kib * kKiB, any_ring);
  };
  if (shape.ranks_per_host == 0) {
    // The chain is the flat ring. A peer's tree crosses the link of some host several times.
    const std::size_t chain = collective == Collective::kBroadcast ? kRooted : kReducedByFlatChain;
    const bool rooted = collective == Collective::kBroadcast || collective == Collective::kReduce;
    return rooted && hosts > 2 && hosts <= kFewHosts
               ? std::clamp(ring_size(shape) * kBytesPerStep / 2, chain, any_ring)
               : any_ring;
  }
  switch (collective) {
    case Collective::kBroadcast:
      return shape.ranks > shape.hosts && hosts <= kFewHosts ? kBroadcastOfSeveral : kRooted;
    case Collective::kReduce:
      return kRooted;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      return ring_from(128);
    case Collective::kAllreduce:
      if (hosts == 2 && shape.ranks > 2) return conditions.hier ? kExchangedOfSeveral : kWorthLinksOfSeveral;
      if (hosts == 2) return conditions.hier ? kExchangedOfOne : kWorthLinksOfOne;
      return hosts <= kFewHosts || (may_use_hier(shape) && shape.ranks > shape.hosts) ? ring_from(256)
                                                                                      : kReducedByDbt;
    default:
      return any_ring;
  }
}

bool goes_in_pieces(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce;
}
/// The longest offer that an immediate exchange can take.
std::size_t most_immediate(Collective collective) {
  return goes_in_pieces(collective) ? kMostImmediateRooted : device::ImmediateArea::kMostOffered;
}
/// And that it should, where each rank reads what all offer.
std::size_t most_that_suits_all(int ranks) {
  return std::min(device::ImmediateArea::kMostOffered, kImmediateBytesRead / static_cast<std::size_t>(ranks));
}

}  // namespace

namespace limits {

// ---- Which collectives?

bool any_collective(Collective) {
  return true;
}
bool immediate_carries(Collective collective) {
  return collective <= Collective::kBarrier;
}
bool tiered_carries(Collective collective) {
  return device::TieredExchange::takes(collective);
}
bool tiered_cico_carries(Collective collective) {
  return device::TieredCicoExecutor::takes(collective);
}
bool cico_streams(Collective collective) {
  return device::CicoExecutor::takes(collective);
}
bool single_copy_carries(Collective collective) {
  return device::SingleCopyExecutor::takes(collective);
}
bool hier_carries(Collective collective) {
  return device::HierExecutor::takes(collective);
}
bool ring_carries(Collective collective) {
  return device::SplitRailExecutor::takes(collective) || collective == Collective::kBroadcast ||
         collective == Collective::kReduce;
}
bool dbt_carries(Collective collective) {
  return device::DbtExecutor::takes(collective);
}
bool pairwise_carries(Collective collective) {
  return collective == Collective::kAllToAll;
}
bool zero_copy_carries(Collective collective) {
  return device::cuda::zero_copy_takes(collective);
}
bool kernel_carries(Collective collective) {
  return device::cuda::kernels_carry(collective, device::cuda::KernelLinkage::kAny);
}
bool kernel_ring_carries(Collective collective) {
  return device::cuda::kernels_carry(collective, device::cuda::KernelLinkage::kRings);
}
bool kernel_tree_carries(Collective collective) {
  return device::cuda::kernels_carry(collective, device::cuda::KernelLinkage::kTrees);
}
bool kernel_hier_carries(Collective collective) {
  return device::cuda::kernels_carry(collective, device::cuda::KernelLinkage::kGrids);
}

// ---- On which communicators?

const char* needs_one_rank(const Conditions& conditions, Collective) {
  return conditions.shape.ranks > 1 ? "it is for one rank alone" : nullptr;
}
const char* needs_several_ranks(const Conditions& conditions, Collective) {
  return conditions.shape.ranks == 1 ? "there is one rank alone" : nullptr;
}
const char* needs_one_host(const Conditions& conditions, Collective collective) {
  return conditions.shape.hosts > 1 ? "it is for ranks of one host"
                                    : needs_several_ranks(conditions, collective);
}
const char* needs_tiers(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_one_host(conditions, collective)) return why;
  return conditions.tiers < 2 ? "there are too few ranks for groups" : nullptr;
}
const char* needs_groups(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_one_host(conditions, collective)) return why;
  return conditions.groups ? nullptr
                           : "the ranks make no equal groups, or sums have to keep the order of ranks";
}
const char* needs_few_ranks_on_one_host(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_one_host(conditions, collective)) return why;
  static_assert(device::cuda::ZeroCopyLinks::kMostRanks == 16);
  return conditions.shape.ranks > device::cuda::ZeroCopyLinks::kMostRanks ? "it is for 16 ranks at the most"
                                                                          : nullptr;
}
const char* needs_readable_memory(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_one_host(conditions, collective)) return why;
  if (!conditions.single_copy) return "the ranks may not read each other's memory";
  return collective == Collective::kReduce && conditions.shape.ranks > 2
             ? "the root of a reduce would do the work of all ranks"
             : nullptr;
}
const char* needs_several_hosts(const Conditions& conditions, Collective) {
  return conditions.shape.hosts == 1 ? "it is for several hosts" : nullptr;
}
const char* needs_equal_hosts(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_several_hosts(conditions, collective)) return why;
  return conditions.shape.ranks_per_host == 0 ? "the hosts have different numbers of ranks" : nullptr;
}
const char* needs_full_hosts(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_equal_hosts(conditions, collective)) return why;
  return conditions.shape.ranks_per_host == 1 ? "each host has one rank alone" : nullptr;
}
const char* needs_leaders(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_several_hosts(conditions, collective)) return why;
  if (!may_use_hier(conditions.shape)) return "there are too many hosts for links between all leaders";
  return conditions.hier ? nullptr : "the node leaders are not joined yet";
}
const char* needs_few_ranks(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_several_hosts(conditions, collective)) return why;
  return may_use_pairwise(conditions.shape)
             ? nullptr
             : "there are too many ranks for links between all, or each host has only one";
}

/// Inside a host zero copy reads the others' buffers.
const char* needs_links_of_kernels(const Conditions& conditions, Collective collective) {
  if (!device::cuda::exchanges(collective)) return needs_several_ranks(conditions, collective);
  if (const char* why = needs_several_hosts(conditions, collective)) return why;
  return conditions.shape.ranks > device::cuda::kMostExchanging
             ? "there are too many ranks for links between all"
             : nullptr;
}

/// Inside a host they are chains.
const char* needs_trees(const Conditions& conditions, Collective collective) {
  const bool whole = collective == Collective::kAllreduce || collective == Collective::kReduce ||
                     collective == Collective::kBroadcast;
  if (!whole && conditions.shape.hosts > 2)
    return "trees between more than two hosts carry whole messages alone";
  if (!whole && conditions.shape.ranks_per_host == 0)
    return "trees between hosts with different numbers of ranks carry whole messages alone";
  return needs_links_of_kernels(conditions, collective);
}

// ---- Which sizes can it take?

bool any_size(const Conditions&, Collective, std::size_t) {
  return true;
}
bool has_bytes(const Conditions&, Collective collective, std::size_t bytes) {
  return bytes > 0 || collective == Collective::kBarrier;
}
/// How many, only some of the ranks know.
bool may_have_bytes(const Conditions&, Collective collective, std::size_t bytes) {
  return bytes > 0 || (device::lists_blocks(collective) && collective != Collective::kAllGatherV);
}
/// A broadcast and a reduce go in pieces. A rank whose result is not contiguous receives it on its stack
/// first, the blocks of all ranks at once.
bool immediate_takes(const Conditions& conditions, Collective collective, std::size_t bytes) {
  return offered(conditions, collective, bytes) <= most_immediate(collective) &&
         (goes_in_pieces(collective) ||
          whole(conditions, collective, bytes) <= device::ImmediateArea::kMostPackedResult);
}
bool tiered_takes(const Conditions& conditions, Collective collective, std::size_t bytes) {
  return device::TieredExchange::takes(collective, bytes, conditions.shape.ranks);
}

// ---- Which sizes suit it?

bool immediate_suits(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const int ranks = conditions.shape.ranks;
  if (conditions.groups && tiered_cico_carries(collective) &&
      tiered_cico_suits(conditions, collective, bytes))
    return false;
  return rooted_between_two(collective, ranks) ||
         offered(conditions, collective, bytes) <= most_that_suits_all(ranks);
}

/// Where ranks share CPUs, each tier would cost a turn of the scheduler.
bool tiered_suits(const Conditions& conditions, Collective collective, std::size_t bytes) {
  if (conditions.oversubscribed || conditions.shape.ranks < kFewestRanksOfTiers) return false;
  if (collective == Collective::kBroadcast)
    return bytes <= (conditions.in_cache >= kManyInCache ? kMostBroadcastInTiers
                                                         : device::ImmediateLine::kPayloadBytes);
  const std::size_t most = collective == Collective::kAllGather ? kMostGatheredInTiers : kMostReducedInTiers;
  return whole_message(Collective::kAllGather, conditions.shape.ranks, bytes) <= most;
}

/// For longer ones the memory decides, of which the model knows nothing, and probes find the fastest of
/// others. An all-gather saves nothing where its bytes come from one cache anyway.
bool tiered_cico_suits(const Conditions& conditions, Collective collective, std::size_t bytes) {
  return !conditions.oversubscribed && conditions.shape.ranks >= kFewestRanksOfTiers &&
         whole_message(collective, conditions.shape.ranks, bytes) <= kMostInGroups &&
         (collective != Collective::kAllGather || conditions.in_cache < conditions.shape.ranks);
}

/// A message that an immediate exchange suits has arrived before three rounds have ended. Where ranks share
/// CPUs, only two collectives wait rarely: the root of a broadcast waits once, at the end, and the ranks of
/// an all-to-all wait twice. The CICO buffers of an all-gather are read by several ranks, faster than the
/// kernel reads (4 and 8 ranks on 2 cores).
bool single_copy_suits(const Conditions& conditions, Collective collective, std::size_t bytes) {
  if (immediate_takes(conditions, collective, bytes) && immediate_suits(conditions, collective, bytes))
    return false;
  return !conditions.oversubscribed ||
         ((collective == Collective::kBroadcast || collective == Collective::kAllToAll) &&
          offered(conditions, collective, bytes) <= kMostSingleCopyBytes);
}

/// Where each host has one rank, the fallback component needs fewer messages for a barrier, and fewer bytes
/// for a message that is not short (two to eight virtual hosts, with a delay of 100 us and without).
bool hier_suits(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const Shape& shape = conditions.shape;
  if (is_long_between_hosts(conditions, collective, bytes)) return false;
  const std::size_t all = whole(conditions, collective, bytes);
  const bool several = shape.ranks > shape.hosts;
  const std::size_t most_at_once = kMostAtOnce / static_cast<std::size_t>(shape.hosts - 1);
  switch (collective) {
    case Collective::kBarrier:
      return several;
    case Collective::kBroadcast:
    case Collective::kReduce:
      return several && all <= std::min(kMostRootedByHier, most_at_once);
    case Collective::kAllGather:  // as many bytes as a ring, in one step (docs/results/between-hosts.md)
      return several && all < kRingMinBytes;
    case Collective::kReduceScatter:
      if (!several) return all <= kMostScatteredOfOne;
      return all <= device::HierExecutor::kMostShortBytes || (shape.hosts == 2 && all < kRingMinBytes);
    default:
      return several || shape.hosts == 2
                 ? all < kRingMinBytes
                 : all <= std::min(device::HierExecutor::kMostShortBytes, most_at_once);
  }
}

bool dbt_suits(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const Shape& shape = conditions.shape;
  std::size_t most = ring_over_dbt_bytes(shape);
  if (goes_in_pieces(collective)) most = tree_is_shorter(shape) ? 4 * most : 0;
  return is_long_between_hosts(conditions, collective, bytes) &&
         whole(conditions, collective, bytes) < std::min(most, kMostByDbt);
}

bool is_long_between_hosts(const Conditions& conditions, Collective collective, std::size_t bytes) {
  return whole(conditions, collective, bytes) >= least_between_hosts(collective, conditions);
}

}  // namespace limits

std::size_t most_exchanged(const Conditions& conditions, Collective collective, bool has_rules) {
  return has_rules || rooted_between_two(collective, conditions.shape.ranks)
             ? most_immediate(collective)
             : most_that_suits_all(conditions.shape.ranks);
}

bool may_have_groups(int ranks, bool named) {
  return (named || ranks >= kFewestRanksOfTiers) && device::CicoGroups::members_of(ranks) > 1;
}
bool may_use_hier(const Shape& shape) {
  return shape.hosts > 1 && shape.hosts <= kMostHostsAtOnce;
}
bool may_link_pairwise(const Shape& shape) {
  return shape.hosts > 1 && shape.ranks <= kMostPairwiseRanks;
}
bool may_use_pairwise(const Shape& shape) {
  return may_link_pairwise(shape) && shape.ranks > shape.hosts;
}
bool is_carried_beside_devices(const Conditions& conditions, Collective collective) {
  static_assert(device::cuda::kMostExchanging <= kMostPairwiseRanks);
  return device::cuda::exchanges(collective) && may_link_pairwise(conditions.shape) &&
         !may_carry(collective, conditions);
}
bool suits_dbt(const Shape& shape) {
  return shape.hosts > 1 && tree_is_shorter(shape) && ring_over_dbt_bytes(shape) > 0;
}

}  // namespace loom
