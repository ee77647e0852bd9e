// step_calls.hpp -- calls of step code as tests make them: small FIFOs, channels of any shape, buffers with
// guards, and every algorithm by every protocol.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "device/schedule/tree_schedule.hpp"
#include "tests/device/steps/steps_world.hpp"

namespace loom::device::steps {

/// Small FIFOs, so that short messages take many slices and use all slots again.
inline ChannelForm small_form(std::size_t slot_bytes, std::size_t slots, bool pairwise = true) {
  ChannelForm form;
  for (int p = 0; p < kProtocols; ++p) {
    form.ring[p] = form.tree[p] = {slot_bytes, slots};
    if (pairwise) form.pairwise[p] = {slot_bytes, slots};
  }
  form.pairwise[static_cast<int>(Protocol::kSimple)] = {};
  form.exchange[static_cast<int>(Protocol::kSimple)] = {slot_bytes, slots};
  return form;
}

/// One call's operands and outputs, with guards around them.
template <class T>
class Buffers {
 public:
  explicit Buffers(const Call& call, std::size_t offset_bytes = 0) : call_(call) {
    for (int rank = 0; rank < call.size; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      operands_.push_back(elements<T>(call.in_count(rank), static_cast<unsigned>(r + 1)));
      before_.emplace_back(call.out_count(rank) * sizeof(T), std::byte{0x5a});
      const std::size_t longest =
          std::max(operands_[r].size(), before_[r].size()) + offset_bytes + 2 * kGuard + 64;
      for (auto* memory : {&in_memory_, &out_memory_}) {
        memory->emplace_back(longest);
        std::memset(memory->back().data(), 0x5a, longest);
      }
      in.push_back(in_memory_[r].data() + kGuard + offset_bytes);
      out.push_back(out_memory_[r].data() + kGuard + offset_bytes);
      if (call.is_in_place()) {
        out[r] = in[r];
        const std::size_t own = call.has_blocks() ? call.block(rank).first * sizeof(T) : 0;
        if (call.gathers()) in[r] += own;
        if (call.scatters() && !call.counts.empty()) out[r] += own;
      }
      std::ranges::copy(operands_[r], in[r]);
      std::copy_n(out[r], before_[r].size(), before_[r].begin());
    }
  }

  /// Every rank's output is right, and no byte beside it has changed.
  void check() const {
    for (int rank = 0; rank < call_.size; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const Bytes right = expected(call_, operands_, rank, before_[r]);
      const Bytes found(out[r], out[r] + right.size());
      ASSERT_EQ(first_difference<T>(found, right), -1) << "rank " << r;
      if (call_.is_in_place() && call_.in_count(rank) > call_.out_count(rank)) continue;
      for (std::size_t i = 0; i < kGuard; ++i) {
        ASSERT_EQ(out[r][-static_cast<std::ptrdiff_t>(i) - 1], std::byte{0x5a}) << "before the output";
        ASSERT_EQ((out[r] + right.size())[i], std::byte{0x5a}) << "behind the output";
      }
    }
  }

  std::vector<std::byte*> in, out;  ///< by rank

 private:
  static constexpr std::size_t kGuard = 64;
  const Call& call_;
  std::vector<Bytes> operands_, before_;
  std::vector<AlignedBytes> in_memory_, out_memory_;
};

inline ::testing::Message about(const Call& call) {
  return ::testing::Message() << "algorithm " << static_cast<int>(call.algorithm) << ", protocol "
                              << static_cast<int>(call.protocol) << ", " << call.size << " ranks, "
                              << call.count << " elements of " << call.elem_bytes << " bytes"
                              << (call.in_place ? ", in place" : "");
}

struct Way {
  Algorithm algorithm;
  Protocol protocol;
};
/// Lengths of a call's blocks, up to `most`, where they may differ: every third is 0.
template <class Random>
std::vector<std::size_t> random_counts(Random& random, const Call& call, std::size_t most) {
  const auto size = static_cast<std::size_t>(call.size);
  std::vector<std::size_t> counts(call.exchanges() ? size * size : size);
  for (std::size_t& count : counts) count = random() % 3 == 0 ? 0 : random() % (most + 1);
  return counts;
}
/// None at times, and at times longer than a slot of small_form().
template <class Random>
std::size_t random_slice(Random& random) {
  return 128 * (random() % 5);
}
/// The least number of equal rows, two or more, of two ranks or more; 0: there is none.
inline int rows_of(int ranks) {
  int rows = 2;
  while (rows < ranks && ranks % rows != 0) ++rows;
  return rows < ranks ? rows : 0;
}
/// Of the channels below, between so many ranks.
inline std::vector<Way> every_way(int ranks) {
  std::vector<Way> ways;
  for (const auto algorithm :
       {Algorithm::kAllreduceRing, Algorithm::kReduceScatterRing, Algorithm::kAllGatherRing,
        Algorithm::kBroadcastChain, Algorithm::kReduceChain, Algorithm::kOneShot, Algorithm::kTwoShot,
        Algorithm::kAllreduceTree, Algorithm::kBroadcastTree, Algorithm::kReduceTree,
        Algorithm::kAllGatherTree, Algorithm::kReduceScatterTree})
    for (const auto protocol : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128})
      if (!is_pairwise(algorithm) || (protocol != Protocol::kSimple && ranks <= kMostPairwise))
        ways.push_back({algorithm, protocol});
  for (const auto algorithm :
       {Algorithm::kAllreduceHier, Algorithm::kReduceScatterHier, Algorithm::kAllGatherHier})
    if (rows_of(ranks) > 0) ways.push_back({algorithm, Protocol::kSimple});
  ways.push_back({Algorithm::kAllToAll, Protocol::kSimple});
  return ways;
}

/// A tree of any shape, a chain at times: by rank its parent.
inline std::vector<int> random_tree(std::mt19937_64& random, const std::vector<int>& order) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const bool is_chain = below(4) == 0;
  std::vector<int> parents(order.size(), kNobody);
  for (std::size_t i = 1; i < order.size(); ++i) {
    int parent = order[i - 1];
    while (!is_chain) {
      parent = order[below(i)];
      if (std::ranges::count(parents, parent) < kMostChildren) break;
    }
    parents[static_cast<std::size_t>(order[i])] = parent;
  }
  return parents;
}

/// Rows of ranks from any places, as if they were hosts; none where there are no equal ones.
inline void add_rows(ChannelShape& shape, int rows) {
  std::vector<int> row_of;
  for (int rank = 0; rank < static_cast<int>(shape.ring.size()) && rows > 0; ++rank)
    row_of.push_back(rank % rows);
  shape.add_grid(row_of);
}

/// Rings in any order, grids, one tree or two, and any weights. The last channel has none at times: nothing
/// to do.
inline std::vector<ChannelShape> random_channels(std::mt19937_64& random, int ranks, int channels) {
  std::vector<ChannelShape> shapes = plain_channels(ranks, channels);
  for (ChannelShape& shape : shapes) {
    std::ranges::shuffle(shape.ring, random);
    if (const int rows = rows_of(ranks); rows > 0) add_rows(shape, random() % 2 == 0 ? rows : ranks / rows);
    std::vector<int> order = shape.ring;
    for (std::size_t t = 0; t < 1 + random() % 2; ++t) {
      std::ranges::shuffle(order, random);
      shape.trees[t] = random_tree(random, order);
    }
    shape.weight = 1 + static_cast<unsigned>(random() % 7);
    shape.tree_weight = 1 + static_cast<unsigned>(random() % 7);
  }
  if (channels > 1 && random() % 3 == 0) shapes.back().weight = shapes.back().tree_weight = 0;
  return shapes;
}
/// Rings in order of rank, grids, and two chains up and down.
inline std::vector<ChannelShape> channels_with_chains(int ranks, int channels) {
  std::vector<ChannelShape> shapes = plain_channels(ranks, channels);
  for (ChannelShape& shape : shapes) {
    add_rows(shape, rows_of(ranks));
    for (int r = 0; r < ranks; ++r) shape.trees[1].push_back(r == ranks - 1 ? kNobody : r + 1);
  }
  return shapes;
}

}  // namespace loom::device::steps
