// coll_loom_tune and coll_loom_tune_file, from the set-up to the calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/component/temporary_file.hpp"
#include "tests/component/thread_ranks.hpp"

namespace loom::test {
namespace {

using ::testing::HasSubstr;

class TuneFile : public WithFiles {};

TEST(Tune, DeclinesWithOneMessageWhereRulesDiffer) {
  Job job{.ranks = 3};
  job.parameters_of = [](int rank) {
    loom_parameters parameters{};
    parameters.tune = rank == 2 ? "bcast:cico" : "bcast:immediate";
    return parameters;
  };
  job.run([](Rank& self) { EXPECT_EQ(self.connect(), nullptr); });
  const auto messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(messages[0], HasSubstr("Rank 2 on host"));
  EXPECT_THAT(messages[0], HasSubstr("coll_loom_tune"));
}

TEST_F(TuneFile, HasRulesThatThoseOfTheVariableCountBefore) {
  Job job{.ranks = 2};
  const std::string path = temporary("tune", "bcast:cico  # all sizes\nallreduce:cico\n");
  job.parameters.tune_file = path.c_str();
  job.parameters.tune = "allreduce:immediate";
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    int value = self.rank();
    EXPECT_TRUE(communicator->perform({.collective = device::Collective::kBroadcast,
                                       .in = reinterpret_cast<const std::byte*>(&value),
                                       .out = reinterpret_cast<std::byte*>(&value),
                                       .count = sizeof(value)}));
    const float one = 1;
    float sum = 0;
    EXPECT_TRUE(allreduce(*communicator, reinterpret_cast<const std::byte*>(&one),
                          reinterpret_cast<std::byte*>(&sum), 1, device::Type::kFloat, device::Op::kSum));
    const loom_counters counters = self.process().counters();
    EXPECT_EQ(counters.of[LOOM_BCAST].by[static_cast<int>(Algorithm::kCico)], 1U);
    EXPECT_EQ(counters.of[LOOM_ALLREDUCE].by[static_cast<int>(Algorithm::kImmediate)], 1U);
  });
}

TEST(Tune, DeclinesWhereARuleIsWrong) {
  Job job{.ranks = 2};
  job.parameters.tune = "bcst:ring";
  job.run([](Rank& self) { EXPECT_EQ(self.connect(), nullptr); });
  const auto messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(messages[0], HasSubstr("There is no collective \"bcst\""));
}

TEST_F(TuneFile, IsNamedWhereItIsWrongOrNotThere) {
  for (const auto& [path, what] : {std::pair{temporary("wrong", "bcast:rung\n"), "There is no algorithm"},
                                   std::pair{temporary("missing"), "coll_loom_tune_file"}}) {
    Job job{.ranks = 2};
    job.parameters.tune_file = path.c_str();
    job.run([](Rank& self) { EXPECT_EQ(self.connect(), nullptr); });
    const auto messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
    ASSERT_EQ(messages.size(), 1);
    EXPECT_THAT(messages[0], HasSubstr(what));
    EXPECT_THAT(messages[0], HasSubstr(path));
  }
}

}  // namespace
}  // namespace loom::test
