#include <gmock/gmock.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "component/links/idle_links.hpp"
#include "tests/component/allreduce_cases.hpp"

namespace loom::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

std::size_t shared_mappings() {
  std::size_t count = 0;
  std::string line;
  for (std::ifstream maps("/proc/self/maps"); std::getline(maps, line);)
    count += line.find("memfd:loom") != std::string::npos;
  return count;
}

/// What this process has open, while all its ranks stand still.
struct Open {
  std::size_t files = 0, mappings = 0;
  friend bool operator==(const Open&, const Open&) = default;
  friend void PrintTo(const Open& open, std::ostream* to) {
    *to << open.files << " files, " << open.mappings << " mappings";
  }
};

/// Collective; the same on all ranks.
Open all_open(Rank& self) {
  self.all_gather(0);
  // Who counts has a file open for it: one rank at a time.
  const Open open = self.rank() == 0 ? Open{open_files(), shared_mappings()} : Open{};
  return self.all_gather(open)[0];
}

/// Makes the links.
bool call(Communicator& communicator) {
  float value = 1;
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  return allreduce(communicator, bytes, bytes, 1, device::Type::kFloat, device::Op::kSum);
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
              HasSubstr("TEST_COMM (4 ranks): Rank 0 on host testhost (and others): Allocating"));
  EXPECT_THAT(messages[0], HasSubstr("File too large"));
}

TEST(SetUp, KeepsNothingOfLinksThatCannotBeMade) {
  setenv("UCX_TLS", "self", 1);
  Job job{.ranks = 4, .host = [](int rank) { return "host" + std::to_string(rank / 2); }};
  job.run([&](Rank& self) {
    std::vector<std::unique_ptr<Communicator>> communicators;
    std::vector<float> values(500000);
    const auto decline = [&] {
      communicators.push_back(self.connect());
      EXPECT_FALSE(allreduce(*communicators.back(), bytes_of(values), bytes_of(values), values.size(),
                             device::Type::kFloat, device::Op::kSum));
      return all_open(self);
    };
    const Open with_one = decline();
    for (int i = 0; i < 10; ++i) EXPECT_EQ(decline(), with_one);
  });
  unsetenv("UCX_TLS");
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
  verbose.tune = "all:ring";
  Job job{.ranks = 2, .parameters = verbose};
  job.run([](Rank& self) { EXPECT_TRUE(call(*self.connect())); });
  ASSERT_EQ(job.transcript.lines().size(), 2);
  EXPECT_THAT(job.transcript.lines()[1],
              HasSubstr("coll_loom_tune: \"all:ring\" has no effect: it is for several hosts"));
  const std::string line = job.transcript.lines()[0];
  EXPECT_THAT(line,
              ::testing::ContainsRegex("set up in [0-9.]+ ms: group [0-9.]+ ms .56 bytes from each rank., "
                                       "peers [0-9.]+ ms .128 bytes from each rank"));
  EXPECT_THAT(line, HasSubstr("(48 bytes from each rank), links"));  // on one host nobody needs a summary
}

/// What decides where the calling thread runs, and where its memory comes from.
struct ThreadPlaces {
  cpu_set_t cpus{};
  int policy = -1;
  std::array<unsigned long, 16> nodes{};

  ThreadPlaces() {
    EXPECT_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
    syscall(SYS_get_mempolicy, &policy, nodes.data(), 1024, nullptr, 0);
  }
  friend bool operator==(const ThreadPlaces& a, const ThreadPlaces& b) {
    return CPU_EQUAL(&a.cpus, &b.cpus) && a.policy == b.policy && a.nodes == b.nodes;
  }
};

TEST(SetUp, LeavesTheThreadWhereItRanAndItsMemoryPolicyAsItWas) {
  // Two NUMA nodes of one CPU each, as far as loom sees; a thread on one of them has its memory bound there.
  setenv("HWLOC_SYNTHETIC", "numa:2 pu:1", 1);
  setenv("HWLOC_THISSYSTEM", "1", 1);
  Job job{.ranks = 4, .host = [](int rank) { return "host" + std::to_string(rank % 2); }};
  job.parameters.tune = "all:ring,alltoall:pairwise";
  job.run([](Rank& self) {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    if (self.rank() < 2) sched_setaffinity(0, sizeof(first), &first);
    const unsigned long node = 1;
    if (self.rank() % 2 == 0) syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &node, 8 * sizeof(node));
    const ThreadPlaces before;
    const auto communicator = self.connect();
    EXPECT_TRUE(call(*communicator));
    EXPECT_EQ(ThreadPlaces(), before);
  });
  unsetenv("HWLOC_SYNTHETIC");
  unsetenv("HWLOC_THISSYSTEM");
}

TEST(SetUp, OpensTheNetworkWithTheMemoryPolicyOfTheProgram) {
  setenv("HWLOC_SYNTHETIC", "numa:2 pu:1", 1);
  setenv("HWLOC_THISSYSTEM", "1", 1);
  Job job{.ranks = 2, .host = [](int rank) { return "host" + std::to_string(rank); }};
  job.parameters.verbose = 2;
  job.parameters.tune = "all:ring,alltoall:pairwise";
  job.parameters.net_devices = "lo";
  std::atomic<int> opened{0};
  job.run([&](Rank& self) {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof(first), &first);
    const ThreadPlaces before;
    // Process::transport() logs the device as it opens the network.
    if (self.rank() == 0)
      job.transcript.on_line = [&] {
        EXPECT_EQ(ThreadPlaces().policy, before.policy);
        ++opened;
      };
    self.all_gather(0);
    EXPECT_TRUE(call(*self.connect()));
  });
  EXPECT_THAT(job.transcript.lines(), ::testing::Contains("network device lo"));
  EXPECT_GE(opened, 2);
  unsetenv("HWLOC_SYNTHETIC");
  unsetenv("HWLOC_THISSYSTEM");
}

/// A rank's all-gather in which all ranks receive other words than were sent: ranks whose words contradict
/// each other, or what they are.
struct SpoiltGather {
  loom_bootstrap inner;
  int which;  ///< of the all-gathers
  std::array<std::uint64_t, 3> words;
  int gathered = 0;
  static loom_exchanged exchange(void* context, const loom_exchange* wanted, const loom_watch* watch) {
    auto& self = *static_cast<SpoiltGather*>(context);
    const loom_exchanged exchanged = self.inner.exchange(self.inner.context, wanted, watch);
    if (wanted->bytes_per_rank > 0 && wanted->peers == nullptr && ++self.gathered == self.which)
      std::memcpy(wanted->out, self.words.data(), sizeof(self.words));
    return exchanged;
  }
};

TEST(SetUp, StepsAsideOnAllRanksWhenWordsContradictEachOther) {
  struct Spoilt {
    int which;
    std::array<std::uint64_t, 3> words;
  };
  // The second gather tells the hosts: here that all are on one. The third, where two hosts differ, the
  // lowest ranks: as if they were each after the other; the last after a rank that is not there.
  for (const Spoilt& word : {Spoilt{2, {256, 256, 256}}, {3, {1, 0, 0}}, {3, {0, 0, 9}}}) {
    Job job{.ranks = 3, .host = [](int rank) { return "host" + std::to_string(rank / 2); }};
    job.run([&](Rank& self) {
      SpoiltGather spoilt{self.bootstrap(), word.which, word.words};
      loom_bootstrap bootstrap = self.bootstrap();
      bootstrap.context = &spoilt;
      bootstrap.exchange = SpoiltGather::exchange;
      EXPECT_EQ(Communicator::create(Bootstrap(bootstrap), self.process(), self.engine()), nullptr);
      EXPECT_EQ(self.process().counters().declined, 1U);
      EXPECT_GE(spoilt.gathered, word.which);
    });
    EXPECT_EQ(job.transcript.messages(LOOM_MESSAGE_DECLINED).size(), 1);
  }
}

/// A rank's exchanges, counted, and with `reversed` those of the same ranks in the opposite order.
struct CountingGather {
  loom_bootstrap inner;
  bool reversed = false;
  std::size_t calls = 0, bytes = 0;

  static loom_exchanged exchange(void* context, const loom_exchange* wanted, const loom_watch* watch) {
    auto& self = *static_cast<CountingGather*>(context);
    ++self.calls;
    const bool has_peers = wanted->peers != nullptr;
    self.bytes += wanted->words * sizeof(std::uint64_t) +
                  wanted->bytes_per_rank * (has_peers ? static_cast<std::size_t>(wanted->peer_count) : 1);
    loom_exchange turned = *wanted;
    std::vector<int> peers{0};  // not nothing
    if (self.reversed && has_peers) {
      peers.assign(wanted->peers, wanted->peers + wanted->peer_count);
      for (int& peer : peers) peer = self.inner.size - 1 - peer;
      turned.peers = peers.data();
    }
    const loom_exchanged exchanged = self.inner.exchange(self.inner.context, &turned, watch);
    if (!self.reversed || wanted->words > 0 || has_peers) return exchanged;
    const std::size_t bytes = wanted->bytes_per_rank;
    auto* const blocks = static_cast<std::byte*>(wanted->out);
    for (int low = 0, high = self.inner.size - 1; low < high; ++low, --high)
      std::swap_ranges(blocks + static_cast<std::size_t>(low) * bytes,
                       blocks + static_cast<std::size_t>(low + 1) * bytes,
                       blocks + static_cast<std::size_t>(high) * bytes);
    return exchanged;
  }
  loom_bootstrap outer() {
    loom_bootstrap bootstrap = inner;
    bootstrap.context = this;
    bootstrap.exchange = exchange;
    if (reversed) bootstrap.rank = inner.size - 1 - inner.rank;
    return bootstrap;
  }
};

/// A communicator over the same processes, as MPI_Comm_dup makes it, with its links.
std::unique_ptr<Communicator> duplicate(Rank& self, CountingGather& gather, std::size_t thread = 0) {
  gather.inner = self.bootstrap(thread);
  gather.calls = gather.bytes = 0;
  auto communicator = Communicator::create(Bootstrap(gather.outer()), self.process(), self.engine());
  EXPECT_TRUE(call(*communicator));
  return communicator;
}

constexpr std::size_t kPeerBytes = 8 + 48;  // what a rank says of itself
// Where group and links are there: the processes' numbers, and three times what all agree on.
constexpr std::size_t kBytesOfShared = 8 + 3 * 24;

/// On one host, or on two with two ranks or one each.
class SharedSetUp : public ::testing::TestWithParam<bool> {
 protected:
  void run(int ranks, const std::function<void(Rank&)>& body, std::size_t threads = 1) const {
    Job job{.ranks = ranks, .threads_per_rank = threads};
    job.parameters.tune = "all:ring,alltoall:pairwise";
    if (GetParam()) job.host = [](int rank) { return "host" + std::to_string(rank % 2); };
    job.run(body);
  }
};

TEST_P(SharedSetUp, OfProcessesThatAreKnownSendsLittle) {
  run(4, [](Rank& self) {
    CountingGather first{}, beside{}, after{};
    auto communicator = duplicate(self, first);
    const auto other = duplicate(self, beside);
    EXPECT_LE(beside.bytes + kPeerBytes, first.bytes);
    EXPECT_LT(beside.calls, first.calls);
    communicator.reset();
    communicator = duplicate(self, after);
    EXPECT_EQ(after.bytes, kBytesOfShared);
    EXPECT_EQ(after.calls, 4U);
  });
}

TEST_P(SharedSetUp, GivesRightResultsWhereCommunicatorsComeAndGoInAnyOrder) {
  run(3, [](Rank& self) {
    std::mt19937 common(7), own(static_cast<unsigned>(self.rank()));
    std::vector<std::unique_ptr<Communicator>> communicators(6);
    CountingGather gather{};
    for (int i = 0; i < 200; ++i) {
      std::shuffle(communicators.begin(), communicators.end(), common);
      std::array<std::size_t, 3> leaving = {1, 2, 3};
      std::shuffle(leaving.begin(), leaving.end(), own);
      for (const std::size_t which : leaving) communicators[which].reset();
      for (std::size_t c = 0; c < communicators.size(); ++c) {
        if (!communicators[c]) communicators[c] = duplicate(self, gather);
        std::vector<float> values(c % 2 == 0 ? 5 : 3000, static_cast<float>(i));
        EXPECT_TRUE(allreduce(*communicators[c], bytes_of(values), bytes_of(values), values.size(),
                              device::Type::kFloat, device::Op::kSum));
        EXPECT_THAT(values, ::testing::Each(static_cast<float>(3 * i)));
      }
    }
  });
}

TEST_P(SharedSetUp, IsNotThatOfTheSameProcessesInAnotherOrder) {
  run(4, [](Rank& self) {
    CountingGather gather{}, reversed{.inner = {}, .reversed = true};
    const auto communicator = duplicate(self, gather), other = duplicate(self, reversed);
    EXPECT_EQ(reversed.bytes, gather.bytes);
  });
}

TEST_P(SharedSetUp, KeepsTheMemoryOfFewOfManyCommunicators) {
  run(4, [](Rank& self) {
    CountingGather gather{};
    const auto open_after = [&](std::size_t count) {
      {
        std::vector<std::unique_ptr<Communicator>> communicators;
        while (communicators.size() < count) communicators.push_back(duplicate(self, gather));
      }
      return all_open(self);
    };
    const Open after_few = open_after(8);
    EXPECT_GT(after_few.mappings, 0U);
    EXPECT_EQ(open_after(60), after_few);
  });
}

TEST_P(SharedSetUp, DoesNotGrowWithCommunicatorsThatComeAndGo) {
  run(4, [](Rank& self) {
    CountingGather gather{};
    const auto world = duplicate(self, gather);
    const auto come_and_go = [&](int times) {
      for (int i = 0; i < times; ++i) duplicate(self, gather);
      return all_open(self);
    };
    const Open before = come_and_go(2);
    EXPECT_EQ(come_and_go(3000), before);
    EXPECT_EQ(gather.bytes, kBytesOfShared);
  });
}

TEST_P(SharedSetUp, IsMadeAnewOnAllRanksWhereOneHasLostIt) {
  run(3, [](Rank& self) {
    CountingGather gather{};
    const auto bytes_of_next = [&] {
      duplicate(self, gather);
      return gather.bytes;
    };
    const std::size_t first = bytes_of_next();
    EXPECT_EQ(bytes_of_next(), kBytesOfShared);
    const auto members = self.all_gather(self.process().number());

    if (self.rank() == 1) self.process().groups().find(members)->idle->take();
    const std::size_t without_links = bytes_of_next();
    EXPECT_GT(without_links, kBytesOfShared);
    EXPECT_LT(without_links, first);
    EXPECT_EQ(bytes_of_next(), kBytesOfShared);

    if (self.rank() == 2) self.process().groups().keep(members, std::make_shared<Group>());
    EXPECT_EQ(bytes_of_next(), first);
    EXPECT_EQ(bytes_of_next(), kBytesOfShared);
  });
}

TEST_P(SharedSetUp, IsLevelAgainWhereOneRankFreesACommunicatorLater) {
  run(3, [](Rank& self) {
    CountingGather gather{};
    const auto late = duplicate(self, gather);
    const auto members = self.all_gather(self.process().number());
    IdleLinks& idle = *self.process().groups().find(members)->idle;
    duplicate(self, gather);
    std::optional<Links> kept;
    if (self.rank() == 1) kept = idle.take();
    duplicate(self, gather);
    if (kept) idle.put(std::move(*kept));
    duplicate(self, gather);
    EXPECT_GT(gather.bytes, kBytesOfShared);
    for (int i = 0; i < 3; ++i) {
      duplicate(self, gather);
      EXPECT_EQ(gather.bytes, kBytesOfShared);
    }
  });
}

TEST_P(SharedSetUp, IsThatOfOneCommunicatorWhereThreadsMakeSeveralAtTheSameTime) {
  constexpr std::size_t kThreads = 3;
  run(
      3,
      [](Rank& self) {
        std::vector<std::jthread> threads;
        for (std::size_t thread = 0; thread < kThreads; ++thread)
          threads.emplace_back([&self, thread] {
            CountingGather gather{};
            std::unique_ptr<Communicator> last;
            for (int i = 0; i < 200; ++i) {
              auto communicator = duplicate(self, gather, thread);
              std::vector<float> values(1 + 3000 * (static_cast<std::size_t>(i) % 2), static_cast<float>(i));
              EXPECT_TRUE(allreduce(*communicator, bytes_of(values), bytes_of(values), values.size(),
                                    device::Type::kFloat, device::Op::kSum));
              EXPECT_THAT(values, ::testing::Each(static_cast<float>(3 * i)));
              if (i % 3 == 0) last = std::move(communicator);  // and frees the one before it
            }
          });
      },
      kThreads);
}

TEST_P(SharedSetUp, DoesNotTakeOverTheLinksOfACallThatFailed) {
  run(2, [](Rank& self) {
    CountingGather gather{};
    const auto world = duplicate(self, gather);
    auto communicator = duplicate(self, gather);
    self.connect();  // nobody is in the call any more
    if (self.rank() == 0) communicator->leave();
    communicator.reset();
    communicator = duplicate(self, gather);
    EXPECT_GT(gather.bytes, kBytesOfShared);
    EXPECT_TRUE(call(*communicator));
  });
}

TEST_P(SharedSetUp, KeepsNoLinksToAllRanks) {
  run(4, [](Rank& self) {
    CountingGather gather{};
    const auto members = self.all_gather(self.process().number());
    std::vector<float> in(4 * 40'000, static_cast<float>(self.rank())), out(in.size());
    const auto all_to_all = [&](Communicator& communicator) {
      EXPECT_TRUE(communicator.perform({.collective = device::Collective::kAllToAll,
                                        .in = bytes_of(in),
                                        .out = bytes_of(out),
                                        .count = 40'000,
                                        .type = device::Type::kFloat}));
      for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(out[rank * 40'000], static_cast<float>(rank));
    };
    all_to_all(*duplicate(self, gather));
    self.all_gather(0);
    IdleLinks& idle = *self.process().groups().find(members)->idle;
    std::optional<Links> left = idle.take();
    ASSERT_TRUE(left);
    EXPECT_TRUE(left->of(LinkKind::kPairwise).ends().empty());
    EXPECT_EQ(left->pairwise_state, LinkState::kNotMade);
    idle.put(std::move(*left));
    const auto next = duplicate(self, gather);
    EXPECT_EQ(gather.bytes, kBytesOfShared);
    all_to_all(*next);
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, SharedSetUp, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Two" : "One"; });

TEST(SetUp, SendsSomeHundredBytesBetweenHosts) {
  loom_parameters verbose{};
  verbose.verbose = 1;
  verbose.tune = "all:ring";
  Job job{.ranks = 2, .host = [](int rank) { return "host" + std::to_string(rank); }, .parameters = verbose};
  job.run([](Rank& self) { EXPECT_TRUE(call(*self.connect())); });
  ASSERT_EQ(job.transcript.lines().size(), 1);
  const std::string line = job.transcript.lines()[0];
  RecordProperty("set_up", line);
  EXPECT_THAT(line, ::testing::ContainsRegex(
                        "links [0-9.]+ ms .72 bytes from each rank, [0-9][0-9][0-9] to neighbours"));
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

/// The C side needs to know why: then none of the ranks keeps an order of operands by itself.
TEST(SetUp, DeclinesWhereRanksDifferInWhetherSumsAreReproducible) {
  Job job{.ranks = 3, .parameters_of = [](int rank) {
            loom_parameters parameters{};
            parameters.reproducible = rank == 1;
            return parameters;
          }};
  std::array<bool, 3> differ{};
  job.run([&](Rank& self) {
    loom_bootstrap bootstrap = self.bootstrap();
    bootstrap.orders_differ = &differ[static_cast<std::size_t>(self.rank())];
    EXPECT_EQ(Communicator::create(Bootstrap(bootstrap), self.process(), self.engine()), nullptr);
  });
  EXPECT_THAT(differ, Each(true));
  EXPECT_THAT(job.transcript.messages(LOOM_MESSAGE_DECLINED),
              ElementsAre(HasSubstr("has another coll_loom_reproducible than rank 0")));
}

}  // namespace
}  // namespace loom::test
