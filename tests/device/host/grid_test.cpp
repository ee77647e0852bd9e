// Collectives over a grid of ranks: hosts and rails, ranks being threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "grids.hpp"

namespace loom::device {
namespace {

constexpr std::pair<int, int> kForms[] = {{2, 1}, {4, 1}, {2, 2}, {3, 2}, {2, 3}};
// Shorter than a line; some tiles of a block, and not a whole number of them.
constexpr std::size_t kCounts[] = {1, 100, 5003, 400'009};

/// The elements of each rank's block: equal, or not and some empty.
std::vector<std::size_t> lengths(int ranks, std::size_t count, bool equal) {
  std::vector<std::size_t> result;
  for (int rank = 0; rank < ranks; ++rank)
    result.push_back(equal ? count : rank % 3 == 1 ? 0 : count / static_cast<std::size_t>(rank + 1) + 1);
  return result;
}

TEST(GridReduceScatter, LeavesEachRankItsBlock) {
  for (const auto& [hosts, per_host] : kForms)
    for (const std::size_t count : kCounts)
      for (const bool equal : {true, false})
        for (const bool in_place : {true, false}) {
          SCOPED_TRACE(::testing::Message() << hosts << " hosts of " << per_host << ", blocks of " << count
                                            << (equal ? "" : " and less") << (in_place ? ", in place" : ""));
          Grids grids(hosts, per_host);
          const int ranks = grids.size();
          const auto length = lengths(ranks, count, equal);
          std::vector<std::uint64_t> bounds{0};
          for (const std::size_t each : length) bounds.push_back(bounds.back() + each);
          grids.run([&](int rank) {
            std::vector<int> in(bounds.back()), out(bounds.back(), -1);
            for (std::size_t i = 0; i < in.size(); ++i) in[i] = value_at(rank, i);
            Call call{equal ? Collective::kReduceScatter : Collective::kReduceScatterV,
                      bytes_of(in),
                      in_place ? bytes_of(in) : bytes_of(out),
                      equal ? count : in.size(),
                      Type::kInt32,
                      Op::kSum};
            call.bounds = bounds.data();
            run(SplitRailExecutor(grids.of(rank), call));
            const std::vector<int>& result = in_place ? in : out;
            const auto r = static_cast<std::size_t>(rank);
            for (std::size_t i = 0; i < length[r]; ++i) {
              const std::size_t at = bounds[r] + i;
              ASSERT_EQ(result[i], ranks * value_at(0, at) + 1000 * ranks * (ranks - 1) / 2)
                  << rank << ", " << i;
            }
            if (!in_place && length[r] < out.size()) {
              EXPECT_EQ(out[length[r]], -1) << "belongs to nobody";
            }
          });
        }
}

/// A non-contiguous block, whose ints lie at every other place: packs it, or unpacks it.
struct Holed {
  std::vector<int>* ints;
  std::vector<std::size_t> first;  ///< of each block, in ints
  std::vector<std::size_t> moved;  ///< bytes of each block
  bool packs;

  static void move(void* context, int block, std::byte* packed, std::size_t bytes) {
    auto& self = *static_cast<Holed*>(context);
    const auto b = static_cast<std::size_t>(block);
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::size_t at = self.moved[b]++;
      std::byte* const there =
          bytes_of(*self.ints) + (self.first[b] + at / sizeof(int) * 2) * sizeof(int) + at % sizeof(int);
      if (self.packs)
        packed[i] = *there;
      else
        *there = packed[i];
    }
  }
};

TEST(GridAllGather, GivesAllRanksAllBlocks) {
  for (const auto& [hosts, per_host] : kForms)
    for (const std::size_t count : kCounts)
      for (const bool equal : {true, false})
        for (const bool in_place : {true, false}) {
          SCOPED_TRACE(::testing::Message() << hosts << " hosts of " << per_host << ", blocks of " << count
                                            << (equal ? "" : " and less") << (in_place ? ", in place" : ""));
          Grids grids(hosts, per_host);
          const int ranks = grids.size();
          const auto length = lengths(ranks, count, equal);
          grids.run([&](int rank) {
            const auto r = static_cast<std::size_t>(rank);
            // The listed blocks lie in reverse order, with one unused int between them.
            std::vector<std::size_t> first(length.size());
            std::size_t end = 0;
            for (std::size_t i = 0; i < length.size(); ++i) {
              const std::size_t block = equal ? i : length.size() - 1 - i;
              first[block] = end;
              end += length[block] + (equal ? 0 : 1);
            }
            std::vector<int> in(length[r]), out(end, -1);
            for (std::size_t i = 0; i < in.size(); ++i) in[i] = value_at(rank, i);
            if (in_place)
              std::copy(in.begin(), in.end(), out.begin() + static_cast<std::ptrdiff_t>(first[r]));
            Call call{equal ? Collective::kAllGather : Collective::kAllGatherV};
            call.in = in_place ? bytes_of(out) + first[r] * sizeof(int) : bytes_of(in);
            call.out = bytes_of(out);
            call.count = length[r] * sizeof(int);
            const Block mine{const_cast<std::byte*>(call.in), call.count};
            std::vector<Block> blocks;
            for (std::size_t i = 0; i < length.size(); ++i)
              blocks.push_back({length[i] == 0 ? nullptr : bytes_of(out) + first[i] * sizeof(int),
                                length[i] * sizeof(int)});
            call.in_blocks = &mine;
            call.out_blocks = blocks.data();
            if (!equal) call.in = nullptr, call.out = nullptr;
            run(SplitRailExecutor(grids.of(rank), call));
            for (int from = 0; from < ranks; ++from)
              for (std::size_t i = 0; i < length[static_cast<std::size_t>(from)]; ++i)
                ASSERT_EQ(out[first[static_cast<std::size_t>(from)] + i], value_at(from, i))
                    << rank << ", " << i;
          });
        }
}

// An error of the program: a rank sends itself, and all others, more or less than there is room for.
TEST(GridAllGather, ReadsNoMoreOfABlockThanThereIs) {
  constexpr std::size_t kCount = 70'001;
  constexpr int kOther = 1;
  for (const auto& [hosts, per_host] : kForms)
    for (const std::size_t sent : {std::size_t{0}, kCount / 2, kCount + 5}) {
      SCOPED_TRACE(::testing::Message() << hosts << " hosts of " << per_host << ", " << sent << " sent");
      Grids grids(hosts, per_host);
      const auto ranks = static_cast<std::size_t>(grids.size());
      grids.run([&](int rank) {
        const std::size_t mine = rank == kOther ? sent : kCount;
        std::vector<int> in(mine), out(ranks * kCount, -1);
        for (std::size_t i = 0; i < mine; ++i) in[i] = value_at(rank, i);
        Call call{Collective::kAllGatherV};
        const Block block{bytes_of(in), mine * sizeof(int)};
        std::vector<Block> blocks;
        for (std::size_t i = 0; i < ranks; ++i)
          blocks.push_back({bytes_of(out) + i * kCount * sizeof(int), kCount * sizeof(int)});
        call.in_blocks = &block;
        call.out_blocks = blocks.data();
        SplitRailExecutor executor(grids.of(rank), call);
        while (executor.advance() != RingExecutor::State::kDone) std::this_thread::yield();
        ASSERT_EQ(executor.cut().has_value(), mine > kCount);
        if (executor.cut()) {
          EXPECT_EQ(executor.cut()->peer, rank);
          EXPECT_EQ(executor.cut()->sent, mine * sizeof(int));
          EXPECT_EQ(executor.cut()->room, kCount * sizeof(int));
        }
        for (std::size_t from = 0; from < ranks; ++from)
          for (std::size_t i = 0; i < kCount; ++i)
            ASSERT_EQ(out[from * kCount + i],
                      from == kOther && i >= sent ? 0 : value_at(static_cast<int>(from), i))
                << rank << ", " << i;
      });
    }
}

TEST(GridAllGather, TakesNonContiguousBuffersOnSomeRanks) {
  for (const auto& [hosts, per_host] : kForms) {
    Grids grids(hosts, per_host);
    const auto ranks = static_cast<std::size_t>(grids.size());
    constexpr std::size_t kCount = 70'001;
    grids.run([&](int rank) {
      const bool in_packer = rank % 2 == 0, out_packer = rank % 3 == 0;
      std::vector<int> in(kCount * 2, -1), out(ranks * kCount * 2, -1);
      for (std::size_t i = 0; i < kCount; ++i) in[in_packer ? 2 * i : i] = value_at(rank, i);
      std::vector<std::size_t> first(ranks);
      for (std::size_t i = 0; i < ranks; ++i) first[i] = i * kCount * 2;
      Holed sent{&in, {0}, {0}, true}, received{&out, first, std::vector<std::size_t>(ranks), false};
      const Packer packing{Holed::move, &sent}, unpacking{Holed::move, &received};
      Call call{Collective::kAllGather, bytes_of(in), bytes_of(out), kCount * sizeof(int)};
      if (in_packer) call.in_packer = &packing, call.in = nullptr;
      if (out_packer) call.out_packer = &unpacking, call.out = nullptr;
      run(SplitRailExecutor(grids.of(rank), call));
      for (std::size_t from = 0; from < ranks; ++from)
        for (std::size_t i = 0; i < kCount; ++i) {
          const std::size_t at = out_packer ? first[from] + 2 * i : from * kCount + i;
          ASSERT_EQ(out[at], value_at(static_cast<int>(from), i)) << rank << ", " << i;
          if (out_packer) {
            ASSERT_EQ(out[at + 1], -1) << "between elements";
          }
        }
    });
  }
}

/// Along rails, or by trees over more hosts.
class ByRailsAndTrees : public ::testing::TestWithParam<bool> {
 protected:
  static bool by_trees() { return GetParam(); }
  static std::vector<std::pair<int, int>> forms() {
    if (!by_trees()) return {std::begin(kForms), std::end(kForms)};
    return {{2, 1}, {3, 1}, {4, 1}, {7, 1}, {2, 2}, {3, 2}, {5, 2}, {3, 3}};
  }
};
std::string way(const ::testing::TestParamInfo<bool>& tested) {
  return tested.param ? "Trees" : "Rails";
}
using GridBroadcast = ByRailsAndTrees;
using GridReduce = ByRailsAndTrees;
using GridAllreduce = ByRailsAndTrees;
INSTANTIATE_TEST_SUITE_P(By, GridBroadcast, ::testing::Bool(), way);
INSTANTIATE_TEST_SUITE_P(By, GridReduce, ::testing::Bool(), way);
INSTANTIATE_TEST_SUITE_P(By, GridAllreduce, ::testing::Bool(), way);

TEST_P(GridAllreduce, GivesAllTheSum) {
  for (const auto& [hosts, per_host] : forms())
    for (const std::size_t count : {1UL, 100UL, 5003UL, 1'200'007UL})
      for (const bool in_place : {true, false}) {
        SCOPED_TRACE(::testing::Message() << hosts << " hosts of " << per_host << ", " << count);
        if (count > 1'000'000 && hosts * per_host > 6) continue;  // threads on few cores
        Grids grids(hosts, per_host);
        const int ranks = grids.size();
        grids.run([&](int rank) {
          std::vector<int> in(count), out(count, -1);
          for (std::size_t i = 0; i < count; ++i) in[i] = value_at(rank, i);
          if (in_place) out = in;
          const Call call{Collective::kAllreduce, bytes_of(in_place ? out : in),
                          bytes_of(out),          count,
                          Type::kInt32,           Op::kSum};
          if (by_trees())
            run(DbtExecutor(grids.of(rank), grids.trees_of(rank), call, 0, 0));
          else
            run(SplitRailExecutor(grids.of(rank), call));
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(out[i], ranks * value_at(0, i) + 1000 * ranks * (ranks - 1) / 2) << rank << ", " << i;
        });
      }
}

TEST_P(GridBroadcast, ReachesAllFromAnyRoot) {
  for (const auto& [hosts, per_host] : forms())
    for (const std::size_t count : kCounts)
      for (int root = 0; root < hosts * per_host; ++root) {
        SCOPED_TRACE(::testing::Message()
                     << hosts << " hosts of " << per_host << ", " << count << " from " << root);
        Grids grids(hosts, per_host);
        grids.run([&](int rank) {
          const bool packs = rank % 2 == 1;
          const std::size_t stride = packs ? 2 : 1;
          std::vector<int> buffer(count * 2, -1);
          for (std::size_t i = 0; i < count && rank == root; ++i) buffer[stride * i] = value_at(root, i);
          Holed holed{&buffer, {0}, {0}, rank == root};
          const Packer moving{Holed::move, &holed};
          Call call{Collective::kBroadcast, bytes_of(buffer), bytes_of(buffer), count * sizeof(int)};
          call.root = root;
          if (packs) (rank == root ? call.in_packer : call.out_packer) = &moving;
          grids.run_rooted(rank, call, by_trees());
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(buffer[stride * i], value_at(root, i)) << rank << ", " << i;
        });
      }
}

TEST_P(GridReduce, GivesAnyRootTheSumAndTouchesNobodyElse) {
  for (const auto& [hosts, per_host] : forms())
    for (const std::size_t count : kCounts)
      for (int root = 0; root < hosts * per_host; ++root) {
        SCOPED_TRACE(::testing::Message()
                     << hosts << " hosts of " << per_host << ", " << count << " to " << root);
        Grids grids(hosts, per_host);
        const int ranks = grids.size();
        grids.run([&](int rank) {
          const bool in_place = rank == root && root % 2 == 0;
          std::vector<int> in(count), out(count, -1);
          for (std::size_t i = 0; i < count; ++i) in[i] = value_at(rank, i);
          if (in_place) out = in;
          Call call{Collective::kReduce, bytes_of(in_place ? out : in),
                    bytes_of(out),       count,
                    Type::kInt32,        Op::kSum};
          call.root = root;
          grids.run_rooted(rank, call, by_trees());
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(out[i], rank != root ? -1 : ranks * value_at(0, i) + 1000 * ranks * (ranks - 1) / 2)
                << rank << ", " << i;
        });
      }
}

}  // namespace
}  // namespace loom::device
