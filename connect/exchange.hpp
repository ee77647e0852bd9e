// exchange.hpp -- how ranks come to know each other's nodes. Two all-gathers: a word of 8 bytes from each
// rank, then a slice of the summaries; a kind of node is sent once, in slices by all ranks that have it. No
// communication happens here: these functions say what to send, and what to make of what came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "connect/job.hpp"

namespace loom::connect {

/// The largest summary: a word has 20 bits for its size.
inline constexpr std::size_t kMostSummaryBytes = (std::size_t{1} << 20) - 1;

/// What rank `rank` sends first. The lowest rank of a node, `leader`, describes the summary (its size and 43
/// bits of a hash), the others name their leader. Never all ones. Throws Error (kInternal) for a summary that
/// is too large.
std::uint64_t word_of(int rank, int leader, std::span<const std::byte> summary);

/// What all words say together, the same on every rank.
class Announced {
 public:
  /// words[r] is rank r's. Throws Error (kInternal) where they contradict each other.
  explicit Announced(std::span<const std::uint64_t> words);

  const Placement& placement() const noexcept { return placement_; }
  /// Bytes that each rank sends in the second all-gather.
  std::size_t slice_bytes() const noexcept { return slice_bytes_; }
  /// What `rank` sends of its node's summary, filled up with zeros.
  std::vector<std::byte> slice(int rank, std::span<const std::byte> summary) const;
  /// What all ranks send together, for those who have every kind's summary, in the order in which kinds first
  /// appear on a node: tools and tests.
  std::vector<std::byte> all_slices(std::span<const std::vector<std::byte>> summaries) const;
  /// Each kind's summary, from slices: of all ranks, by rank, ranks * slice_bytes() bytes. Two different
  /// summaries with one word give neither: whose own comes back as another knows that. Throws Error
  /// (kInternal).
  std::vector<std::vector<std::byte>> summaries(std::span<const std::byte> slices) const;
  /// The job of these. `rank` and `summary` are the caller's own, which must come back. Throws Error
  /// (kInternal).
  Job join(std::span<const std::byte> slices, int rank, std::span<const std::byte> summary,
           const ChannelLimits& limits = {}) const;

  int kinds() const noexcept { return static_cast<int>(kind_bytes_.size()); }
  int kind_of(int node) const { return kind_of_node_[static_cast<std::size_t>(node)]; }

 private:
  Placement placement_;
  std::vector<std::int32_t> kind_of_node_;
  std::vector<std::size_t> kind_bytes_;
  std::size_t slice_bytes_ = 0;
};

}  // namespace loom::connect
