// Persistent requests that have lanes: started in any order, or never, freed in any order, up to a limit of
// memory. Ranks are threads.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>

#include "tests/component/thread_ranks.hpp"

namespace loom {
namespace {

using device::Call;
using device::Collective;
using test::Rank;

loom_parameters with_lanes(std::uint64_t bytes = 16 << 20) {
  loom_parameters parameters{};
  parameters.lane_bytes = bytes;
  return parameters;
}

/// A sum whose result says which request and which start it is of.
struct Sum {
  Sum(Communicator& communicator, std::size_t count, int which) : label(which), in(count), out(count) {
    request = communicator.make_request_with_lane(call(), set_done, this);
  }
  Call call() {
    return {.collective = Collective::kAllreduce,
            .in = reinterpret_cast<const std::byte*>(in.data()),
            .out = reinterpret_cast<std::byte*>(out.data()),
            .count = in.size(),
            .type = device::Type::kInt32,
            .op = device::Op::kSum};
  }
  static void set_done(void* context, int result) {
    auto& self = *static_cast<Sum*>(context);
    self.result = result;
    self.done.store(true);
  }
  void start(Rank& self) {
    const int first = 1000 * label + 7 * starts++ + self.rank();
    std::iota(in.begin(), in.end(), first);
    std::fill(out.begin(), out.end(), -1);
    done.store(false);
    request->communicator.start(*request);
  }
  void wait(Rank& self) {
    while (!done)
      if (self.engine().progress() == 0) ::sched_yield();
  }
  void finish(Rank& self) {
    wait(self);
    ASSERT_EQ(result, LOOM_SUCCESS);
    const int n = self.size(), first = 1000 * label + 7 * (starts - 1);
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], n * (first + static_cast<int>(i)) + n * (n - 1) / 2) << label << ", " << i;
  }

  int label, starts = 0, result = 99;
  std::vector<int> in, out;
  std::atomic<bool> done{false};
  std::unique_ptr<Request> request;
};

class LanesOf : public ::testing::TestWithParam<int> {};

TEST_P(LanesOf, RequestsStartInAnyOrderOnEachRank) {
  test::Job{.ranks = GetParam(), .parameters = with_lanes()}.run([](Rank& self) {
    auto communicator = self.connect();
    std::deque<Sum> sums;
    for (int i = 0; i < 30; ++i) {
      sums.emplace_back(*communicator, i % 3 == 0 ? 3 : i % 3 == 1 ? 5000 : 100'000, i);
      ASSERT_NE(sums.back().request, nullptr);
    }
    std::mt19937 own(static_cast<unsigned>(self.rank()));
    std::vector<std::size_t> order(sums.size());
    std::iota(order.begin(), order.end(), 0);
    for (int round = 0; round < 4; ++round) {
      std::shuffle(order.begin(), order.end(), own);
      for (const std::size_t i : order) sums[i].start(self);
      std::shuffle(order.begin(), order.end(), own);
      for (const std::size_t i : order) sums[i].finish(self);
    }
  });
}

TEST_P(LanesOf, OneThatIsNeverStartedKeepsNoOtherWaiting) {
  test::Job{.ranks = GetParam(), .parameters = with_lanes()}.run([](Rank& self) {
    auto communicator = self.connect();
    Sum before(*communicator, 10, 1), never(*communicator, 10, 2), after(*communicator, 20'000, 3);
    for (int round = 0; round < 5; ++round) {
      after.start(self);
      before.start(self);
      std::vector<int> values(100, 1);
      auto* const bytes = reinterpret_cast<std::byte*>(values.data());
      ASSERT_TRUE(test::allreduce(*communicator, bytes, bytes, 100, device::Type::kInt32, device::Op::kSum));
      EXPECT_EQ(values[99], self.size());
      before.finish(self);
      after.finish(self);
    }
  });
}

/// As long as few live at a time, they go on getting lanes, also on communicators that come and go.
TEST_P(LanesOf, TheMemoryOfFreedRequestsIsUsedAgain) {
  test::Job{.ranks = GetParam(), .parameters = with_lanes(256 * 1024)}.run([](Rank& self) {
    std::mt19937 own(static_cast<unsigned>(self.rank())), same(7);
    for (int turn = 0; turn < 3; ++turn) {
      auto communicator = self.connect();
      std::vector<std::unique_ptr<Sum>> sums;
      for (int i = 0; i < 600; ++i) {
        sums.push_back(std::make_unique<Sum>(*communicator, same() % 2000 + 1, i));
        ASSERT_NE(sums.back()->request, nullptr) << i;
        if (same() % 3 == 0) {
          sums.back()->start(self);
          sums.back()->finish(self);
        }
        // Which ones live is the same on all ranks, but not when each goes.
        if (sums.size() == 3) {
          std::shuffle(sums.begin(), sums.end(), own);
          sums.clear();
        }
      }
    }
  });
}

TEST_P(LanesOf, BeyondTheLimitNoRankGetsALane) {
  std::atomic<int> carried{0};
  test::Job{.ranks = GetParam(), .parameters = with_lanes(300 * 1024)}.run([&](Rank& self) {
    auto communicator = self.connect();
    std::deque<Sum> sums;
    int with_lane = 0;
    for (int i = 0; i < 1000; ++i) {
      sums.emplace_back(*communicator, i % 2 == 0 ? 2 : 2000, i);
      with_lane += sums.back().request != nullptr;
    }
    EXPECT_EQ(self.all_gather(with_lane), std::vector<int>(static_cast<std::size_t>(self.size()), with_lane));
    for (Sum& sum : sums)
      if (sum.request) {
        sum.start(self);
        sum.finish(self);
      }
    carried += with_lane;
  });
  EXPECT_GT(carried, 20 * GetParam());
  EXPECT_LT(carried, 1000 * GetParam());
}

TEST_P(LanesOf, TheLeastLimitOfAllRanksCounts) {
  test::Job job{.ranks = GetParam()};
  job.parameters_of = [](int rank) { return with_lanes(rank == 1 ? 0 : 1 << 20); };
  job.run([](Rank& self) {
    auto communicator = self.connect();
    const Sum sum(*communicator, 10, 0);
    EXPECT_EQ(sum.request, nullptr);
  });
}

/// An error of the program; whoever gets them looks at their sizes.
TEST_P(LanesOf, CallsThatDifferGetNone) {
  test::Job{.ranks = GetParam(), .parameters = with_lanes()}.run([](Rank& self) {
    auto communicator = self.connect();
    const Sum other_size(*communicator, self.rank() == 1 ? 10 : 20, 0);
    EXPECT_EQ(other_size.request, nullptr);
    Sum right(*communicator, 10, 1);
    ASSERT_NE(right.request, nullptr);
    right.start(self);
    right.finish(self);
  });
}

TEST_P(LanesOf, RanksThatWaitLearnOfOneThatGivesUp) {
  test::Job{.ranks = GetParam(), .parameters = with_lanes()}.run([](Rank& self) {
    auto communicator = self.connect();
    Sum small(*communicator, 3, 1), large(*communicator, 50'000, 2), never(*communicator, 3, 3);
    self.all_gather(0);  // making them waits for all
    if (self.rank() == 1) {
      communicator->leave();
      return;
    }
    small.start(self);
    large.start(self);
    small.wait(self);
    large.wait(self);
    EXPECT_NE(small.result, LOOM_SUCCESS);
    EXPECT_NE(large.result, LOOM_SUCCESS);
    EXPECT_THROW(Sum(*communicator, 3, 4), Error);
  });
}

TEST_P(LanesOf, AStartThatARankMissesEndsAtTheTimeLimit) {
  loom_parameters parameters = with_lanes();
  parameters.timeout_s = 0.5;
  test::Job job{.ranks = GetParam(), .parameters = parameters};
  job.run([](Rank& self) {
    auto communicator = self.connect();
    Sum sum(*communicator, 3, 1);
    if (self.rank() == 1) return;
    sum.start(self);
    sum.wait(self);
    EXPECT_NE(sum.result, LOOM_SUCCESS);
  });
  const auto messages = job.transcript.messages(LOOM_MESSAGE_TIMEOUT);
  ASSERT_GE(messages.size(), 1U);
  EXPECT_NE(messages.front().find("Waiting for rank 1"), std::string::npos) << messages.front();
}

TEST_P(LanesOf, SeveralThreadsStartAndAProgressThreadAdvances) {
  loom_parameters parameters = with_lanes();
  parameters.progress_thread = true;
  test::Job{.ranks = GetParam(), .parameters = parameters}.run([](Rank& self) {
    auto communicator = self.connect();
    std::deque<Sum> sums;
    for (int i = 0; i < 6; ++i) sums.emplace_back(*communicator, i % 2 == 0 ? 10 : 30'000, i);
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < 3; ++thread)
      threads.emplace_back([&, thread] {
        const auto odd = static_cast<std::size_t>(self.rank() % 2);
        Sum &first = sums[thread * 2 + odd], &second = sums[thread * 2 + 1 - odd];
        for (int round = 0; round < 30; ++round) {
          first.start(self);
          second.start(self);
          first.finish(self);
          second.finish(self);
        }
      });
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, LanesOf, ::testing::Values(2, 3, 4, 7));

TEST(Lanes, AreForRanksOfOneHost) {
  test::Job job{.ranks = 2, .parameters = with_lanes()};
  job.host = [](int rank) { return "host" + std::to_string(rank); };
  job.run([](Rank& self) {
    auto communicator = self.connect();
    const Sum sum(*communicator, 10, 0);
    EXPECT_EQ(sum.request, nullptr);
    EXPECT_FALSE(communicator->declines({.collective = Collective::kAllreduce,
                                         .count = 1 << 20,
                                         .type = device::Type::kInt32,
                                         .op = device::Op::kSum}));
  });
}

}  // namespace
}  // namespace loom
