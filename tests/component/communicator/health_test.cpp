// What the MPI library knows of revoked communicators and of failed ranks ends calls that wait. Ranks are
// threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "component/communicator/failure.hpp"
#include "tests/component/thread_ranks.hpp"

namespace loom {
namespace {

using device::Call;
using device::Collective;
using test::Rank;

std::atomic<int> told = LOOM_SUCCESS;

std::unique_ptr<Communicator> connect(Rank& self) {
  loom_bootstrap bootstrap = self.bootstrap();
  bootstrap.health = [](void*) { return loom_health{.result = told, .failed = 2}; };
  return Communicator::create(Bootstrap(bootstrap), self.process(), self.engine());
}

void tell_later(int what) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  told = what;
}

/// All ranks but the last perform the call, which ends with this error. other: what the last one does.
void expect_end(int hosts, Call call, ErrorCode code, const char* text,
                const std::function<void(Communicator&)>& other) {
  told = LOOM_SUCCESS;
  test::Job job{.ranks = 3};
  if (hosts > 1) job.host = [](int rank) { return "host" + std::to_string(rank); };
  job.run([&](Rank& self) {
    auto communicator = connect(self);
    std::vector<std::byte> mine(call.bytes()), result(call.bytes());
    Call performed = call;
    performed.in = mine.data();
    performed.out = result.data();
    ASSERT_TRUE(communicator->perform(performed));
    self.all_gather(0);  // all have read what the last one published
    if (self.rank() == self.size() - 1) {
      other(*communicator);
    } else {
      try {
        communicator->perform(performed);
        ADD_FAILURE() << "a call with an absent rank has ended well";
      } catch (const Error& error) {
        // A rank that hears it from another one is told no more than that one gave up, which is a lost rank.
        EXPECT_EQ(to_result(error.code()), to_result(code)) << error.what();
        if (error.code() != ErrorCode::kGivenUp) {
          EXPECT_THAT(error.what(), testing::HasSubstr(text));
        }
      }
    }
    self.all_gather(0);  // nobody frees what others still look at
  });
}

Call allreduce_of(std::size_t count) {
  return {.collective = Collective::kAllreduce,
          .count = count,
          .type = device::Type::kInt32,
          .op = device::Op::kSum};
}

class HealthOf : public testing::TestWithParam<std::pair<int, std::size_t>> {};
INSTANTIATE_TEST_SUITE_P(HostsAndCounts, HealthOf,
                         testing::Values(std::pair(1, std::size_t{1}), std::pair(1, std::size_t{300000}),
                                         std::pair(3, std::size_t{300000})));

TEST_P(HealthOf, EndsCallsOfARevokedCommunicator) {
  expect_end(GetParam().first, allreduce_of(GetParam().second), ErrorCode::kRevoked, "revoked",
             [](Communicator&) { tell_later(LOOM_ERR_REVOKED); });
}

TEST_P(HealthOf, EndsCallsWithAFailedRank) {
  expect_end(GetParam().first, allreduce_of(GetParam().second), ErrorCode::kPeerFailed, "rank 2 has failed",
             [](Communicator&) { tell_later(LOOM_ERR_PEER_FAILED); });
}

TEST_P(HealthOf, SaysWhyAPeerHasGivenUp) {
  expect_end(GetParam().first, allreduce_of(GetParam().second), ErrorCode::kRevoked, "revoked",
             [](Communicator& communicator) {
               told = LOOM_ERR_REVOKED;
               communicator.leave();
             });
}

TEST(Health, SaysNothingOfAPeerThatHasGivenUpByItself) {
  expect_end(1, allreduce_of(1), ErrorCode::kGivenUp, "",
             [](Communicator& communicator) { communicator.leave(); });
}

/// The result of an allreduce that does not wait, and that the other rank does not start.
void expect_end_of_request(int result, const std::function<void(Communicator&)>& other) {
  told = LOOM_SUCCESS;
  test::Job{.ranks = 2}.run([&](Rank& self) {
    auto communicator = connect(self);
    ASSERT_TRUE(communicator->perform({}));  // a barrier makes the links
    self.all_gather(0);
    if (self.rank() == 1) {
      other(*communicator);
    } else {
      std::vector<int> in(1000), out(1000);
      std::atomic<int> ended = 99;
      const Call call{.collective = Collective::kAllreduce,
                      .in = reinterpret_cast<const std::byte*>(in.data()),
                      .out = reinterpret_cast<std::byte*>(out.data()),
                      .count = in.size(),
                      .type = device::Type::kInt32,
                      .op = device::Op::kSum};
      const auto request = communicator->make_request(
          call, LOOM_NONBLOCKING,
          [](void* context, int with) { *static_cast<std::atomic<int>*>(context) = with; }, &ended);
      ASSERT_NE(request, nullptr);
      communicator->start(*request);
      while (ended == 99) self.engine().progress();
      EXPECT_EQ(ended, result);
    }
    self.all_gather(0);
  });
}

TEST(Health, EndsCallsThatDoNotWait) {
  expect_end_of_request(LOOM_ERR_REVOKED, [](Communicator&) { tell_later(LOOM_ERR_REVOKED); });
}

TEST(Health, OfACallThatDoesNotWaitIsAskedForAWhileWhenAPeerHasGivenUp) {
  expect_end_of_request(LOOM_ERR_REVOKED, [](Communicator& communicator) {
    communicator.leave();
    tell_later(LOOM_ERR_REVOKED);
  });
  expect_end_of_request(LOOM_ERR_PEER_FAILED, [](Communicator& communicator) { communicator.leave(); });
}

}  // namespace
}  // namespace loom
