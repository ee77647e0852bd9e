// placement.hpp -- which ranks are on which node. The only thing of a job whose memory grows with its ranks:
// 8 bytes for each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace loom::connect {

/// Nodes are numbered by their lowest rank. A node's ranks count ascending from local index 0. Ranks of
/// several nodes also have a position: those of node 0 first, then those of node 1, and so on.
class Placement {
 public:
  Placement() = default;
  /// leaders[r] is the lowest rank on r's node. Throws Error (kInternal) where it is not.
  explicit Placement(std::span<const std::int32_t> leaders);
  /// nodes[n] are the ranks of a node, in any order; together 0, 1, 2, ... Throws Error (kInternal)
  /// otherwise.
  static Placement of_nodes(std::span<const std::vector<int>> nodes);

  int ranks() const noexcept { return static_cast<int>(node_of_.size()); }
  int nodes() const noexcept { return static_cast<int>(first_.size()) - 1; }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  /// Ascending.
  std::span<const std::int32_t> ranks_of(int node) const {
    return std::span(members_).subspan(static_cast<std::size_t>(first_position(node)),
                                       static_cast<std::size_t>(ranks_on(node)));
  }
  int ranks_on(int node) const { return first_position(node + 1) - first_position(node); }
  int local_of(int rank) const {
    const auto mates = ranks_of(node_of(rank));
    return static_cast<int>(std::lower_bound(mates.begin(), mates.end(), rank) - mates.begin());
  }
  /// Ranks on the nodes before `node`.
  int first_position(int node) const { return first_[static_cast<std::size_t>(node)]; }
  int node_at(int position) const {
    if (ranks_per_node_ > 0) return position / ranks_per_node_;
    return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), position) - first_.begin()) - 1;
  }
  /// 0 where nodes differ.
  int ranks_per_node() const noexcept { return ranks_per_node_; }

 private:
  std::vector<std::int32_t> node_of_;   // by rank
  std::vector<std::int32_t> members_;   // ranks by node, ascending in each
  std::vector<std::int32_t> first_{0};  // by node, and one more: where its ranks begin in members_
  int ranks_per_node_ = 0;
};

}  // namespace loom::connect
