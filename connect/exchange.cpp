#include "connect/exchange.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/discover.hpp"

namespace loom::connect {
namespace {

constexpr int kSizeBits = 20, kHashBits = 43;
constexpr std::uint64_t kLeads = std::uint64_t{1} << 63;

/// Which piece of its kind's summary each rank sends: pieces are counted over the ranks in ascending order.
class Turns {
 public:
  Turns(const Placement& placement, std::span<const std::int32_t> kind_of_node, std::size_t kinds)
      : placement_(placement), kind_of_node_(kind_of_node), next_(kinds, 0) {}
  int kind_of(int rank) const { return kind_of_node_[static_cast<std::size_t>(placement_.node_of(rank))]; }
  /// To be asked for all ranks from 0 on.
  std::size_t next(int rank) { return next_[static_cast<std::size_t>(kind_of(rank))]++; }

 private:
  const Placement& placement_;
  std::span<const std::int32_t> kind_of_node_;
  std::vector<std::size_t> next_;
};

}  // namespace

std::uint64_t word_of(int rank, int leader, std::span<const std::byte> summary) {
  if (rank != leader) return static_cast<std::uint64_t>(leader);
  if (summary.size() > kMostSummaryBytes)
    throw Error(ErrorCode::kInternal, loom::format("A node's summary has {} bytes, {} are allowed.",
                                                   summary.size(), kMostSummaryBytes));
  const std::uint64_t hash =
      topo::fingerprint({reinterpret_cast<const char*>(summary.data()), summary.size()}) >> (64 - kHashBits);
  return kLeads | (static_cast<std::uint64_t>(summary.size()) << kHashBits) |
         std::min(hash, (std::uint64_t{1} << kHashBits) - 2);
}

Announced::Announced(std::span<const std::uint64_t> words) {
  std::vector<std::int32_t> leaders(words.size());
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const bool leads = (words[rank] & kLeads) != 0;
    if (!leads && words[rank] >= words.size())
      throw Error(ErrorCode::kInternal, loom::format("Rank {} names rank {} of {} as the lowest on its node.",
                                                     rank, words[rank], words.size()));
    leaders[rank] = static_cast<std::int32_t>(leads ? rank : words[rank]);
  }
  placement_ = Placement(leaders);
  std::unordered_map<std::uint64_t, std::int32_t> kind_of_word;
  std::vector<std::size_t> senders;
  for (int node = 0; node < placement_.nodes(); ++node) {
    const std::uint64_t word = words[static_cast<std::size_t>(placement_.ranks_of(node).front())];
    const auto [kind, is_new] = kind_of_word.try_emplace(word, static_cast<std::int32_t>(kind_bytes_.size()));
    if (is_new) {
      kind_bytes_.push_back((word >> kHashBits) & ((std::uint64_t{1} << kSizeBits) - 1));
      senders.push_back(0);
    }
    kind_of_node_.push_back(kind->second);
    senders[static_cast<std::size_t>(kind->second)] += static_cast<std::size_t>(placement_.ranks_on(node));
  }
  for (std::size_t kind = 0; kind < senders.size(); ++kind)
    slice_bytes_ = std::max(slice_bytes_, (kind_bytes_[kind] + senders[kind] - 1) / senders[kind]);
}

std::vector<std::byte> Announced::slice(int rank, std::span<const std::byte> summary) const {
  Turns turns(placement_, kind_of_node_, kind_bytes_.size());
  std::size_t turn = 0;
  for (int other = 0; other <= rank; ++other) {
    const std::size_t theirs = turns.next(other);
    if (other == rank) turn = theirs;
  }
  std::vector<std::byte> slice(slice_bytes_);
  const std::size_t begin = std::min(turn * slice_bytes_, summary.size());
  const std::size_t end = std::min(begin + slice_bytes_, summary.size());
  std::copy(summary.begin() + static_cast<std::ptrdiff_t>(begin),
            summary.begin() + static_cast<std::ptrdiff_t>(end), slice.begin());
  return slice;
}

std::vector<std::byte> Announced::all_slices(std::span<const std::vector<std::byte>> summaries) const {
  std::vector<std::byte> slices(slice_bytes_ * static_cast<std::size_t>(placement_.ranks()));
  Turns turns(placement_, kind_of_node_, kind_bytes_.size());
  for (int rank = 0; rank < placement_.ranks(); ++rank) {
    const std::vector<std::byte>& summary = summaries[static_cast<std::size_t>(turns.kind_of(rank))];
    const std::size_t begin = std::min(turns.next(rank) * slice_bytes_, summary.size());
    const std::size_t end = std::min(begin + slice_bytes_, summary.size());
    std::copy(summary.begin() + static_cast<std::ptrdiff_t>(begin),
              summary.begin() + static_cast<std::ptrdiff_t>(end),
              slices.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank) * slice_bytes_));
  }
  return slices;
}

std::vector<std::vector<std::byte>> Announced::summaries(std::span<const std::byte> slices) const {
  if (slices.size() != slice_bytes_ * static_cast<std::size_t>(placement_.ranks()))
    throw Error(ErrorCode::kInternal, loom::format("{} ranks sent {} bytes in slices of {}.",
                                                   placement_.ranks(), slices.size(), slice_bytes_));
  std::vector<std::vector<std::byte>> kinds;
  for (const std::size_t bytes : kind_bytes_) kinds.emplace_back(bytes);
  Turns turns(placement_, kind_of_node_, kind_bytes_.size());
  for (int sender = 0; sender < placement_.ranks(); ++sender) {
    std::vector<std::byte>& kind = kinds[static_cast<std::size_t>(turns.kind_of(sender))];
    const std::size_t begin = turns.next(sender) * slice_bytes_;
    if (begin >= kind.size()) continue;
    const auto sent = slices.subspan(static_cast<std::size_t>(sender) * slice_bytes_,
                                     std::min(slice_bytes_, kind.size() - begin));
    std::copy(sent.begin(), sent.end(), kind.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return kinds;
}

Job Announced::join(std::span<const std::byte> slices, int rank, std::span<const std::byte> summary,
                    const ChannelLimits& limits) const {
  std::vector<std::vector<std::byte>> kinds = summaries(slices);
  if (!std::ranges::equal(kinds[static_cast<std::size_t>(kind_of(placement_.node_of(rank)))], summary))
    throw Error(ErrorCode::kInternal,
                loom::format("The summary of rank {}'s node came back as another node's.", rank));
  std::vector<NodeSummary> decoded;
  decoded.reserve(kinds.size());
  for (std::vector<std::byte>& kind : kinds) {
    decoded.push_back(decode(kind));
    kind = {};
  }
  return Job(placement_, std::move(decoded), kind_of_node_, limits);
}

}  // namespace loom::connect
