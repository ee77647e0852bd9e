#include "component/select/plan.hpp"

#include <gtest/gtest.h>

#include "device/host/immediate_exchange.hpp"

namespace loom {
namespace {

TEST(AllreducePlan, CopiesForOneRank) {
  EXPECT_EQ(plan(device::Collective::kAllreduce, {1, 1, 1}, 1 << 20), Algorithm::kCopy);
}

TEST(AllreducePlan, IsDirectForSmallAndGoesByBoardsForLargeMessagesOfOneHost) {
  EXPECT_EQ(plan(device::Collective::kAllreduce, {2, 1, 2}, 8), Algorithm::kImmediate);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {2, 1, 2}, 1 << 20), Algorithm::kCico);
}

// Save broadcasts and reduces, which go in pieces.
TEST(Plan, NeverExceedsWhatADirectOfferHolds) {
  using device::Collective;
  for (const auto collective :
       {Collective::kAllreduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kAllToAll})
    for (int ranks = 2; ranks < 300; ++ranks)
      for (std::size_t bytes = 1; bytes <= 1 << 20; bytes *= 2)
        if (plan(collective, {ranks, 1, ranks}, bytes) == Algorithm::kImmediate) {
          EXPECT_LE(device::offered_bytes(collective, bytes, ranks), device::ImmediateArea::kMostOffered);
        }
}

TEST(Plan, TakesTurnsOnCpusIntoAccount) {
  using device::Collective;
  const auto planned = [](Collective collective, std::size_t bytes, bool oversubscribed) {
    return plan(collective, {4, 1, 4}, bytes, {.single_copy = true, .oversubscribed = oversubscribed});
  };
  EXPECT_EQ(planned(Collective::kBroadcast, 32 << 10, false), Algorithm::kImmediate);
  EXPECT_EQ(planned(Collective::kBroadcast, 128 << 10, false), Algorithm::kSingleCopy);
  EXPECT_EQ(planned(Collective::kBroadcast, 1 << 20, false), Algorithm::kCico);
  EXPECT_EQ(planned(Collective::kBroadcast, 128 << 10, true), Algorithm::kCico);
  EXPECT_EQ(planned(Collective::kBroadcast, 1 << 20, true), Algorithm::kSingleCopy);
  EXPECT_EQ(planned(Collective::kAllToAll, 16 << 10, false), Algorithm::kSingleCopy);
  EXPECT_EQ(planned(Collective::kAllToAll, 16 << 10, true), Algorithm::kCico);
  EXPECT_EQ(planned(Collective::kAllToAll, 64 << 10, true), Algorithm::kSingleCopy);
  EXPECT_EQ(planned(Collective::kAllGather, 64 << 10, false), Algorithm::kSingleCopy);
  EXPECT_EQ(planned(Collective::kAllGather, 64 << 10, true), Algorithm::kCico);
}

TEST(Plan, HasARivalWhereMachinesDiffer) {
  using device::Collective;
  using Answer = std::pair<Algorithm, std::optional<Algorithm>>;
  const auto answer = [](Collective collective, std::size_t bytes, int ranks = 2,
                         const Abilities& abilities = {.single_copy = true}) {
    const connect::Shape shape{ranks, 1, ranks};
    const Algorithm usual = plan(collective, shape, bytes, abilities);
    return Answer{usual, rival_of(usual, collective, shape, bytes, abilities)};
  };
  const Answer cico_or_copy{Algorithm::kCico, Algorithm::kSingleCopy};
  const Answer copy_or_cico{Algorithm::kSingleCopy, Algorithm::kCico};
  const Answer immediate_or_copy{Algorithm::kImmediate, Algorithm::kSingleCopy};
  for (const auto collective :
       {Collective::kAllreduce, Collective::kReduceScatter, Collective::kReduceScatterV})
    for (const std::size_t bytes : {1UL << 20, 1UL << 28}) EXPECT_EQ(answer(collective, bytes), cico_or_copy);
  EXPECT_EQ(answer(Collective::kAllGather, 1 << 20), copy_or_cico);
  EXPECT_EQ(answer(Collective::kAllGather, 1 << 28), cico_or_copy);
  for (const auto collective : {Collective::kBroadcast, Collective::kReduce, Collective::kAllGather})
    EXPECT_EQ(answer(collective, 16 << 10), immediate_or_copy);
  EXPECT_EQ(answer(Collective::kBroadcast, 32 << 10), immediate_or_copy);
  // Nobody but small calls, those in which the root would do the work of all, and those that cannot be read.
  EXPECT_EQ(answer(Collective::kBroadcast, 8 << 10), (Answer{Algorithm::kImmediate, {}}));
  EXPECT_EQ(answer(Collective::kReduce, 1 << 20, 3), (Answer{Algorithm::kCico, {}}));
  EXPECT_EQ(answer(Collective::kAllreduce, 1 << 20, 2, {}), (Answer{Algorithm::kCico, {}}));
  EXPECT_EQ(answer(Collective::kBarrier, 0), (Answer{Algorithm::kImmediate, {}}));
  // Nor where ranks take turns, or the user has chosen.
  EXPECT_EQ(answer(Collective::kAllreduce, 1 << 20, 2, {.single_copy = true, .oversubscribed = true}),
            (Answer{Algorithm::kCico, {}}));
  for (const Preference preference : {Preference::kCico, Preference::kBySize})
    EXPECT_EQ(answer(Collective::kAllreduce, 1 << 20, 2, {.single_copy = true, .preference = preference}),
              (Answer{Algorithm::kCico, {}}));
}

constexpr Abilities kAll{.single_copy = true, .hier = true};
constexpr connect::Shape kShapes[] = {{1, 1, 1}, {2, 1, 2}, {7, 1, 7}, {6, 3, 2}, {5, 3, 0}};

TEST(Plan, NeverDependsOnSizesThatRanksDoNotShare) {
  for (const auto collective :
       {device::Collective::kGatherV, device::Collective::kScatterV, device::Collective::kAllToAllW})
    for (const connect::Shape& shape : kShapes)
      for (const std::size_t bytes : {0UL, 1UL, 1UL << 30})
        EXPECT_EQ(plan(collective, shape, bytes, kAll), plan(collective, shape, 100, kAll));
}

TEST(Plan, OfACallThatMayNotWaitIsResumable) {
  for (std::size_t c = 0; c < device::kCollectiveCount; ++c)
    for (const connect::Shape& shape : kShapes)
      for (const std::size_t size : {1UL, 100UL, 1UL << 24}) {
        const auto collective = static_cast<device::Collective>(c);
        const std::size_t bytes = collective == device::Collective::kBarrier ? 0 : size;
        const Algorithm resumable = plan_resumable(collective, shape, bytes, kAll),
                        waits = plan(collective, shape, bytes, kAll);
        EXPECT_NE(resumable, Algorithm::kImmediate);
        if (waits != Algorithm::kImmediate) {
          EXPECT_EQ(resumable, waits);
        }
        // Every answer has its counter.
        for (const Algorithm algorithm : {resumable, waits}) {
          EXPECT_EQ(may_carry(algorithm, collective), algorithm != Algorithm::kFallback);
        }
      }
}

TEST(Plan, UsesRailsAcrossEqualHostsAndOneRingAcrossUnequalOnes) {
  using device::Collective;
  for (const auto collective :
       {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast, Collective::kReduceScatter,
        Collective::kReduceScatterV, Collective::kAllGather, Collective::kAllGatherV}) {
    EXPECT_EQ(plan(collective, {6, 3, 2}, 16 << 20), Algorithm::kSplitRail);
    EXPECT_EQ(plan(collective, {5, 3, 0}, 16 << 20), Algorithm::kFlatRing);
    EXPECT_EQ(plan(collective, {6, 3, 2}, 8), Algorithm::kFallback);
  }
}

TEST(Plan, TakesRingsForSmallerMessagesTheFewerTheHosts) {
  using device::Collective;
  const connect::Shape three{6, 3, 2}, six{12, 6, 2}, many{400, 100, 4}, unequal{5, 3, 0},
      many_unequal{401, 100, 0};
  EXPECT_EQ(plan(Collective::kReduceScatterV, six, 191 << 10), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kReduceScatterV, six, 192 << 10), Algorithm::kSplitRail);
  EXPECT_EQ(plan(Collective::kBroadcast, three, (32 << 10) - 1), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kBroadcast, three, 32 << 10), Algorithm::kSplitRail);
  EXPECT_EQ(plan(Collective::kReduceScatter, three, (128 << 10) / 6 + 1), Algorithm::kSplitRail);
  EXPECT_EQ(plan(Collective::kAllreduce, three, 255 << 10), Algorithm::kFallback);
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce, Collective::kAllreduce}) {
    EXPECT_EQ(plan(collective, unequal, (512 << 10) - 1), Algorithm::kFallback);
    EXPECT_EQ(plan(collective, many_unequal, 6 << 20), Algorithm::kFallback);
    EXPECT_EQ(plan(collective, many_unequal, 7 << 20), Algorithm::kFlatRing);
  }
  EXPECT_EQ(plan(Collective::kReduceScatterV, many, 1 << 20), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kReduceScatterV, many, 2 << 20), Algorithm::kSplitRail);
}

TEST(Plan, TakesTreesBetweenWhatIsSmallAndWhereRingsHaveMoreBandwidth) {
  using device::Collective;
  const connect::Shape three{6, 3, 2}, six{12, 6, 2}, many{400, 100, 4}, unequal{5, 3, 0};
  EXPECT_EQ(plan(Collective::kBroadcast, six, (32 << 10) - 1), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kBroadcast, six, 32 << 10), Algorithm::kDbt);
  EXPECT_EQ(plan(Collective::kReduce, six, (64 << 10) - 1), Algorithm::kFallback);
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    EXPECT_EQ(plan(collective, six, 64 << 10), Algorithm::kDbt);
    EXPECT_EQ(plan(collective, six, 1 << 20), Algorithm::kSplitRail);
    EXPECT_EQ(plan(collective, three, 64 << 10), Algorithm::kSplitRail);
  }
  // Between few hosts, hier have what a tree would be better at.
  EXPECT_EQ(plan(Collective::kAllreduce, six, 128 << 10), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, {32, 16, 2}, 1 << 20), Algorithm::kDbt);
  EXPECT_EQ(plan(Collective::kAllreduce, {32, 16, 2}, 16 << 20), Algorithm::kSplitRail);
  EXPECT_EQ(plan(Collective::kAllreduce, many, (128 << 10) - 1), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, many, 128 << 10), Algorithm::kDbt);
  EXPECT_EQ(plan(Collective::kReduce, many, 32 << 10), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, {32, 16, 2}, 64 << 10), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, {16, 16, 1}, 128 << 10), Algorithm::kDbt);
  EXPECT_EQ(plan(Collective::kAllreduce, many, 32 << 20), Algorithm::kDbt);
  EXPECT_EQ(plan(Collective::kAllreduce, many, 64 << 20), Algorithm::kSplitRail);
  EXPECT_EQ(plan(Collective::kReduceScatterV, many, 1 << 20), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kBroadcast, unequal, 64 << 10), Algorithm::kFallback);

  EXPECT_TRUE(has_tree_sizes(six, Preference::kBest));
  EXPECT_FALSE(has_tree_sizes(three, Preference::kBest));
  EXPECT_TRUE(has_tree_sizes(three, Preference::kTrees));
  EXPECT_FALSE(has_tree_sizes(unequal, Preference::kTrees));
  EXPECT_FALSE(has_tree_sizes({4, 1, 4}, Preference::kTrees));
}

TEST(Plan, SendsStraightToAllRanksOfOtherHostsWhileTheyAreFew) {
  EXPECT_EQ(plan(device::Collective::kAllToAll, {6, 3, 2}, 1 << 20), Algorithm::kPairwise);
  EXPECT_EQ(plan(device::Collective::kAllToAll, {5, 3, 0}, 1 << 20), Algorithm::kPairwise);
  EXPECT_EQ(plan(device::Collective::kAllToAll, {6, 3, 2}, 8), Algorithm::kFallback);
  EXPECT_EQ(plan(device::Collective::kAllToAll, {400, 100, 4}, 1 << 20), Algorithm::kFallback);
  EXPECT_EQ(plan(device::Collective::kAllToAll, {6, 6, 1}, 1 << 20), Algorithm::kFallback);
}

TEST(Plan, CountsAllBlocksTogetherAcrossHosts) {
  for (const auto collective : {device::Collective::kReduceScatter, device::Collective::kAllGather}) {
    EXPECT_EQ(plan(collective, {32, 16, 2}, 32 << 10), Algorithm::kSplitRail);
    EXPECT_EQ(plan(collective, {2, 2, 1}, 32 << 10), Algorithm::kFallback);
  }
}

TEST(AllreducePlan, TakesTwoLevelsForSmallMessagesBetweenAFewHostsIfWanted) {
  for (const device::Collective rooted : {device::Collective::kReduce, device::Collective::kBroadcast}) {
    EXPECT_EQ(plan(rooted, {6, 3, 2}, 16 << 10, {.hier = true}), Algorithm::kHier);
    EXPECT_EQ(plan(rooted, {6, 3, 2}, (16 << 10) + 1, {.hier = true}), Algorithm::kFallback);
    EXPECT_EQ(plan(rooted, {32, 16, 2}, (64 << 10) / 15, {.hier = true}), Algorithm::kHier);
    EXPECT_EQ(plan(rooted, {32, 16, 2}, (64 << 10) / 15 + 1, {.hier = true}), Algorithm::kFallback);
    EXPECT_EQ(plan(rooted, {3, 3, 1}, 8, {.hier = true}), Algorithm::kFallback);
    EXPECT_EQ(rival_of(Algorithm::kHier, rooted, {6, 3, 2}, 8, {.hier = true}), std::nullopt);
  }
  EXPECT_EQ(rival_of(Algorithm::kHier, device::Collective::kAllreduce, {6, 3, 2}, 8, {.hier = true}),
            std::nullopt);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {6, 3, 2}, 8, {.hier = true}), Algorithm::kHier);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {5, 3, 0}, 8, {.hier = true}), Algorithm::kHier);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {6, 3, 2}, 8), Algorithm::kFallback);
  EXPECT_EQ(plan(device::Collective::kReduceScatter, {6, 3, 2}, 8, {.hier = true}), Algorithm::kHier);
  EXPECT_EQ(plan(device::Collective::kReduceScatter, {6, 3, 2}, 4 << 10, {.hier = true}),
            Algorithm::kFallback);
  for (const connect::Shape& of_one : {connect::Shape{2, 2, 1}, {3, 3, 1}, {16, 16, 1}}) {
    const auto planned = [&](device::Collective collective, std::size_t bytes) {
      return plan(collective, of_one, bytes, {.hier = true});
    };
    const std::size_t most = of_one.hosts == 16 ? (64 << 10) / 15 : 8 << 10;
    EXPECT_EQ(planned(device::Collective::kAllreduce, most), Algorithm::kHier);
    EXPECT_EQ(planned(device::Collective::kAllreduce, most + 1), Algorithm::kFallback);
    const auto ranks = static_cast<std::size_t>(of_one.ranks);
    EXPECT_EQ(planned(device::Collective::kReduceScatter, (2047 / ranks)), Algorithm::kHier);
    EXPECT_EQ(planned(device::Collective::kReduceScatter, (2048 / ranks + 1)), Algorithm::kFallback);
    EXPECT_EQ(planned(device::Collective::kBarrier, 0), Algorithm::kFallback);
  }
  const auto gathers = [](const connect::Shape& shape, std::size_t bytes) {
    return plan(device::Collective::kAllGather, shape, bytes, {.hier = true});
  };
  EXPECT_EQ(gathers({4, 2, 2}, 4 << 10), Algorithm::kHier);
  EXPECT_EQ(gathers({4, 2, 2}, (4 << 10) + 1), Algorithm::kFallback);
  EXPECT_EQ(gathers({2, 2, 1}, 8), Algorithm::kFallback);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {1000, 16, 0}, 1 << 20, {.hier = true}),
            Algorithm::kFallback);
  EXPECT_TRUE(may_use_hier({32, 16, 2}));
  EXPECT_FALSE(may_use_hier({200, 100, 2}));
  EXPECT_TRUE(may_use_hier({16, 16, 1}));
  EXPECT_FALSE(may_use_hier({2, 1, 2}));
}

TEST(Plan, TakesTheAlgorithmThatIsWantedWhereThatCanCarryTheCall) {
  using device::Collective;
  const Abilities cico{.single_copy = true, .preference = Preference::kCico},
      single{.single_copy = true, .preference = Preference::kSingleCopy},
      rings{.preference = Preference::kRings}, trees{.preference = Preference::kTrees};
  for (const std::size_t bytes : {1, 1 << 24}) {
    EXPECT_EQ(plan(Collective::kBroadcast, {4, 1, 4}, bytes, cico), Algorithm::kCico);
    EXPECT_EQ(plan(Collective::kBroadcast, {4, 1, 4}, bytes, single), Algorithm::kSingleCopy);
    EXPECT_EQ(plan(Collective::kAllreduce, {6, 3, 2}, bytes, rings), Algorithm::kSplitRail);
    EXPECT_EQ(plan(Collective::kAllreduce, {5, 3, 0}, bytes, rings), Algorithm::kFlatRing);
    EXPECT_EQ(plan(Collective::kAllToAll, {6, 3, 2}, bytes, rings), Algorithm::kPairwise);
    EXPECT_EQ(plan(Collective::kReduce, {6, 3, 2}, bytes, trees), Algorithm::kDbt);
    EXPECT_EQ(plan(Collective::kReduce, {5, 3, 0}, bytes, trees), Algorithm::kFlatRing);
    EXPECT_EQ(plan(Collective::kReduceScatter, {6, 3, 2}, bytes, trees), Algorithm::kSplitRail);
  }
  EXPECT_EQ(plan(Collective::kBarrier, {4, 1, 4}, 0, cico), Algorithm::kImmediate);
  EXPECT_EQ(plan(Collective::kAllreduce, {4, 1, 4}, 8, single), Algorithm::kSingleCopy);
  EXPECT_EQ(plan(Collective::kReduce, {4, 1, 4}, 8, single), Algorithm::kImmediate);
  EXPECT_EQ(plan(Collective::kScan, {6, 3, 2}, 8, rings), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, {6, 3, 2}, 0, rings), Algorithm::kFallback);
}

TEST(Plan, LeavesToTheComponentBelowWhatHasNoAlgorithmAcrossHosts) {
  EXPECT_EQ(plan(device::Collective::kAllToAll, {6, 3, 2}, 8), Algorithm::kFallback);
  EXPECT_EQ(plan(device::Collective::kAllGather, {5, 3, 0}, 8), Algorithm::kFallback);
  for (const auto collective :
       {device::Collective::kBarrier, device::Collective::kScan, device::Collective::kGather,
        device::Collective::kScatter, device::Collective::kAllToAllV})
    EXPECT_EQ(plan(collective, {6, 3, 2}, 8 << 20), Algorithm::kFallback);
}

}  // namespace
}  // namespace loom
