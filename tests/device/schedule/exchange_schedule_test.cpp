#include "device/schedule/exchange_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "device/schedule/ring_schedule.hpp"
#include "device/schedule/tree_schedule.hpp"
#include "schedule_simulator.hpp"

namespace loom::device {
namespace {

std::vector<int> all_sizes() {
  std::vector<int> sizes;
  for (int size = 1; size <= 64; ++size) sizes.push_back(size);
  for (const int size : {65, 97, 127, 129, 255, 257}) sizes.push_back(size);
  return sizes;
}

std::vector<Program> programs_of(Pattern pattern, int size, int root) {
  std::vector<Program> programs;
  for (int position = 0; position < size; ++position) {
    Program program{position, {}};
    for (int round = 0; round < round_count(pattern); ++round)
      for (const bool sending : {true, false})
        for (int k = 0; k < size - 1; ++k) {
          const Exchange step = exchange_step(pattern, round, position, k, root);
          if (sending && step.to >= 0)
            program.operations.push_back({Operation::kSend, step.to, 0, step.sent});
          if (!sending && step.from >= 0)
            program.operations.push_back({step.reduces ? Operation::kReceiveReduce : Operation::kReceive,
                                          step.from, 0, step.received});
        }
    programs.push_back(program);
  }
  return programs;
}

/// Whether every output holds what the collective promises.
::testing::AssertionResult is_right(const Simulator& simulator, Pattern pattern, int size, int root) {
  for (int position = 0; position < size; ++position) {
    for (int block = 0; block < block_count(pattern, size); ++block) {
      Block expected;
      switch (pattern) {
        case Pattern::kOneShotAllreduce:
        case Pattern::kTwoShotAllreduce:
          expected = simulator.complete(block);
          break;
        case Pattern::kLinearAllGather:
          expected = simulator.contribution(block, block);
          break;
        case Pattern::kLinearBroadcast:
          expected = simulator.contribution(root, block);
          break;
        case Pattern::kLinearReduce:
          if (position != root) continue;
          expected = simulator.complete(block);
          break;
      }
      if (!(simulator.output(position, block) == expected))
        return ::testing::AssertionFailure()
               << "position " << position << " of " << size << ", block " << block;
    }
  }
  return ::testing::AssertionSuccess();
}

/// What the busiest position sends, by the table at the head of exchange_schedule.hpp.
int most_messages(Pattern pattern, int size) {
  return pattern == Pattern::kLinearReduce ? 1 : round_count(pattern) * (size - 1);
}

class ExchangePattern : public ::testing::TestWithParam<Pattern> {};

TEST_P(ExchangePattern, IsRightAndCostsWhatItSaysForEverySizeWithOneSlot) {
  const Pattern pattern = GetParam();
  for (const int size : all_sizes()) {
    if (size < 2) continue;
    for (unsigned seed = 0; seed < (size > 32 ? 1U : 4U); ++seed) {
      const int root = static_cast<int>(seed * 5) % size;
      Simulator simulator(size, block_count(pattern, size), 1, programs_of(pattern, size, root));
      ASSERT_TRUE(simulator.run(seed)) << "deadlock with " << size << " ranks";
      ASSERT_TRUE(is_right(simulator, pattern, size, root));
      ASSERT_EQ(simulator.depth(), round_count(pattern)) << size;
      ASSERT_EQ(simulator.most_messages(), most_messages(pattern, size)) << size;
    }
  }
}

TEST_P(ExchangePattern, EndsAlikeAfterEveryInterleaving) {
  std::size_t states = 0;
  for (const int size : {2, 3, 4})
    for (const std::size_t slots : {1UL, 2UL}) {
      Simulator simulator(size, block_count(GetParam(), size), slots,
                          programs_of(GetParam(), size, size - 1));
      const std::size_t found = simulator.run_all();
      ASSERT_GT(found, 0U) << size << " ranks, " << slots << " slots";
      ASSERT_TRUE(is_right(simulator, GetParam(), size, size - 1));
      states += found;
    }
  std::printf("%zu states\n", states);
}

std::string name_of(const ::testing::TestParamInfo<Pattern>& test) {
  static constexpr const char* kNames[] = {"OneShotAllreduce", "TwoShotAllreduce", "LinearAllGather",
                                           "LinearBroadcast", "LinearReduce"};
  return kNames[static_cast<std::size_t>(test.param)];
}

INSTANTIATE_TEST_SUITE_P(Patterns, ExchangePattern,
                         ::testing::Values(Pattern::kOneShotAllreduce, Pattern::kTwoShotAllreduce,
                                           Pattern::kLinearAllGather, Pattern::kLinearBroadcast,
                                           Pattern::kLinearReduce),
                         name_of);

TEST(Simulator, SeesADeadlock) {
  const auto both = [](int self) {
    return Program{self,
                   {{Operation::kSend, 1 - self, 0, 0},
                    {Operation::kSend, 1 - self, 0, 0},
                    {Operation::kReceive, 1 - self, 0, 0},
                    {Operation::kReceive, 1 - self, 0, 0}}};
  };
  EXPECT_FALSE(Simulator(2, 1, 1, {both(0), both(1)}).run(1));
  EXPECT_EQ(Simulator(2, 1, 1, {both(0), both(1)}).run_all(), 0U);
  EXPECT_TRUE(Simulator(2, 1, 2, {both(0), both(1)}).run(1));
}

// --- The double tree: slices flow up, and down again, in programs side by side.

template <class Add>
void for_each_child(const TreePlace& place, Add&& add) {
  for (const int child : place.child)
    if (child != kNobody) add(child);
}

/// Slices 0..slices-1 of the message are tree 0's, the others tree 1's.
std::vector<Program> tree_programs(int size, int slices, bool up, bool down) {
  std::vector<Program> programs;
  for (int position = 0; position < size; ++position)
    for (int tree = 0; tree < 2; ++tree) {
      const TreePlace place = double_tree(tree, position, size);
      Program rising{position, {}}, falling{position, {}};
      for (int slice = 0; slice < slices; ++slice) {
        const int block = tree * slices + slice;
        Program& below =
            place.parent == kNobody ? rising : falling;  // at the root what has arrived goes down
        if (up) {
          for_each_child(place, [&](int child) {
            rising.operations.push_back({Operation::kReceiveReduce, child, tree, block});
          });
          if (place.parent != kNobody)
            rising.operations.push_back({Operation::kSend, place.parent, tree, block});
        }
        if (down) {
          if (place.parent != kNobody)
            below.operations.push_back({Operation::kReceive, place.parent, 2 + tree, block});
          for_each_child(place, [&](int child) {
            below.operations.push_back({Operation::kSend, child, 2 + tree, block});
          });
        }
      }
      programs.push_back(std::move(rising));
      programs.push_back(std::move(falling));
    }
  return programs;
}

int root_of(int tree, int size) {
  for (int position = 0; position < size; ++position)
    if (double_tree(tree, position, size).parent == kNobody) return position;
  return -1;
}

void check_trees(int size, int slices, std::size_t slots, unsigned seed) {
  SCOPED_TRACE(::testing::Message() << size << " positions");
  for (const auto& [up, down] : {std::pair{true, true}, {true, false}, {false, true}}) {
    Simulator simulator(size, 2 * slices, slots, tree_programs(size, slices, up, down));
    ASSERT_TRUE(simulator.run(seed)) << "deadlock";
    for (int position = 0; position < size; ++position)
      for (int block = 0; block < 2 * slices; ++block) {
        const int root = root_of(block / slices, size);
        if (!down && position != root) continue;
        ASSERT_EQ(simulator.output(position, block),
                  up ? simulator.complete(block) : simulator.contribution(root, block))
            << "position " << position << ", block " << block;
      }
    const int one_way = static_cast<int>(std::bit_width(static_cast<unsigned>(size)));
    ASSERT_LE(simulator.depth(), up && down ? 2 * one_way : one_way);
    if (size % 2 == 0) {
      ASSERT_LE(simulator.most_messages(), (up && down ? 4 : 2) * slices);
    }
  }
}

TEST(DoubleTree, GivesEveryContributionExactlyOnceForEverySizeWithOneSlot) {
  for (const int size : all_sizes())
    if (size > 1) check_trees(size, size > 64 ? 1 : 3, 1, static_cast<unsigned>(size));
}

TEST(DoubleTree, MakesALeafInOneTreeOfWhoIsInsideTheOther) {
  for (const int size : all_sizes()) {
    int inside_both = 0;
    for (int p = 0; p < size; ++p) {
      const auto inside = [&](int tree) { return double_tree(tree, p, size).child[1] != kNobody; };
      inside_both += inside(0) && inside(1);
    }
    EXPECT_LE(inside_both, size % 2) << size;
  }
}

TEST(DoubleTree, EndsAlikeAfterEveryInterleaving) {
  std::size_t states = 0;
  for (const int size : {2, 3}) {
    Simulator simulator(size, 2, 1, tree_programs(size, 1, true, true));
    const std::size_t found = simulator.run_all();
    ASSERT_GT(found, 0U);
    states += found;
  }
  std::printf("%zu states\n", states);
}

// --- The chain.

TEST(Chain, BroadcastsAndReducesForEverySizeAndRootWithOneSlot) {
  for (const int size : all_sizes()) {
    if (size < 2) continue;
    for (const auto collective : {ChainCollective::kBroadcast, ChainCollective::kReduce})
      for (const int root : {0, size / 2, size - 1}) {
        constexpr int kSlices = 3;
        std::vector<Program> programs;
        for (int position = 0; position < size; ++position) {
          const RingAction action = chain_action(collective, position, size, root);
          const int next = (position + 1) % size, previous = (position - 1 + size) % size;
          Program program{position, {}};
          for (int slice = 0; slice < kSlices; ++slice) {
            const bool reduces = collective == ChainCollective::kReduce;
            if (receives(action))
              program.operations.push_back(
                  {reduces ? Operation::kReceiveReduce : Operation::kReceive, previous, 0, slice});
            if (sends(action)) program.operations.push_back({Operation::kSend, next, 0, slice});
          }
          programs.push_back(program);
        }
        Simulator simulator(size, kSlices, 1, programs);
        ASSERT_TRUE(simulator.run(3));
        for (int position = 0; position < size; ++position)
          for (int slice = 0; slice < kSlices; ++slice) {
            if (collective == ChainCollective::kBroadcast) {
              ASSERT_EQ(simulator.output(position, slice), simulator.contribution(root, slice));
            } else if (position == root) {
              ASSERT_EQ(simulator.output(position, slice), simulator.complete(slice));
            }
          }
        ASSERT_EQ(simulator.depth(), size - 1);
        ASSERT_EQ(simulator.most_messages(), kSlices);
      }
  }
}

}  // namespace
}  // namespace loom::device
