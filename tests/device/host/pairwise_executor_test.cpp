// All-to-alls over links between all ranks, each on a host of its own: blocks that are listed and may differ
// in length from what their receivers expect, in place and packed. Threads as ranks, every result checked.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "device/host/pairwise_executor.hpp"
#include "links_between_all.hpp"

namespace loom::device {
namespace {

using Bytes = std::vector<unsigned char>;
constexpr FifoShape kShape{.slot_bytes = 256, .slot_count = 2};
constexpr unsigned char kUntouched = 0xee;

unsigned char value(int from, int to, std::size_t i) {
  return static_cast<unsigned char>(static_cast<std::size_t>(31 * from + 7 * to) + i * 13 % 251);
}

/// A rank's blocks one behind the other, each moved by a packer that knows how far it has come.
struct Packed {
  std::vector<Bytes>* blocks;
  std::vector<std::size_t> at;
  bool packs;
  static void move(void* context, int block, std::byte* packed, std::size_t bytes) {
    auto& self = *static_cast<Packed*>(context);
    const auto b = static_cast<std::size_t>(block);
    unsigned char* const there = (*self.blocks)[b].data() + self.at[b];
    ASSERT_LE(self.at[b] + bytes, (*self.blocks)[b].size());
    if (self.packs)
      std::memcpy(packed, there, bytes);
    else
      std::memcpy(there, packed, bytes);
    self.at[b] += bytes;
  }
};

struct Kind {
  bool in_place = false, packed = false;
};

/// sent[a][b]: how long a's block for b is; room[b][a]: what b expects of it. Performed twice, so that what
/// the first call leaves in links shows.
void check(const std::vector<std::vector<std::size_t>>& sent,
           const std::vector<std::vector<std::size_t>>& room, Kind kind, std::uint64_t first = 0) {
  const auto ranks = sent.size();
  const LinksBetweenAll links(static_cast<int>(ranks), kShape, first);
  for (int repetition = 0; repetition < 2; ++repetition) {
    std::vector<std::vector<Bytes>> in(ranks), out(ranks);
    std::vector<std::optional<CutBlock>> cut(ranks);
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        in[r].emplace_back(sent[r][peer]);
        for (std::size_t i = 0; i < sent[r][peer]; ++i)
          in[r][peer][i] = value(static_cast<int>(r), static_cast<int>(peer), i);
        out[r].emplace_back(room[r][peer], kUntouched);
      }
      if (kind.in_place) out[r] = in[r];
      threads.emplace_back([&, r] {
        const int rank = static_cast<int>(r);
        std::vector<Block> in_blocks, out_blocks;
        const auto add = [&](std::vector<Block>& to, Bytes& block) {
          to.push_back({kind.packed ? nullptr : reinterpret_cast<std::byte*>(block.data()), block.size()});
        };
        for (std::size_t peer = 0; peer < ranks; ++peer) {
          add(in_blocks, kind.in_place ? out[r][peer] : in[r][peer]);
          add(out_blocks, out[r][peer]);
        }
        Packed packing{kind.in_place ? &out[r] : &in[r], std::vector<std::size_t>(ranks), true},
            unpacking{&out[r], std::vector<std::size_t>(ranks), false};
        const Packer in_packer{Packed::move, &packing}, out_packer{Packed::move, &unpacking};
        Call call{.collective = Collective::kAllToAllV};
        call.in_blocks = in_blocks.data();
        call.out_blocks = out_blocks.data();
        call.owns_its_block = kind.in_place;
        if (kind.packed) {
          call.in_packer = &in_packer;
          call.out_packer = &out_packer;
        }
        const std::array mates{rank};
        PairwiseExecutor executor(
            {.links = links.of(rank), .slot_bytes = kShape.slot_bytes, .mates = mates, .rank = rank}, call);
        run(executor);
        cut[r] = executor.cut();
      });
    }
    threads.clear();
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const std::size_t came = std::min(sent[peer][r], room[r][peer]);
        for (std::size_t i = 0; i < room[r][peer]; ++i)
          ASSERT_EQ(out[r][peer][i],
                    i < came ? value(static_cast<int>(peer), static_cast<int>(r), i) : kUntouched)
              << "rank " << r << ", byte " << i << " of the block from " << peer;
        if (sent[peer][r] <= room[r][peer]) continue;
        ASSERT_TRUE(cut[r]) << "rank " << r << " does not know that its block from " << peer << " is cut";
        ASSERT_EQ(cut[r]->peer, static_cast<int>(peer));
        ASSERT_EQ(cut[r]->sent, sent[peer][r]);
        ASSERT_EQ(cut[r]->room, room[r][peer]);
      }
    for (std::size_t r = 0; r < ranks; ++r) {
      bool fits = true;
      for (std::size_t peer = 0; peer < ranks; ++peer) fits &= sent[peer][r] <= room[r][peer];
      ASSERT_EQ(cut[r].has_value(), !fits) << "rank " << r;
    }
  }
}

std::vector<std::vector<std::size_t>> turned(const std::vector<std::vector<std::size_t>>& lengths) {
  auto result = lengths;
  for (std::size_t a = 0; a < lengths.size(); ++a)
    for (std::size_t b = 0; b < lengths.size(); ++b) result[b][a] = lengths[a][b];
  return result;
}

constexpr std::size_t kFirst =
    kShape.slot_bytes - sizeof(std::uint64_t);  // of a block's bytes, in its first slot

TEST(PairwiseExecutor, ListedBlocksOfAnyLength) {
  std::size_t next = 0;
  const std::array lengths{std::size_t{0},
                           std::size_t{1},
                           kFirst - 1,
                           kFirst,
                           kFirst + 1,
                           kFirst + kShape.slot_bytes,
                           kFirst + kShape.slot_bytes + 1,
                           20 * kShape.slot_bytes + 3};
  for (const std::size_t ranks : {2U, 3U, 5U})
    for (const bool packed : {false, true}) {
      std::vector<std::vector<std::size_t>> sent(ranks, std::vector<std::size_t>(ranks));
      for (auto& of_rank : sent)
        for (std::size_t& length : of_rank) length = lengths[next++ % lengths.size()];
      check(sent, turned(sent), {.packed = packed});
    }
}

TEST(PairwiseExecutor, ListedBlocksInPlace) {
  for (const std::size_t length : {std::size_t{0}, kFirst, kFirst + 1, 20 * kShape.slot_bytes})
    for (const bool packed : {false, true}) {
      std::vector<std::vector<std::size_t>> sent(3, std::vector<std::size_t>(3, length));
      sent[0][2] = sent[2][0] = length + 77;
      check(sent, turned(sent), {.in_place = true, .packed = packed});
    }
}

TEST(PairwiseExecutor, ABlockThatDoesNotFitIsCut) {
  for (const bool packed : {false, true})
    for (const std::size_t room : {std::size_t{0}, std::size_t{100}, kFirst, 3 * kShape.slot_bytes}) {
      std::vector<std::vector<std::size_t>> sent(3, std::vector<std::size_t>(3, 700));
      auto rooms = turned(sent);
      sent[1][2] = 10 * kShape.slot_bytes;
      rooms[2][1] = room;
      check(sent, rooms, {.packed = packed});
    }
}

TEST(PairwiseExecutor, LinksGoOnBeyondAnyNumberOfSlots) {
  const std::vector<std::vector<std::size_t>> sent(3, std::vector<std::size_t>(3, 20 * kShape.slot_bytes));
  for (const unsigned bits : {32U, 63U}) check(sent, sent, {}, (std::uint64_t{1} << bits) - 5);
}

TEST(PairwiseExecutor, ABlockMayBeShorterThanItsRoom) {
  std::vector<std::vector<std::size_t>> sent(3, std::vector<std::size_t>(3, 700));
  auto rooms = turned(sent);
  sent[0][1] = 0;
  sent[2][1] = 300;
  rooms[0][0] = 900;
  check(sent, rooms, {});
}

}  // namespace
}  // namespace loom::device
