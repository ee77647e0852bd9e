// summary.hpp -- what a node tells the others of its channels: compact, and free of the ranks' numbers, so
// that equal nodes have equal summaries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "search/channel_plan.hpp"

namespace loom::connect {

/// What channels are for. A node has at most one plan for each.
enum class Family : std::uint8_t { kRing, kTree, kNvls, kCollnetChain, kCollnetDirect };
inline constexpr int kFamilyCount = 5;
Family family_of(search::Pattern pattern);
/// Channels name a head alone, instead of an order of all ranks.
bool has_heads(Family family);
/// "ring", "tree", "nvls", "collnet-chain", "collnet-direct".
std::string_view name_of(Family family);

inline constexpr int kNoPort = -1;

/// A channel inside a node. Ranks are counted in the node, ascending: local index 0 is its lowest rank.
struct ChannelSummary {
  std::vector<std::uint16_t> order;  ///< in which data passes the ranks; nvls, collnet-direct: the head alone
  std::int16_t port_in = kNoPort, port_out = kNoPort;  ///< index among the ports of the node's System
  float intra_gbps = 0, inter_gbps = 0;                ///< as in search::Channel
  friend bool operator==(const ChannelSummary&, const ChannelSummary&) = default;
};

struct FamilySummary {
  search::Pattern pattern = search::Pattern::kRing;
  topo::PathType type_intra = topo::PathType::kLoc, type_inter = topo::PathType::kLoc;
  int cross_nic = 0;
  std::vector<ChannelSummary> channels;  ///< empty: the node has none
  friend bool operator==(const FamilySummary&, const FamilySummary&) = default;
};

struct NodeSummary {
  int ranks = 0;
  std::vector<float> port_gbps;  ///< of every port of the System, in the order of of_kind(kNet)
  std::array<FamilySummary, kFamilyCount> families;

  const FamilySummary& family(Family family) const { return families[static_cast<std::size_t>(family)]; }
  friend bool operator==(const NodeSummary&, const NodeSummary&) = default;
};

/// The summary of the node that has `ranks` of `system`, from its plans. Of several plans of one family the
/// first counts; a plan without channels does not. Throws Error (kInternal) if a channel's ranks or ports are
/// not the node's.
NodeSummary summarize(const topo::System& system, std::span<const int> ranks,
                      std::span<const search::ChannelPlan> plans);

/// The summary as bytes: some 30 and then about 12 for each channel, and one for each rank of each order that
/// is not there already. Equal summaries have equal bytes.
std::vector<std::byte> encode(const NodeSummary& summary);
/// Throws Error (kInternal) unless encode() made `bytes`.
NodeSummary decode(std::span<const std::byte> bytes);

}  // namespace loom::connect
