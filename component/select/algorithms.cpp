#include "component/select/algorithms.hpp"

#include <algorithm>
#include <array>
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

using connect::Shape;
using device::Collective;

constexpr std::size_t kKiB = 1024, kMiB = 1024 * 1024;

// ---- Limits, as measured. Between hosts a size is that of the whole message, all blocks together.

// Each of n ranks reads what n offer, so the crossing point with CICO buffers falls with n.
constexpr std::size_t kImmediateBytesRead = 32 * kKiB;
// Of a broadcast, and of what one rank hands another to reduce: each is read by one that needs all of it,
// while the next is being written (2 ranks, 2 MiB of L2 cache each).
constexpr std::size_t kMostImmediateRooted = 64 * kKiB;
static_assert(kMostImmediateRooted * 8 + 7 <= device::ExchangeTag::kMask,
              "the flag of an exchange has its bytes");
// While buffers are in the peers' caches one copy beats two; beyond, the kernel's copy is slower than one
// past the caches. A broadcast's two copies are made by two ranks at once (2 cores with 2 MiB of L2 cache
// each, loom_bench of each collective with coll_loom_single_copy 0 and 1). Of what a rank receives.
constexpr std::size_t kMostSingleCopyBytes = 32 * kMiB;
constexpr std::size_t kMostSingleCopyBroadcast = 128 * kKiB;
// From here on rings win everywhere.
constexpr std::size_t kRingMinBytes = 512 * kKiB;
// From here on trees do with broadcasts, up to this many hosts; between more from twice as much.
constexpr std::size_t kTreeMinBytes = 32 * kKiB;
constexpr std::size_t kHostsOfTreeMin = 8;
// A buffer that is not contiguous is gathered in one piece for them.
constexpr std::size_t kMostByTrees = 64 * kMiB;
// What a host could send while a step waits for its data: 1.5 us at 100 Gbit/s, 0.13 ms at 1 Gbit/s.
constexpr std::size_t kBytesPerStep = 16 * kKiB;
// A node leader sends to all others at once; beyond, logarithmic patterns, which the fallback component has,
// need less.
constexpr int kMostHostsAtOnce = 16;
// Below this. Node leaders have the whole message before it is scattered (six virtual hosts of two ranks, two
// to eight of one).
constexpr std::size_t kMostScatteredByHier = 16 * kKiB, kMostScatteredOfOne = 2 * kKiB;
// What a leader sends to, or receives from, all other hosts together where the fallback component would have
// a tree (three and six virtual hosts of two ranks, two to eight of one).
constexpr std::size_t kMostAtOnce = 64 * kKiB;
constexpr std::size_t kMostRootedByHier = 16 * kKiB;
constexpr std::size_t kMostGatheredByHier = 16 * kKiB;
// 512 KiB of slots for each rank of another host.
constexpr int kMostPairwiseRanks = 64;

// ---- Costs, in microseconds. Inside a host as on the machines above; between hosts of a network of 100
// Gbit/s, for what counts is a step against the bytes that could be sent meanwhile.

constexpr double kUsPerByteImmediate = 0.00004;  // read once, from a cache
constexpr double kUsPerByteCico = 0.0001;        // written and read
constexpr double kUsPerByteSingleCopy = 0.00007, kUsPerByteSingleCopyUncached = 0.00012;  // by the kernel
constexpr double kUsPerRank = 0.1;                                                        // a flag of each
constexpr double kUsPerTurn = 20;  // until a rank that shares a CPU has its turn
constexpr double kUsPerNetByte = 0.00008;
constexpr double kUsPerStep = kBytesPerStep * kUsPerNetByte;

bool rooted_between_two(Collective collective, int ranks) {
  return collective == Collective::kBroadcast || (collective == Collective::kReduce && ranks == 2);
}
std::size_t offered(const Conditions& conditions, Collective collective, std::size_t bytes) {
  return device::offered_bytes(collective, bytes, conditions.shape.ranks);
}
std::size_t received(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const std::size_t all = offered(conditions, collective, bytes);
  return collective == Collective::kAllGather ? all * static_cast<std::size_t>(conditions.shape.ranks) : all;
}
double us(std::size_t bytes, double per_byte) {
  return static_cast<double>(bytes) * per_byte;
}
bool any_size(const Conditions&, Collective, std::size_t) {
  return true;
}
bool any_collective(Collective) {
  return true;
}
const char* needs_one_host(const Conditions& conditions, Collective) {
  return conditions.shape.hosts > 1    ? "it is for ranks of one host"
         : conditions.shape.ranks == 1 ? "there is one rank alone"
                                       : nullptr;
}
const char* needs_several_hosts(const Conditions& conditions, Collective) {
  return conditions.shape.hosts == 1 ? "it is for several hosts" : nullptr;
}
bool has_bytes(const Conditions&, Collective collective, std::size_t bytes) {
  return bytes > 0 || collective == Collective::kBarrier;
}

// ---- copy

const char* needs_one_rank(const Conditions& conditions, Collective) {
  return conditions.shape.ranks > 1 ? "it is for one rank alone" : nullptr;
}
double copy_cost(const Conditions&, Collective, std::size_t bytes) {
  return us(bytes, kUsPerByteCico);
}

// ---- immediate

bool immediate_carries(Collective collective) {
  return collective <= Collective::kBarrier;
}
/// A broadcast and a reduce go in pieces.
bool immediate_takes(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const bool in_pieces = collective == Collective::kBroadcast || collective == Collective::kReduce;
  return offered(conditions, collective, bytes) <=
         (in_pieces ? kMostImmediateRooted : device::ImmediateArea::kMostOffered);
}
bool immediate_suits(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const int ranks = conditions.shape.ranks;
  return rooted_between_two(collective, ranks) ||
         offered(conditions, collective, bytes) <=
             std::min(device::ImmediateArea::kMostOffered,
                      kImmediateBytesRead / static_cast<std::size_t>(ranks));
}
double immediate_cost(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const std::size_t each = offered(conditions, collective, bytes);
  const bool once = collective == Collective::kBroadcast || collective == Collective::kAllToAll ||
                    rooted_between_two(collective, conditions.shape.ranks);
  return 0.3 + kUsPerRank / 2 * conditions.shape.ranks +
         us(once ? each : each * static_cast<std::size_t>(conditions.shape.ranks), kUsPerByteImmediate);
}

// ---- cico

/// Where ranks share CPUs each wait for the others is a turn: of a broadcast's root once all banks are in
/// use, else once for each tile.
double cico_turns(Collective collective, std::size_t each) {
  using device::CicoBuffer;
  const std::size_t banks = collective == Collective::kBroadcast ? CicoBuffer::kBanks - 1 : 1;
  const std::size_t ahead = banks * CicoBuffer::kBankBytes;
  return each <= ahead
             ? 1
             : 2 + static_cast<double>((each - ahead + CicoBuffer::kBankBytes - 1) / CicoBuffer::kBankBytes);
}
double cico_cost(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const double waits = conditions.oversubscribed
                           ? kUsPerTurn * cico_turns(collective, offered(conditions, collective, bytes))
                           : 0;
  return 0.9 + kUsPerRank * conditions.shape.ranks + waits +
         us(received(conditions, collective, bytes), kUsPerByteCico);
}

// ---- single copy

const char* needs_readable_memory(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_one_host(conditions, collective)) return why;
  if (!conditions.single_copy) return "the ranks may not read each other's memory";
  return collective == Collective::kReduce && conditions.shape.ranks > 2
             ? "the root of a reduce would do the work of all ranks"
             : nullptr;
}
/// What is as short as an immediate exchange takes is over before three rounds are. In turns: the root of a
/// broadcast waits once, at the end, and in an all-to-all ranks wait twice. An all-gather's CICO buffers are
/// read by several, and faster than the kernel reads (4 and 8 ranks on 2 cores).
bool single_copy_suits(const Conditions& conditions, Collective collective, std::size_t bytes) {
  if (immediate_takes(conditions, collective, bytes) && immediate_suits(conditions, collective, bytes))
    return false;
  return !conditions.oversubscribed ||
         ((collective == Collective::kBroadcast || collective == Collective::kAllToAll) &&
          offered(conditions, collective, bytes) <= kMostSingleCopyBytes);
}
double single_copy_cost(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const std::size_t mine = received(conditions, collective, bytes);
  const bool reduces = device::is_reduction(collective);
  const bool cached =
      mine <= (collective == Collective::kBroadcast ? kMostSingleCopyBroadcast : kMostSingleCopyBytes);
  return (reduces ? 1.2 : 0.8) + kUsPerRank * conditions.shape.ranks +
         (conditions.oversubscribed ? 2 * kUsPerTurn : 0) +
         us(mine, (cached && !reduces) || conditions.oversubscribed ? kUsPerByteSingleCopy
                                                                    : kUsPerByteSingleCopyUncached);
}

// ---- between hosts

std::size_t whole(const Conditions& conditions, Collective collective, std::size_t bytes) {
  return whole_message(collective, conditions.shape.ranks, bytes);
}
std::size_t depth_of(const Shape& shape) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::size_t>(shape.hosts) - 1));
}
/// The flat ring goes round all ranks.
std::size_t ring_size(const Shape& shape) {
  return static_cast<std::size_t>(shape.ranks_per_host > 0 ? shape.hosts : shape.ranks);
}

bool ring_carries(Collective collective) {
  return device::SplitRailExecutor::takes(collective) || collective == Collective::kBroadcast ||
         collective == Collective::kReduce;
}
double ring_cost(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const auto size = static_cast<double>(ring_size(conditions.shape));
  const auto all = static_cast<double>(whole(conditions, collective, bytes));
  if (collective == Collective::kBroadcast || collective == Collective::kReduce)
    return (size - 1) * kUsPerStep + all * kUsPerNetByte;
  const double rounds = collective == Collective::kAllreduce ? 2 : 1;
  return rounds * (size - 1) * (kUsPerStep + all / size * kUsPerNetByte);
}

/// Below this a tree over the hosts is faster than a ring: it has fewer steps, 2 log2 h for an all-reduce
/// instead of 2 (h - 1), but sends 2 S instead of 2 (h - 1)/h S. With a step's latency t and a host's
/// bandwidth B that is h (h - 1 - log2 h) t B.
std::size_t ring_over_tree_bytes(const Shape& shape) {
  if (shape.ranks_per_host == 0) return 0;
  const auto hosts = static_cast<std::size_t>(shape.hosts), depth = depth_of(shape);
  return hosts > depth + 1 ? hosts * (hosts - 1 - depth) * kBytesPerStep : 0;
}
double dbt_cost(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const double rounds = collective == Collective::kAllreduce ? 2 : 1;
  return rounds * (static_cast<double>(depth_of(conditions.shape)) * kUsPerStep +
                   us(whole(conditions, collective, bytes), kUsPerNetByte));
}

/// Below this the latency of the steps costs more than what the fallback component loses in other ways (three
/// to eight virtual hosts of one and two ranks, 1 Gbit/s, with a delay of 200 us and without, against tuned
/// and han). A ring's grow in number with the hosts.
std::size_t least_between_hosts(Collective collective, const Shape& shape) {
  const auto hosts = static_cast<std::size_t>(shape.hosts);
  const std::size_t any_ring = std::max(kRingMinBytes, ring_size(shape) * kBytesPerStep);
  const auto ring_from = [&](std::size_t kib) {
    return std::clamp(kib * kKiB / 4 * hosts, kib * kKiB, any_ring);
  };
  if (shape.ranks_per_host == 0) return any_ring;
  const bool has_trees = ring_over_tree_bytes(shape) > 0;
  const std::size_t tree_from = hosts <= kHostsOfTreeMin ? kTreeMinBytes : 2 * kTreeMinBytes;
  switch (collective) {
    case Collective::kBroadcast:
      return has_trees ? tree_from : ring_from(32);
    case Collective::kReduce:
      return has_trees ? 2 * kTreeMinBytes : ring_from(64);
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      return ring_from(128);
    case Collective::kAllreduce:
      return hosts <= kHostsOfTreeMin || (may_use_hier(shape) && shape.ranks > shape.hosts) ? ring_from(256)
                                                                                            : 2 * tree_from;
    default:
      return any_ring;
  }
}
bool is_long_between_hosts(const Conditions& conditions, Collective collective, std::size_t bytes) {
  return whole(conditions, collective, bytes) >= least_between_hosts(collective, conditions.shape);
}

const char* needs_equal_hosts(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_several_hosts(conditions, collective)) return why;
  return conditions.shape.ranks_per_host == 0 ? "the hosts have different numbers of ranks" : nullptr;
}
/// Along the root's rail a ring is a chain, which has no bandwidth ahead of a tree.
bool dbt_suits(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const std::size_t rooted = collective == Collective::kAllreduce ? 1 : 4;
  return is_long_between_hosts(conditions, collective, bytes) &&
         whole(conditions, collective, bytes) <
             std::min(rooted * ring_over_tree_bytes(conditions.shape), kMostByTrees);
}

const char* needs_leaders(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_several_hosts(conditions, collective)) return why;
  if (!may_use_hier(conditions.shape)) return "there are too many hosts for links between all leaders";
  return conditions.hier ? nullptr : "the node leaders are not joined yet";
}
/// Where each host has one rank, the fallback component needs fewer messages for a barrier, and fewer bytes
/// for what is not short (two to eight virtual hosts, with a delay of 100 us and without).
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
    case Collective::kAllGather:
      return several && all <= kMostGatheredByHier;
    case Collective::kReduceScatter:
      return all < (several ? kMostScatteredByHier : kMostScatteredOfOne);
    default:
      return several ? all < kRingMinBytes
                     : all <= std::min(device::HierExecutor::kMostShortBytes, most_at_once);
  }
}
double hier_cost(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const std::size_t all = whole(conditions, collective, bytes);
  const auto hosts = static_cast<double>(conditions.shape.hosts);
  const bool two_shot =
      device::HierExecutor::all_reduce(collective) && all > device::HierExecutor::kMostShortBytes;
  const double inside = conditions.shape.ranks > conditions.shape.hosts ? 2 + 2 * us(all, kUsPerByteCico) : 0;
  return inside + (two_shot ? 2 * (kUsPerStep + (hosts - 1) / hosts * us(all, kUsPerNetByte))
                            : kUsPerStep + (hosts - 1) * us(all, kUsPerNetByte));
}

const char* needs_few_ranks(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_several_hosts(conditions, collective)) return why;
  return may_use_pairwise(conditions.shape)
             ? nullptr
             : "there are too many ranks for links between all, or each host has one alone";
}
double pairwise_cost(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const Shape& shape = conditions.shape;
  const double outside = static_cast<double>(shape.hosts - 1) / shape.hosts;
  return 2 * kUsPerStep + outside * us(whole(conditions, collective, bytes), kUsPerNetByte);
}

// ---- on GPUs. Nothing has been measured.

bool host_driven_carries(Collective collective) {
  return device::cuda::HostDrivenExecutor::takes(collective);
}
bool kernel_carries(Collective collective) {
  return device::cuda::kernel_way(collective, 1, 2).has_value();
}
const char* needs_kernels(const Conditions& conditions, Collective collective) {
  if (const char* why = needs_one_host(conditions, collective)) return why;
  return device::cuda::kernel_way(collective, 1, conditions.shape.ranks) ? nullptr
                                                                         : "there are too many ranks";
}
double no_cost(const Conditions&, Collective, std::size_t) {
  return 0;
}

bool single_copy_carries(Collective collective) {
  return device::SingleCopyExecutor::takes(collective);
}
bool pairwise_carries(Collective collective) {
  return collective == Collective::kAllToAll;
}
bool hier_carries(Collective collective) {
  return device::HierExecutor::takes(collective);
}
bool dbt_carries(Collective collective) {
  return device::DbtExecutor::takes(collective);
}

using Family = device::CallFamily;

constexpr std::array kTable{
    AlgorithmRow{.algorithm = Algorithm::kCopy,
                 .name = "copy",
                 .summary = "one rank: the result is the operand",
                 .carries = any_collective,
                 .why_not = needs_one_rank,
                 .takes = any_size,
                 .suits = any_size,
                 .cost = copy_cost},
    AlgorithmRow{.algorithm = Algorithm::kImmediate,
                 .name = "immediate",
                 .summary = "one host: data crosses with its flag, and every rank reads what it needs",
                 .may_wait = true,
                 .carries = immediate_carries,
                 .why_not = needs_one_host,
                 .takes = immediate_takes,
                 .suits = immediate_suits,
                 .cost = immediate_cost},
    AlgorithmRow{.algorithm = Algorithm::kCico,
                 .name = "cico",
                 .summary = "one host: copy in, copy out, through a shared buffer of each rank",
                 .streams = true,
                 .family = Family::kCico,
                 .carries = any_collective,
                 .why_not = needs_one_host,
                 .takes = any_size,
                 .suits = any_size,
                 .cost = cico_cost},
    AlgorithmRow{.algorithm = Algorithm::kSingleCopy,
                 .name = "single_copy",
                 .summary = "one host: ranks read each other's buffers (SMSC)",
                 .varies = true,
                 .family = Family::kSingleCopy,
                 .carries = single_copy_carries,
                 .why_not = needs_readable_memory,
                 .takes = has_bytes,
                 .suits = single_copy_suits,
                 .cost = single_copy_cost},
    AlgorithmRow{.algorithm = Algorithm::kHier,
                 .name = "hier",
                 .summary = "several hosts: inside each, between the node leaders, and back",
                 .carries = hier_carries,
                 .why_not = needs_leaders,
                 .takes = any_size,
                 .suits = hier_suits,
                 .cost = hier_cost},
    AlgorithmRow{
        .algorithm = Algorithm::kRing,
        .name = "ring",
        .summary = "several hosts: rings inside and split rails across; one flat ring where hosts differ",
        .streams = true,
        .carries = ring_carries,
        .why_not = needs_several_hosts,
        .takes = has_bytes,
        .suits = is_long_between_hosts,
        .cost = ring_cost},
    AlgorithmRow{.algorithm = Algorithm::kDbt,
                 .name = "dbt",
                 .summary = "equal hosts: the double binary tree across them",
                 .streams = true,
                 .carries = dbt_carries,
                 .why_not = needs_equal_hosts,
                 .takes = has_bytes,
                 .suits = dbt_suits,
                 .cost = dbt_cost},
    AlgorithmRow{.algorithm = Algorithm::kPairwise,
                 .name = "pairwise",
                 .summary = "several hosts: straight to every rank of the others",
                 .carries = pairwise_carries,
                 .why_not = needs_few_ranks,
                 .takes = has_bytes,
                 .suits = is_long_between_hosts,
                 .cost = pairwise_cost},
    AlgorithmRow{.algorithm = Algorithm::kHostDriven,
                 .name = "host_driven",
                 .summary = "one host, buffers on GPUs: CICO buffers there, driven by the host",
                 .on_devices = true,
                 .may_wait = true,
                 .carries = host_driven_carries,
                 .why_not = needs_one_host,
                 .takes = has_bytes,
                 .suits = any_size,
                 .cost = no_cost},
    AlgorithmRow{.algorithm = Algorithm::kKernel,
                 .name = "kernel",
                 .summary = "one host, buffers on GPUs: one kernel for each rank",
                 .on_devices = true,
                 .may_wait = true,
                 .carries = kernel_carries,
                 .why_not = needs_kernels,
                 .takes = has_bytes,
                 .suits = any_size,
                 .cost = no_cost},
};
static_assert(kTable.size() == kAlgorithmCount);
static_assert([] {
  for (std::size_t i = 0; i < kTable.size(); ++i)
    if (kTable[i].algorithm != static_cast<Algorithm>(i)) return false;
  return true;
}());

constexpr std::string_view kFallbackName = "fallback";

constexpr std::array<std::string_view, device::kCollectiveCount> kCollectiveNames{
    "allreduce", "reduce",         "reduce_scatter_block",
    "bcast",     "allgather",      "alltoall",
    "barrier",   "reduce_scatter", "scan",
    "exscan",    "gather",         "gatherv",
    "scatter",   "scatterv",       "allgatherv",
    "alltoallv", "alltoallw"};

}  // namespace

std::span<const AlgorithmRow> algorithms() {
  return kTable;
}
const AlgorithmRow& row_of(Algorithm algorithm) {
  return kTable[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(Algorithm algorithm) {
  return algorithm == Algorithm::kFallback ? kFallbackName : row_of(algorithm).name;
}
std::optional<Algorithm> algorithm_named(std::string_view name) {
  if (name == kFallbackName) return Algorithm::kFallback;
  const auto row = std::ranges::find(kTable, name, &AlgorithmRow::name);
  return row == kTable.end() ? std::nullopt : std::optional(row->algorithm);
}

std::string_view name_of(device::Collective collective) {
  return kCollectiveNames[static_cast<std::size_t>(collective)];
}
std::optional<device::Collective> collective_named(std::string_view name) {
  const auto found = std::ranges::find(kCollectiveNames, name);
  if (found == kCollectiveNames.end()) return {};
  return static_cast<device::Collective>(found - kCollectiveNames.begin());
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

std::size_t whole_message(Collective collective, int ranks, std::size_t bytes) {
  const bool blocks = collective == Collective::kReduceScatter || collective == Collective::kAllGather ||
                      collective == Collective::kAllToAll;
  return blocks ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

bool may_use_hier(const Shape& shape) {
  return shape.hosts > 1 && shape.hosts <= kMostHostsAtOnce;
}
bool may_use_pairwise(const Shape& shape) {
  return shape.hosts > 1 && shape.ranks > shape.hosts && shape.ranks <= kMostPairwiseRanks;
}
bool suits_dbt(const Shape& shape) {
  return shape.hosts > 1 && ring_over_tree_bytes(shape) > 0;
}

}  // namespace loom
