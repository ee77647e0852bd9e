#include "device/host/tiered_exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.hpp"

namespace loom::device {
namespace {

using ::testing::ElementsAre;

std::vector<int> leaders(const Tiers& tiers, int tier, int root = -1) {
  std::vector<int> found;
  tiers.for_each_in(tier, {0, tiers.ranks()}, [&](const Tiers::Subtree& one) {
    found.push_back(tiers.rank_at(Tiers::leader(one, root)));
  });
  return found;
}

/// Places of caches of `cores` cores each, `caches` to a NUMA node.
std::vector<TierPlace> places(int ranks, int cores, int caches) {
  std::vector<TierPlace> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back({rank / cores, rank / cores / caches});
  return all;
}

TEST(Tiers, JoinCachesAndThenTheHost) {
  const Tiers tiers(places(12, 4, 2), 8);
  EXPECT_EQ(tiers.tiers(), 2);
  EXPECT_THAT(leaders(tiers, 1), ElementsAre(0, 4, 8));
  EXPECT_THAT(leaders(tiers, 1, tiers.position_of(6)), ElementsAre(0, 6, 8));
  EXPECT_EQ(tiers.subtree(1, 5).first, 4);
  EXPECT_EQ(tiers.subtree(1, 5).end, 8);
  EXPECT_EQ(tiers.longest(1), 4);
}

TEST(Tiers, SplitLargeGroupsEvenly) {
  const Tiers tiers(places(18, 9, 1), 4);
  EXPECT_THAT(leaders(tiers, 1), ElementsAre(0, 3, 6, 9, 12, 15));
  EXPECT_THAT(leaders(tiers, 2), ElementsAre(0, 9));
  EXPECT_EQ(tiers.tiers(), 3);
  EXPECT_EQ(Tiers(places(3, 8, 1), 8).tiers(), 1);
  EXPECT_EQ(Tiers(places(8, 1, 1), 8).tiers(), 1) << "each is alone in its cache";
}

TEST(Tiers, PutRanksSideBySideWhereTheyArePlacedInTurn) {
  const Tiers tiers(std::vector<TierPlace>{{7, 1}, {3, 0}, {7, 1}, {3, 0}, {7, 0}}, 8);
  EXPECT_THAT(leaders(tiers, 0), ElementsAre(0, 2, 1, 3, 4));
  EXPECT_THAT(leaders(tiers, 1), ElementsAre(0, 1, 4)) << "a cache is one of its NUMA node";
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(tiers.rank_at(tiers.position_of(rank)), rank);
}

TEST(Tiers, HaveAboutAsManyGroupsAsMembers) {
  const auto most = [](int ranks) { return Tiers::most_in_group(ranks); };
  EXPECT_THAT((std::vector{most(1), most(3), most(6), most(9), most(32), most(64), most(192)}),
              ElementsAre(2, 2, 3, 3, 6, 8, 8));
}

/// Each rank is a thread, which runs body(rank, exchange, tiered, waiter).
template <class Body>
void run_ranks(int ranks, const Tiers& tiers, Body&& body) {
  std::vector<std::unique_ptr<ImmediateArea>> memory;
  std::vector<ImmediateArea*> areas;
  for (int rank = 0; rank < ranks; ++rank)
    areas.push_back(memory.emplace_back(std::make_unique<ImmediateArea>()).get());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const WaitPolicy policy{.progress = {}, .check_peers = {}, .oversubscribed = true, .timeout_s = 60};
      Waiter waiter(policy);
      ImmediateExchange exchange(areas, rank);
      TieredExchange tiered(exchange, tiers);
      try {
        body(rank, exchange, tiered, waiter);
      } catch (const Error& error) {
        exchange.abandon();
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
}

/// Numbers whose sum depends on the order in which they are added.
double operand(int rank, std::size_t i) {
  return (rank % 3 == 0 ? 1e16 : 1.0) * (rank % 2 == 0 ? 1 : -1) / (1.0 + static_cast<double>(i));
}

TEST(TieredExchange, GivesTheBitsOfAnExchangeBetweenAll) {
  for (const int ranks : {2, 3, 6, 8, 11})
    for (const int most : {2, 3, 8})
      run_ranks(
          ranks, Tiers(places(ranks, 4, 1), most),
          [&](int rank, ImmediateExchange& exchange, TieredExchange& tiered, Waiter& waiter) {
            for (std::size_t count = 1;
                 count * sizeof(double) <= ImmediateArea::kMostOffered / static_cast<std::size_t>(ranks);
                 count = count * 3 + 1)
              for (const Collective collective : {Collective::kAllreduce, Collective::kReduce,
                                                  Collective::kBroadcast, Collective::kAllGather}) {
                Call call{.collective = collective,
                          .count = count,
                          .type = Type::kDouble,
                          .root = static_cast<int>(count) % ranks};
                std::vector<double> in(count), flat(count * static_cast<std::size_t>(ranks)), here(flat);
                for (std::size_t i = 0; i < count; ++i) in[i] = operand(rank, i);
                call.in = reinterpret_cast<const std::byte*>(in.data());
                call.out = reinterpret_cast<std::byte*>(flat.data());
                exchange.perform(call, waiter);
                call.out = reinterpret_cast<std::byte*>(here.data());
                tiered.perform(call, waiter);
                ASSERT_EQ(std::memcmp(flat.data(), here.data(), flat.size() * sizeof(double)), 0)
                    << ranks << " ranks in groups of " << most << ", " << count << " elements";
              }
          });
}

TEST(TieredExchange, GoesOnForLongerThanThereAreLinesAndRoom) {
  constexpr int kRanks = 5, kCalls = 1500;
  run_ranks(kRanks, Tiers(places(kRanks, 8, 1), 2),
            [](int rank, ImmediateExchange& exchange, TieredExchange& tiered, Waiter& waiter) {
              std::vector<std::int32_t> in(600), out(600);
              for (int at = 0; at < kCalls; ++at) {
                const std::size_t count = at % 3 == 0 ? 600 : 1 + static_cast<std::size_t>(at % 40);
                for (std::size_t i = 0; i < count; ++i) in[i] = at + rank;
                const bool sends = at % 10 > 3 && at / 100 % 2 == 1;  // the root runs ahead
                Call call{.collective = sends         ? Collective::kBroadcast
                                        : at % 4 == 1 ? Collective::kReduce
                                                      : Collective::kAllreduce,
                          .in = reinterpret_cast<const std::byte*>(in.data()),
                          .out = reinterpret_cast<std::byte*>(out.data()),
                          .count = count,
                          .type = Type::kInt32,
                          .root = at / 50 % kRanks};
                if (at % 7 == 6)
                  exchange.perform(call, waiter);
                else
                  tiered.perform(call, waiter);
                if (call.collective == Collective::kReduce && rank != call.root) continue;
                if (sends) {
                  if (rank != call.root) {
                    ASSERT_EQ(out[count - 1], at + call.root) << "call " << at;
                  }
                  continue;
                }
                ASSERT_EQ(out[count - 1], kRanks * at + kRanks * (kRanks - 1) / 2) << "call " << at;
              }
            });
}

TEST(TieredExchange, NobodyLeavesABarrierBeforeAllHaveCome) {
  constexpr int kRanks = 9;
  std::atomic<int> came{0};
  run_ranks(kRanks, Tiers(places(kRanks, 3, 1), 2),
            [&](int, ImmediateExchange&, TieredExchange& tiered, Waiter& waiter) {
              for (int at = 1; at <= 200; ++at) {
                ++came;
                tiered.perform({.collective = Collective::kBarrier}, waiter);
                ASSERT_GE(came.load(), at * kRanks);
                tiered.perform({.collective = Collective::kBarrier}, waiter);
              }
            });
}

struct Failures {
  int all = 0, different = 0;  ///< the latter: DifferentCall
};

/// body(rank, exchange, tiered, call, waiter) on a thread for each rank of such tiers; call: an all-reduce.
template <class Body>
Failures failures_of(const Tiers& tiers, Body&& body) {
  std::atomic<int> failed{0}, saw_difference{0};
  std::vector<std::unique_ptr<ImmediateArea>> memory;
  std::vector<ImmediateArea*> areas;
  for (int rank = 0; rank < tiers.ranks(); ++rank)
    areas.push_back(memory.emplace_back(std::make_unique<ImmediateArea>()).get());
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < tiers.ranks(); ++rank)
      threads.emplace_back([&, rank] {
        ImmediateExchange exchange(areas, rank);
        const WaitPolicy policy{.progress = {},
                                .check_peers = [&] { exchange.check_calls(); },
                                .oversubscribed = true,
                                .timeout_s = 60};
        Waiter waiter(policy);
        TieredExchange tiered(exchange, tiers);
        std::uint64_t in[4]{}, out[4];
        Call call{.collective = Collective::kAllreduce,
                  .in = reinterpret_cast<const std::byte*>(in),
                  .out = reinterpret_cast<std::byte*>(out),
                  .count = 2,
                  .type = Type::kUint64};
        try {
          body(rank, exchange, tiered, call, waiter);
        } catch (const DifferentCall&) {
          ++saw_difference;
          ++failed;
          exchange.abandon();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kGivenUp);
          ++failed;
          exchange.abandon();
        }
      });
  }
  return {failed.load(), saw_difference.load()};
}

constexpr int kRanks = 8;

TEST(TieredExchange, TellsRanksThatAreInDifferentCalls) {
  for (int odd = 0; odd < kRanks; ++odd) {
    const Failures failures =
        failures_of(Tiers(places(kRanks, 8, 1), 3),
                    [&](int rank, ImmediateExchange&, TieredExchange& tiered, Call call, Waiter& waiter) {
                      if (rank == odd) call.count = 4;
                      tiered.perform(call, waiter);
                      tiered.perform(call, waiter);  // what a rank may have missed in the first it sees here
                    });
    EXPECT_EQ(failures.all, kRanks) << "odd: " << odd;
    EXPECT_GE(failures.different, 1);
  }
}

/// Whoever takes from a leader of another size cannot take the root's size instead: it has told of steps of
/// the call already.
TEST(TieredExchange, TellsRanksWhoseBroadcastHasAnotherSize) {
  for (int odd = 0; odd < kRanks; ++odd) {
    std::atomic<int> more{0};
    const Failures failures =
        failures_of(Tiers(places(kRanks, 8, 1), 3),
                    [&](int rank, ImmediateExchange&, TieredExchange& tiered, Call call, Waiter& waiter) {
                      call.collective = Collective::kBroadcast;
                      call.root = 2;
                      if (rank == odd) call.count = 4;
                      try {
                        tiered.perform(call, waiter);
                      } catch (const DifferentCall& other) {
                        EXPECT_EQ(other.progress(), CallProgress::kMore);
                        ++more;
                        throw;
                      }
                      call.collective = Collective::kAllreduce;
                      tiered.perform(call, waiter);  // nobody waits for those who have given up
                    });
    EXPECT_EQ(failures.all, kRanks) << "odd: " << odd;
    EXPECT_GE(more, 1);
  }
}

/// Ranks that wait for room have not written the line yet into which a sender with room has written: what
/// lies there is of an earlier turn. (The root of a reduce knows more than the others of who has come.)
TEST(TieredExchange, SeesNoDifferenceWhereRanksAreAheadOfALateOne) {
  for (const std::size_t bytes : {8UL, 1024UL})
    for (const bool in_tiers : {false, true}) {
      const Failures failures = failures_of(
          Tiers(places(kRanks, 8, 1), 3),
          [&](int rank, ImmediateExchange& exchange, TieredExchange& tiered, Call call, Waiter& waiter) {
            std::vector<std::byte> in(bytes), out(bytes);
            call.in = in.data();
            call.out = out.data();
            call.count = bytes / sizeof(std::uint64_t);
            const auto perform = [&](Collective collective) {
              call.collective = collective;
              in_tiers ? tiered.perform(call, waiter) : exchange.perform(call, waiter);
            };
            perform(Collective::kAllreduce);
            perform(Collective::kReduce);
            if (rank == kRanks - 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
            for (int at = 0; at < 300; ++at) perform(Collective::kBroadcast);
          });
      EXPECT_EQ(failures.all, 0) << bytes << " bytes" << (in_tiers ? " in tiers" : "");
    }
}

TEST(Tiers, KnowHowManyShareACache) {
  EXPECT_EQ(most_in_cache(std::vector<TierPlace>(8, {-1, 0})), 1) << "ranks that are not bound";
  EXPECT_EQ(most_in_cache(places(12, 5, 2)), 5);
  EXPECT_EQ(most_in_cache(std::vector<TierPlace>{{0, 0}, {0, 1}, {0, 1}}), 2)
      << "a cache is one of its NUMA node";
}

/// Every rank looks at few others, and a leader's extra call shifts all that it publishes by one.
TEST(TieredExchange, SeesARankThatHasMadeACallMore) {
  for (int odd = 0; odd < kRanks; ++odd) {
    const Failures failures = failures_of(
        Tiers(places(kRanks, 2, 2), 2),
        [&](int rank, ImmediateExchange& exchange, TieredExchange& tiered, Call call, Waiter& waiter) {
          Call sent = call;
          sent.collective = Collective::kBroadcast;
          sent.root = odd;
          if (rank == odd) exchange.perform(sent, waiter);
          for (int repetition = 0; repetition < 3; ++repetition) tiered.perform(call, waiter);
        });
    EXPECT_EQ(failures.all, kRanks) << "odd: " << odd;
    EXPECT_GE(failures.different, 1);
  }
}

}  // namespace
}  // namespace loom::device
