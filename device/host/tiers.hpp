// tiers.hpp -- the ranks of a host as a tree of small groups, for machines on which every rank looking at
// every other costs too much: in the lowest tiers ranks that share a cache, above them the leaders of those
// groups, up to one group. A pure function of what all ranks know.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loom::device {

/// What a rank shares with others of its host, named by numbers: equal ones, the same.
struct TierPlace {
  std::int32_t cache = 0;      ///< the last one, in its NUMA node; negative: one of several
  std::int32_t numa_node = 0;  ///< those of one stand side by side, and so mostly come into one group
};

/// The most ranks that share one, as far as is known.
int most_in_cache(std::span<const TierPlace> places);

/// Ranks stand in positions, so that each subtree is a range of them: in order of rank, where ranks are
/// placed in the order of the machine. The subtrees of tier t are the groups of tier t - 1 with all below
/// them; those of tier 0 are single ranks. A group's leader is the leader of its first subtree, or the root
/// of a call, which leads every group that it is in.
class Tiers {
 public:
  /// Positions [first, end).
  struct Subtree {
    int first = 0, end = 0;
    int size() const noexcept { return end - first; }
    bool has(int position) const noexcept { return first <= position && position < end; }
  };

  /// most: members of a group, at least 2. A larger one is split, evenly.
  Tiers(std::span<const TierPlace> places, int most);
  /// So many that there are about as many groups as members of each, and at most 8, as many cores as share a
  /// cache on AMD's CPUs. On other machines, too, 6 to 12 are best (docs/results/cores.md).
  static int most_in_group(int ranks);

  /// At least 1, which is one group of all ranks.
  int tiers() const noexcept { return static_cast<int>(starts_.size()) - 1; }
  int ranks() const noexcept { return static_cast<int>(rank_at_.size()); }
  int position_of(int rank) const { return position_of_[static_cast<std::size_t>(rank)]; }
  int rank_at(int position) const { return rank_at_[static_cast<std::size_t>(position)]; }

  /// The one of tier t in [0, tiers()] that holds the position; in tiers() there is one alone.
  Subtree subtree(int tier, int position) const;
  /// Most positions in a subtree of the tier.
  int longest(int tier) const { return longest_[static_cast<std::size_t>(tier)]; }
  /// Position of the leader; root is the root's position, or -1.
  static int leader(const Subtree& subtree, int root) { return subtree.has(root) ? root : subtree.first; }
  /// Calls body(subtree) with each subtree of a tier in a subtree of the tier above.
  template <class Body>
  void for_each_in(int tier, const Subtree& group, Body&& body) const {
    for (int first = group.first; first < group.end;) {
      const Subtree one = subtree(tier, first);
      body(one);
      first = one.end;
    }
  }

 private:
  void add(std::vector<int> starts);
  template <class Domain>
  void gather(Domain&& domain, int most);

  std::vector<int> position_of_, rank_at_;
  std::vector<std::vector<int>> starts_;  ///< by tier: where its subtrees begin, and the number of ranks
  std::vector<int> longest_;              ///< by tier
};

}  // namespace loom::device
