// The collectives of one host, by either executor: threads as ranks, every result checked.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/copy.hpp"
#include "device/host/immediate_exchange.hpp"
#include "device/host/single_copy_executor.hpp"
#include "device/link/peer_memory.hpp"
#include "host_ranks.hpp"

namespace loom::device {
namespace {

enum class By { kImmediate, kCico, kSingleCopy, kStreams };

struct RankEnds {
  ImmediateExchange immediate;
  CicoBuffers cico;

  void perform(const Call& call, By by) {
    const WaitPolicy policy{.progress = {}, .check_peers = {}, .oversubscribed = true};
    Waiter waiter(policy);
    if (by == By::kImmediate) return immediate.perform(call, waiter);
    const std::vector<std::int64_t> pids(static_cast<std::size_t>(cico.size()), ::getpid());
    if (by == By::kSingleCopy && SingleCopyExecutor::takes(call.collective))
      run(SingleCopyExecutor(cico, pids, call), waiter);
    else
      run(CicoExecutor(cico, call, by == By::kStreams), waiter);
  }
  template <class Executor>
  static void run(Executor&& executor, Waiter& waiter) {
    while (true) {
      const auto state = executor.advance();
      if (state == RingExecutor::State::kDone) return;
      if (state == RingExecutor::State::kBlocked) waiter.pause();
    }
  }
};

/// Element i of rank's operand in a call. Small: sums in any type are exact.
int value(int rank, std::size_t i, int nth) {
  return static_cast<int>((i * 7 + static_cast<std::size_t>(nth) * 5) % 89) + 3 * rank;
}

/// One call on this rank, its result checked.
void check_call(RankEnds& ends, int self, int ranks, Collective collective, std::size_t count, bool in_place,
                By by, int root, int nth) {
  const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(self);
  const bool scatters = collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  const bool gathers = collective == Collective::kAllGather || collective == Collective::kAllToAll;
  std::vector<int> in(scatters ? n * count : count),
      out(gathers || (scatters && in_place) ? n * count : count, -1);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(self, i, nth);
  const std::vector<int> untouched = in;
  if (in_place)
    std::copy(
        in.begin(), in.end(),
        out.begin() + (collective == Collective::kAllGather ? static_cast<std::ptrdiff_t>(me * count) : 0));
  Call call{collective,
            reinterpret_cast<const std::byte*>(in.data()),
            reinterpret_cast<std::byte*>(out.data()),
            count,
            Type::kInt32,
            Op::kSum,
            root};
  if (in_place) call.in = call.out + (collective == Collective::kAllGather ? me * count * sizeof(int) : 0);
  if (collective == Collective::kBroadcast && self == root)
    call.in = reinterpret_cast<const std::byte*>(in.data());
  ends.perform(call, by);

  const auto sum_at = [&](std::size_t i) {
    int sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value(rank, i, nth);
    return sum;
  };
  ASSERT_EQ(in, untouched);
  for (std::size_t i = 0; i < count; ++i) {
    switch (collective) {
      case Collective::kAllreduce:
        ASSERT_EQ(out[i], sum_at(i)) << i;
        break;
      case Collective::kReduce:
        if (self == root) {
          ASSERT_EQ(out[i], sum_at(i)) << i;
        }
        break;
      case Collective::kReduceScatter:
        ASSERT_EQ(out[i], sum_at(me * count + i)) << i;
        break;
      case Collective::kBroadcast:
        if (self != root) {
          ASSERT_EQ(out[i], value(root, i, nth)) << i;
        }
        break;
      case Collective::kAllGather:
        for (int from = 0; from < ranks; ++from)
          ASSERT_EQ(out[static_cast<std::size_t>(from) * count + i], value(from, i, nth)) << i;
        break;
      case Collective::kAllToAll:
        for (int from = 0; from < ranks; ++from)
          ASSERT_EQ(out[static_cast<std::size_t>(from) * count + i], value(from, me * count + i, nth)) << i;
        break;
      default:
        break;
    }
  }
}

template <class Body>
void run_ranks(Host& host, Body&& body, bool oversubscribed = false) {
  const auto ranks = static_cast<int>(host.areas.size());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      RankEnds ends{
          ImmediateExchange(Host::pointers(host.areas), rank, oversubscribed, host.exchanges_before),
          CicoBuffers(Host::pointers(host.cico), rank, oversubscribed)};
      body(ends, rank);
    });
}

constexpr Collective kMoving[] = {Collective::kAllreduce, Collective::kReduce,    Collective::kReduceScatter,
                                  Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll};

struct HostCase {
  int ranks;
  bool oversubscribed = false;
};
class HostCollectivesOf : public ::testing::TestWithParam<HostCase> {};

TEST_P(HostCollectivesOf, AreRightForOddCountsByEveryExecutorInPlaceAndNot) {
  const auto [ranks, oversubscribed] = GetParam();
  Host host(ranks);
  const auto body = [ranks = ranks](RankEnds& ends, int self) {
    int nth = 0;
    for (const Collective collective : kMoving)
      for (const bool in_place : {false, true})
        for (const int root : {0, ranks - 1}) {
          for (const std::size_t count : {1UL, 2UL, 15UL, 100UL})
            check_call(ends, self, ranks, collective, count, in_place, By::kImmediate, root, ++nth);
          for (const std::size_t count : {1UL, 15UL, 4097UL, ranks < 4 ? 300007UL : 30011UL})
            for (const By by : {By::kCico, By::kSingleCopy, By::kStreams})
              check_call(ends, self, ranks, collective, count, in_place, by, root, ++nth);
        }
  };
  run_ranks(host, body, oversubscribed);
}

TEST_P(HostCollectivesOf, FollowEachOtherInAnyMixture) {
  const auto [ranks, oversubscribed] = GetParam();
  Host host(ranks);
  const auto body = [ranks = ranks](RankEnds& ends, int self) {
    std::mt19937 random(11);  // the same calls on every rank
    for (int nth = 0; nth < 600; ++nth) {
      const Collective collective = kMoving[random() % std::size(kMoving)];
      const By by = static_cast<By>(random() % 4);
      const std::size_t count = by == By::kImmediate ? 1 + random() % 200 : 1 + random() % 20000;
      const int root = static_cast<int>(random() % static_cast<unsigned>(ranks));
      check_call(ends, self, ranks, collective, count, random() % 2, by, root, nth);
      if (random() % 8 == 0) ends.perform({}, By::kImmediate);  // a barrier
    }
  };
  run_ranks(host, body, oversubscribed);
}

/// As after years: counters of 32 bits, numbers that share their word with a tag, and signs would show.
TEST_P(HostCollectivesOf, GoOnBeyondAnyNumberOfCalls) {
  const auto [ranks, oversubscribed] = GetParam();
  constexpr std::uint64_t kSoon = 5;
  for (const unsigned bits : {32U, 64U - ExchangeTag::kBits, 63U}) {
    const std::uint64_t wraps = std::uint64_t{1} << bits;
    Host host(ranks);
    host.go_on_from(wraps - kSoon, wraps - kSoon, oversubscribed);
    const auto body = [ranks = ranks](RankEnds& ends, int self) {
      std::mt19937 random(12);  // the same calls on every rank
      for (int nth = 0; nth < 500; ++nth) {
        const Collective collective = kMoving[random() % std::size(kMoving)];
        const By by = random() % 2 != 0 ? By::kImmediate : static_cast<By>(random() % 4);
        const std::size_t count = 1 + random() % (by == By::kImmediate ? 200 : 20000);
        const int root = static_cast<int>(random() % static_cast<unsigned>(ranks));
        check_call(ends, self, ranks, collective, count, random() % 2, by, root, nth);
      }
    };
    run_ranks(host, body, oversubscribed);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostCollectivesOf,
                         ::testing::Values(HostCase{2}, HostCase{3}, HostCase{4}, HostCase{7},
                                           HostCase{2, true}, HostCase{3, true}, HostCase{4, true},
                                           HostCase{7, true}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "Ranks" +
                                  (test.param.oversubscribed ? "Oversubscribed" : "");
                         });

TEST(HostBarrier, LetsNobodyPassBeforeAllHaveCome) {
  constexpr int kRanks = 4;
  Host host(kRanks);
  std::atomic<int> arrived{0};
  run_ranks(host, [&](RankEnds& ends, int) {
    for (int round = 1; round <= 500; ++round) {
      ++arrived;
      ends.perform({}, By::kImmediate);
      EXPECT_GE(arrived.load(), round * kRanks);
      ends.perform({}, By::kImmediate);
    }
  });
}

TEST(HostCollectives, ReduceInOrderOfRankWhateverTheSize) {
  constexpr int kRanks = 3;
  Host host(kRanks);
  run_ranks(host, [&](RankEnds& ends, int self) {
    for (const std::size_t count : {1UL, 1000UL, 200000UL}) {
      for (const By by : {By::kCico, By::kSingleCopy})
        for (const bool in_place : {false, true}) {
          // (1e17 + -1e17) + 1 is 1, while 1e17 + (-1e17 + 1) is 0: the order shows.
          std::vector<double> values(count, self == 0 ? 1e17 : self == 1 ? -1e17 : 1.0), sums(count);
          std::vector<double>& results = in_place ? values : sums;
          ends.perform({Collective::kAllreduce, reinterpret_cast<std::byte*>(values.data()),
                        reinterpret_cast<std::byte*>(results.data()), count, Type::kDouble, Op::kSum},
                       by);
          ASSERT_EQ(results, std::vector<double>(count, 1.0));
        }
    }
  });
}

TEST(SingleCopyExecutor, DoesNotTrustMemoryOfARankThatHasGivenUp) {
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kReduceScatter, Collective::kAllGather}) {
    Host host(2);
    CicoBuffers mine(Host::pointers(host.cico), 0), other(Host::pointers(host.cico), 1);
    const std::vector<std::int64_t> pids(2, ::getpid());
    std::vector<int> in(4), out(4), other_in(4), other_out(4);
    const auto call = [&](std::vector<int>& from, std::vector<int>& to) {
      return Call{.collective = collective,
                  .in = reinterpret_cast<std::byte*>(from.data()),
                  .out = reinterpret_cast<std::byte*>(to.data()),
                  .count = 2,
                  .type = Type::kInt32,
                  .op = Op::kSum};
    };
    SingleCopyExecutor executor(mine, pids, call(in, out)), of_other(other, pids, call(other_in, other_out));
    ASSERT_EQ(of_other.advance(), SingleCopyExecutor::State::kMoved);
    ASSERT_EQ(executor.advance(), SingleCopyExecutor::State::kMoved);
    ASSERT_TRUE(mine.is_level(1));  // seen, and not looked at again for that
    other.abandon();
    EXPECT_THROW(executor.advance(), Error);
  }
}

TEST(SingleCopyExecutor, DoesNotMindAReaderThatHasGoneAndFailedElsewhere) {
  Host host(3);
  std::vector<CicoBuffers> cico;
  for (int rank = 0; rank < 3; ++rank) cico.emplace_back(Host::pointers(host.cico), rank);
  const std::vector<std::int64_t> pids(3, ::getpid());
  std::vector<int> messages[3] = {{1, 2}, {0, 0}, {0, 0}};
  std::vector<SingleCopyExecutor> executors;
  executors.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {
    auto* bytes = reinterpret_cast<std::byte*>(messages[rank].data());
    executors.emplace_back(cico[static_cast<std::size_t>(rank)], pids,
                           Call{.collective = Collective::kBroadcast,
                                .in = bytes,
                                .out = bytes,
                                .count = 2,
                                .type = Type::kInt32});
  }
  const auto finish = [&](std::size_t rank) {
    for (int step = 0; step < 10; ++step)
      if (executors[rank].advance() == SingleCopyExecutor::State::kDone) return true;
    return false;
  };
  EXPECT_FALSE(finish(0));  // waits for its readers
  EXPECT_TRUE(finish(2));
  cico[2].abandon();
  EXPECT_TRUE(finish(1));
  EXPECT_EQ(messages[1], messages[0]);
}

TEST(CicoExecutor, ReportsARankThatGaveUp) {
  Host host(2);
  CicoBuffers mine(Host::pointers(host.cico), 0), other(Host::pointers(host.cico), 1);
  other.abandon();
  int value = 1;
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  CicoExecutor executor(mine, {Collective::kAllreduce, bytes, bytes, 1, Type::kInt32, Op::kSum});
  EXPECT_THROW(
      {
        while (executor.advance() != CicoExecutor::State::kDone) {
        }
      },
      Error);
}

TEST(PeerMemory, IsReadWithinThisProcessAndRefusedWhereNothingIs) {
  const std::uint64_t word = 42;
  const auto* at = reinterpret_cast<const std::byte*>(&word);
  EXPECT_FALSE(can_read_peer_memory(::getpid(), at, 43));
  EXPECT_FALSE(can_read_peer_memory(::getpid(), nullptr, 0));
  std::uint64_t copy = 0;
  read_peer_memory(::getpid(), reinterpret_cast<std::byte*>(&copy), at, sizeof(copy));
  EXPECT_EQ(copy, 42U);
}

TEST(PeerMemory, FailsWithTheProcessThatHasEnded) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  std::byte to[8];
  EXPECT_THROW(read_peer_memory(child, to, to, sizeof(to)), ProcessEnded);
}

TEST(StreamCopy, CopiesEveryLengthAtEveryAlignmentAndNothingBeside) {
  std::vector<std::byte> from(500), to(700);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 3 + 1);
  for (std::size_t bytes = 0; bytes <= 300; ++bytes)
    for (const std::size_t offset : {0UL, 1UL, 8UL, 63UL, 64UL}) {
      std::fill(to.begin(), to.end(), std::byte{0});
      stream_copy(to.data() + 64 + offset, from.data() + offset / 2, bytes);
      stream_fence();
      ASSERT_TRUE(std::equal(from.begin() + static_cast<std::ptrdiff_t>(offset / 2),
                             from.begin() + static_cast<std::ptrdiff_t>(offset / 2 + bytes),
                             to.begin() + static_cast<std::ptrdiff_t>(64 + offset)));
      ASSERT_EQ(to[63 + offset], std::byte{0});
      ASSERT_EQ(to[64 + offset + bytes], std::byte{0});
    }
}

}  // namespace
}  // namespace loom::device
