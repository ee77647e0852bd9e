// The collectives of one host, by either executor: threads as ranks, every result checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "device/host/board_executor.hpp"
#include "device/host/copy.hpp"
#include "device/host/direct_exchange.hpp"

namespace loom::device {
namespace {

/// All ranks of a communicator in one process.
struct Host {
  explicit Host(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      areas.push_back(std::make_unique<DirectArea>());
      boards.push_back(std::make_unique<Board>());
    }
  }
  template <class Owned>
  static auto pointers(const std::vector<std::unique_ptr<Owned>>& owned) {
    std::vector<Owned*> result;
    for (const auto& each : owned) result.push_back(each.get());
    return result;
  }
  std::vector<std::unique_ptr<DirectArea>> areas;
  std::vector<std::unique_ptr<Board>> boards;
};

struct RankEnds {
  DirectExchange direct;
  Boards boards;

  void perform(const HostJob& job, bool by_board) {
    const WaitPolicy policy{.progress = {}, .check_peers = {}, .oversubscribed = true};
    Waiter waiter(policy);
    if (!by_board) return direct.perform(job, waiter);
    BoardExecutor executor(boards, job);
    while (true) {
      const auto state = executor.advance();
      if (state == BoardExecutor::State::kDone) return;
      if (state == BoardExecutor::State::kBlocked) waiter.pause();
    }
  }
};

/// Element i of rank's operand in a call. Small: sums in any type are exact.
int value(int rank, std::size_t i, int call) { return static_cast<int>((i * 7 + static_cast<std::size_t>(call) * 5) % 89) + 3 * rank; }

/// One call on this rank, its result checked.
void check_call(RankEnds& ends, int self, int ranks, Collective collective, std::size_t count, bool in_place, bool by_board,
                int root, int call) {
  const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(self);
  const bool scatters = collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  const bool gathers = collective == Collective::kAllGather || collective == Collective::kAllToAll;
  std::vector<int> in(scatters ? n * count : count), out(gathers || (scatters && in_place) ? n * count : count, -1);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(self, i, call);
  const std::vector<int> untouched = in;
  if (in_place) std::copy(in.begin(), in.end(), out.begin() + (collective == Collective::kAllGather ? static_cast<std::ptrdiff_t>(me * count) : 0));
  HostJob job{collective, reinterpret_cast<const std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()), count,
              sizeof(int), find_reduce(Op::kSum, Type::kInt32), root};
  if (in_place) job.in = job.out + (collective == Collective::kAllGather ? me * count * sizeof(int) : 0);
  if (collective == Collective::kBroadcast && self == root) job.in = reinterpret_cast<const std::byte*>(in.data());
  ends.perform(job, by_board);

  const auto sum_at = [&](std::size_t i) {
    int sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value(rank, i, call);
    return sum;
  };
  ASSERT_EQ(in, untouched);
  for (std::size_t i = 0; i < count; ++i) {
    switch (collective) {
      case Collective::kAllreduce: ASSERT_EQ(out[i], sum_at(i)) << i; break;
      case Collective::kReduce:
        if (self == root) { ASSERT_EQ(out[i], sum_at(i)) << i; }
        break;
      case Collective::kReduceScatter: ASSERT_EQ(out[i], sum_at(me * count + i)) << i; break;
      case Collective::kBroadcast:
        if (self != root) { ASSERT_EQ(out[i], value(root, i, call)) << i; }
        break;
      case Collective::kAllGather:
        for (int from = 0; from < ranks; ++from) ASSERT_EQ(out[static_cast<std::size_t>(from) * count + i], value(from, i, call)) << i;
        break;
      case Collective::kAllToAll:
        for (int from = 0; from < ranks; ++from)
          ASSERT_EQ(out[static_cast<std::size_t>(from) * count + i], value(from, me * count + i, call)) << i;
        break;
      case Collective::kBarrier: break;
    }
  }
}

template <class Body>
void run_ranks(Host& host, Body&& body) {
  const auto ranks = static_cast<int>(host.areas.size());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      RankEnds ends{DirectExchange(Host::pointers(host.areas), rank), Boards(Host::pointers(host.boards), rank)};
      body(ends, rank);
    });
}

constexpr Collective kMoving[] = {Collective::kAllreduce, Collective::kReduce,    Collective::kReduceScatter,
                                  Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll};

class HostCollectives : public ::testing::TestWithParam<int> {};

TEST_P(HostCollectives, AreRightForOddCountsByEitherExecutorInPlaceAndNot) {
  const int ranks = GetParam();
  Host host(ranks);
  run_ranks(host, [&](RankEnds& ends, int self) {
    int call = 0;
    for (const Collective collective : kMoving)
      for (const bool in_place : {false, true})
        for (const int root : {0, ranks - 1}) {
          for (const std::size_t count : {1UL, 2UL, 15UL, 100UL})
            check_call(ends, self, ranks, collective, count, in_place, false, root, ++call);
          for (const std::size_t count : {1UL, 15UL, 4097UL, 70001UL, 300007UL})
            check_call(ends, self, ranks, collective, count, in_place, true, root, ++call);
        }
  });
}

TEST_P(HostCollectives, FollowEachOtherInAnyMixture) {
  const int ranks = GetParam();
  Host host(ranks);
  run_ranks(host, [&](RankEnds& ends, int self) {
    std::mt19937 random(11);  // the same calls on every rank
    for (int call = 0; call < 600; ++call) {
      const Collective collective = kMoving[random() % std::size(kMoving)];
      const bool by_board = random() % 3 == 0;
      const std::size_t count = by_board ? 1 + random() % 20000 : 1 + random() % 200;
      const int root = static_cast<int>(random() % static_cast<unsigned>(ranks));
      check_call(ends, self, ranks, collective, count, random() % 2, by_board, root, call);
      if (random() % 8 == 0) ends.perform({}, false);  // a barrier
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostCollectives, ::testing::Values(2, 3, 4, 7),
                         [](const auto& test) { return std::to_string(test.param); });

TEST(HostBarrier, LetsNobodyPassBeforeAllHaveCome) {
  constexpr int kRanks = 4;
  Host host(kRanks);
  std::atomic<int> arrived{0};
  run_ranks(host, [&](RankEnds& ends, int) {
    for (int round = 1; round <= 500; ++round) {
      ++arrived;
      ends.perform({}, false);
      EXPECT_GE(arrived.load(), round * kRanks);
      ends.perform({}, false);
    }
  });
}

TEST(BoardExecutor, ReducesInOrderOfRankWhateverTheSize) {
  constexpr int kRanks = 3;
  Host host(kRanks);
  run_ranks(host, [&](RankEnds& ends, int self) {
    for (const std::size_t count : {1UL, 1000UL, 200000UL}) {
      // (1e17 + -1e17) + 1 is 1, while 1e17 + (-1e17 + 1) is 0: the order shows.
      std::vector<double> values(count, self == 0 ? 1e17 : self == 1 ? -1e17 : 1.0);
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      ends.perform({Collective::kAllreduce, bytes, bytes, count, sizeof(double), find_reduce(Op::kSum, Type::kDouble)}, true);
      ASSERT_EQ(values, std::vector<double>(count, 1.0));
    }
  });
}

TEST(BoardExecutor, ReportsARankThatGaveUp) {
  Host host(2);
  Boards mine(Host::pointers(host.boards), 0), other(Host::pointers(host.boards), 1);
  other.abandon();
  int value = 1;
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  BoardExecutor executor(mine, {Collective::kAllreduce, bytes, bytes, 1, sizeof(int), find_reduce(Op::kSum, Type::kInt32)});
  EXPECT_THROW({ while (executor.advance() != BoardExecutor::State::kDone) {} }, Error);
}

TEST(StreamCopy, CopiesEveryLengthAtEveryAlignmentAndNothingBeside) {
  std::vector<std::byte> from(500), to(700);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 3 + 1);
  for (std::size_t bytes = 0; bytes <= 300; ++bytes)
    for (const std::size_t offset : {0UL, 1UL, 8UL, 63UL, 64UL}) {
      std::fill(to.begin(), to.end(), std::byte{0});
      stream_copy(to.data() + 64 + offset, from.data() + offset / 2, bytes);
      ASSERT_TRUE(std::equal(from.begin() + static_cast<std::ptrdiff_t>(offset / 2),
                             from.begin() + static_cast<std::ptrdiff_t>(offset / 2 + bytes),
                             to.begin() + static_cast<std::ptrdiff_t>(64 + offset)));
      ASSERT_EQ(to[63 + offset], std::byte{0});
      ASSERT_EQ(to[64 + offset + bytes], std::byte{0});
    }
}

}  // namespace
}  // namespace loom::device
