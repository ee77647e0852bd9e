// The model of machines with many cores: that it counts what a call does, and that its waits and distances
// are those that anyone can work out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/cores/loom_calls.hpp"
#include "tests/cores/peer_calls.hpp"

namespace loom::cores {
namespace {

using device::Collective;
using ::testing::ElementsAre;

Machine machine(const std::string& name) {
  return read_machine(std::string(LOOM_TEST_DATA) + "/" + name + ".xml");
}

/// One cache.
std::vector<Core> neighbours(int ranks) {
  return std::vector<Core>(static_cast<std::size_t>(ranks));
}

/// As in a loop of such calls.
template <class Ranks, class How>
Counts counts(Ranks& ranks, How how, Collective collective, std::size_t bytes) {
  for (int i = 0; i < 2; ++i) ranks.call(how, collective, bytes);
  return ranks.call(how, collective, bytes);
}

TEST(CoreMachines, AreAsTheirMakersSay) {
  const auto check = [](const char* name, std::size_t cores, int caches, int nodes, int sockets) {
    const Machine read = machine(name);
    EXPECT_EQ(read.cores.size(), cores) << name;
    EXPECT_EQ(read.cores.back().cache, caches - 1) << name;
    EXPECT_EQ(read.cores.back().numa_node, nodes - 1) << name;
    EXPECT_EQ(read.cores.back().socket, sockets - 1) << name;
  };
  check("epyc-7763x2-nps4", 128, 16, 8, 2);
  check("epyc-7763x2-nps1", 128, 16, 2, 2);
  check("epyc-9654x2-nps4", 192, 24, 8, 2);
  check("xeon-8480x2", 112, 2, 2, 2);
  check("grace-x2", 144, 2, 2, 2);
}

TEST(CoreWorld, CountsALineWhereItComesFrom) {
  // Same cache, same node, same socket, other socket.
  World world({{0, 0, 0}, {0, 0, 0}, {1, 0, 0}, {2, 1, 0}, {3, 2, 1}});
  const std::byte* const line = world.allocate(kLineBytes);
  const Counts counts = world.run([&](int rank) {
    if (rank == 0) return world.write(line, 1);
    world.spend(1000 * rank);  // one after the other
    world.read(line, 1);
    world.read(line, 8);  // it is here now
  });
  EXPECT_THAT(counts.lines, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(counts.most_lines, 1U);
  EXPECT_EQ(counts.numa_bytes, 2 * kLineBytes);
  EXPECT_DOUBLE_EQ(counts.ns, 4000 + world.costs().latency[3]);
}

TEST(CoreWorld, ServesALineOneAfterTheOtherAndAStreamAhead) {
  World world(neighbours(4));
  const std::byte* const lines = world.allocate(100 * kLineBytes);
  Counts counts = world.run([&](int rank) {
    if (rank == 0) return world.write(lines, 100 * kLineBytes);
    world.spend(1000);
    world.read(lines, 1);
  });
  EXPECT_DOUBLE_EQ(counts.ns, 1000 + 2 * world.costs().served + world.costs().latency[0]);
  counts = world.run([&](int rank) {
    if (rank == 1) world.read(lines + kLineBytes, 99 * kLineBytes);
  });
  EXPECT_EQ(counts.all_lines(), 99U);
  EXPECT_NEAR(counts.ns, 99 * world.costs().latency[0] / world.costs().stream, world.costs().latency[0]);
}

TEST(CoreWorld, WakesWhoWaitsAndTellsOfThoseWhoWaitForEver) {
  World world(neighbours(3));
  std::uint64_t* const flags[] = {world.make<std::uint64_t>(), world.make<std::uint64_t>()};
  const auto await = [&](std::uint64_t* flag) {
    for (world.look(flag); *flag == 0; world.look(flag)) world.wait();
  };
  const auto raise = [&](std::uint64_t* flag) {
    world.publish(flag);
    *flag = 1;
  };
  const Counts counts = world.run([&](int rank) {
    if (rank == 2) world.spend(500);
    if (rank < 2) await(flags[rank]);
    if (rank > 0) raise(flags[rank - 1]);
  });
  EXPECT_EQ(counts.waits, 2);
  EXPECT_GE(counts.ns, 500 + 2 * world.costs().latency[0]);
  *flags[0] = 0;
  EXPECT_THROW(world.run([&](int rank) {
    if (rank == 0) await(flags[0]);
  }),
               Error);
}

/// What the formula says that an exchange between all ranks needs, the executors do.
TEST(CoreWorld, FindsInLoomsExecutorsWhatTheyAreWrittenToDo) {
  for (const int ranks : {2, 3, 8, 13}) {
    World world(neighbours(ranks));
    LoomRanks all(world, tiers_of(world, 8));
    const auto n = static_cast<std::uint64_t>(ranks);
    for (const Collective collective :
         {Collective::kBarrier, Collective::kAllreduce, Collective::kAllGather}) {
      const Counts seen =
          counts(all, Way::kImmediate, collective, collective == Collective::kBarrier ? 0 : 8);
      EXPECT_EQ(seen.all_lines(), n * (n - 1)) << ranks;
      EXPECT_EQ(seen.most_lines, n - 1);
      EXPECT_EQ(seen.waits, 1);
    }
    EXPECT_EQ(counts(all, Way::kImmediate, Collective::kBroadcast, 8).all_lines(), n - 1);
    EXPECT_EQ(counts(all, Way::kImmediate, Collective::kReduce, 8).most_lines, n - 1);
    // A flag, and 16 lines in the ring.
    EXPECT_EQ(counts(all, Way::kImmediate, Collective::kAllreduce, 1024).most_lines, 17 * (n - 1));
    // Two-shot: each reads the others' operands of its chunk, and their results.
    const std::uint64_t lines = counts(all, Way::kCico, Collective::kAllreduce, 64 * 1024).all_lines();
    EXPECT_GE(lines, 2 * (n - 1) * 1024);
    EXPECT_LE(lines, 2 * (n - 1) * 1024 + 30 * n * n);
    // Everybody reads the addresses of all, the operands of all, and a flag of each for each of three rounds.
    const std::uint64_t copied = counts(all, Way::kSingleCopy, Collective::kAllGather, 64 * 1024).most_lines;
    EXPECT_GE(copied, (n - 1) * 1024);
    EXPECT_LE(copied, (n - 1) * (1024 + 6));
  }
}

TEST(CoreWorld, CarriesEveryCallOfEveryWayAndPeer) {
  World world(cores_of_ranks(machine("epyc-7763x2-nps4"), 24));
  LoomRanks all(world, tiers_of(world, 3));
  PeerRanks peers(world);
  for (const Collective collective :
       {Collective::kBroadcast, Collective::kReduce, Collective::kAllreduce, Collective::kAllGather})
    for (const std::size_t bytes : {8U, 200U, 600U}) {
      if (device::TieredExchange::takes(collective)) {
        EXPECT_GT(all.call(Way::kTiered, collective, bytes).ns, 0);
      }
      EXPECT_GT(all.call(Way::kImmediate, collective, bytes).ns, 0);
      EXPECT_GT(all.call(Way::kCico, collective, 100 * bytes).ns, 0);
      if (device::TieredCicoExecutor::takes(collective)) {
        EXPECT_GT(all.call(Way::kTieredCico, collective, 100 * bytes).ns, 0);
      }
      for (const Peer peer : {Peer::kTuned, Peer::kSm, Peer::kXhc})
        if (PeerRanks::takes(peer, collective)) {
          EXPECT_GT(peers.call(peer, collective, 100 * bytes).ns, 0);
        }
    }
}

/// However many ranks there are, each reads about two messages: n - 1 chunks of operands, and n - 1 of its
/// result.
TEST(CoreWorld, FindsThatALongScanReadsTwoMessages) {
  constexpr std::size_t kBytes = 64 * 1024;
  for (const int ranks : {4, 16, 64}) {
    World world(cores_of_ranks(machine("epyc-7763x2-nps4"), ranks));
    LoomRanks all(world, tiers_of(world, 8));
    const std::uint64_t lines = counts(all, Way::kCico, Collective::kScan, kBytes).most_lines;
    EXPECT_GE(lines,
              2 * (kBytes / 64) * static_cast<std::size_t>(ranks - 1) / static_cast<std::size_t>(ranks));
    EXPECT_LE(lines, 2 * (kBytes / 64) + static_cast<std::size_t>(20 * ranks)) << ranks;
  }
}

/// What loom's choice rests on (component/select/limits.cpp).
TEST(CicoGroups, NeedLessFromThirtyTwoRanksOn) {
  for (const char* name : {"epyc-7763x2-nps4", "xeon-8480x2"})
    for (const int ranks : {32, 64, 112}) {
      World world(cores_of_ranks(machine(name), ranks));
      LoomRanks all(world, tiers_of(world, device::Tiers::most_in_group(ranks)));
      for (const Collective collective : {Collective::kReduce, Collective::kAllreduce})
        for (const std::size_t bytes : {256U, 4096U}) {
          const Counts flat = counts(all, Way::kCico, collective, bytes);
          const Counts grouped = counts(all, Way::kTieredCico, collective, bytes);
          EXPECT_LT(1.2 * grouped.ns, flat.ns) << name << ", " << ranks << " ranks, " << bytes << " bytes";
          EXPECT_LT(grouped.most_lines, flat.most_lines);
        }
      // An all-gather gains where several caches take part.
      const bool one_cache = ranks <= 56 && std::string(name) == "xeon-8480x2";
      for (const std::size_t bytes : {256U, 1024U}) {
        const double flat = counts(all, Way::kCico, Collective::kAllGather, bytes).ns;
        const double grouped = counts(all, Way::kTieredCico, Collective::kAllGather, bytes).ns;
        EXPECT_LT((one_cache ? 0.8 : 1.3) * grouped, flat) << name << ", " << ranks << " ranks, " << bytes;
      }
    }
}

/// The same, of smaller messages.
TEST(Tiers, NeedLessFromThirtyTwoRanksOn) {
  for (const char* name : {"epyc-7763x2-nps4", "xeon-8480x2", "grace-x2"})
    for (const int ranks : {32, 64, 112}) {
      World world(cores_of_ranks(machine(name), ranks));
      LoomRanks all(world, tiers_of(world, device::Tiers::most_in_group(ranks)));
      for (const Collective collective :
           {Collective::kBarrier, Collective::kReduce, Collective::kAllreduce, Collective::kAllGather}) {
        const std::size_t bytes = collective == Collective::kBarrier ? 0 : 8;
        const Counts flat = counts(all, Way::kImmediate, collective, bytes);
        const Counts tiered = counts(all, Way::kTiered, collective, bytes);
        EXPECT_LT(1.2 * tiered.ns, flat.ns) << name << ", " << ranks << " ranks";
        EXPECT_LT(tiered.most_lines, flat.most_lines);
      }
      // A broadcast while it fits beside its flag, and further where many ranks share a cache.
      const bool many_in_cache = std::string(name) != "epyc-7763x2-nps4";
      for (const std::size_t bytes : {8U, 112U, 1024U}) {
        if (bytes > 120 && !many_in_cache) continue;
        const double flat = counts(all, Way::kImmediate, Collective::kBroadcast, bytes).ns;
        const double tiered = counts(all, Way::kTiered, Collective::kBroadcast, bytes).ns;
        EXPECT_LT(1.1 * tiered, flat) << name << ", " << ranks << " ranks, " << bytes << " bytes";
      }
    }
}

}  // namespace
}  // namespace loom::cores
