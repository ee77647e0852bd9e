// limits.hpp -- what can each algorithm run? The questions of AlgorithmRow, in its order: which collectives,
// on which communicators, which sizes it can take and which suit it as measured.
#pragma once

#include "component/select/algorithms.hpp"

namespace loom::limits {

bool any_collective(device::Collective collective);
bool immediate_carries(device::Collective collective);
bool tiered_carries(device::Collective collective);
bool tiered_cico_carries(device::Collective collective);
bool cico_streams(device::Collective collective);
bool single_copy_carries(device::Collective collective);
bool hier_carries(device::Collective collective);
bool ring_carries(device::Collective collective);
bool dbt_carries(device::Collective collective);
bool pairwise_carries(device::Collective collective);
bool zero_copy_carries(device::Collective collective);
bool kernel_carries(device::Collective collective);
bool kernel_ring_carries(device::Collective collective);
bool kernel_tree_carries(device::Collective collective);
bool kernel_hier_carries(device::Collective collective);

/// nullptr, or a sentence that says what is missing.
const char* needs_one_rank(const Conditions& conditions, device::Collective collective);
const char* needs_several_ranks(const Conditions& conditions, device::Collective collective);
const char* needs_one_host(const Conditions& conditions, device::Collective collective);
const char* needs_tiers(const Conditions& conditions, device::Collective collective);
const char* needs_groups(const Conditions& conditions, device::Collective collective);
const char* needs_few_ranks_on_one_host(const Conditions& conditions, device::Collective collective);
const char* needs_readable_memory(const Conditions& conditions, device::Collective collective);
const char* needs_several_hosts(const Conditions& conditions, device::Collective collective);
const char* needs_equal_hosts(const Conditions& conditions, device::Collective collective);
const char* needs_trees(const Conditions& conditions, device::Collective collective);
const char* needs_full_hosts(const Conditions& conditions, device::Collective collective);
const char* needs_leaders(const Conditions& conditions, device::Collective collective);
const char* needs_few_ranks(const Conditions& conditions, device::Collective collective);
const char* needs_links_of_kernels(const Conditions& conditions, device::Collective collective);

bool any_size(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool has_bytes(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool may_have_bytes(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool immediate_takes(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool tiered_takes(const Conditions& conditions, device::Collective collective, std::size_t bytes);

bool immediate_suits(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool tiered_suits(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool tiered_cico_suits(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool single_copy_suits(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool hier_suits(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool dbt_suits(const Conditions& conditions, device::Collective collective, std::size_t bytes);
bool is_long_between_hosts(const Conditions& conditions, device::Collective collective, std::size_t bytes);

}  // namespace loom::limits
