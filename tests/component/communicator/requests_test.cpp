// Calls that do not wait: order, mixtures with calls that do, several communicators, failures. Ranks are
// threads.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <numeric>
#include <random>

#include "tests/component/thread_ranks.hpp"

namespace loom {
namespace {

using device::Call;
using device::Collective;
using test::allreduce;
using test::Rank;

/// One started call and what became of it.
struct Started {
  std::vector<int> in, out;
  std::unique_ptr<loom::Request> job;
  std::atomic<bool> done{false};
  int result = 99;
  int seed = 0;

  static void set_done(void* context, int result) {
    auto& self = *static_cast<Started*>(context);
    self.result = result;
    self.done = true;
  }
};

Call sum_of(Started& call, Collective collective = Collective::kAllreduce) {
  return {.collective = collective,
          .in = reinterpret_cast<const std::byte*>(call.in.data()),
          .out = reinterpret_cast<std::byte*>(call.out.data()),
          .count = call.in.size(),
          .type = device::Type::kInt32,
          .op = device::Op::kSum};
}

void fill(Started& call, Rank& self, std::size_t count, int seed) {
  call.seed = seed;
  call.in.resize(count);
  call.out.assign(count, -1);
  std::iota(call.in.begin(), call.in.end(), seed + self.rank());
}

void expect_sum(const Started& call, Rank& self, Collective collective = Collective::kAllreduce) {
  const int operands = collective == Collective::kScan ? self.rank() + 1 : self.size();
  for (std::size_t i = 0; i < call.out.size(); ++i)
    ASSERT_EQ(call.out[i], operands * (call.seed + static_cast<int>(i)) + operands * (operands - 1) / 2) << i;
}

void start(Started& call, Communicator& communicator, Collective collective = Collective::kAllreduce) {
  call.job = communicator.make_request(sum_of(call, collective), LOOM_NONBLOCKING, Started::set_done, &call);
  ASSERT_NE(call.job, nullptr);
  communicator.start(*call.job);
}

void wait(Started& call, Rank& self) {
  while (!call.done)
    if (self.engine().progress() == 0) ::sched_yield();
}

void barrier(Communicator& communicator) {
  ASSERT_TRUE(communicator.perform({}));
}

TEST(Jobs, AreDeclinedUntilACallThatMayWaitHasMadeTheLinks) {
  test::Job{.ranks = 3}.run([](Rank& self) {
    auto communicator = self.connect();
    Started call;
    fill(call, self, 100, 1);
    EXPECT_EQ(communicator->make_request(sum_of(call), LOOM_NONBLOCKING, Started::set_done, &call), nullptr);
    EXPECT_EQ(self.process().counters().of[LOOM_ALLREDUCE].fallbacks_by[LOOM_NOT_CONNECTED], 1U);
    EXPECT_NE(communicator->make_request(sum_of(call), LOOM_PERSISTENT, Started::set_done, &call), nullptr);
    start(call, *communicator);
    wait(call, self);
    expect_sum(call, self);
    barrier(*communicator);
  });
}

class JobsOf : public ::testing::TestWithParam<int> {};

TEST_P(JobsOf, ManyAreOutstandingAndWaitedForInAnyOrder) {
  test::Job{.ranks = GetParam()}.run([](Rank& self) {
    auto communicator = self.connect();
    barrier(*communicator);
    std::mt19937 same(5), own(static_cast<unsigned>(self.rank()) + 17);
    std::deque<Started> calls(60);
    std::vector<Collective> of;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      fill(calls[i], self, same() % 5 == 0 ? same() % 100'000 : same() % 100, static_cast<int>(i));
      of.push_back(same() % 2 == 0 ? Collective::kAllreduce : Collective::kScan);
      start(calls[i], *communicator, of.back());
    }
    std::vector<std::size_t> order(calls.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), own);
    for (const std::size_t i : order) {
      wait(calls[i], self);
      EXPECT_EQ(calls[i].result, LOOM_SUCCESS);
      expect_sum(calls[i], self, of[i]);
    }
    barrier(*communicator);
  });
}

TEST_P(JobsOf, AreDoneBeforeACallThatWaitsAndWhichWasMadeAfterThem) {
  test::Job{.ranks = GetParam()}.run([](Rank& self) {
    auto communicator = self.connect();
    barrier(*communicator);
    for (int round = 0; round < 50; ++round) {
      Started first, second;
      fill(first, self, 3000, round);
      fill(second, self, 2, round + 7);
      start(first, *communicator);
      std::vector<int> values(10, self.rank());
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      ASSERT_TRUE(
          allreduce(*communicator, bytes, bytes, values.size(), device::Type::kInt32, device::Op::kMax));
      EXPECT_EQ(values, std::vector<int>(10, self.size() - 1));
      EXPECT_TRUE(first.done);
      expect_sum(first, self);
      start(second, *communicator);
      wait(second, self);
      expect_sum(second, self);
    }
    barrier(*communicator);
  });
}

TEST_P(JobsOf, OfSeveralCommunicatorsDoNotWaitForEachOther) {
  test::Job{.ranks = GetParam()}.run([](Rank& self) {
    auto one = self.connect(), other = self.connect();
    barrier(*one);
    barrier(*other);
    for (int round = 0; round < 20; ++round) {
      Started a, b;
      fill(a, self, 20'000, round);
      fill(b, self, 5, round);
      // In different orders: a communicator's jobs must not wait for those of another one.
      start(self.rank() % 2 == 0 ? a : b, self.rank() % 2 == 0 ? *one : *other);
      start(self.rank() % 2 == 0 ? b : a, self.rank() % 2 == 0 ? *other : *one);
      wait(b, self);
      wait(a, self);
      expect_sum(a, self);
      expect_sum(b, self);
    }
    barrier(*one);
  });
}

TEST_P(JobsOf, AreStartedAgainAndAgain) {
  test::Job{.ranks = GetParam()}.run([](Rank& self) {
    auto communicator = self.connect();
    Started call;
    fill(call, self, 500, 3);
    call.job = communicator->make_request(sum_of(call), LOOM_PERSISTENT, Started::set_done, &call);
    for (int start = 0; start < 30; ++start) {
      call.done = false;
      call.out.assign(call.out.size(), -1);
      communicator->start(*call.job);
      wait(call, self);
      expect_sum(call, self);
    }
    const loom_collective_counters counters = self.process().counters().of[LOOM_ALLREDUCE];
    EXPECT_EQ(std::accumulate(std::begin(counters.by), std::end(counters.by), std::uint64_t{0}), 30U);
    barrier(*communicator);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, JobsOf, ::testing::Values(1, 2, 3, 5),
                         [](const auto& test) { return std::to_string(test.param); });

TEST(Jobs, AdvanceInAThreadWhileTheProgramComputes) {
  loom_parameters parameters{};
  parameters.progress_thread = true;
  test::Job{.ranks = 2, .parameters = parameters}.run([](Rank& self) {
    auto communicator = self.connect();
    barrier(*communicator);
    for (int call = 0; call < 2; ++call) {
      Started large;
      fill(large, self, 8 << 20, call);
      start(large, *communicator);
      // Some hundred rounds, of which a look takes a few; between looks ever more time, for slow machines.
      constexpr int kFew = 16;
      int looks = 0;
      for (; !large.done; ++looks) {
        if (looks < kFew) usleep(50'000U << looks / 2);
        self.engine().progress();
      }
      EXPECT_LT(looks, kFew);
      EXPECT_EQ(large.result, LOOM_SUCCESS);
      expect_sum(large, self);
    }
  });
}

TEST(Jobs, TellOfAFailureInTheThreadWhereTheProgramCalls) {
  test::Job job{.ranks = 2, .parameters_of = [](int) {
                  loom_parameters parameters = test::with_timeout(0.3);
                  parameters.progress_thread = true;
                  return parameters;
                }};
  job.run([](Rank& self) {
    auto communicator = self.connect();
    barrier(*communicator);
    if (self.rank() == 1) {
      usleep(1'000'000);
      return;
    }
    Started call;
    fill(call, self, 100, 0);
    start(call, *communicator);
    usleep(800'000);
    EXPECT_FALSE(call.done) << "told by the thread";
    wait(call, self);
    EXPECT_EQ(call.result, LOOM_ERR_TIMEOUT);
  });
  EXPECT_EQ(job.transcript.messages(LOOM_MESSAGE_TIMEOUT).size(), 1U);
}

TEST(Jobs, FailOnAllRanksWhenOneGivesUp) {
  test::Job job{.ranks = 3};
  std::atomic<int> connected{0};
  job.run([&](Rank& self) {
    auto communicator = self.connect();
    barrier(*communicator);
    for (++connected; connected < 3;) ::sched_yield();
    std::deque<Started> calls(3);
    if (self.rank() == 2) return communicator->leave();
    for (Started& call : calls) {
      fill(call, self, 100, 0);
      try {
        start(call, *communicator);
      } catch (const Error&) {
        return;  // it knew already
      }
    }
    for (Started& call : calls) {
      wait(call, self);
      EXPECT_EQ(call.result, LOOM_ERR_PEER_FAILED);
    }
    EXPECT_THROW(communicator->perform({}), Error);
  });
  EXPECT_EQ(job.transcript.messages(LOOM_MESSAGE_GIVEN_UP).size(), 2U);
}

TEST(Jobs, FailWhereTheProgramGivesUpWhileTheThreadAdvancesThem) {
  for (int round = 0; round < 20; ++round) {
    test::Job job{.ranks = 2};
    job.parameters.progress_thread = true;
    std::atomic<int> connected{0};
    job.run([&](Rank& self) {
      auto communicator = self.connect();
      barrier(*communicator);
      for (++connected; connected < 2;) ::sched_yield();
      Started call;
      fill(call, self, 100, 0);
      if (self.rank() == 1) {
        try {
          start(call, *communicator);
        } catch (const Error&) {
          return;
        }
      } else {
        start(call, *communicator);
        communicator->leave();
        EXPECT_THROW(communicator->perform({}), Error);
      }
      wait(call, self);
    });
  }
}

TEST(Jobs, AreDoneWithTheirCommunicatorWhenACallThatWaitsHasReturned) {
  loom_parameters parameters{};
  parameters.progress_thread = true;
  test::Job{.ranks = 2, .parameters = parameters}.run([](Rank& self) {
    for (int round = 0; round < 300; ++round) {
      auto communicator = self.connect();
      barrier(*communicator);
      Started call;
      fill(call, self, 10, round);
      start(call, *communicator);
      barrier(*communicator);
      communicator.reset();
      wait(call, self);
      expect_sum(call, self);
    }
  });
}

TEST(Jobs, OfABrokenCommunicatorAreNotMadeByACallThatMayWait) {
  // Two ranks of either host, so that an all-to-all wants links of its own.
  test::Job job{.ranks = 4, .host = [](int rank) { return "host" + std::to_string(rank / 2); }};
  std::atomic<int> connected{0};
  job.run([&](Rank& self) {
    auto communicator = self.connect();
    std::vector<int> in(4 * 40'000, 1), out(in.size());
    auto* const bytes = reinterpret_cast<std::byte*>(in.data());
    ASSERT_TRUE(allreduce(*communicator, bytes, bytes, in.size(), device::Type::kInt32, device::Op::kSum));
    for (++connected; connected < 4;) ::sched_yield();
    communicator->leave();
    Started call;
    EXPECT_THROW(communicator->make_request({.collective = Collective::kAllToAll,
                                             .in = bytes,
                                             .out = reinterpret_cast<std::byte*>(out.data()),
                                             .count = 40'000,
                                             .type = device::Type::kInt32},
                                            LOOM_PERSISTENT, Started::set_done, &call),
                 Error);
  });
}

TEST(Jobs, EndAtTheTimeLimitWithTheNameOfTheMissingRank) {
  test::Job job{.ranks = 2, .parameters = test::with_timeout(0.5)};
  job.run([](Rank& self) {
    auto communicator = self.connect();
    barrier(*communicator);
    if (self.rank() == 1) return;
    Started call;
    fill(call, self, 100, 0);
    start(call, *communicator);
    wait(call, self);
    EXPECT_EQ(call.result, LOOM_ERR_TIMEOUT);
  });
  const auto messages = job.transcript.messages(LOOM_MESSAGE_TIMEOUT);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_NE(messages.front().find("Waiting for rank 1"), std::string::npos);
}

}  // namespace
}  // namespace loom
