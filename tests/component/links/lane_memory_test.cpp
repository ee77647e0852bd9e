// Places of lanes: the same on all ranks, whatever each of them leaves when.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "component/links/lane_memory.hpp"

namespace loom {
namespace {

constexpr int kRanks = 3;

/// All ranks, each with its own LaneMemory.
class Ranks {
 public:
  /// The same place on all ranks, or none.
  bool take(std::size_t bytes) {
    std::set<std::pair<std::size_t, std::size_t>> places;
    std::size_t taken = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      bool out_of_memory = true;
      LaneMemory::Place* const place = of_[rank].take(bytes, out_of_memory);
      EXPECT_FALSE(out_of_memory);
      if (place == nullptr) continue;
      ++taken;
      used_[rank].push_back(place);
      places.emplace(place->slab, place->offset);
    }
    EXPECT_TRUE(taken == 0 || taken == kRanks);
    EXPECT_LE(places.size(), 1U);
    return taken > 0;
  }
  void add_slab(std::size_t bytes) {
    std::vector<device::Segment> segments;
    for (int rank = 0; rank < kRanks; ++rank) segments.push_back(device::Segment::create(bytes));
    for (LaneMemory& memory : of_) memory.add(segments, bytes);
  }
  void leave(int rank, std::size_t which) {
    std::vector<LaneMemory::Place*>& used = used_[rank];
    used[which]->left = true;
    used.erase(used.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void free_left() {
    std::vector<std::vector<std::byte>> left;
    for (const LaneMemory& memory : of_) left.push_back(memory.left_here());
    for (LaneMemory& memory : of_) memory.free_left_by_all(left, kRanks);
  }
  std::size_t used(int rank) const { return used_[rank].size(); }
  const std::vector<LaneMemory::Place*>& places_of(int rank) const { return used_[rank]; }
  LaneMemory& of(int rank) { return of_[rank]; }

 private:
  LaneMemory of_[kRanks];
  std::vector<LaneMemory::Place*> used_[kRanks];
};

TEST(LaneMemory, GivesAllRanksTheSamePlacesWhateverEachLeavesWhen) {
  Ranks ranks;
  std::mt19937 random(3);
  ranks.add_slab(64 * 1024);
  ranks.add_slab(64 * 1024);
  int taken = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    if (random() % 2 == 0) taken += ranks.take(random() % 9000 + 1);
    const int rank = static_cast<int>(random() % kRanks);
    if (ranks.used(rank) > 0 && random() % 2 == 0) ranks.leave(rank, random() % ranks.used(rank));
    if (random() % 20 == 0) ranks.free_left();
  }
  EXPECT_GT(taken, 300);
}

TEST(LaneMemory, NeverGivesAPlaceThatARankStillUses) {
  Ranks ranks;
  ranks.add_slab(64 * 1024);
  while (ranks.take(4096)) {
  }
  for (int rank = 0; rank < kRanks - 1; ++rank)
    while (ranks.used(rank) > 0) ranks.leave(rank, 0);
  ranks.leave(kRanks - 1, 5);
  EXPECT_FALSE(ranks.take(1)) << "before the ranks have told each other";
  ranks.free_left();
  EXPECT_TRUE(ranks.take(4096));
  EXPECT_FALSE(ranks.take(1));
  std::vector<LaneMemory::Place*> places = ranks.places_of(kRanks - 1);
  std::ranges::sort(places, {}, [](const LaneMemory::Place* place) { return place->offset; });
  for (std::size_t i = 1; i < places.size(); ++i)
    EXPECT_LE(places[i - 1]->offset + places[i - 1]->bytes, places[i]->offset);
}

TEST(LaneMemory, GrowsToItsLimitAndNoFurther) {
  LaneMemory memory;
  constexpr std::size_t kMost = 1024 * 1024;
  EXPECT_EQ(memory.next_slab_bytes(kMost + 1, kMost), 0U);
  EXPECT_EQ(memory.next_slab_bytes(100, 0), 0U);
  std::size_t all = 0, slabs = 0;
  while (const std::size_t bytes = memory.next_slab_bytes(1000, kMost)) {
    EXPECT_FALSE(memory.has_room(bytes));
    memory.add({device::Segment::create(bytes)}, bytes);
    EXPECT_TRUE(memory.has_room(bytes));
    bool out_of_memory;
    ASSERT_NE(memory.take(bytes, out_of_memory), nullptr);
    all += bytes;
    ++slabs;
  }
  EXPECT_EQ(all, kMost);
  EXPECT_EQ(memory.bytes(), kMost);
  EXPECT_LE(slabs, 6U) << "few mappings, whatever the number of requests";
}

TEST(LaneMemory, HasNoRoomOnceItIsClosed) {
  LaneMemory memory;
  memory.add({device::Segment::create(4096)}, 4096);
  memory.close();
  bool out_of_memory;
  EXPECT_EQ(memory.take(1, out_of_memory), nullptr);
  EXPECT_FALSE(out_of_memory);
  EXPECT_EQ(memory.next_slab_bytes(1, 1 << 20), 0U);
}

TEST(LaneForm, TakesLittleForSmallCallsAndNoMoreThanACicoBufferForAny) {
  using device::Collective;
  const auto bytes = [](Collective collective, std::size_t message, Algorithm algorithm, int ranks) {
    return LaneForm::of(algorithm, {.collective = collective, .count = message}, ranks).bytes();
  };
  EXPECT_LE(bytes(Collective::kAllreduce, 8, Algorithm::kImmediate, 4), 512U);
  EXPECT_LE(bytes(Collective::kBroadcast, 8, Algorithm::kImmediate, 4), 4096U);
  EXPECT_LE(bytes(Collective::kAllreduce, 1 << 20, Algorithm::kCico, 4), 520U * 1024);
  EXPECT_LE(bytes(Collective::kAllreduce, std::size_t{1} << 40, Algorithm::kSingleCopy, 4), 520U * 1024);
  for (const int ranks : {2, 5, 64, 128, 1000})
    for (const auto collective : {Collective::kAllreduce, Collective::kBarrier, Collective::kAllToAllV}) {
      const LaneForm form = LaneForm::of(Algorithm::kCico, {.collective = collective}, ranks);
      EXPECT_GE(form.bank_bytes, static_cast<std::size_t>(ranks) * 2 * device::kCacheLine);
      EXPECT_EQ(form.bank_bytes % device::kCacheLine, 0U);
    }
}

TEST(LaneForm, OfGroupsHasTwoBuffersThatLieApartAndTakesLessMemory) {
  using device::Collective;
  constexpr std::uint64_t kBanks = device::CicoBuffer::kBanks;
  for (const int ranks : {4, 6, 64, 192})
    for (const auto collective : {Collective::kAllreduce, Collective::kAllGather, Collective::kBarrier})
      for (const std::size_t bytes : {8UL, 1UL << 12, 1UL << 16, 1UL << 30}) {
        const device::Call call{.collective = collective, .count = bytes};
        const LaneForm form = LaneForm::of(Algorithm::kTieredCico, call, ranks);
        std::vector<std::byte> lane(form.bytes());
        const device::GroupsPlace place = form.groups_in(lane.data());
        const auto at = [&](const void* address) {
          return static_cast<std::size_t>(static_cast<const std::byte*>(address) - lane.data());
        };
        EXPECT_EQ(at(place.group.flags), 0U);
        EXPECT_GE(at(place.rail.flags), sizeof(device::RoundFlags));
        EXPECT_GE(form.bytes_to_clear(), at(place.rail.flags) + sizeof(device::RoundFlags));
        EXPECT_GE(at(place.group.banks), form.bytes_to_clear());
        EXPECT_EQ(at(place.rail.banks), at(place.group.banks) + kBanks * form.bank_bytes);
        EXPECT_EQ(at(place.rail.banks) + kBanks * form.rail_bank_bytes, form.bytes());
        EXPECT_EQ(form.bank_bytes % device::kCacheLine, 0U);
        EXPECT_EQ(form.rail_bank_bytes % device::kCacheLine, 0U);
        EXPECT_LE(form.bytes(), sizeof(device::GroupsBuffer) + 48 * 1024);
        if (ranks >= 64 && collective != Collective::kAllGather) {
          EXPECT_LT(form.bytes(), LaneForm::of(Algorithm::kCico, call, ranks).bytes()) << bytes;
        }
      }
}

}  // namespace
}  // namespace loom
