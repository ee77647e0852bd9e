// graph_dialect.hpp -- inside search: NCCL's numbers for patterns, and its names for devices.
#pragma once

#include <array>
#include <cstdint>

#include "search/channel_plan.hpp"

namespace loom::search {

inline constexpr int kGraphVersion = 1;        ///< of the dialect, the only one so far
inline constexpr int kMostGraphChannels = 64;  ///< of a graph; the field has no more

struct GraphKind {
  Pattern pattern;
  int id, number;  // which of a communicator's graphs; the pattern's
};
inline constexpr std::array<GraphKind, kPatternCount> kGraphKinds = {{{Pattern::kRing, 0, 4},
                                                                      {Pattern::kBalancedTree, 1, 1},
                                                                      {Pattern::kSplitTree, 1, 2},
                                                                      {Pattern::kTree, 1, 3},
                                                                      {Pattern::kCollnetChain, 2, 3},
                                                                      {Pattern::kNvls, 3, 5},
                                                                      {Pattern::kCollnetDirect, 4, 6}}};
/// What a GPU alone has instead of heads.
inline constexpr std::array<GraphKind, 2> kGraphKindsAlone = {
    {{Pattern::kTree, 3, 3}, {Pattern::kCollnetChain, 4, 3}}};

/// The same patterns for the same GPUs. Of a GPU alone all trees are one.
bool is_same_graph(const NodePlans& a, const NodePlans& b);

inline constexpr int kHostShift = 56;  ///< in the number of a device
constexpr std::uint64_t device_number(int host, int device) {
  return static_cast<std::uint64_t>(host) << kHostShift | static_cast<std::uint32_t>(device);
}

}  // namespace loom::search
