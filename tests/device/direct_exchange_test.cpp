#include "device/host/direct_exchange.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "base/error.hpp"

namespace loom::device {
namespace {

TEST(DirectExchange, ReducesInOrderOfRankOnEveryRankManyTimes) {
  constexpr int kRanks = 3, kRounds = 2000;
  std::vector<std::unique_ptr<DirectArea>> areas;
  std::vector<DirectArea*> pointers;
  for (int rank = 0; rank < kRanks; ++rank) pointers.push_back(areas.emplace_back(new DirectArea{}).get());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      DirectExchange exchange(pointers, rank);
      const WaitPolicy policy{.progress = {}, .check_peers = {}, .oversubscribed = true};
      for (int round = 0; round < kRounds; ++round) {
        Waiter waiter(policy);
        // In double: (1e17 + -1e17) + r is r, while 1e17 + (-1e17 + r) is 0: the order shows.
        double value[2] = {rank == 0 ? 1e17 : rank == 1 ? -1e17 : round + 1.0, static_cast<double>(round)};
        auto* bytes = reinterpret_cast<std::byte*>(value);
        exchange.perform(
            {Collective::kAllreduce, bytes, bytes, 2, sizeof(double), find_reduce(Op::kSum, Type::kDouble)},
            waiter);
        ASSERT_EQ(value[0], round + 1.0);
        ASSERT_EQ(value[1], 3.0 * round);
      }
    });
}

TEST(DirectExchange, ReportsARankThatGaveUp) {
  DirectArea areas[2] = {};
  DirectExchange mine({&areas[0], &areas[1]}, 0), other({&areas[0], &areas[1]}, 1);
  other.abandon();
  const WaitPolicy policy;
  Waiter waiter(policy);
  int value = 1;
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  EXPECT_THROW(mine.perform({Collective::kAllreduce, bytes, bytes, 1, sizeof(int),
                             find_reduce(Op::kSum, Type::kInt32)},
                            waiter),
               Error);
  EXPECT_EQ(mine.awaited(), 1);
}

}  // namespace
}  // namespace loom::device
