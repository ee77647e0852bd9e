// link_specs.hpp -- the kinds of links between hosts: which ranks they join, and their FIFOs.
#pragma once

#include <array>
#include <cstddef>

#include "component/links/link_set.hpp"
#include "component/links/shared_layout.hpp"
#include "device/host/grid.hpp"

namespace loom {

/// In the order in which handles list them.
enum class LinkKind {
  kRing,      ///< to the next rank of the ring across hosts, and from the previous one
  kLeaders,   ///< between the node leaders, by host
  kTrees,     ///< along the double binary tree over the hosts of a rail, as device::DbtLinks has them
  kPairwise,  ///< between any two ranks of different hosts, by rank; the first call that needs them makes
              ///< them
};
inline constexpr std::size_t kLinkKinds = static_cast<std::size_t>(LinkKind::kPairwise) + 1;
/// Those that are made with the first of them.
inline constexpr std::size_t kFirstLinkKinds = static_cast<std::size_t>(LinkKind::kPairwise);

LinkPlan plan_ring(const Group& group, int rank);
LinkPlan plan_leaders(const Group& group, int rank);
LinkPlan plan_trees(const Group& group, int rank);
LinkPlan plan_pairwise(const Group& group, int rank);

/// By kind.
inline constexpr std::array<LinkSpec, kLinkKinds> kLinkSpecs{{
    {.plan = plan_ring, .fifo = [](int) { return kNetFifo; }},
    {.plan = plan_leaders, .fifo = leader_fifo, .few_untaken_suffice = true},
    {.plan = plan_trees, .fifo = [](int) { return kTreeFifo; }},
    {.plan = plan_pairwise, .fifo = [](int) { return kPairwiseFifo; }},
}};
constexpr const LinkSpec& spec_of(LinkKind kind) {
  return kLinkSpecs[static_cast<std::size_t>(kind)];
}

/// The links of a set of that kind as executors see them.
device::DbtLinks trees_of(const LinkSet& trees, const Group& group);

}  // namespace loom
