#include "component/select/select.hpp"

#include <gtest/gtest.h>

#include <string_view>

#include "device/cuda/kernel_way.hpp"
#include "device/host/immediate_exchange.hpp"

namespace loom {
namespace {

Choice chosen(device::Collective collective, const connect::Shape& shape, std::size_t bytes,
              Conditions conditions, bool may_wait, const char* tune = "") {
  conditions.shape = shape;
  return choose(conditions, collective, bytes, may_wait, Tune::parse(tune, "test"));
}
Algorithm plan(device::Collective collective, const connect::Shape& shape, std::size_t bytes,
               const Conditions& conditions = {}, const char* tune = "") {
  return chosen(collective, shape, bytes, conditions, true, tune).algorithm;
}
Algorithm plan_resumable(device::Collective collective, const connect::Shape& shape, std::size_t bytes,
                         const Conditions& conditions = {}) {
  return chosen(collective, shape, bytes, conditions, false).algorithm;
}

TEST(AllreducePlan, CopiesForOneRank) {
  EXPECT_EQ(plan(device::Collective::kAllreduce, {1, 1, 1}, 1 << 20), Algorithm::kCopy);
}

TEST(AllreducePlan, IsImmediateForSmallAndCicoForLargeMessagesOfOneHost) {
  EXPECT_EQ(plan(device::Collective::kAllreduce, {2, 1, 2}, 8), Algorithm::kImmediate);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {2, 1, 2}, 1 << 20), Algorithm::kCico);
}

TEST(Table, SaysWhatMayBeCarriedAndStreamed) {
  using device::Collective;
  for (std::size_t i = 0; i < device::kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const bool equal = collective <= Collective::kAllToAll;  // equal blocks, of one length that all know
    const bool reduce_scatter = collective == Collective::kReduceScatterV;
    const bool allgatherv = collective == Collective::kAllGatherV;
    EXPECT_TRUE(may_carry(collective, true)) << name_of(collective);
    EXPECT_EQ(may_carry_on_devices(collective), collective != Collective::kBarrier) << name_of(collective);
    EXPECT_EQ(may_carry_on_devices(collective, false),
              device::cuda::kernels_carry(collective, device::cuda::KernelLinkage::kAny))
        << name_of(collective);
    EXPECT_EQ(may_carry(collective, false),
              equal || collective == Collective::kBarrier || reduce_scatter || allgatherv)
        << name_of(collective);
    EXPECT_EQ(may_stream(collective, true), equal || reduce_scatter) << name_of(collective);
    EXPECT_EQ(may_stream(collective, false), equal || reduce_scatter || allgatherv) << name_of(collective);
  }
}

// Except broadcasts and reduces, which go in pieces.
TEST(Plan, NeverExceedsWhatAnImmediateOfferHolds) {
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

TEST(Plan, GoesInGroupsWhereManyRanksExchangeLittle) {
  using device::Collective;
  const auto planned = [](Collective collective, int ranks, std::size_t bytes, bool oversubscribed = false,
                          int tiers = 2) {
    return plan(collective, {ranks, 1, ranks}, bytes, {.oversubscribed = oversubscribed, .tiers = tiers});
  };
  for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast,
                                      Collective::kAllGather, Collective::kBarrier}) {
    const std::size_t bytes = collective == Collective::kBarrier ? 0 : 8;
    EXPECT_EQ(planned(collective, 31, bytes), Algorithm::kImmediate);
    for (const int ranks : {32, 64, 192}) {
      EXPECT_EQ(planned(collective, ranks, bytes), Algorithm::kTiered) << name_of(collective);
      if (bytes > 0) {
        EXPECT_NE(planned(collective, ranks, 16 << 10), Algorithm::kTiered) << name_of(collective);
      }
      EXPECT_EQ(planned(collective, ranks, bytes, true), Algorithm::kImmediate) << "ranks share CPUs";
      EXPECT_EQ(planned(collective, ranks, bytes, false, 1), Algorithm::kImmediate) << "there are no groups";
    }
  }
  // Operands of all ranks together.
  EXPECT_EQ(planned(Collective::kAllreduce, 64, 128), Algorithm::kTiered);
  EXPECT_EQ(planned(Collective::kAllreduce, 64, 136), Algorithm::kImmediate);
}

TEST(Plan, GoesInGroupsOfCicoBuffersWhereManyRanksReduce) {
  using device::Collective;
  const auto choice = [](Collective collective, int ranks, std::size_t bytes, bool oversubscribed = false,
                         bool groups = true, const char* tune = "") {
    const Conditions conditions{
        .single_copy = true, .oversubscribed = oversubscribed, .tiers = 2, .groups = groups};
    return chosen(collective, {ranks, 1, ranks}, bytes, conditions, true, tune);
  };
  for (const Collective collective : {Collective::kAllreduce, Collective::kReduce})
    for (const int ranks : {32, 64, 192}) {
      for (const std::size_t bytes : {1UL << 10, 1UL << 16, 1UL << 20}) {
        EXPECT_EQ(choice(collective, ranks, bytes), (Choice{Algorithm::kTieredCico, {}}))
            << name_of(collective) << " of " << bytes << ": probes would change the bits of a sum";
        EXPECT_NE(choice(collective, ranks, bytes, true).algorithm, Algorithm::kTieredCico);
        EXPECT_NE(choice(collective, ranks, bytes, false, false).algorithm, Algorithm::kTieredCico);
      }
      EXPECT_EQ(choice(collective, ranks, 8).algorithm, Algorithm::kTiered);
    }
  EXPECT_EQ(choice(Collective::kAllreduce, 64, 4 << 20).candidate, Algorithm::kSingleCopy);
  EXPECT_NE(choice(Collective::kAllGather, 64, 1 << 20).algorithm, Algorithm::kTieredCico);
  for (const std::size_t block : {256UL, 4096UL}) {
    const auto gathered = [&](int in_cache) {
      const Conditions machine{.shape = {64, 1, 64}, .tiers = 2, .in_cache = in_cache, .groups = true};
      return choose(machine, Collective::kAllGather, block, true).algorithm;
    };
    EXPECT_EQ(gathered(8), Algorithm::kTieredCico) << block;
    EXPECT_NE(gathered(64), Algorithm::kTieredCico) << block << ": all from one cache";
  }
  // Its bits are the same by any algorithm: so the kernel's copy may be tried.
  EXPECT_EQ(choice(Collective::kAllGather, 33, 8193),
            (Choice{Algorithm::kTieredCico, Algorithm::kSingleCopy}));
  EXPECT_NE(choice(Collective::kAllreduce, 4, 1 << 20).algorithm, Algorithm::kTieredCico);
  EXPECT_EQ(choice(Collective::kAllreduce, 4, 1 << 20, false, true, "allreduce:tiered_cico").algorithm,
            Algorithm::kTieredCico);
  // A call that does not wait has no tiers, but groups.
  const Conditions no_order{.shape = {64, 1, 64}, .tiers = 2, .groups = true},
      in_order{.shape = {64, 1, 64}, .tiers = 2};
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kReduce, Collective::kAllGather, Collective::kBarrier}) {
    const std::size_t bytes = collective == Collective::kBarrier ? 0 : 8;
    EXPECT_EQ(choose(no_order, collective, bytes, false).algorithm, Algorithm::kTieredCico)
        << name_of(collective);
    EXPECT_EQ(choose(in_order, collective, bytes, false).algorithm, Algorithm::kCico) << name_of(collective);
  }
  // A broadcast goes down in tiers while it fits beside its flag; further where many ranks wait for one
  // cache.
  const auto bcast = [](std::size_t bytes, int in_cache) {
    const Conditions machine{.shape = {64, 1, 64}, .tiers = 2, .in_cache = in_cache};
    return choose(machine, Collective::kBroadcast, bytes, true).algorithm;
  };
  EXPECT_EQ(bcast(120, 8), Algorithm::kTiered);
  EXPECT_EQ(bcast(121, 8), Algorithm::kImmediate);
  EXPECT_EQ(bcast(1024, 56), Algorithm::kTiered);
  EXPECT_EQ(bcast(1025, 56), Algorithm::kImmediate);
  EXPECT_TRUE(may_have_groups(32, false));
  EXPECT_FALSE(may_have_groups(37, false)) << "a prime number";
  EXPECT_FALSE(may_have_groups(4, false));
  EXPECT_TRUE(may_have_groups(4, true));
}

TEST(Plan, HasACandidateWhereMachinesDiffer) {
  using device::Collective;
  using Answer = std::pair<Algorithm, std::optional<Algorithm>>;
  const auto answer = [](Collective collective, std::size_t bytes, int ranks = 2,
                         const Conditions& conditions = {.single_copy = true}, const char* tune = "") {
    const Choice choice = chosen(collective, {ranks, 1, ranks}, bytes, conditions, true, tune);
    return Answer{choice.algorithm, choice.candidate};
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
  // No candidate: small calls, a reduce whose root would do the work of all, buffers that cannot be read.
  EXPECT_EQ(answer(Collective::kBroadcast, 8 << 10), (Answer{Algorithm::kImmediate, {}}));
  EXPECT_EQ(answer(Collective::kReduce, 1 << 20, 3), (Answer{Algorithm::kCico, {}}));
  EXPECT_EQ(answer(Collective::kAllreduce, 1 << 20, 2, {}), (Answer{Algorithm::kCico, {}}));
  EXPECT_EQ(answer(Collective::kBarrier, 0), (Answer{Algorithm::kImmediate, {}}));
  // No candidate either where ranks take turns, or the user has chosen.
  EXPECT_EQ(answer(Collective::kAllreduce, 1 << 20, 2, {.single_copy = true, .oversubscribed = true}),
            (Answer{Algorithm::kCico, {}}));
  for (const char* const tune : {"all:cico", "all:table", "allreduce:512k-inf:table"})
    EXPECT_EQ(answer(Collective::kAllreduce, 1 << 20, 2, {.single_copy = true}, tune),
              (Answer{Algorithm::kCico, {}}));
  EXPECT_EQ(answer(Collective::kAllreduce, 1 << 20, 2, {.single_copy = true}, "bcast:table"), cico_or_copy);
}

constexpr Conditions kAll{.single_copy = true, .hier = true};
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
          EXPECT_TRUE(algorithm == Algorithm::kFallback || row_of(algorithm).carries(collective));
        }
      }
}

TEST(Plan, UsesRailsAcrossEqualHostsAndOneRingAcrossUnequalOnes) {
  using device::Collective;
  for (const auto collective :
       {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast, Collective::kReduceScatter,
        Collective::kReduceScatterV, Collective::kAllGather, Collective::kAllGatherV}) {
    EXPECT_EQ(plan(collective, {6, 3, 2}, 16 << 20), Algorithm::kRing);
    EXPECT_EQ(plan(collective, {5, 3, 0}, 16 << 20), Algorithm::kRing);
    EXPECT_EQ(plan(collective, {6, 3, 2}, 8), Algorithm::kFallback);
  }
}

TEST(Plan, TakesRingsForSmallerMessagesTheFewerTheHosts) {
  using device::Collective;
  const connect::Shape three{6, 3, 2}, six{12, 6, 2}, many{400, 100, 4}, unequal{5, 3, 0},
      many_unequal{401, 100, 0};
  EXPECT_EQ(plan(Collective::kReduceScatterV, six, 191 << 10), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kReduceScatterV, six, 192 << 10), Algorithm::kRing);
  EXPECT_EQ(plan(Collective::kBroadcast, three, (32 << 10) - 1), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kBroadcast, three, 32 << 10), Algorithm::kRing);
  EXPECT_EQ(plan(Collective::kReduceScatter, three, (128 << 10) / 6 + 1), Algorithm::kRing);
  EXPECT_EQ(plan(Collective::kAllreduce, three, 255 << 10), Algorithm::kFallback);
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce, Collective::kAllreduce}) {
    const std::size_t from = collective == Collective::kBroadcast ? 64 << 10
                             : collective == Collective::kReduce  ? 256 << 10
                                                                  : 512 << 10;
    EXPECT_EQ(plan(collective, unequal, from - 1), Algorithm::kFallback);
    EXPECT_EQ(plan(collective, unequal, from), Algorithm::kRing);
    EXPECT_EQ(plan(collective, {3, 2, 0}, (512 << 10) - 1), Algorithm::kFallback) << "two hosts";
    EXPECT_EQ(plan(collective, many_unequal, 6 << 20), Algorithm::kFallback);
    EXPECT_EQ(plan(collective, many_unequal, 7 << 20), Algorithm::kRing);
  }
  EXPECT_EQ(plan(Collective::kReduceScatterV, many, 1 << 20), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kReduceScatterV, many, 2 << 20), Algorithm::kRing);
}

TEST(Plan, TakesDbtBetweenSmallSizesAndThoseWhereRingsHaveMoreBandwidth) {
  using device::Collective;
  const connect::Shape three{6, 3, 2}, six{12, 6, 2}, many{400, 100, 4}, unequal{5, 3, 0};
  EXPECT_EQ(plan(Collective::kBroadcast, six, (32 << 10) - 1), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kBroadcast, six, 32 << 10), Algorithm::kRing);
  EXPECT_EQ(plan(Collective::kBroadcast, {6, 6, 1}, (64 << 10) - 1), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kReduce, six, (64 << 10) - 1), Algorithm::kFallback);
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    EXPECT_EQ(plan(collective, six, 64 << 10), Algorithm::kRing);
    EXPECT_EQ(plan(collective, {6, 6, 1}, 64 << 10), Algorithm::kRing);
    EXPECT_EQ(plan(collective, {14, 7, 2}, 64 << 10), Algorithm::kDbt);
    EXPECT_EQ(plan(collective, {14, 7, 2}, 8 << 20), Algorithm::kRing);
    EXPECT_EQ(plan(collective, three, 64 << 10), Algorithm::kRing);
  }
  // Between few hosts, hier runs the sizes that suit a tree.
  EXPECT_EQ(plan(Collective::kAllreduce, six, 128 << 10), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, {32, 16, 2}, 1 << 20), Algorithm::kDbt);
  EXPECT_EQ(plan(Collective::kAllreduce, {32, 16, 2}, 16 << 20), Algorithm::kRing);
  EXPECT_EQ(plan(Collective::kAllreduce, many, (128 << 10) - 1), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, many, 128 << 10), Algorithm::kDbt);
  EXPECT_EQ(plan(Collective::kReduce, many, 32 << 10), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, {32, 16, 2}, 64 << 10), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, {16, 16, 1}, 128 << 10), Algorithm::kDbt);
  EXPECT_EQ(plan(Collective::kAllreduce, many, 32 << 20), Algorithm::kDbt);
  EXPECT_EQ(plan(Collective::kAllreduce, many, 64 << 20), Algorithm::kRing);
  EXPECT_EQ(plan(Collective::kReduceScatterV, many, 1 << 20), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kBroadcast, unequal, 64 << 10), Algorithm::kRing);

  EXPECT_TRUE(suits_dbt({14, 7, 2}));
  EXPECT_FALSE(suits_dbt(six));
  EXPECT_FALSE(suits_dbt(three));
  EXPECT_FALSE(suits_dbt(unequal));
  EXPECT_FALSE(suits_dbt({4, 1, 4}));
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
    EXPECT_EQ(plan(collective, {32, 16, 2}, 32 << 10), Algorithm::kRing);
    EXPECT_EQ(plan(collective, {2, 2, 1}, 32 << 10), Algorithm::kFallback);
  }
}

TEST(AllreducePlan, TakesHierForSmallMessagesBetweenAFewHostsIfItsLinksAreThere) {
  for (const device::Collective rooted : {device::Collective::kReduce, device::Collective::kBroadcast}) {
    EXPECT_EQ(plan(rooted, {6, 3, 2}, 16 << 10, {.hier = true}), Algorithm::kHier);
    EXPECT_EQ(plan(rooted, {6, 3, 2}, (16 << 10) + 1, {.hier = true}), Algorithm::kFallback);
    EXPECT_EQ(plan(rooted, {32, 16, 2}, (64 << 10) / 15, {.hier = true}), Algorithm::kHier);
    EXPECT_EQ(plan(rooted, {32, 16, 2}, (64 << 10) / 15 + 1, {.hier = true}), Algorithm::kFallback);
    EXPECT_EQ(plan(rooted, {3, 3, 1}, 8, {.hier = true}), Algorithm::kFallback);
  }
  EXPECT_EQ(plan(device::Collective::kAllreduce, {6, 3, 2}, 8, {.hier = true}), Algorithm::kHier);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {5, 3, 0}, 8, {.hier = true}), Algorithm::kHier);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {6, 3, 2}, 8), Algorithm::kFallback);
  EXPECT_EQ(plan(device::Collective::kReduceScatter, {6, 3, 2}, 8, {.hier = true}), Algorithm::kHier);
  EXPECT_EQ(plan(device::Collective::kReduceScatter, {4, 2, 2}, 16 << 10, {.hier = true}), Algorithm::kHier);
  EXPECT_EQ(plan(device::Collective::kReduceScatter, {6, 3, 2}, 4 << 10, {.hier = true}),
            Algorithm::kFallback);
  for (const connect::Shape& of_one : {connect::Shape{2, 2, 1}, {3, 3, 1}, {16, 16, 1}}) {
    const auto planned = [&](device::Collective collective, std::size_t bytes) {
      return plan(collective, of_one, bytes, {.hier = true});
    };
    const std::size_t most = of_one.hosts == 2    ? (64 << 10) - 1
                             : of_one.hosts == 16 ? (64 << 10) / 15
                                                  : 8 << 10;
    EXPECT_EQ(planned(device::Collective::kAllreduce, most), Algorithm::kHier);
    EXPECT_EQ(planned(device::Collective::kAllreduce, most + 1),
              of_one.hosts == 2 ? Algorithm::kRing : Algorithm::kFallback);
    const auto ranks = static_cast<std::size_t>(of_one.ranks);
    EXPECT_EQ(planned(device::Collective::kReduceScatter, (1024 / ranks)), Algorithm::kHier);
    EXPECT_EQ(planned(device::Collective::kReduceScatter, (1024 / ranks + 1)), Algorithm::kFallback);
    EXPECT_EQ(planned(device::Collective::kBarrier, 0), Algorithm::kFallback);
  }
  // From so many bytes on a call makes the links, which hier then uses for it.
  EXPECT_EQ(plan(device::Collective::kAllreduce, {2, 2, 1}, (16 << 10) + 1), Algorithm::kRing);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {4, 2, 2}, 64 << 10), Algorithm::kRing);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {4, 2, 2}, (256 << 10) - 1, {.hier = true}),
            Algorithm::kHier);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {4, 2, 2}, 256 << 10, {.hier = true}), Algorithm::kRing);
  const auto gathers = [](const connect::Shape& shape, std::size_t bytes) {
    return plan(device::Collective::kAllGather, shape, bytes, {.hier = true});
  };
  EXPECT_EQ(gathers({4, 2, 2}, 4 << 10), Algorithm::kHier);
  EXPECT_EQ(gathers({4, 2, 2}, (128 << 10) - 1), Algorithm::kHier);
  EXPECT_EQ(gathers({4, 2, 2}, 128 << 10), Algorithm::kRing);
  EXPECT_EQ(gathers({2, 2, 1}, 8), Algorithm::kFallback);
  EXPECT_EQ(plan(device::Collective::kAllreduce, {1000, 16, 0}, 1 << 20, {.hier = true}),
            Algorithm::kFallback);
  EXPECT_TRUE(may_use_hier({32, 16, 2}));
  EXPECT_FALSE(may_use_hier({200, 100, 2}));
  EXPECT_TRUE(may_use_hier({16, 16, 1}));
  EXPECT_FALSE(may_use_hier({2, 1, 2}));
}

TEST(Plan, TakesTheWantedAlgorithmIfItCanRunTheCall) {
  using device::Collective;
  const Conditions readable{.single_copy = true};
  const char *const rings = "all:ring,alltoall:pairwise", *const dbt = "all:ring,all:dbt";
  for (const std::size_t bytes : {1, 1 << 24}) {
    EXPECT_EQ(plan(Collective::kBroadcast, {4, 1, 4}, bytes, readable, "all:cico"), Algorithm::kCico);
    EXPECT_EQ(plan(Collective::kBroadcast, {4, 1, 4}, bytes, readable, "all:single_copy"),
              Algorithm::kSingleCopy);
    EXPECT_EQ(plan(Collective::kAllreduce, {6, 3, 2}, bytes, {}, rings), Algorithm::kRing);
    EXPECT_EQ(plan(Collective::kAllreduce, {5, 3, 0}, bytes, {}, rings), Algorithm::kRing);
    EXPECT_EQ(plan(Collective::kAllToAll, {6, 3, 2}, bytes, {}, rings), Algorithm::kPairwise);
    EXPECT_EQ(plan(Collective::kReduce, {6, 3, 2}, bytes, {}, dbt), Algorithm::kDbt);
    EXPECT_EQ(plan(Collective::kReduce, {5, 3, 0}, bytes, {}, dbt), Algorithm::kRing);
    EXPECT_EQ(plan(Collective::kReduceScatter, {6, 3, 2}, bytes, {}, dbt), Algorithm::kRing);
    EXPECT_EQ(plan(Collective::kAllreduce, {6, 3, 2}, bytes, {}, "all:fallback"), Algorithm::kFallback);
  }
  EXPECT_EQ(plan(Collective::kAllreduce, {4, 1, 4}, 8, readable, "all:single_copy"), Algorithm::kSingleCopy);
  EXPECT_EQ(plan(Collective::kReduce, {4, 1, 4}, 8, readable, "all:single_copy"), Algorithm::kImmediate);
  EXPECT_EQ(plan(Collective::kScan, {6, 3, 2}, 8, {}, rings), Algorithm::kFallback);
  EXPECT_EQ(plan(Collective::kAllreduce, {6, 3, 2}, 0, {}, rings), Algorithm::kFallback);
  // Immediate exchanges stay short, and calls that may not wait have none.
  EXPECT_EQ(plan(Collective::kAllreduce, {4, 1, 4}, 1 << 20, readable, "all:immediate"), Algorithm::kCico);
  EXPECT_EQ(chosen(Collective::kAllreduce, {4, 1, 4}, 8, readable, false, "all:immediate").algorithm,
            Algorithm::kCico);
  // Algorithms for GPUs run nothing in host memory.
  EXPECT_EQ(plan(Collective::kAllreduce, {4, 1, 4}, 1 << 20, {}, "all:kernel,all:zero_copy"),
            Algorithm::kCico);
}

TEST(Plan, TakesWhatIsWantedInARangeOfSizesOfTheWholeMessage) {
  using device::Collective;
  const char* const tune =
      "allreduce:1k-8k:cico, allreduce:4k-8k:immediate\nallgather:4k-inf:cico # all blocks";
  const auto allreduce = [&](std::size_t bytes) {
    return plan(Collective::kAllreduce, {2, 1, 2}, bytes, {}, tune);
  };
  EXPECT_EQ(allreduce(1023), Algorithm::kImmediate);
  EXPECT_EQ(allreduce(1024), Algorithm::kCico);
  EXPECT_EQ(allreduce(4095), Algorithm::kCico);
  EXPECT_EQ(allreduce(4096), Algorithm::kImmediate);  // the last rule counts
  EXPECT_EQ(allreduce(8192), Algorithm::kImmediate);
  EXPECT_EQ(plan(Collective::kAllGather, {2, 1, 2}, 2047, {}, tune), Algorithm::kImmediate);
  EXPECT_EQ(plan(Collective::kAllGather, {2, 1, 2}, 2048, {}, tune), Algorithm::kCico);
}

TEST(Selector, AnswersAsTheTableDoes) {
  const Tune tune =
      Tune::parse("allreduce:3000-5001:cico,allgather:7k-9k:single_copy,bcast:fallback", "test");
  std::uint64_t state = 1;
  const auto random = [&] {
    return state = state * 6364136223846793005U + 1442695040888963407U, state >> 33;
  };
  for (const Conditions& conditions :
       {Conditions{.shape = {5, 1, 5}, .single_copy = true},
        Conditions{.shape = {16, 1, 16}, .oversubscribed = true},
        Conditions{.shape = {12, 6, 2}, .hier = true}, Conditions{.shape = {200, 100, 2}},
        Conditions{.shape = {31, 5, 0}, .hier = true}})
    for (const Tune& rules : {Tune(), tune}) {
      Selector selector;
      for (int i = 0; i < 20'000; ++i) {
        const auto collective = static_cast<device::Collective>(random() % device::kCollectiveCount);
        const std::size_t bytes = collective == device::Collective::kBarrier ? 0 : random() >> random() % 31;
        const bool may_wait = random() % 2 == 0;
        ASSERT_EQ(selector.choose(conditions, collective, bytes, may_wait, rules),
                  choose(conditions, collective, bytes, may_wait, rules))
            << name_of(collective) << ", " << bytes << " bytes, " << conditions.shape.ranks << " ranks";
      }
    }
}

TEST(Selector, SeesThatConditionsHaveChanged) {
  Selector selector;
  Conditions conditions{.shape = {6, 3, 2}};
  const auto now = [&] {
    return selector.choose(conditions, device::Collective::kBarrier, 0, true, {}).algorithm;
  };
  EXPECT_EQ(now(), Algorithm::kFallback);
  conditions.hier = true;
  EXPECT_EQ(now(), Algorithm::kHier);
}

TEST(Plan, ExchangesImmediatelyOnlyWhatRanksCanPackOnTheirStacks) {
  const Conditions conditions{.shape = {3, 1, 3}, .single_copy = true};
  const Tune tune = Tune::parse("all:immediate", "test");
  const auto algorithm = [&](device::Collective collective, std::size_t bytes) {
    return choose(conditions, collective, bytes, true, tune).algorithm;
  };
  constexpr std::size_t kMost = device::ImmediateArea::kMostPackedResult;
  EXPECT_EQ(algorithm(device::Collective::kAllGather, kMost / 3), Algorithm::kImmediate);
  EXPECT_NE(algorithm(device::Collective::kAllGather, kMost / 3 + 1), Algorithm::kImmediate);
  EXPECT_EQ(algorithm(device::Collective::kBroadcast, 2 * kMost), Algorithm::kImmediate) << "in pieces";
}

TEST(SmallCalls, GoByAnImmediateExchangeWithoutAProbe) {
  using device::Collective;
  for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter,
                                      Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll})
    for (const int ranks : {2, 3, 5, 8, 100})
      for (const char* const rules : {"", "all:64-128:cico", "all:0-100:cico", "all:100-inf:cico", "all:ring",
                                      "all:0-1:hier", "all:immediate"}) {
        const Conditions conditions{.shape = {ranks, 1, ranks}, .single_copy = true};
        const Tune tune = Tune::parse(rules, "test");
        const std::size_t below = immediate_below(conditions, collective, tune);
        const std::size_t per_block = device::offered_bytes(collective, 1, ranks);
        for (std::size_t bytes = 1; bytes * per_block < below; ++bytes)
          ASSERT_EQ(choose(conditions, collective, bytes, true, tune), (Choice{Algorithm::kImmediate, {}}))
              << name_of(collective) << ", " << bytes << " bytes, " << ranks << " ranks, " << rules;
        if (std::string_view(rules).empty() || std::string_view(rules) == "all:ring") {
          EXPECT_GT(below, per_block) << name_of(collective) << ", " << ranks << " ranks, " << rules;
        }
      }
  EXPECT_EQ(immediate_below({.shape = {4, 1, 4}}, Collective::kBarrier, {}), 1U);
  EXPECT_EQ(immediate_below({.shape = {4, 1, 4}}, Collective::kBarrier, Tune::parse("barrier:cico", "test")),
            0U);
}

TEST(Plan, LeavesToTheFallbackComponentWhatHasNoAlgorithmAcrossHosts) {
  EXPECT_EQ(plan(device::Collective::kAllToAll, {6, 3, 2}, 8), Algorithm::kFallback);
  EXPECT_EQ(plan(device::Collective::kAllGather, {5, 3, 0}, 8), Algorithm::kFallback);
  for (const auto collective :
       {device::Collective::kBarrier, device::Collective::kScan, device::Collective::kGather,
        device::Collective::kScatter, device::Collective::kAllToAllV})
    EXPECT_EQ(plan(collective, {6, 3, 2}, 8 << 20), Algorithm::kFallback);
}

TEST(BuffersOnGpus, AreStagedAtTimesWhereThatMayPay) {
  using device::Collective;
  const auto may_pay = [](double kernel_us, std::size_t bytes, const char* tune = "",
                          bool shares_cpus = false) {
    return may_pay_to_stage({.shape = {4, 1, 4}, .oversubscribed = shares_cpus}, Collective::kAllreduce,
                            bytes, kernel_us, Tune::parse(tune, "test"), Algorithm::kKernel);
  };
  // 4 MiB over PCIe, and over NVLink; copies of short messages take about as long as two launches.
  EXPECT_TRUE(may_pay(700, 4 << 20));
  EXPECT_FALSE(may_pay(40, 4 << 20));
  EXPECT_TRUE(may_pay(8, 8));
  EXPECT_FALSE(may_pay(700, 4 << 20, "all:kernel"));
  EXPECT_TRUE(may_pay(700, 4 << 20, "all:zero_copy"));  // which cannot be met
  EXPECT_FALSE(may_pay(700, 4 << 20, "all:table"));
  EXPECT_FALSE(may_pay(700, 4 << 20, "", true));  // times tell nothing
  EXPECT_TRUE(may_pay(700, 4 << 20, "bcast:kernel"));
  EXPECT_TRUE(may_pay_to_stage({.shape = {4, 2, 2}}, Collective::kAllGather, 1000, 5, {}, Algorithm::kKernel))
      << "the fallback component would carry it";
}

}  // namespace
}  // namespace loom
