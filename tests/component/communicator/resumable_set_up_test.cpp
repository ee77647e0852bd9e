// The set-up for callers that may not wait: they perform its exchanges. And exchanges that are given up.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "component/communicator/set_up.hpp"
#include "tests/component/thread_ranks.hpp"

namespace loom::test {
namespace {

std::ptrdiff_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

loom_exchanged exchange(const loom_bootstrap& bootstrap, const loom_exchange& wanted) {
  return bootstrap.exchange(bootstrap.context, &wanted, nullptr);
}

/// Returns how many exchanges it had.
int drive(ResumableSetUp& set_up, const loom_bootstrap& bootstrap) {
  int exchanges = 0;
  loom_exchanged exchanged = LOOM_EXCHANGED;
  loom_exchange next;
  for (loom_set_up_state state; (state = set_up.advance(exchanged, &next)) != LOOM_SET_UP_DONE;) {
    if (state != LOOM_SET_UP_EXCHANGES) continue;
    exchanged = exchange(bootstrap, next);
    ++exchanges;
  }
  return exchanges;
}

void expect_sum(Rank& self, Communicator& communicator) {
  std::vector<int> in(500'000, self.rank()), out(in.size(), -1);
  EXPECT_TRUE(allreduce(communicator, reinterpret_cast<const std::byte*>(in.data()),
                        reinterpret_cast<std::byte*>(out.data()), in.size(), device::Type::kInt32,
                        device::Op::kSum));
  EXPECT_EQ(out, std::vector<int>(in.size(), self.size() * (self.size() - 1) / 2));
}

device::Call large_sum() {
  return {.collective = device::Collective::kAllreduce,
          .count = 500'000,
          .type = device::Type::kInt32,
          .op = device::Op::kSum};
}

TEST(ResumableSetUp, LetsTheRanksMeetAndThenMakesTheirLinks) {
  Job job{.ranks = 3};
  job.run([](Rank& self) {
    std::unique_ptr<Communicator> communicator;
    {
      ResumableSetUp agreement(self.bootstrap(), self.process(), self.engine(), nullptr);
      EXPECT_GT(drive(agreement, self.bootstrap()), 0);
      communicator = agreement.take();
    }
    ASSERT_NE(communicator, nullptr);
    EXPECT_TRUE(communicator->needs_links(large_sum()));
    ResumableSetUp linking(self.bootstrap(), self.process(), self.engine(), communicator.get());
    EXPECT_GT(drive(linking, self.bootstrap()), 0);
    EXPECT_EQ(linking.take(), nullptr);
    EXPECT_FALSE(communicator->needs_links(large_sum()));
    expect_sum(self, *communicator);
  });
}

TEST(ResumableSetUp, CanBeGivenUpAtAnyExchange) {
  Job job{.ranks = 2};
  pid_t first = 0;  // with it the thread sanitizer makes one of its own
  std::thread([&] { first = ::gettid(); }).join();
  // One that has been joined is still listed for a moment.
  while (std::filesystem::exists("/proc/self/task/" + std::to_string(first))) std::this_thread::yield();
  const std::ptrdiff_t before = threads();
  job.run([](Rank& self) {
    for (int most = 0; most < 6; ++most) {
      ResumableSetUp set_up(self.bootstrap(), self.process(), self.engine(), nullptr);
      loom_exchanged exchanged = LOOM_EXCHANGED;
      loom_exchange next;
      for (int i = 0; i < most && set_up.advance(exchanged, &next) == LOOM_SET_UP_EXCHANGES; ++i)
        exchanged = exchange(self.bootstrap(), next);
    }
  });
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (threads() != before && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_EQ(threads(), before);
}

TEST(ResumableSetUp, FailsWhereAnExchangeFails) {
  Job job{.ranks = 2};
  job.run([](Rank& self) {
    ResumableSetUp set_up(self.bootstrap(), self.process(), self.engine(), nullptr);
    loom_exchange next;
    ASSERT_EQ(set_up.advance(LOOM_EXCHANGED, &next), LOOM_SET_UP_EXCHANGES);
    ASSERT_EQ(set_up.advance(LOOM_EXCHANGE_FAILED, &next), LOOM_SET_UP_DONE);
    EXPECT_THROW(set_up.take(), BootstrapFailed);
  });
}

/// Nobody goes on with the first exchange; returns what the rank says, whose steps are as many as its number.
std::string cause_at_time_limit(int rank) {
  std::string text;
  Job job{.ranks = 3, .parameters = with_timeout(0.05)};
  job.run([&text, rank](Rank& self) {
    ResumableSetUp set_up(self.bootstrap(), self.process(), self.engine(), nullptr);
    loom_exchange next;
    const auto began = std::chrono::steady_clock::now();
    ASSERT_EQ(set_up.advance(LOOM_EXCHANGED, &next), LOOM_SET_UP_EXCHANGES);
    while (set_up.advance(LOOM_EXCHANGE_PENDING, &next) == LOOM_SET_UP_WAITS) std::this_thread::yield();
    EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(50));
    try {
      set_up.take();
      ADD_FAILURE() << "nobody has come";
    } catch (const ExchangeGivenUp& cause) {
      EXPECT_EQ(cause.code(), ErrorCode::kTimeout);
      if (self.rank() == rank) text = cause.what();
    }
  });
  return text;
}

TEST(ResumableSetUp, GivesAnExchangeUpAtTheTimeLimit) {
  EXPECT_NE(cause_at_time_limit(0).find(
                "Waiting for rank 1, which has not come to this call, or does not go on in it"),
            std::string::npos);
  EXPECT_NE(cause_at_time_limit(1).find("Waiting for rank 2, which may itself wait for another one"),
            std::string::npos);
}

TEST(ResumableSetUp, EndsOnAllRanksWhereOneStepsAside) {
  Job job{.ranks = 3};
  job.parameters_of = [](int rank) {
    loom_parameters parameters{};
    parameters.topo_file = rank == 1 ? "/nowhere/topology.xml" : nullptr;
    return parameters;
  };
  job.run([](Rank& self) {
    ResumableSetUp set_up(self.bootstrap(), self.process(), self.engine(), nullptr);
    drive(set_up, self.bootstrap());
    EXPECT_EQ(set_up.take(), nullptr);
  });
  EXPECT_EQ(job.transcript.messages(LOOM_MESSAGE_DECLINED).size(), 1U);
}

/// An exchange to which somebody does not come.
struct EndlessExchange {
  Process& process;
  static loom_exchanged exchange(void* context, const loom_exchange*, const loom_watch* watch) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < limit) {
      if (!watch->goes_on(watch->context)) return LOOM_EXCHANGE_GIVEN_UP;
      static_cast<EndlessExchange*>(context)->process.open_transport()->progress();
    }
    return LOOM_EXCHANGE_FAILED;
  }
  loom_bootstrap of(const loom_bootstrap& inner) {
    loom_bootstrap bootstrap = inner;
    bootstrap.context = this;
    bootstrap.exchange = exchange;
    bootstrap.standing = [](void*) { return loom_standing{.steps = 0, .awaited = 0}; };
    return bootstrap;
  }
};

TEST(SetUp, OfMoreLinksEndsWhereARankHasGivenUpTheFirst) {
  // The rank is on the first of two hosts; ranks 1 and 2 have links of both kinds to it.
  Job job{.ranks = 3, .host = [](int rank) { return "host" + std::to_string(rank / 2); }};
  job.parameters.tune = "all:ring,alltoall:pairwise";
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    expect_sum(self, *communicator);
    self.all_gather(0);
    if (self.rank() == 0) {
      communicator->leave();
    } else {
      EndlessExchange endless{self.process()};
      const loom_bootstrap bootstrap = endless.of(self.bootstrap());
      communicator->exchange_through(Bootstrap(bootstrap));
      std::vector<float> in(3 * 40'000), out(in.size());
      try {
        communicator->perform({.collective = device::Collective::kAllToAll,
                               .in = reinterpret_cast<const std::byte*>(in.data()),
                               .out = reinterpret_cast<std::byte*>(out.data()),
                               .count = 40'000,
                               .type = device::Type::kFloat});
        ADD_FAILURE() << "links were made with a rank that had given up";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kGivenUp) << error.what();
      }
    }
    self.all_gather(0);
  });
}

}  // namespace
}  // namespace loom::test
