#include <random>

#include "tests/component/allreduce_cases.hpp"

namespace loom::test {
namespace {

class AllreduceOnOneHost : public ::testing::TestWithParam<int> {};

TEST_P(AllreduceOnOneHost, SumsMessagesOfEverySize) {
  Job job{.ranks = GetParam()};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    int call = 0;
    for (const std::size_t count : {0UL, 1UL, 2UL, 13UL, 14UL, 15UL, 1000UL, 4093UL, 4094UL, 4095UL, 4096UL,
                                    20000UL, 65536UL, 300007UL, 1000003UL}) {
      EXPECT_TRUE(check_sum<float>(self, *communicator, device::Type::kFloat, count, false, ++call));
      EXPECT_TRUE(check_sum<std::int64_t>(self, *communicator, device::Type::kInt64, count, true, ++call));
      EXPECT_TRUE(check_sum<std::int8_t>(self, *communicator, device::Type::kInt8, count, true, ++call));
    }
  });
}

TEST_P(AllreduceOnOneHost, KeepsCallsOfMixedSizesApart) {
  Job job{.ranks = GetParam()};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    std::mt19937 random(7);  // the same sizes on every rank
    for (int call = 0; call < 300; ++call) {
      const std::size_t count = std::size_t{1} << random() % 16;
      EXPECT_TRUE(check_sum<double>(self, *communicator, device::Type::kDouble, count + random() % 3,
                                    call % 2, call));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllreduceOnOneHost, ::testing::Values(1, 2, 3, 4, 5, 8),
                         [](const auto& test) { return std::to_string(test.param); });

TEST(Allreduce, GivesBitwiseEqualResultsOnAllRanks) {
  for (const std::size_t count : {100UL, 100000UL}) {
    Job job{.ranks = 4};
    std::vector<std::vector<float>> results(4);
    job.run([&](Rank& self) {
      const auto communicator = self.connect();
      std::mt19937 random(static_cast<unsigned>(self.rank()));
      std::uniform_real_distribution<float> uniform(-1, 1);
      std::vector<float> values(count);
      for (float& value : values) value = uniform(random);
      ASSERT_TRUE(allreduce(*communicator, bytes_of(values), bytes_of(values), count, device::Type::kFloat,
                            device::Op::kSum));
      results[static_cast<std::size_t>(self.rank())] = values;
    });
    for (const auto& result : results) EXPECT_EQ(result, results[0]);
  }
}

TEST(Allreduce, DeclinesWhatHasNoKernelOnEveryRank) {
  Job job{.ranks = 3};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    std::vector<float> values(8);
    EXPECT_FALSE(allreduce(*communicator, bytes_of(values), bytes_of(values), 8, device::Type::kFloat,
                           device::Op::kBand));
    EXPECT_TRUE(check_sum<float>(self, *communicator, device::Type::kFloat, 8, true, 1));
  });
}

TEST(Allreduce, ServesManyCommunicatorsSideBySide) {
  Job job{.ranks = 3};
  job.run([](Rank& self) {
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (int i = 0; i < 20; ++i) communicators.push_back(self.connect());
    for (int call = 0; call < 100; ++call) {
      Communicator& communicator = *communicators[static_cast<std::size_t>(call * 7 % 20)];
      EXPECT_TRUE(
          check_sum<float>(self, communicator, device::Type::kFloat, call % 3 ? 10 : 30000, true, call));
    }
  });
}

TEST(Allreduce, WaitsForALateRank) {
  Job job{.ranks = 2};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    if (self.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    EXPECT_TRUE(check_sum<float>(self, *communicator, device::Type::kFloat, 5, true, 1));
  });
}

TEST(Allreduce, EndsAtTheTimeoutAndNamesTheMissingRank) {
  for (const std::size_t count : {4UL, 400000UL}) {
    Job job{.ranks = 2, .parameters = with_timeout(0.5)};
    job.run([&](Rank& self) {
      const auto communicator = self.connect();
      EXPECT_TRUE(
          check_sum<float>(self, *communicator, device::Type::kFloat, 4, true, 0));  // makes the links
      if (self.rank() == 1) return;                                                  // never calls again
      std::vector<float> values(count);
      const auto call = [&] {
        allreduce(*communicator, bytes_of(values), bytes_of(values), count, device::Type::kFloat,
                  device::Op::kSum);
      };
      try {
        call();
        ADD_FAILURE() << "the call ended without its peer";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kTimeout);
        EXPECT_NE(std::string(error.what()).find("rank 1 (process"), std::string::npos) << error.what();
      }
      EXPECT_THROW(call(), Error) << "a broken communicator must stay broken";
    });
  }
}

TEST(Allreduce, FailsOnEveryRankOnceOneGaveUp) {
  for (const std::size_t count : {4UL, 400000UL}) {
    Job job{.ranks = 4, .parameters = with_timeout(0.5)};
    job.run([&](Rank& self) {
      const auto communicator = self.connect();
      EXPECT_TRUE(check_sum<float>(self, *communicator, device::Type::kFloat, 4, true, 0));
      std::vector<float> values(count);
      if (self.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      EXPECT_THROW(allreduce(*communicator, bytes_of(values), bytes_of(values), count, device::Type::kFloat,
                             device::Op::kSum),
                   Error);
    });
  }
}

}  // namespace
}  // namespace loom::test
