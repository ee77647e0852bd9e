// By which links and protocol kernels perform a call, and what the links take of a GPU.
#include "device/cuda/kernel_way.hpp"

#include <gtest/gtest.h>

#include <set>

namespace loom::device::cuda {
namespace {

using steps::Algorithm;
using steps::is_pairwise;
using steps::LinkKind;
using steps::Protocol;

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr Collective kCarried[] = {
    Collective::kAllreduce, Collective::kReduce,    Collective::kReduceScatter, Collective::kReduceScatterV,
    Collective::kBroadcast, Collective::kAllGather, Collective::kAllGatherV};

/// As a DGX with an NVSwitch has them: rings of 370 GB/s, and trees that all-reduce as fast.
KernelWays nvswitch(int ranks, bool may_ll128 = true) {
  KernelChannels channels = plain_kernel_channels(ranks, 16, may_ll128);
  channels.over_nvlink = channels.speeds.over_nvlink = true;
  channels.ring_gbps = 370.0 / 16;
  channels.tree_gbps = channels.ring_gbps * ranks / (ranks - 1);
  channels.speeds.exchange_gbps = 370;
  return {ranks, channels};
}

TEST(KernelWay, IsByLL128OnlyWhereLinesStayWhole) {
  for (const int ranks : {4, 9})
    for (const Collective collective : kCarried) {
      bool used = false;
      for (std::size_t bytes = 1; bytes <= 64 * kMiB; bytes *= 2) {
        used |= nvswitch(ranks).way(collective, bytes, KernelLinkage::kAny).protocol == Protocol::kLL128;
        EXPECT_NE(nvswitch(ranks, false).way(collective, bytes, KernelLinkage::kAny).protocol,
                  Protocol::kLL128);
      }
      // With few hops in one direction Simple, whose call costs less, is as good for all that LL is not for.
      if (ranks == 9 || collective == Collective::kAllreduce) {
        EXPECT_TRUE(used) << static_cast<int>(collective);
      }
    }
}

TEST(KernelWay, IsThereForEveryNumberOfRanks) {
  for (int ranks = 2; ranks <= 72; ++ranks)
    for (const Collective collective : kCarried)
      for (const std::size_t bytes : {std::size_t{1}, 64 * kKiB, kMiB, 64 * kMiB}) {
        const KernelWay way = nvswitch(ranks).way(collective, bytes, KernelLinkage::kAny);
        if (is_pairwise(way.algorithm)) {
          EXPECT_TRUE(collective == Collective::kAllreduce && ranks <= steps::kMostPairwise);
        }
        EXPECT_GE(way.channels, 1);
        EXPECT_LE(way.channels, 16);
      }
}

TEST(KernelWay, IsRingOrTreeByWhatIsPredicted) {
  for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast}) {
    std::set<LinkKind> used;
    for (const double tree_gbps : {5, 20, 80}) {
      KernelChannels channels = plain_kernel_channels(16, 16);
      channels.ring_gbps = 20, channels.tree_gbps = tree_gbps;
      const KernelWays ways(16, channels);
      for (std::size_t bytes = 8; bytes <= 1024 * kMiB; bytes *= 2) {
        const KernelWay way = ways.way(collective, bytes, KernelLinkage::kAny);
        for (const KernelLinkage other : {KernelLinkage::kRings, KernelLinkage::kTrees})
          EXPECT_LE(ways.us(way, bytes), ways.us(ways.way(collective, bytes, other), bytes));
        used.insert(steps::links_of(way.algorithm));
      }
    }
    EXPECT_EQ(used, (std::set<LinkKind>{LinkKind::kRing, LinkKind::kTree}));
  }
}

/// Over a switch two steps are the fewest. Where some pairs have but a processor between them, few bytes go
/// so.
TEST(KernelWay, IsAnExchangeWhereLinksBetweenAllPairsPay) {
  const auto most = [](const KernelWays& ways) {
    std::size_t bytes = 1;
    while (is_pairwise(ways.way(Collective::kAllreduce, bytes, KernelLinkage::kAny).algorithm)) bytes *= 2;
    return bytes / 2;
  };
  EXPECT_EQ(most(nvswitch(8)), 2 * kMiB);
  KernelChannels channels = plain_kernel_channels(8, 12);
  channels.ring_gbps = channels.tree_gbps = 10, channels.speeds.exchange_gbps = 3.3;
  const std::size_t most_over_few_links = most({8, channels});
  EXPECT_GE(most_over_few_links, 1024U);
  EXPECT_LE(most_over_few_links, 64 * kKiB);
}

/// Shallow trees against a long ring: their speeds and depths are what the plan says.
TEST(KernelWay, KnowsTheSpeedAndTheDepthOfTrees) {
  KernelChannels channels = plain_kernel_channels(9, 4);
  const auto at = [&](std::size_t bytes) {
    return KernelWays(9, channels).way(Collective::kAllreduce, bytes, KernelLinkage::kAny).algorithm;
  };
  channels.ring_gbps = channels.tree_gbps = 10;
  EXPECT_EQ(at(16 * kMiB), Algorithm::kAllreduceRing);
  channels.tree_gbps = 40;
  EXPECT_EQ(at(16 * kMiB), Algorithm::kAllreduceTree);
  channels.tree_gbps = 10;
  for (steps::ChannelShape& shape : channels.shapes) shape.trees[0] = {-1, 0, 0, 0, 1, 1, 1, 2, 2};
  EXPECT_EQ(at(32 * kKiB), Algorithm::kAllreduceTree) << "of depth 2";
  const KernelWay tree = {Algorithm::kAllreduceTree, Protocol::kLL, 1};
  EXPECT_LT(KernelWays(9, channels).us(tree, 8), KernelWays(9, plain_kernel_channels(9, 4)).us(tree, 8));
}

/// Eight GPUs on two sockets, whose link a ring takes for seven eighths of the message, and a chain for half
/// of it each way.
TEST(KernelWay, GathersAlongChainsWhereMoreGoesBothWays) {
  KernelChannels channels = plain_kernel_channels(8, 4);
  channels.ring_gbps = 16.0 / 4, channels.tree_gbps = 32.0 / 4, channels.gather_gbps = 32.0 / 4;
  const auto at = [&](Collective collective, std::size_t bytes, KernelLinkage linkage = KernelLinkage::kAny) {
    return KernelWays(8, channels).way(collective, bytes, linkage).algorithm;
  };
  for (const Collective collective : {Collective::kAllGather, Collective::kAllGatherV})
    EXPECT_EQ(at(collective, 64 * kMiB), Algorithm::kAllGatherTree);
  for (const Collective collective : {Collective::kReduceScatter, Collective::kReduceScatterV})
    EXPECT_EQ(at(collective, 64 * kMiB), Algorithm::kReduceScatterTree);
  EXPECT_EQ(at(Collective::kAllGather, kKiB), Algorithm::kAllGatherRing) << "fewer messages";
  channels.gather_gbps = 18.0 / 4;
  EXPECT_EQ(at(Collective::kAllGather, 64 * kMiB), Algorithm::kAllGatherRing) << "no more than a ring";
  for (std::size_t bytes = 1; bytes <= 64 * kMiB; bytes *= 2)
    EXPECT_EQ(steps::links_of(nvswitch(8).way(Collective::kAllGather, bytes, KernelLinkage::kAny).algorithm),
              LinkKind::kRing);
}

/// By rings, grids or trees, whatever brings most, where that is known.
TEST(KernelWay, GathersBetweenHostsByWhatBringsMost) {
  KernelChannels channels;
  channels.hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  channels.shapes = steps::plain_channels(8, 2, channels.hosts);
  channels.ring_gbps = channels.tree_gbps = channels.grid_gbps = 6;
  const auto at = [&](Collective collective, KernelLinkage linkage = KernelLinkage::kAny) {
    return KernelWays(8, channels).way(collective, 256 * kMiB, linkage).algorithm;
  };
  EXPECT_EQ(at(Collective::kAllGather), Algorithm::kAllGatherHier) << "it sends less between hosts";
  EXPECT_EQ(at(Collective::kAllGather, KernelLinkage::kTrees), Algorithm::kAllGatherHier) << "nobody knows";
  channels.grid_gather_gbps = 5;
  EXPECT_EQ(at(Collective::kAllGather), Algorithm::kAllGatherRing);
  EXPECT_EQ(at(Collective::kAllreduce), Algorithm::kAllreduceRing);
  channels.gather_gbps = 10;
  EXPECT_EQ(at(Collective::kAllGather), Algorithm::kAllGatherTree);
  EXPECT_EQ(at(Collective::kReduceScatter), Algorithm::kReduceScatterRing)
      << "all channels take the first block at once, and cross the same way";
  channels.gather_gbps = 13;
  EXPECT_EQ(at(Collective::kReduceScatter), Algorithm::kReduceScatterTree);
  channels.grid_gather_gbps = 12;
  EXPECT_EQ(at(Collective::kReduceScatter), Algorithm::kReduceScatterHier);
  EXPECT_EQ(at(Collective::kReduceScatter, KernelLinkage::kTrees), Algorithm::kReduceScatterTree);
  EXPECT_EQ(at(Collective::kAllreduce), Algorithm::kAllreduceHier);
}

/// Each time that the next block comes from another host its way there is waited for.
TEST(KernelWay, WaitsForOtherHostsBetweenBlocks) {
  KernelChannels channels;
  channels.hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  channels.shapes = steps::plain_channels(8, 2, channels.hosts);
  channels.ring_gbps = channels.tree_gbps = channels.gather_gbps = 6;
  const KernelWay tree = {Algorithm::kAllGatherTree, Protocol::kSimple, 1};
  const double one_change = KernelWays(8, channels).us(tree, 8);
  channels.hosts = {0, 1, 0, 1, 0, 1, 0, 1};
  EXPECT_GT(KernelWays(8, channels).us(tree, 8), one_change + 6 * 14);
  channels.hosts = {};
  EXPECT_LT(KernelWays(8, channels).us(tree, 8), one_change);
}

TEST(KernelWay, IsWhatTheUserWants) {
  for (const Collective collective : kCarried) {
    EXPECT_TRUE(kernels_carry(collective, KernelLinkage::kAny));
    EXPECT_TRUE(kernels_carry(collective, KernelLinkage::kRings));
    EXPECT_TRUE(kernels_carry(collective, KernelLinkage::kTrees));
    for (const std::size_t bytes : {std::size_t{1}, kMiB, 64 * kMiB}) {
      const auto links = [&](KernelLinkage linkage) {
        return steps::links_of(nvswitch(4).way(collective, bytes, linkage).algorithm);
      };
      EXPECT_EQ(links(KernelLinkage::kRings), LinkKind::kRing);
      EXPECT_EQ(links(KernelLinkage::kTrees), LinkKind::kTree);
    }
  }
  for (const Collective collective : {Collective::kBarrier, Collective::kScan, Collective::kGather})
    EXPECT_FALSE(kernels_carry(collective, KernelLinkage::kAny));
  for (const Collective collective :
       {Collective::kAllToAll, Collective::kAllToAllV, Collective::kAllToAllW}) {
    EXPECT_TRUE(kernels_carry(collective, KernelLinkage::kAny));
    for (const KernelLinkage linkage : {KernelLinkage::kRings, KernelLinkage::kTrees, KernelLinkage::kGrids})
      EXPECT_FALSE(kernels_carry(collective, linkage)) << "the user wants other links";
  }
}

KernelChannels exchanging(int hosts, int ranks_of_host, int channels) {
  KernelChannels of;
  for (int rank = 0; rank < hosts * ranks_of_host; ++rank) of.hosts.push_back(rank / ranks_of_host);
  of.shapes = steps::plain_channels(hosts * ranks_of_host, channels, of.hosts);
  of.exchange = true;
  of.ring_gbps = 10;
  return of;
}

/// All of a host's ranks send at a time, over its ports.
TEST(KernelWay, ExchangesAtTheSpeedOfAHostsPorts) {
  const auto us = [](int hosts, int ranks_of_host, std::size_t bytes) {
    const KernelChannels channels = exchanging(hosts, ranks_of_host, 2);
    const KernelWays ways(hosts * ranks_of_host, channels);
    const KernelWay way = ways.way(Collective::kAllToAll, bytes, KernelLinkage::kAny);
    EXPECT_EQ(way.algorithm, Algorithm::kAllToAll);
    EXPECT_EQ(way.channels, 2) << "each has its links";
    return ways.us(way, bytes);
  };
  constexpr double kBytesPerUs = 2 * 10 * 1000;  // two channels
  EXPECT_NEAR(us(2, 4, 256 * kMiB), 4 * 0.5 * 256 * kMiB / kBytesPerUs, 100);
  EXPECT_NEAR(us(4, 2, 256 * kMiB), 2 * 0.75 * 256 * kMiB / kBytesPerUs, 100);
  EXPECT_LT(us(2, 4, 8), 100) << "a few messages";
}

/// What links of every two take stays as it is while ranks become more.
TEST(KernelWay, ExchangesThroughSmallerSlotsWhereRanksAreMany) {
  const auto bytes = [](int ranks) {
    KernelChannels with = exchanging(ranks / 2, 2, 4), without = with;
    without.exchange = false;
    return kernel_bytes_with_far(ranks, with) - kernel_bytes_with_far(ranks, without);
  };
  EXPECT_GT(bytes(4), 0U);
  for (const int ranks : {16, 32, kMostExchanging}) EXPECT_LT(bytes(ranks), 9 * kMiB) << ranks;
}

/// A part of them has no more of either kind than it has.
TEST(KernelWay, UsesTheChannelsThatThereAre) {
  KernelChannels channels = plain_kernel_channels(9, 4);
  for (std::size_t c = 1; c < 4; ++c) channels.shapes[c].trees[0].clear();
  const KernelWays ways(9, channels);
  EXPECT_EQ(ways.way(Collective::kAllreduce, 64 * kMiB, KernelLinkage::kTrees).channels, 1);
  EXPECT_EQ(ways.way(Collective::kAllreduce, 64 * kMiB, KernelLinkage::kRings).channels, 4);
}

/// Slots cross with one flag each, which whoever carries them moves; and nobody has links with all others.
TEST(KernelWay, IsSimpleBetweenHosts) {
  KernelChannels channels = plain_kernel_channels(4, 2);
  channels.hosts = {0, 0, 1, 1};
  ASSERT_TRUE(channels.between_hosts());
  const steps::ChannelForm form = channels.form();
  for (const Protocol protocol : {Protocol::kLL, Protocol::kLL128})
    for (const steps::FifoForm* const forms : {form.ring, form.tree, form.pairwise})
      EXPECT_EQ(forms[static_cast<int>(protocol)].slot_count, 0U);
  for (const Collective collective : kCarried)
    for (const std::size_t bytes : {std::size_t{8}, 64 * kKiB, 64 * kMiB}) {
      const KernelWay way = KernelWays(4, channels).way(collective, bytes, KernelLinkage::kAny);
      EXPECT_EQ(way.protocol, Protocol::kSimple);
      EXPECT_FALSE(is_pairwise(way.algorithm));
    }
  // A hop between hosts takes longer.
  const KernelWay ring = {Algorithm::kAllreduceRing, Protocol::kSimple, 1};
  const double one_crossing = KernelWays(4, channels).us(ring, 8);
  channels.hosts = {0, 1, 0, 1};
  EXPECT_GT(KernelWays(4, channels).us(ring, 8), one_crossing);
  channels.hosts = {3, 3, 3, 3};
  EXPECT_FALSE(channels.between_hosts());
  EXPECT_LT(KernelWays(4, channels).us(ring, 8), one_crossing);
}

/// A message that flows through a chain or a tree is late by a slice at each hop; over fast links it waits
/// for slots, which short slices fill with little. Of a ring's block all slices but one hide the way to
/// another host.
TEST(KernelWay, HasSlicesThatSuitTheMessage) {
  const auto between_hosts = [](double gbps) {
    KernelChannels channels = plain_kernel_channels(16, 1);
    for (int rank = 0; rank < 16; ++rank) channels.hosts.push_back(rank / 4);
    channels.shapes = steps::plain_channels(16, 1, channels.hosts);
    channels.ring_gbps = channels.tree_gbps = gbps;
    return KernelWays(16, channels);
  };
  for (const double gbps : {1.25, 12.0, 24.0})
    for (const KernelLinkage linkage : {KernelLinkage::kRings, KernelLinkage::kTrees})
      for (const Collective collective : {Collective::kBroadcast, Collective::kReduce})
        for (std::size_t bytes = 1; bytes <= 1024 * kMiB; bytes *= 2) {
          const KernelWays ways = between_hosts(gbps);
          const KernelWay way = ways.way(collective, bytes, linkage);
          KernelWay other = way;
          for (const std::size_t slice : {0 * kKiB, 16 * kKiB, 32 * kKiB, 64 * kKiB}) {
            other.slice_bytes = slice;
            EXPECT_LE(ways.us(way, bytes), ways.us(other, bytes)) << gbps << " GB/s, " << bytes;
          }
        }
  const auto slice = [&](double gbps, Collective collective, std::size_t bytes, KernelLinkage linkage) {
    return between_hosts(gbps).way(collective, bytes, linkage).slice_bytes;
  };
  for (const KernelLinkage linkage : {KernelLinkage::kRings, KernelLinkage::kTrees})
    EXPECT_EQ(slice(1.25, Collective::kBroadcast, kMiB, linkage), 16 * kKiB);
  EXPECT_EQ(slice(24, Collective::kBroadcast, 64 * kMiB, KernelLinkage::kTrees), 0U) << "slots are too few";
  EXPECT_EQ(slice(12, Collective::kBroadcast, kMiB, KernelLinkage::kRings), 32 * kKiB);
  for (const KernelLinkage linkage : {KernelLinkage::kRings, KernelLinkage::kGrids})
    EXPECT_EQ(slice(12, Collective::kAllreduce, 64 * kMiB, linkage), 16 * kKiB) << "the least";
  const KernelWays on_a_host = nvswitch(8);
  EXPECT_EQ(on_a_host.way(Collective::kAllGather, 64 * kMiB, KernelLinkage::kRings).slice_bytes, 0U);
  const KernelWay by_ll = on_a_host.way(Collective::kBroadcast, 1024, KernelLinkage::kRings);
  EXPECT_EQ(by_ll.protocol, Protocol::kLL);
  EXPECT_EQ(by_ll.slice_bytes, 0U);
  const KernelWay chain = between_hosts(1.25).way(Collective::kBroadcast, kMiB, KernelLinkage::kRings);
  EXPECT_EQ(divide(chain, kMiB, 1, 16).slice_bytes, 16 * kKiB);
}

/// What docs/architecture.md says of it.
TEST(KernelWay, TakesBoundedMemory) {
  const auto bytes = [](int ranks, bool may_ll128) {
    return kernel_bytes(ranks, plain_kernel_channels(ranks, kMostChannels, may_ll128));
  };
  EXPECT_LE(bytes(8, true), 38 * kMiB);
  EXPECT_LE(bytes(8, false), 28 * kMiB);
  for (const int ranks : {9, 16, 72}) EXPECT_LE(bytes(ranks, true), 34 * kMiB);
  // Between every two ranks as much for one channel as for all of them.
  const auto between_pairs = [&](int channels) {
    const auto with = kernel_form(channels, true);
    return static_cast<std::size_t>(channels) * with.pairwise[static_cast<int>(Protocol::kLL128)].bytes();
  };
  for (const int channels : {4, 8, 16}) EXPECT_EQ(between_pairs(channels), 512 * kKiB);
  EXPECT_EQ(kernel_form(16, false).ring[static_cast<int>(Protocol::kLL128)].bytes(), 0U);
}

/// Few hosts with many ranks: what crosses them is the least that way.
TEST(KernelWay, IsByGridsWhereHostsSendLess) {
  const auto ways = [](int hosts, int ranks_per_host) {
    const int ranks = hosts * ranks_per_host;
    KernelChannels channels;
    for (int rank = 0; rank < ranks; ++rank) channels.hosts.push_back(rank / ranks_per_host);
    channels.shapes = steps::plain_channels(ranks, 2, channels.hosts);
    channels.over_nvlink = true;
    return KernelWays(ranks, channels);
  };
  EXPECT_EQ(ways(2, 8).way(Collective::kAllreduce, 64 * kMiB, KernelLinkage::kAny).algorithm,
            Algorithm::kAllreduceHier);
  EXPECT_EQ(ways(2, 8).way(Collective::kReduceScatter, 64 * kMiB, KernelLinkage::kAny).algorithm,
            Algorithm::kReduceScatterHier);
  EXPECT_EQ(ways(3, 2).way(Collective::kAllGatherV, 64 * kMiB, KernelLinkage::kAny).algorithm,
            Algorithm::kAllGatherHier);
  for (const Collective collective : kCarried) {
    const bool carries = kernels_carry(collective, KernelLinkage::kGrids);
    EXPECT_EQ(carries, collective != Collective::kReduce && collective != Collective::kBroadcast);
    if (!carries) continue;
    for (const std::size_t bytes : {std::size_t{8}, 64 * kKiB, 64 * kMiB}) {
      const KernelWay way = ways(3, 2).way(collective, bytes, KernelLinkage::kGrids);
      EXPECT_EQ(steps::links_of(way.algorithm), LinkKind::kGrid);
      EXPECT_EQ(way.protocol, Protocol::kSimple);
      EXPECT_NE(steps::links_of(ways(5, 1).way(collective, bytes, KernelLinkage::kGrids).algorithm),
                LinkKind::kGrid)
          << "there are none";
    }
  }
  // Blocks are shared out as for rings.
  const steps::Task task = divide({Algorithm::kAllreduceHier, Protocol::kSimple, 1}, 1000, 4, 6),
                    scatter = divide({Algorithm::kReduceScatterHier, Protocol::kSimple, 1}, 10, 4, 6);
  EXPECT_EQ(task.count, 1000U);
  EXPECT_EQ(task.chunk, 192U);
  EXPECT_EQ(scatter.count, 60U);
  EXPECT_EQ(scatter.chunk, 10U);
}

}  // namespace
}  // namespace loom::device::cuda
