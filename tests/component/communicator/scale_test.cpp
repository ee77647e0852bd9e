// The set-up of a communicator of many ranks: what each tells the others, and the memory that it takes. Ranks
// are threads, on hosts of eight. Counts what operator new gives, so it is a program of its own.
//
// LOOM_TEST_FULL=1: up to 4,096 ranks. The tables of docs/results/set-up.md are what the tests print.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "device/host/cico_executor.hpp"
#include "tests/component/thread_ranks.hpp"

namespace {

std::atomic<std::size_t> taken{0}, most_taken{0};  // bytes, of all threads

void* allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t whole = (std::max(bytes, std::size_t{1}) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t size = ::malloc_usable_size(memory);
  const std::size_t now = taken.fetch_add(size, std::memory_order_relaxed) + size;
  for (std::size_t most = most_taken.load(std::memory_order_relaxed);
       now > most && !most_taken.compare_exchange_weak(most, now, std::memory_order_relaxed);) {
  }
  return memory;
}

void give_back(void* memory) {
  if (memory != nullptr) taken.fetch_sub(::malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
// Where one of these is inlined and operator new is not, GCC sees memory of another function freed.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  give_back(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  give_back(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  give_back(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  give_back(memory);
}

namespace loom::test {
namespace {

constexpr int kRanksPerHost = 8;

/// Of one rank.
struct Sent {
  std::size_t gathered = 0;  ///< bytes that all ranks hear
  std::size_t reduced = 0;   ///< bytes of all-reduces
  std::size_t to_peers = 0;  ///< bytes to single ranks, in all
};

/// A rank's exchanges, counted.
struct Counting {
  loom_bootstrap inner;
  Sent sent = {};

  static loom_exchanged exchange(void* context, const loom_exchange* wanted, const loom_watch* watch) {
    auto& [inner, sent] = *static_cast<Counting*>(context);
    sent.reduced += wanted->words * sizeof(std::uint64_t);
    if (wanted->peers != nullptr)
      sent.to_peers += wanted->bytes_per_rank * static_cast<std::size_t>(wanted->peer_count);
    else
      sent.gathered += wanted->bytes_per_rank;
    return inner.exchange(inner.context, wanted, watch);
  }
  loom_bootstrap outer() {
    loom_bootstrap bootstrap = inner;
    bootstrap.context = this;
    bootstrap.exchange = exchange;
    return bootstrap;
  }
};

void expect_sum(Rank& self, Communicator& communicator) {
  std::vector<int> values(4'000, self.rank());
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  EXPECT_TRUE(allreduce(communicator, bytes, bytes, values.size(), device::Type::kInt32, device::Op::kSum));
  EXPECT_EQ(values, std::vector<int>(values.size(), self.size() * (self.size() - 1) / 2));
}

struct Costs {
  int ranks = 0;
  Sent sent;                       ///< the most of any rank
  std::size_t kept = 0, most = 0;  ///< bytes of a rank once it is over, and at the worst time
  double milliseconds = 0;
};

/// What the set-up of so many ranks costs; with_links: up to the end of the first call between hosts.
Costs set_up(int ranks, bool with_links) {
  Costs costs{.ranks = ranks, .sent = {}};
  Job job{.ranks = ranks, .host = [](int rank) { return "host" + std::to_string(rank / kRanksPerHost); }};
  if (with_links) job.parameters.tune = "all:ring";
  std::size_t before = 0;
  std::chrono::steady_clock::time_point began;
  job.run([&](Rank& self) {
    self.process().place();  // reads the machine
    Counting counting{self.bootstrap()};
    const loom_bootstrap bootstrap = counting.outer();
    const auto one_measures = [&](auto&& body) {
      self.all_gather(0);
      if (self.rank() == 0) body();
      self.all_gather(0);
    };
    one_measures([&] {
      before = taken;
      most_taken = before;
      began = std::chrono::steady_clock::now();
    });
    const auto communicator = Communicator::create(Bootstrap(bootstrap), self.process(), self.engine());
    ASSERT_NE(communicator, nullptr);
    if (with_links) expect_sum(self, *communicator);
    one_measures([&] {
      using Milliseconds = std::chrono::duration<double, std::milli>;
      costs.milliseconds = Milliseconds(std::chrono::steady_clock::now() - began).count();
      costs.kept = (taken - before) / static_cast<std::size_t>(ranks);
      costs.most = (most_taken - before) / static_cast<std::size_t>(ranks);
    });
    const std::vector<Sent> all = self.all_gather(counting.sent);
    if (self.rank() != 0) return;
    for (const Sent& sent : all) {
      costs.sent.gathered = std::max(costs.sent.gathered, sent.gathered);
      costs.sent.reduced = std::max(costs.sent.reduced, sent.reduced);
      costs.sent.to_peers = std::max(costs.sent.to_peers, sent.to_peers);
    }
  });
  for (const std::string& message : job.transcript.messages(LOOM_MESSAGE_DECLINED)) ADD_FAILURE() << message;
  return costs;
}

/// A machine that is read at once.
struct SmallMachine {
  SmallMachine() {
    setenv("HWLOC_SYNTHETIC", "numa:1 pu:2", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
  }
  ~SmallMachine() {
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_THISSYSTEM");
  }
};

/// By a sanitizer, which takes as much of every thread as a rank.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsWatched = true;
#else
constexpr bool kIsWatched = false;
#endif

bool is_full() {
  return std::getenv("LOOM_TEST_FULL") != nullptr;
}

void print(const std::vector<Costs>& all) {
  std::printf("| ranks | hosts | to all ranks | all-reduced | to neighbours | kept | at most | ms |\n");
  std::printf("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const Costs& costs : all)
    std::printf("| %d | %d | %zu | %zu | %zu | %zu | %zu | %.0f |\n", costs.ranks,
                costs.ranks / kRanksPerHost, costs.sent.gathered, costs.sent.reduced, costs.sent.to_peers,
                costs.kept, costs.most, costs.milliseconds);
}

/// More of them are too many to have names of all.
constexpr int kManyRanks = 128;

TEST(SetUpAtScale, TellsFewBytesOfEachRankAndKeepsFew) {
  const SmallMachine machine;
  std::vector<Costs> all;
  for (const int ranks : {8, 64, 128, 512, 1024, 4096})
    if (ranks <= (is_full() && !kIsWatched ? 4096 : 512)) all.push_back(set_up(ranks, false));
  print(all);
  const auto first = std::ranges::find(all, kManyRanks, &Costs::ranks);
  ASSERT_NE(first, all.end());
  for (const Costs& costs : all) {
    EXPECT_LE(costs.sent.gathered, 64U);
    EXPECT_LE(costs.sent.reduced, 256U);
    if (costs.ranks <= kManyRanks) continue;
    EXPECT_LE(costs.sent.to_peers, first->sent.to_peers) << "grows with the ranks";
    // 4 bytes each for the host of a rank, the ranks of a host and the rank at a place of the grid; 16 and 4
    // while they learn.
    const auto more = static_cast<std::size_t>(costs.ranks - first->ranks);
    EXPECT_LE(costs.kept, first->kept + 16 * more);
    EXPECT_LE(costs.most, first->most + 40 * more);
  }
}

/// Each rank has a UCX worker of its own, with some 8 MiB of slots and a score of files: many more do not fit
/// into a process.
TEST(SetUpAtScale, LeadsToACallBetweenHosts) {
  const SmallMachine machine;
  std::vector<Costs> all;
  for (const int ranks : {32, 128})
    if (ranks <= (is_full() ? 128 : 32)) all.push_back(set_up(ranks, true));
  print(all);
  for (const Costs& costs : all) {
    EXPECT_LE(costs.sent.gathered, 64U);
    EXPECT_LE(costs.sent.reduced, 400U);
  }
}

/// Its buffers have no room for a line of each: no rank goes on, for the same reason.
TEST(SetUpAtScale, DeclinesAHostOfMoreRanksThanItsBuffersAreFor) {
  if (kIsWatched) GTEST_SKIP() << "a sanitizer takes too much memory for each thread";
  const SmallMachine machine;
  Job job{.ranks = device::CicoBuffer::kMostRanks + 1, .host = [](int) { return "host"; }};
  std::atomic<int> declined = 0;
  job.run([&](Rank& self) {
    if (Communicator::create(Bootstrap(self.bootstrap()), self.process(), self.engine()) == nullptr)
      ++declined;
  });
  EXPECT_EQ(declined, job.ranks);
  const std::vector<std::string> messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_NE(messages[0].find("The host of rank 0 has more than 1024 ranks."), std::string::npos)
      << messages[0];
}

}  // namespace
}  // namespace loom::test
