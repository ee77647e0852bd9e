// Collectives other than all-reduce between hosts: ranks are threads that send to each other through UCX.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <set>
#include <span>
#include <utility>

#include "tests/component/thread_ranks.hpp"

namespace loom::test {
namespace {

using device::Call;
using device::Collective;

struct Hosts {
  const char* name;
  std::vector<int> host_of;  ///< by rank
  loom_rendezvous rendezvous = LOOM_RENDEZVOUS_AUTO;
  const char* net_devices = nullptr;  ///< of even ranks; odd ones use the first alone
};

int value_at(int rank, std::size_t i) {
  return static_cast<int>(i % 100'003) * 3 + rank * 7;
}
int sum_at(int ranks, std::size_t i) {
  return ranks * value_at(0, i) + 7 * ranks * (ranks - 1) / 2;
}

/// One call with all that it points to.
struct Made {
  int number = 0;  ///< tells calls of one kind apart
  std::vector<int> in, out;
  std::vector<device::Block> in_blocks, out_blocks;
  std::vector<std::uint64_t> bounds;
  Call job;
};

constexpr Collective kTaken[] = {
    Collective::kReduce,         Collective::kBroadcast,  Collective::kReduceScatter, Collective::kAllGather,
    Collective::kReduceScatterV, Collective::kAllGatherV, Collective::kAllToAll};

std::size_t length_of(int rank, std::size_t unit) {
  return rank == 1 ? 0 : unit * static_cast<std::size_t>(rank + 1);
}

/// Added to each element of each operand.
int shift_of(const Made& call) {
  return 13 * call.number;
}

/// unit: elements of a block, or a quarter of those of a message.
void make(Made& call, Collective collective, Rank& self, int root, std::size_t unit, int number = 0) {
  call.number = number;
  const auto ranks = static_cast<std::size_t>(self.size()), rank = static_cast<std::size_t>(self.rank());
  const bool v = collective == Collective::kReduceScatterV || collective == Collective::kAllGatherV;
  const bool blocks = collective == Collective::kReduceScatter || collective == Collective::kAllGather ||
                      collective == Collective::kAllToAll;
  call.bounds = {0};
  for (std::size_t r = 0; r < ranks; ++r)
    call.bounds.push_back(call.bounds.back() + (v ? length_of(static_cast<int>(r), unit) : unit));
  const std::size_t all = collective == Collective::kReduce || collective == Collective::kBroadcast
                              ? 4 * unit
                              : call.bounds.back();
  call.in.resize(all);
  call.out.assign(all, -1);
  for (std::size_t i = 0; i < all; ++i) call.in[i] = value_at(self.rank(), i) + shift_of(call);
  Call& job = call.job;
  job = {.collective = collective,
         .in = reinterpret_cast<const std::byte*>(call.in.data()),
         .out = reinterpret_cast<std::byte*>(call.out.data()),
         .count = blocks ? unit : all,
         .type = device::Type::kInt32,
         .op = device::Op::kSum,
         .root = root,
         .bounds = call.bounds.data()};
  if (collective != Collective::kAllGatherV) return;
  call.in_blocks = {{reinterpret_cast<std::byte*>(call.in.data()),
                     (call.bounds[rank + 1] - call.bounds[rank]) * sizeof(int)}};
  for (std::size_t r = 0; r < ranks; ++r)
    call.out_blocks.push_back({reinterpret_cast<std::byte*>(call.out.data() + call.bounds[r]),
                               (call.bounds[r + 1] - call.bounds[r]) * sizeof(int)});
  job.in_blocks = call.in_blocks.data();
  job.out_blocks = call.out_blocks.data();
  job.count = call.in_blocks[0].bytes;
  job.type = device::Type::kUint8;
}

void check(const Made& call, Rank& self) {
  const auto rank = static_cast<std::size_t>(self.rank());
  const int ranks = self.size(), root = call.job.root;
  for (std::size_t i = 0; i < call.out.size(); ++i) {
    int expected = -1;
    switch (call.job.collective) {
      case Collective::kReduce:
        if (self.rank() == root) expected = sum_at(ranks, i);
        break;
      case Collective::kBroadcast:
        if (self.rank() != root) expected = value_at(root, i);
        break;
      case Collective::kReduceScatter:
      case Collective::kReduceScatterV:
        if (i < call.bounds[rank + 1] - call.bounds[rank]) expected = sum_at(ranks, call.bounds[rank] + i);
        break;
      case Collective::kAllToAll: {
        const std::size_t block = call.bounds[1];
        expected = value_at(static_cast<int>(i / block), rank * block + i % block);
        break;
      }
      default: {
        int from = 0;
        while (i >= call.bounds[static_cast<std::size_t>(from) + 1]) ++from;
        expected = value_at(from, i - call.bounds[static_cast<std::size_t>(from)]);
      }
    }
    if (expected != -1) expected += shift_of(call) * (device::is_reduction(call.job.collective) ? ranks : 1);
    ASSERT_EQ(call.out[i], expected) << name_of(call.job.collective) << ", rank " << self.rank()
                                     << ", element " << i;
  }
}

class CollectivesAcrossHosts : public ::testing::TestWithParam<Hosts> {
 protected:
  void SetUp() override { setenv("UCX_TLS", "tcp,self", 1); }
  /// All-to-alls only where some ranks share a host.
  static bool is_carried(Collective collective) {
    return collective != Collective::kAllToAll || has_several_ranks_on_a_host();
  }
  static bool has_several_ranks_on_a_host() {
    const auto& hosts = GetParam().host_of;
    return std::set(hosts.begin(), hosts.end()).size() < hosts.size();
  }
  Job job() const {
    return {.ranks = static_cast<int>(GetParam().host_of.size()),
            .host =
                [this](int rank) {
                  return "host" + std::to_string(GetParam().host_of[static_cast<std::size_t>(rank)]);
                },
            .parameters = with_rendezvous(GetParam().rendezvous)};
  }
  void run(Job&& job, const std::function<void(Rank&)>& body) const {
    if (GetParam().net_devices != nullptr)
      job.parameters_of = [parameters = job.parameters](int rank) {
        loom_parameters of_rank = parameters;
        of_rank.net_devices = rank % 2 == 0 ? GetParam().net_devices : "lo";
        return of_rank;
      };
    job.run(body);
  }
  /// body(rank, communicator), on each rank; small calls go by hier from the first on.
  template <class Body>
  void run_by_hier(Body&& body) const {
    Job small = job();
    small.parameters.tune = kHierAtOnce;
    run(std::move(small), [&](Rank& self) {
      const auto communicator = self.connect();
      ASSERT_NE(communicator, nullptr);
      body(self, *communicator);
    });
  }
};

TEST_P(CollectivesAcrossHosts, AreCarriedFromLargeMessagesOn) {
  run(job(), [](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    for (const std::size_t unit : {100UL, 150'001UL, 500'000UL})
      for (const Collective collective : kTaken)
        for (const int root : {0, self.size() - 1}) {
          if (unit == 500'000 && root != 0) continue;  // the longest ones
          Made call;
          make(call, collective, self, root, unit);
          const bool carried = unit > 100 && is_carried(collective);
          EXPECT_EQ(communicator->perform(call.job), carried);
          if (carried) check(call, self);
        }
  });
}

struct Started {
  Made call;
  std::unique_ptr<loom::Request> job;
  std::atomic<bool> done{false};
};

/// Collective.
void start_and_check(Rank& self, Communicator& communicator, std::span<const Collective> collectives,
                     std::size_t unit) {
  std::vector<std::unique_ptr<Started>> all;
  for (const Collective collective : collectives) {
    all.push_back(std::make_unique<Started>());
    Started& started = *all.back();
    make(started.call, collective, self, 1, unit);
    started.job = communicator.make_request(
        started.call.job, LOOM_PERSISTENT,
        [](void* done, int result) { *static_cast<std::atomic<bool>*>(done) = result == LOOM_SUCCESS; },
        &started.done);
    ASSERT_NE(started.job, nullptr);
    communicator.start(*started.job);
  }
  while (!all.back()->done)
    if (self.engine().progress() == 0) ::sched_yield();
  for (const auto& started : all) check(started->call, self);
}

TEST_P(CollectivesAcrossHosts, MayBeStartedTogether) {
  run(job(), [](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    std::vector<Collective> carried;
    std::ranges::copy_if(kTaken, std::back_inserter(carried), is_carried);
    start_and_check(self, *communicator, carried, 150'001);
  });
}

TEST_P(CollectivesAcrossHosts, MayBeStartedTogetherIfSmall) {
  const bool several = has_several_ranks_on_a_host();
  run_by_hier([&](Rank& self, Communicator& communicator) {
    std::vector<Collective> carried{Collective::kReduceScatter, Collective::kReduceScatter};
    if (several)
      carried = {Collective::kBroadcast,     Collective::kReduce, Collective::kReduceScatter,
                 Collective::kReduceScatter, Collective::kReduce, Collective::kAllGather};
    for (int round = 0; round < 3; ++round) start_and_check(self, communicator, carried, 20);
  });
}

constexpr int kMoreThanAhead = 70;

TEST_P(CollectivesAcrossHosts, GoThroughOneRankOfEachHostIfSmall) {
  const bool several = has_several_ranks_on_a_host();
  run_by_hier([&](Rank& self, Communicator& communicator) {
    for (const std::size_t unit : {1UL, 40UL, 1000UL})
      for (const Collective collective :
           {Collective::kReduce, Collective::kBroadcast, Collective::kAllGather})
        // The same one more often than who sends may be ahead.
        for (int i = 0; i < kMoreThanAhead * self.size(); ++i) {
          Made call;
          make(call, collective, self, i / kMoreThanAhead, unit, i);
          EXPECT_EQ(communicator.perform(call.job), several);
          if (several) check(call, self);
        }
  });
}

/// Who only sends may be ahead by some calls, and then compute: what it has sent comes without it.
TEST_P(CollectivesAcrossHosts, NeedNobodyWhoHasLeftThem) {
  if (!has_several_ranks_on_a_host()) return;  // small ones fall back
  std::atomic<int> receivers_left = 0;
  run_by_hier([&](Rank& self, Communicator& communicator) {
    for (const std::size_t unit : {1UL, 40UL, 1000UL})
      for (const Collective collective : {Collective::kReduce, Collective::kBroadcast})
        for (const int root : {0, self.size() - 1}) {
          const bool sends = (self.rank() == root) == (collective == Collective::kBroadcast);
          const int receivers = collective == Collective::kBroadcast ? self.size() - 1 : 1;
          if (self.rank() == 0) receivers_left = receivers;
          self.all_gather(0);
          for (int i = 0; i < kMoreThanAhead; ++i) {
            Made call;
            make(call, collective, self, root, unit, i);
            EXPECT_TRUE(communicator.perform(call.job));
            check(call, self);
          }
          if (!sends) --receivers_left;
          const auto began = std::chrono::steady_clock::now();
          while (receivers_left > 0 && std::chrono::steady_clock::now() - began < std::chrono::seconds(20))
            ::usleep(1000);
          EXPECT_EQ(receivers_left, 0)
              << name_of(collective) << " of " << 16 * unit << " bytes, rank " << self.rank();
          self.all_gather(0);
        }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Placements, CollectivesAcrossHosts,
    ::testing::Values(Hosts{"TwoHosts", {0, 1}}, Hosts{"ThreeHosts", {0, 1, 2}},
                      Hosts{"TwoByTwo", {0, 0, 1, 1}}, Hosts{"ThreeByTwoRoundRobin", {0, 1, 2, 0, 1, 2}},
                      Hosts{"UnequalInterleaved", {0, 1, 0, 2, 0}},
                      Hosts{"ThreeByTwoThatFetch", {0, 0, 1, 1, 2, 2}, LOOM_RENDEZVOUS_ALWAYS},
                      Hosts{"SeveralDevices", {0, 0, 1, 1, 2, 2}, LOOM_RENDEZVOUS_AUTO, "lo,lo,lo"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace loom::test
