#include "component/select/algorithms.hpp"

#include <algorithm>
#include <array>
#include <cassert>

#include "component/select/costs.hpp"
#include "component/select/limits.hpp"

namespace loom {
namespace {

using device::Collective;
using Family = device::CallFamily;

constexpr AlgorithmRow by_kernels(Algorithm algorithm, const char* name, const char* summary,
                                  bool (*carries)(Collective),
                                  const char* (*why_not)(const Conditions&,
                                                         Collective) = limits::needs_links_of_kernels) {
  return {.algorithm = algorithm,
          .name = name,
          .summary = summary,
          .on_devices = true,
          .may_wait = true,
          .carries = carries,
          .why_not = why_not,
          .takes = limits::may_have_bytes,
          .suits = limits::any_size,
          .cost = costs::unmeasured};
}

constexpr std::array kTable{
    AlgorithmRow{.algorithm = Algorithm::kCopy,
                 .name = "copy",
                 .summary = "one rank: the result is the operand",
                 .carries = limits::any_collective,
                 .why_not = limits::needs_one_rank,
                 .takes = limits::any_size,
                 .suits = limits::any_size,
                 .cost = costs::copy},
    AlgorithmRow{.algorithm = Algorithm::kImmediate,
                 .name = "immediate",
                 .summary = "one host: data crosses with its flag, and every rank reads what it needs",
                 .may_wait = true,
                 .carries = limits::immediate_carries,
                 .why_not = limits::needs_one_host,
                 .takes = limits::immediate_takes,
                 .suits = limits::immediate_suits,
                 .cost = costs::immediate},
    AlgorithmRow{.algorithm = Algorithm::kTiered,
                 .name = "tiered",
                 .summary = "one host, many ranks: the same in groups that share a cache, up and down",
                 .may_wait = true,
                 .carries = limits::tiered_carries,
                 .why_not = limits::needs_tiers,
                 .takes = limits::tiered_takes,
                 .suits = limits::tiered_suits,
                 .cost = costs::tiered},
    AlgorithmRow{.algorithm = Algorithm::kCico,
                 .name = "cico",
                 .summary = "one host: copy in, copy out, through a shared buffer of each rank",
                 .family = Family::kCico,
                 .carries = limits::any_collective,
                 .streams = limits::cico_streams,
                 .why_not = limits::needs_one_host,
                 .takes = limits::any_size,
                 .suits = limits::any_size,
                 .cost = costs::cico},
    AlgorithmRow{
        .algorithm = Algorithm::kTieredCico,
        .name = "tiered_cico",
        .summary = "one host, many ranks: cico in groups of neighbours, between the groups, and back",
        .in_groups = true,
        .family = Family::kTieredCico,
        .carries = limits::tiered_cico_carries,
        .why_not = limits::needs_groups,
        .takes = limits::has_bytes,
        .suits = limits::tiered_cico_suits,
        .cost = costs::tiered_cico},
    AlgorithmRow{.algorithm = Algorithm::kSingleCopy,
                 .name = "single_copy",
                 .summary = "one host: ranks read each other's buffers (SMSC)",
                 .varies = true,
                 .family = Family::kSingleCopy,
                 .carries = limits::single_copy_carries,
                 .why_not = limits::needs_readable_memory,
                 .takes = limits::has_bytes,
                 .suits = limits::single_copy_suits,
                 .cost = costs::single_copy},
    AlgorithmRow{.algorithm = Algorithm::kHier,
                 .name = "hier",
                 .summary = "several hosts: inside each, between the node leaders, and back",
                 .carries = limits::hier_carries,
                 .why_not = limits::needs_leaders,
                 .takes = limits::any_size,
                 .suits = limits::hier_suits,
                 .cost = costs::hier},
    AlgorithmRow{
        .algorithm = Algorithm::kRing,
        .name = "ring",
        .summary = "several hosts: rings inside and split rails across; one flat ring where hosts differ",
        .carries = limits::ring_carries,
        .streams = limits::ring_carries,
        .why_not = limits::needs_several_hosts,
        .takes = limits::has_bytes,
        .suits = limits::is_long_between_hosts,
        .cost = costs::ring},
    AlgorithmRow{.algorithm = Algorithm::kDbt,
                 .name = "dbt",
                 .summary = "equal hosts: the double binary tree across them",
                 .carries = limits::dbt_carries,
                 .streams = limits::dbt_carries,
                 .why_not = limits::needs_equal_hosts,
                 .takes = limits::has_bytes,
                 .suits = limits::dbt_suits,
                 .cost = costs::dbt},
    AlgorithmRow{.algorithm = Algorithm::kPairwise,
                 .name = "pairwise",
                 .summary = "several hosts: straight to every rank of the others",
                 .carries = limits::pairwise_carries,
                 .streams = limits::pairwise_carries,
                 .why_not = limits::needs_few_ranks,
                 .takes = limits::has_bytes,
                 .suits = limits::is_long_between_hosts,
                 .cost = costs::pairwise},
    AlgorithmRow{.algorithm = Algorithm::kZeroCopy,
                 .name = "zero_copy",
                 .summary = "one host, buffers on GPUs: kernels read and write the buffers of all ranks",
                 .on_devices = true,
                 .may_wait = true,
                 .carries = limits::zero_copy_carries,
                 .why_not = limits::needs_few_ranks_on_one_host,
                 .takes = limits::may_have_bytes,
                 .suits = limits::any_size,
                 .cost = costs::unmeasured},
    by_kernels(Algorithm::kKernel, "kernel", "buffers on GPUs: kernels that exchange data through links",
               limits::kernel_carries),
    by_kernels(Algorithm::kKernelRing, "kernel_ring", "buffers on GPUs: the same over rings alone",
               limits::kernel_ring_carries),
    by_kernels(Algorithm::kKernelTree, "kernel_tree", "buffers on GPUs: the same over trees alone",
               limits::kernel_tree_carries, limits::needs_trees),
    by_kernels(Algorithm::kKernelHier, "kernel_hier",
               "buffers on GPUs: the same, inside each host, between the hosts, and back",
               limits::kernel_hier_carries, limits::needs_full_hosts),
};
static_assert(kTable.size() == kAlgorithmCount);
static_assert([] {
  for (std::size_t i = 0; i < kTable.size(); ++i)
    if (kTable[i].algorithm != static_cast<Algorithm>(i)) return false;
  return true;
}());

// Communicators that lack nothing.
constexpr Conditions kOneHost{
    .shape = {.ranks = 4, .hosts = 1, .ranks_per_host = 4}, .single_copy = true, .tiers = 2, .groups = true},
    kSeveralHosts{.shape = {.ranks = 4, .hosts = 2, .ranks_per_host = 2}, .hier = true};

constexpr std::string_view kFallbackName = "fallback", kStagedName = "staged";

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
  assert(has_row(algorithm));
  return kTable[static_cast<std::size_t>(algorithm)];
}

bool may_carry(Collective collective, const Conditions& conditions) {
  return std::ranges::any_of(kTable, [&](const AlgorithmRow& row) {
    return !row.on_devices && row.carries(collective) && row.why_not(conditions, collective) == nullptr;
  });
}
bool may_carry(Collective collective, bool one_host) {
  return may_carry(collective, one_host ? kOneHost : kSeveralHosts);
}
bool may_carry_on_devices(Collective collective, bool one_host) {
  return std::ranges::any_of(kTable, [&](const AlgorithmRow& row) {
    return row.on_devices && row.carries(collective) &&
           row.why_not(one_host ? kOneHost : kSeveralHosts, collective) == nullptr;
  });
}
bool may_stream(Collective collective, bool one_host) {
  return std::ranges::any_of(kTable, [&](const AlgorithmRow& row) {
    return row.streams(collective) && row.why_not(one_host ? kOneHost : kSeveralHosts, collective) == nullptr;
  });
}

std::string_view name_of(Algorithm algorithm) {
  if (algorithm == Algorithm::kStaged) return kStagedName;
  return algorithm == Algorithm::kFallback ? kFallbackName : row_of(algorithm).name;
}
std::optional<Algorithm> algorithm_named(std::string_view name) {
  if (name == kFallbackName) return Algorithm::kFallback;
  if (name == kStagedName) return Algorithm::kStaged;
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

}  // namespace loom
