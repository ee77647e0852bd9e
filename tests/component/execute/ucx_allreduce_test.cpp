#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/component/allreduce_cases.hpp"

namespace loom::test {
namespace {

struct Placement {
  const char* name;
  std::vector<int> host_of;  ///< by rank
  loom_rendezvous rendezvous = LOOM_RENDEZVOUS_AUTO;
};

Job job_on(const Placement& placement) {
  return {.ranks = static_cast<int>(placement.host_of.size()),
          .host =
              [&](int rank) {
                return "host" + std::to_string(placement.host_of[static_cast<std::size_t>(rank)]);
              },
          .parameters = with_rendezvous(placement.rendezvous)};
}

class AllreduceAcrossHosts : public ::testing::TestWithParam<Placement> {
 protected:
  void SetUp() override { setenv("UCX_TLS", "tcp,self", 1); }
};

TEST_P(AllreduceAcrossHosts, SumsMessagesOfEverySize) {
  Job job = job_on(GetParam());
  std::atomic<std::uint64_t> bytes_sent = 0;
  job.run([&](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    int call = 0, carried = 0;
    // The first ones are left to the fallback component.
    for (const std::size_t count : {0UL, 1UL, 1000UL, 131072UL, 131073UL, 1000003UL, 3000001UL}) {
      ++call;
      const bool in_place = call % 2 == 0;
      carried += check_sum<float>(self, *communicator, device::Type::kFloat, count, in_place, call);
      carried += check_sum<std::int64_t>(self, *communicator, device::Type::kInt64, count, !in_place, call);
    }
    EXPECT_GE(carried, 8) << "loom left too much to the fallback component";
    if (const auto* transport = self.process().open_transport()) bytes_sent += transport->bytes_sent();
  });
  EXPECT_GT(bytes_sent, 8U * 3000001);
  EXPECT_TRUE(job.transcript.messages(LOOM_MESSAGE_DECLINED).empty());
}

TEST_P(AllreduceAcrossHosts, GoesByHierIfItIsSmall) {
  std::vector<int> hosts = GetParam().host_of;
  std::ranges::sort(hosts);
  const bool several = std::ranges::adjacent_find(hosts) != hosts.end();
  const bool two_ranks = hosts.size() == 2;  // longer messages go by a rail
  Job job = job_on(GetParam());
  job.parameters.tune = kHierAtOnce;
  job.run([&](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    int call = 0;
    for (const std::size_t count : {1UL, 1000UL, 2000UL, 5000UL, 60000UL}) {
      ++call;
      EXPECT_EQ(check_sum<float>(self, *communicator, device::Type::kFloat, count, call % 2 == 0, call),
                several || two_ranks || count <= 2000);
    }
    EXPECT_EQ(communicator->perform({.collective = device::Collective::kBarrier}), several);
  });
}

TEST(HierLinks, BeginWithTheSixtyFourthSmallCallOrOnceThereAreLinks) {
  setenv("UCX_TLS", "tcp,self", 1);
  Job job{.ranks = 4, .host = [](int rank) { return "host" + std::to_string(rank / 2); }};
  job.run([&](Rank& self) {
    const auto sum = [&](Communicator& communicator, std::size_t count, int call) {
      return check_sum<float>(self, communicator, device::Type::kFloat, count, false, call);
    };
    const auto small = self.connect();
    for (int call = 1; call <= 66; ++call) EXPECT_EQ(sum(*small, 10, call), call >= 64) << call;
    const auto large = self.connect();
    EXPECT_FALSE(sum(*large, 10, 1));
    EXPECT_TRUE(sum(*large, 1'000'000, 2));
    EXPECT_TRUE(sum(*large, 10, 3));
  });
}

TEST_P(AllreduceAcrossHosts, MayBeFreedRightAfterTheCall) {
  Job job = job_on(GetParam());
  job.run([](Rank& self) {
    for (int call = 0; call < 10; ++call) {
      const auto communicator = self.connect();
      ASSERT_NE(communicator, nullptr);
      EXPECT_TRUE(check_sum<float>(self, *communicator, device::Type::kFloat, 200000, true, call));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Placements, AllreduceAcrossHosts,
    ::testing::Values(Placement{"TwoHosts", {0, 1}}, Placement{"ThreeHosts", {0, 1, 2}},
                      Placement{"TwoByTwo", {0, 0, 1, 1}},
                      Placement{"ThreeByTwoRoundRobin", {0, 1, 2, 0, 1, 2}}, Placement{"Unequal", {0, 0, 1}},
                      Placement{"UnequalInterleaved", {0, 1, 0, 2, 0}},
                      Placement{"TwoHostsThatFetch", {0, 1}, LOOM_RENDEZVOUS_ALWAYS},
                      Placement{"ThreeByTwoThatFetch", {0, 0, 1, 1, 2, 2}, LOOM_RENDEZVOUS_ALWAYS}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(AllreduceAcrossHostsThatWaits, EndsAtTheTimeoutOnAllRanksOnceOneIsMissing) {
  setenv("UCX_TLS", "tcp,self", 1);
  Job job{.ranks = 4,
          .host = [](int rank) { return "host" + std::to_string(rank); },
          .parameters = with_timeout(2)};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    EXPECT_TRUE(check_sum<float>(self, *communicator, device::Type::kFloat, 200000, true, 0));
    std::vector<float> values(500000);
    if (self.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
    try {
      allreduce(*communicator, bytes_of(values), bytes_of(values), values.size(), device::Type::kFloat,
                device::Op::kSum);
      ADD_FAILURE() << "rank " << self.rank();
    } catch (const Error& error) {
      // Rank 0 waits for the missing one; rank 1 for rank 0, which it knows to wait as well.
      if (self.rank() == 0) {
        EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
        EXPECT_THAT(error.what(), ::testing::HasSubstr("Waiting for rank 3"));
      }
      if (self.rank() == 1) {
        EXPECT_EQ(error.code(), ErrorCode::kGivenUp) << error.what();
      }
    }
  });
}

TEST(SetUpAcrossHosts, StepsAsideOnAllRanksWithOneMessageWhereUcxReachesNobody) {
  setenv("UCX_TLS", "self", 1);
  Job job{.ranks = 3, .host = [](int rank) { return "host" + std::to_string(rank); }};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    std::vector<float> values(500000, 1.0f);
    EXPECT_FALSE(allreduce(*communicator, bytes_of(values), bytes_of(values), values.size(),
                           device::Type::kFloat, device::Op::kSum));
    EXPECT_THAT(values, ::testing::Each(1.0f));
    EXPECT_EQ(self.process().counters().declined, 1U);
  });
  const auto messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(messages[0], ::testing::HasSubstr("UCX finds no transport to rank 1"));
}

/// The ports nearest to a rank may lead nowhere.
TEST(SetUpAcrossHosts, LeavesPortsToUcxOnAllRanksWhereThoseOfOneLeadNowhere) {
  setenv("UCX_TLS", "tcp,self", 1);
  Job job{.ranks = 3, .host = [](int rank) { return "host" + std::to_string(rank); }};
  job.parameters.verbose = 1;
  std::atomic<int> asked = 0;
  job.run([&](Rank& self) {
    if (self.rank() == 1)
      self.process().find_ports_by([&] {
        ++asked;
        return std::string("no_such_port0");
      });
    for (int round = 0; round < 2; ++round) {
      const auto communicator = self.connect();
      ASSERT_NE(communicator, nullptr);
      EXPECT_TRUE(check_sum<float>(self, *communicator, device::Type::kFloat, 500'000, false, round));
      EXPECT_TRUE(check_sum<float>(self, *communicator, device::Type::kFloat, 500'000, true, round + 2));
    }
    EXPECT_EQ(self.process().counters().declined, 0U);
    EXPECT_TRUE(self.process().leaves_ports_to_ucx());
  });
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(job.transcript.messages(LOOM_MESSAGE_DECLINED).empty());
  EXPECT_THAT(job.transcript.lines(),
              ::testing::Contains(::testing::HasSubstr("UCX chooses the ports of links between hosts next"))
                  .Times(1));
}

/// Then the cause of the last attempt is told, once for each communicator, and later ones try anew.
TEST(SetUpAcrossHosts, StepsAsideWhereUcxsOwnPortsLeadNowhereEither) {
  setenv("UCX_TLS", "self", 1);
  Job job{.ranks = 2, .host = [](int rank) { return "host" + std::to_string(rank); }};
  std::atomic<int> asked = 0;
  job.run([&](Rank& self) {
    self.process().find_ports_by([&] {
      ++asked;
      return std::string("no_such_port0");
    });
    for (unsigned round = 1; round <= 2; ++round) {
      const auto communicator = self.connect();
      ASSERT_NE(communicator, nullptr);
      std::vector<float> values(500000, 1.0f);
      EXPECT_FALSE(allreduce(*communicator, bytes_of(values), bytes_of(values), values.size(),
                             device::Type::kFloat, device::Op::kSum));
      EXPECT_EQ(self.process().counters().declined, round);
      EXPECT_FALSE(self.process().leaves_ports_to_ucx());
    }
  });
  EXPECT_GE(asked, 2);
  EXPECT_THAT(job.transcript.messages(LOOM_MESSAGE_DECLINED),
              ::testing::ElementsAre(::testing::HasSubstr("UCX finds no transport"),
                                     ::testing::HasSubstr("UCX finds no transport")));
}

}  // namespace
}  // namespace loom::test
