#include "device/host/immediate_exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace loom::device {
namespace {

/// body(exchange, rank) in a thread for each rank.
template <class Body>
void run(int ranks, Body&& body) {
  std::vector<std::unique_ptr<ImmediateArea>> areas;
  std::vector<ImmediateArea*> pointers;
  for (int rank = 0; rank < ranks; ++rank) pointers.push_back(areas.emplace_back(new ImmediateArea{}).get());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      ImmediateExchange exchange(pointers, rank);
      body(exchange, rank);
    });
}

const WaitPolicy kPolicy{.progress = {}, .check_peers = {}, .oversubscribed = true};

TEST(ImmediateExchange, ReducesInOrderOfRankOnEveryRankManyTimes) {
  constexpr int kRanks = 3, kRounds = 2000;
  run(kRanks, [&](ImmediateExchange& exchange, int rank) {
    for (int round = 0; round < kRounds; ++round) {
      Waiter waiter(kPolicy);
      // In double: (1e17 + -1e17) + r is r, while 1e17 + (-1e17 + r) is 0: the order shows.
      double value[2] = {rank == 0 ? 1e17 : rank == 1 ? -1e17 : round + 1.0, static_cast<double>(round)};
      auto* bytes = reinterpret_cast<std::byte*>(value);
      exchange.perform({Collective::kAllreduce, bytes, bytes, 2, Type::kDouble, Op::kSum}, waiter);
      ASSERT_EQ(value[0], round + 1.0);
      ASSERT_EQ(value[1], 3.0 * round);
    }
  });
}

// The sender runs ahead until it comes to lines or a part of the ring that are still in use.
TEST(ImmediateExchange, BroadcastsAndReducesManyTimesInARow) {
  constexpr int kRanks = 3, kRounds = 1000;
  run(kRanks, [&](ImmediateExchange& exchange, int rank) {
    // Within a line, as long as it, beyond it, the longest, one in pieces; the last three alternate with the
    // first.
    const std::size_t most = ImmediateArea::kMostOffered / sizeof(int);
    for (const std::size_t count : {std::size_t{1}, std::size_t{14}, std::size_t{15}, most, 3 * most + 1})
      for (int round = 0; round < (count >= most ? 50 : kRounds); ++round) {
        Waiter waiter(kPolicy);
        const std::size_t now = count > 14 && round % 3 == 0 ? 1 : count;
        std::vector<int> value(now, round + rank);
        auto* bytes = reinterpret_cast<std::byte*>(value.data());
        exchange.perform({Collective::kBroadcast, bytes, bytes, now, Type::kInt32, Op::kSum, 1}, waiter);
        ASSERT_EQ(value, std::vector<int>(now, round + 1));
        if (round % 2 == 0) continue;
        exchange.perform({Collective::kReduce, bytes, bytes, now, Type::kInt32, Op::kSum, 2}, waiter);
        if (rank == 2) {
          ASSERT_EQ(value, std::vector<int>(now, 3 * (round + 1)));
        }
      }
  });
}

TEST(ImmediateExchange, ReportsARankThatGaveUp) {
  ImmediateArea areas[2] = {};
  ImmediateExchange mine({&areas[0], &areas[1]}, 0), other({&areas[0], &areas[1]}, 1);
  other.abandon();
  const WaitPolicy policy;
  Waiter waiter(policy);
  int value = 1;
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  EXPECT_THROW(mine.perform({Collective::kAllreduce, bytes, bytes, 1, Type::kInt32, Op::kSum}, waiter),
               Error);
  EXPECT_EQ(mine.awaited(), 1);
}

TEST(ImmediateLines, ComeAllInTurnAndThoseOfThirtyExchangesLieApart) {
  for (std::uint64_t lines = 2; lines <= 1024; lines += 2) {
    std::vector<bool> used(lines);
    for (std::uint64_t exchange = 0; exchange < lines; ++exchange)
      used[exchange * line_stride(lines) % lines] = true;
    EXPECT_TRUE(std::ranges::all_of(used, std::identity{})) << lines;
  }
  for (std::uint64_t later = 1; later <= 30; ++later) {
    const std::uint64_t ahead = later * line_stride(ImmediateArea::kLines) % ImmediateArea::kLines;
    EXPECT_GE(std::min(ahead, ImmediateArea::kLines - ahead), 7U) << later;
  }
}

}  // namespace
}  // namespace loom::device
