// Collectives of one host with blocks of any size, scans, and non-contiguous buffers: threads as ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "device/host/cico_blocks_executor.hpp"
#include "device/host/cico_scan_executor.hpp"
#include "device/host/single_copy_executor.hpp"
#include "device/link/waiter.hpp"

namespace loom::device {
namespace {

template <class Executor>
void run(Executor&& executor) {
  const WaitPolicy policy{.progress = {}, .check_peers = {}, .oversubscribed = true};
  Waiter waiter(policy);
  for (auto state = executor.advance(); state != RingExecutor::State::kDone; state = executor.advance())
    if (state == RingExecutor::State::kBlocked) waiter.pause();
}

template <class Body>
void run_ranks(int ranks, Body&& body) {
  std::vector<std::unique_ptr<CicoBuffer>> owned;
  std::vector<CicoBuffer*> cico;
  for (int rank = 0; rank < ranks; ++rank) cico.push_back(owned.emplace_back(new CicoBuffer()).get());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      CicoBuffers mine(cico, rank);
      body(mine, rank);
    });
}

/// A buffer of blocks whose bytes lie two apart, walked through as a library would walk through a derived
/// type.
struct Comb {
  explicit Comb(const std::vector<std::size_t>& bytes_of) : at(bytes_of.size()), packer{move, this} {
    for (const std::size_t bytes : bytes_of) teeth.emplace_back(2 * bytes, kUnused);
  }
  static void move(void* context, int block, std::byte* packed, std::size_t bytes) {
    auto& self = *static_cast<Comb*>(context);
    const auto b = static_cast<std::size_t>(block);
    for (std::size_t i = 0; i < bytes; ++i, ++self.at[b])
      (self.packs ? packed[i] : self.teeth[b].at(2 * self.at[b])) =
          self.packs ? self.teeth[b].at(2 * self.at[b]) : packed[i];
  }
  static constexpr std::byte kUnused{0xee};
  std::vector<std::vector<std::byte>> teeth;
  std::vector<std::size_t> at;
  bool packs = false;
  Packer packer;
};

std::byte value(int from, int to, std::size_t i, int nth) {
  return static_cast<std::byte>(i * 7 + static_cast<std::size_t>(from * 31 + to * 11 + nth * 3));
}

/// One rank's side of a call: its blocks, contiguous or not, and a check of each.
struct Side {
  Side(const std::vector<std::size_t>& bytes_of, bool combed) : comb(bytes_of), is_combed(combed) {
    for (const std::size_t bytes : bytes_of) plain.emplace_back(bytes, Comb::kUnused);
    for (std::size_t b = 0; b < bytes_of.size(); ++b)
      blocks.push_back({combed ? nullptr : plain[b].data(), bytes_of[b]});
  }
  std::byte& at(std::size_t block, std::size_t i) {
    return is_combed ? comb.teeth[block][2 * i] : plain[block][i];
  }
  const Packer* packer() const { return is_combed ? &comb.packer : nullptr; }
  Comb comb;
  bool is_combed;
  std::vector<std::vector<std::byte>> plain;
  std::vector<Block> blocks;
};

/// Bytes from one rank to another in call `call`; equal on both.
std::size_t length(Collective collective, int from, int to, int nth) {
  constexpr std::size_t kLengths[] = {0, 1, 63, 64, 1000, 70'000, 300'001};
  const auto n = static_cast<std::size_t>(nth);
  switch (collective) {
    case Collective::kGather:
    case Collective::kScatter:
      return kLengths[n % std::size(kLengths)];
    case Collective::kGatherV:
    case Collective::kAllGatherV:
      return kLengths[(n + static_cast<std::size_t>(from) * 3) % std::size(kLengths)];
    case Collective::kScatterV:
      return kLengths[(n + static_cast<std::size_t>(to) * 3) % std::size(kLengths)];
    default:
      return kLengths[(n + static_cast<std::size_t>(from * 5 + to * 3)) % std::size(kLengths)];
  }
}

constexpr int kNobodyIsShort = -1;

/// short_rank has half the room for what it receives, also from itself.
void check_blocks(CicoBuffers& cico, Collective collective, int root, int nth, bool packs,
                  int short_rank = kNobodyIsShort) {
  const int self = cico.self(), ranks = cico.size();
  const bool gather = collective == Collective::kGather || collective == Collective::kGatherV;
  const bool scatter = collective == Collective::kScatter || collective == Collective::kScatterV;
  const bool one_in = gather || collective == Collective::kAllGatherV;
  std::vector<std::size_t> sent, received;
  if (one_in) {
    sent = {length(collective, self, root, nth)};
  } else if (!scatter || self == root) {
    for (int to = 0; to < ranks; ++to) sent.push_back(length(collective, self, to, nth));
  }
  if (scatter) {
    received = {length(collective, root, self, nth)};
  } else if (!gather || self == root) {
    for (int from = 0; from < ranks; ++from) received.push_back(length(collective, from, self, nth));
  }
  bool fits = true;
  for (std::size_t& bytes : received)
    if (self == short_rank) {
      fits &= bytes == 0;
      bytes /= 2;
    }
  Side in(sent, packs && (self + nth) % 2 == 0), out(received, packs && (self + nth) % 3 == 0);
  in.comb.packs = true;
  for (std::size_t b = 0; b < sent.size(); ++b)
    for (std::size_t i = 0; i < sent[b]; ++i)
      in.at(b, i) = value(self, one_in ? 0 : static_cast<int>(b), i, nth);

  Call call{.collective = collective, .root = root};
  call.in_packer = in.packer();
  call.out_packer = out.packer();
  call.in_blocks = in.blocks.data();
  call.out_blocks = out.blocks.data();
  CicoBlocksExecutor executor(cico, call);
  run(executor);
  ASSERT_EQ(executor.cut().has_value(), !fits) << "call " << nth;
  if (!fits) {
    EXPECT_GT(executor.cut()->sent, executor.cut()->room);
  }

  for (std::size_t b = 0; b < received.size(); ++b)
    for (std::size_t i = 0; i < received[b]; ++i) {
      ASSERT_EQ(out.at(b, i), value(scatter ? root : static_cast<int>(b), one_in ? 0 : self, i, nth))
          << "block " << b << " byte " << i << " call " << nth;
      if (out.is_combed) {
        ASSERT_EQ(out.comb.teeth[b][2 * i + 1], Comb::kUnused);
      }
    }
}

class BlocksOf : public ::testing::TestWithParam<int> {};

TEST_P(BlocksOf, AnySizeArriveContiguousOrNot) {
  run_ranks(GetParam(), [](CicoBuffers& cico, int) {
    for (int nth = 0; nth < 14; ++nth)
      for (const auto collective :
           {Collective::kGather, Collective::kGatherV, Collective::kScatter, Collective::kScatterV,
            Collective::kAllGatherV, Collective::kAllToAllV, Collective::kAllToAllW})
        check_blocks(cico, collective, nth % cico.size(), nth, nth % 3 != 0);
  });
}

TEST_P(BlocksOf, WhatDoesNotFitIsCutAndToldToThatRankAlone) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](CicoBuffers& cico, int) {
    for (const auto collective :
         {Collective::kGather, Collective::kGatherV, Collective::kScatter, Collective::kScatterV,
          Collective::kAllGatherV, Collective::kAllToAllV, Collective::kAllToAllW})
      for (int nth = 0; nth < 14; ++nth)
        for (const int short_rank : {nth % ranks, kNobodyIsShort})
          check_blocks(cico, collective, nth / 2 % ranks, nth, nth % 2 == 1, short_rank);
  });
}

TEST_P(BlocksOf, AnAllToAllInPlaceOfUnequalBlocks) {
  run_ranks(GetParam(), [](CicoBuffers& cico, int self) {
    for (int nth = 0; nth < 14; ++nth) {
      std::vector<std::vector<std::byte>> buffer;
      std::vector<Block> blocks;
      for (int peer = 0; peer < cico.size(); ++peer) {
        auto& block = buffer.emplace_back(
            length(Collective::kAllToAllV, std::min(self, peer), std::max(self, peer), nth));
        for (std::size_t i = 0; i < block.size(); ++i) block[i] = value(self, peer, i, nth);
        blocks.push_back({block.data(), block.size()});
      }
      Call call{.collective = Collective::kAllToAllV};
      call.in_blocks = call.out_blocks = blocks.data();
      call.owns_its_block = true;
      run(CicoBlocksExecutor(cico, call));
      for (int peer = 0; peer < cico.size(); ++peer)
        for (std::size_t i = 0; i < buffer[static_cast<std::size_t>(peer)].size(); ++i)
          ASSERT_EQ(buffer[static_cast<std::size_t>(peer)][i], value(peer, self, i, nth)) << peer << ' ' << i;
    }
  });
}

TEST_P(BlocksOf, ABarrierLetsNobodyPassBeforeAllHaveCome) {
  std::atomic<int> arrived{0};
  run_ranks(GetParam(), [&](CicoBuffers& cico, int) {
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      run(CicoBlocksExecutor(cico, {}));
      EXPECT_GE(arrived.load(), round * cico.size());
      run(CicoBlocksExecutor(cico, {}));
    }
  });
}

TEST_P(BlocksOf, ScansGoInOrderOfRankInPlaceAndNot) {
  run_ranks(GetParam(), [](CicoBuffers& cico, int self) {
    for (const std::size_t count : {1UL, 7UL, 129UL, 5000UL, 100'003UL})
      for (const bool in_place : {false, true})
        for (const bool two_shots : {false, true})
          for (const auto collective : {Collective::kScan, Collective::kExscan}) {
            // 1e17, -1e17, 1, 2, ...: any other order loses what is small.
            const auto operand = [](int rank, std::size_t i) {
              return rank == 0 ? 1e17 : rank == 1 ? -1e17 : 1.0 + static_cast<double>(i % 1009);
            };
            std::vector<double> in(count), out(count, -3.0);
            for (std::size_t i = 0; i < count; ++i) in[i] = operand(self, i);
            if (in_place) out = in;
            Call call{.collective = collective, .count = count, .type = Type::kDouble};
            call.out = reinterpret_cast<std::byte*>(out.data());
            call.in = in_place ? call.out : reinterpret_cast<const std::byte*>(in.data());
            run(CicoScanExecutor(cico, call, two_shots));
            const int operands = self + (collective == Collective::kScan ? 1 : 0);
            for (std::size_t i = 0; i < count; ++i) {
              double expected = 0;
              for (int rank = 0; rank < operands; ++rank) expected += operand(rank, i);
              if (operands == 0) expected = in_place ? operand(self, i) : -3.0;
              ASSERT_EQ(out[i], expected) << "rank " << self << ", element " << i << " of " << count;
            }
          }
  });
}

TEST(CicoScanExecutor, GoesInTwoShotsWhereEveryRankWouldReadMuch) {
  const auto two_shots = [](int ranks, std::size_t bytes, bool few_rounds = false) {
    std::vector<CicoBuffer> buffers(static_cast<std::size_t>(ranks));
    std::vector<CicoBuffer*> all;
    for (CicoBuffer& buffer : buffers) all.push_back(&buffer);
    return CicoScanExecutor::goes_in_two_shots(CicoBuffers(all, 0, few_rounds), bytes);
  };
  EXPECT_FALSE(two_shots(3, 1 << 30));
  EXPECT_FALSE(two_shots(4, 2048));
  EXPECT_TRUE(two_shots(4, 4096));
  EXPECT_FALSE(two_shots(64, 128));
  EXPECT_TRUE(two_shots(64, 256));
  EXPECT_FALSE(two_shots(8, 512 * 1024, true));
  EXPECT_TRUE(two_shots(8, 1024 * 1024, true));
  EXPECT_TRUE(two_shots(16, 64 * 1024, true));
}

TEST_P(BlocksOf, AReduceScatterMayHaveUnequalParts) {
  run_ranks(GetParam(), [](CicoBuffers& cico, int self) {
    for (int nth = 0; nth < 10; ++nth)
      for (const bool in_place : {false, true}) {
        constexpr std::size_t kCounts[] = {0, 3, 1, 900, 40'001};
        std::vector<std::uint64_t> bounds{0};
        for (int rank = 0; rank < cico.size(); ++rank)
          bounds.push_back(bounds.back() +
                           kCounts[static_cast<std::size_t>(rank + nth) % std::size(kCounts)]);
        if (bounds.back() == 0) continue;
        std::vector<int> in(bounds.back()), out(bounds.back(), -1);
        std::iota(in.begin(), in.end(), self);
        if (in_place) out = in;
        Call call{.collective = Collective::kReduceScatterV, .count = bounds.back(), .type = Type::kInt32};
        call.out = reinterpret_cast<std::byte*>(out.data());
        call.in = in_place ? call.out : reinterpret_cast<const std::byte*>(in.data());
        call.bounds = bounds.data();
        const int ranks = cico.size();
        const std::vector<std::int64_t> pids(static_cast<std::size_t>(ranks), ::getpid());
        if (nth % 2 == 0)
          run(CicoExecutor(cico, call));
        else
          run(SingleCopyExecutor(cico, pids, call));
        const auto me = static_cast<std::size_t>(self);
        for (std::size_t i = bounds[me]; i < bounds[me + 1]; ++i)
          ASSERT_EQ(out[i - bounds[me]], ranks * static_cast<int>(i) + ranks * (ranks - 1) / 2) << i;
      }
  });
}

TEST_P(BlocksOf, EqualSizesPassNonContiguousByCicoAndBySingleCopy) {
  run_ranks(GetParam(), [](CicoBuffers& cico, int self) {
    const auto n = static_cast<std::size_t>(cico.size());
    const std::vector<std::int64_t> pids(n, ::getpid());
    int nth = 0;
    for (const auto collective : {Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll})
      for (const std::size_t bytes : {1UL, 1000UL, 333'333UL})
        for (const bool single_copy : {false, true})
          for (int pattern = 0; pattern < 5; ++pattern, ++nth) {
            const bool bcast = collective == Collective::kBroadcast;
            const int root = nth % cico.size();
            // Non-contiguous are, in pattern 0: no buffers; 1: operands of odd ranks; 2: results; 3: both of
            // rank 0; 4: rank 0's operand, and all others are in place.
            const bool in_packer = pattern == 1 ? self % 2 == 1 : pattern >= 3 && self == 0;
            const bool in_place = pattern == 4 && self != 0 && !bcast;
            const bool out_packer = pattern == 2 || (pattern == 3 && self == 0);
            const std::size_t in_blocks = collective == Collective::kAllToAll ? n : 1,
                              out_blocks = bcast ? 1 : n;
            // Contiguous buffers are one block here; others as many as the collective has.
            Side in(in_packer ? std::vector<std::size_t>(in_blocks, bytes)
                              : std::vector<std::size_t>{in_blocks * bytes},
                    in_packer);
            Side out(out_packer ? std::vector<std::size_t>(out_blocks, bytes)
                                : std::vector<std::size_t>{out_blocks * bytes},
                     out_packer);
            in.comb.packs = true;
            for (std::size_t b = 0; b < in_blocks; ++b)
              for (std::size_t i = 0; i < bytes; ++i)
                (in_packer ? in.at(b, i) : in.at(0, b * bytes + i)) =
                    value(self, static_cast<int>(b), i, nth);
            Call call{.collective = collective,
                      .in = in.plain[0].data(),
                      .out = out.plain[0].data(),
                      .count = bytes};
            if (in_place) {
              std::byte* const own =
                  call.out +
                  (collective == Collective::kAllGather ? static_cast<std::size_t>(self) * bytes : 0);
              std::copy(in.plain[0].begin(), in.plain[0].end(), own);
              call.in = own;
            }
            call.root = root;
            call.in_packer = in.packer();
            call.out_packer = out.packer();
            if (single_copy)
              run(SingleCopyExecutor(cico, pids, call));
            else
              run(CicoExecutor(cico, call));
            if (bcast && self == root) continue;
            for (std::size_t b = 0; b < out_blocks; ++b)
              for (std::size_t i = 0; i < bytes; ++i)
                ASSERT_EQ(out_packer ? out.at(b, i) : out.at(0, b * bytes + i),
                          value(bcast ? root : static_cast<int>(b),
                                collective == Collective::kAllToAll ? self : 0, i, nth));
          }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, BlocksOf, ::testing::Values(2, 3, 4, 7),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace loom::device
