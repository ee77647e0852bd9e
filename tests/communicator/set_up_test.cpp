#include <gmock/gmock.h>
#include <sys/resource.h>

#include <array>
#include <barrier>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "allreduce_cases.hpp"

namespace loom::test {
namespace {

using ::testing::HasSubstr;

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// Makes the links.
bool call(Communicator& communicator) {
  float value = 1;
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  return communicator.allreduce(bytes, bytes, 1, device::Type::kFloat, device::Op::kSum);
}

TEST(SetUp, LeavesNoFileOpen) {
  const std::size_t before = open_files();
  Job job{.ranks = 4};
  job.run([](Rank& self) {
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (int i = 0; i < 10; ++i) {
      communicators.push_back(self.connect());
      EXPECT_TRUE(call(*communicators.back()));
    }
  });
  EXPECT_EQ(open_files(), before);
}

TEST(SetUp, StepsAsideOnAllRanksWithOneMessageWhenMemoryIsShort) {
  // A limit on file size makes every allocation of shared memory fail, as a full memory group would.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  Job job{.ranks = 4};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    EXPECT_FALSE(call(*communicator));
    EXPECT_FALSE(call(*communicator)) << "declined once, declined for good";
    EXPECT_EQ(self.process().counters().declined, 1U);
  });
  setrlimit(RLIMIT_FSIZE, &before);
  const auto messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(messages[0],
              HasSubstr("TEST_COMM (4 ranks): Rank 0 on host testhost (and 3 more): Allocating"));
  EXPECT_THAT(messages[0], HasSubstr("File too large"));
}

TEST(SetUp, KeepsNothingOfLinksThatCannotBeMade) {
  setenv("UCX_TLS", "self", 1);
  Job job{.ranks = 4, .host = [](int rank) { return "host" + std::to_string(rank / 2); }};
  // Counted by one thread while the others stand still: looking takes a file too.
  std::vector<std::size_t> open;
  std::barrier all_declined(4, [&open]() noexcept { open.push_back(open_files()); });
  job.run([&](Rank& self) {
    std::vector<std::unique_ptr<Communicator>> communicators;
    std::vector<float> values(500000);
    for (int i = 0; i < 11; ++i) {
      communicators.push_back(self.connect());
      EXPECT_FALSE(communicators.back()->allreduce(bytes_of(values), bytes_of(values), values.size(),
                                                   device::Type::kFloat, device::Op::kSum));
      all_declined.arrive_and_wait();
    }
  });
  unsetenv("UCX_TLS");
  ASSERT_EQ(open.size(), 11);
  EXPECT_EQ(open.back(), open.front());
}

TEST(SetUp, CountsCommunicators) {
  Job job{.ranks = 2};
  job.run([](Rank& self) {
    const auto first = self.connect(), second = self.connect(), idle = self.connect();
    EXPECT_TRUE(call(*first) && call(*second));
    EXPECT_EQ(self.process().counters().communicators, 2U);
    EXPECT_EQ(self.process().counters().declined, 0U);
  });
}

TEST(SetUp, SaysWhatTheRanksSentEachOther) {
  loom_parameters verbose{};
  verbose.verbose = 1;
  verbose.two_levels = true;
  Job job{.ranks = 2, .parameters = verbose};
  job.run([](Rank& self) { EXPECT_TRUE(call(*self.connect())); });
  ASSERT_EQ(job.transcript.lines().size(), 1);
  const std::string line = job.transcript.lines()[0];
  EXPECT_THAT(line,
              ::testing::ContainsRegex("set up in [0-9.]+ ms: peers [0-9.]+ ms .152 bytes from each rank"));
  EXPECT_THAT(line, HasSubstr("(8 bytes from each rank), links"));  // on one host nobody needs a summary
}

/// A rank's all-gather in which all ranks receive other words than were sent: two ranks whose words
/// contradict each other.
struct SpoiltGather {
  loom_bootstrap inner;
  std::array<std::uint64_t, 2> words;
  int gathered = 0;
  static int all_gather(void* context, const void* in, void* out, std::size_t bytes) {
    auto& self = *static_cast<SpoiltGather*>(context);
    if (const int failed = self.inner.all_gather(self.inner.context, in, out, bytes)) return failed;
    if (++self.gathered == 2) std::memcpy(out, self.words.data(), sizeof(self.words));  // after the peers
    return 0;
  }
};

TEST(SetUp, StepsAsideOnAllRanksWhenWordsContradictEachOther) {
  // As on one host, each after the other; as on two, the second after a rank that is not there.
  for (const auto& words : {std::array<std::uint64_t, 2>{1, 0}, {0, 9}}) {
    Job job{.ranks = 2};
    job.run([&](Rank& self) {
      SpoiltGather spoilt{self.bootstrap(), words};
      loom_bootstrap bootstrap = self.bootstrap();
      bootstrap.context = &spoilt;
      bootstrap.all_gather = SpoiltGather::all_gather;
      EXPECT_EQ(Communicator::create(Bootstrap(bootstrap), self.process()), nullptr);
      EXPECT_EQ(self.process().counters().declined, 1U);
    });
    EXPECT_EQ(job.transcript.messages(LOOM_MESSAGE_DECLINED).size(), 1);
  }
}

TEST(SetUp, SendsSomeHundredBytesBetweenHosts) {
  loom_parameters verbose{};
  verbose.verbose = 1;
  verbose.two_levels = true;
  Job job{.ranks = 2, .host = [](int rank) { return "host" + std::to_string(rank); }, .parameters = verbose};
  job.run([](Rank& self) { EXPECT_TRUE(call(*self.connect())); });
  ASSERT_EQ(job.transcript.lines().size(), 1);
  const std::string line = job.transcript.lines()[0];
  RecordProperty("set_up", line);
  EXPECT_THAT(line, ::testing::ContainsRegex("links [0-9.]+ ms .[0-9][0-9][0-9] bytes from each rank"));
}

TEST(SetUp, LinksHostsOnlyForCallsThatAreCarriedBetweenThem) {
  Job job{.ranks = 2, .host = [](int rank) { return "host" + std::to_string(rank); }};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    std::array<std::byte, 2> blocks{};
    EXPECT_FALSE(communicator->perform({.collective = device::Collective::kAllToAll,
                                        .in = blocks.data(),
                                        .out = blocks.data(),
                                        .count = 1}));
    EXPECT_EQ(self.process().open_transport(), nullptr);
    EXPECT_EQ(self.process().counters().communicators, 0U);
  });
}

}  // namespace
}  // namespace loom::test
