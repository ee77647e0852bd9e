// Where links lie: each alone in its place, and both of its ends see the same.
#include "device/steps/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "tests/device/steps/step_calls.hpp"

namespace loom::device::steps {
namespace {

/// The memory of ranks that is never touched: addresses alone.
struct Memory {
  static constexpr std::uintptr_t kApart = std::uintptr_t{1} << 40;
  explicit Memory(int ranks) {
    for (int r = 0; r < ranks; ++r)
      at.push_back(reinterpret_cast<std::byte*>(kApart * static_cast<std::uintptr_t>(r + 1)));
  }
  static int rank_of(const void* address) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) / kApart) - 1;
  }
  static std::size_t offset_of(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % kApart;
  }
  std::vector<std::byte*> at;
};

/// All ends of a world, and what they take of each rank's memory.
class Places {
 public:
  Places(const ChannelForm& form, int ranks, const std::vector<ChannelShape>& shapes)
      : layout(form, ranks, shapes) {
    const Memory memory(ranks);
    const int channels = layout.channels();
    for (int r = 0; r < ranks; ++r) {
      auto& table = tables_.emplace_back(layout.table_bytes(channels));
      const auto bytes = layout.table(memory.at, r, channels, table.data());
      std::ranges::copy(bytes, table.begin());
      for (int c = 0; c < channels; ++c) {
        const Channel& channel = channel_of(r, c);
        for (int p = 0; p < kProtocols; ++p) {
          add(channel.ring.ends[p], form.ring[p], r);
          add(channel.pairwise[p], form.pairwise[p], r);
          for (const Tree& tree : channel.tree) add(neighbours(tree, p), form.tree[p], r);
        }
        for (const auto* ends : {&channel.grid.local, &channel.grid.rail}) add(*ends, form.ring[0], r);
        int links = 0;
        for (int d = channel.exchange.first; d < ranks; d += channel.exchange.stride, ++links) {
          Ends<1> of_distance{
              {channel.exchange.links[links].from}, {channel.exchange.links[links].to}, 1, 1, {}};
          add(of_distance, form.exchange[0], r);
        }
        if (channel.grid.scratch == nullptr) continue;
        EXPECT_EQ(Memory::rank_of(channel.grid.scratch), r) << "it is a rank's own";
        take(channel.grid.scratch, form.ring[0].slot_count / 2 * form.ring[0].slot_bytes);
      }
    }
  }
  const Channel& channel_of(int rank, int channel) const {
    return reinterpret_cast<const Channel*>(tables_[static_cast<std::size_t>(rank)].data())[channel];
  }

  Layout layout;
  std::map<std::pair<int, std::size_t>, std::size_t> taken;  ///< bytes by rank and offset
  std::map<const std::byte*, int> senders, receivers;        ///< by slots

 private:
  /// Each once.
  static Ends<kMostNeighbours> neighbours(const Tree& tree, int protocol) {
    Ends<kMostNeighbours> ends;
    for (ends.froms = 0; ends.froms < tree.neighbours; ends.tos = ++ends.froms) {
      ends.from[ends.froms] = tree.ends[protocol].from[ends.froms];
      ends.to[ends.froms] = tree.ends[protocol].to[ends.froms];
    }
    return ends;
  }
  template <int kMost>
  void add(const Ends<kMost>& ends, const FifoForm& form, int rank) {
    for (int i = 0; i < ends.froms; ++i) {
      const RecvEnd& from = ends.from[i];
      EXPECT_TRUE(receivers.emplace(from.slots, rank).second);
      EXPECT_EQ(Memory::rank_of(from.slots), rank) << "the receiver owns the slots";
      EXPECT_EQ(Memory::rank_of(from.filled), rank);
      take(from.slots, form.bytes());
      take(from.filled, sizeof(Word));
      take(from.consumed, sizeof(Word));
      ends_[from.slots].first = {from.filled, from.consumed};
    }
    for (int i = 0; i < ends.tos; ++i) {
      const SendEnd& to = ends.to[i];
      EXPECT_TRUE(senders.emplace(to.slots, rank).second);
      EXPECT_EQ(Memory::rank_of(to.consumed), rank) << "the sender spins on its own memory";
      ends_[to.slots].second = {to.filled, to.consumed};
    }
  }
  void take(const void* at, std::size_t bytes) {
    EXPECT_EQ(Memory::offset_of(at) % 128, 0U);
    EXPECT_TRUE(taken.emplace(std::pair(Memory::rank_of(at), Memory::offset_of(at)), bytes).second);
  }

  std::vector<std::vector<std::byte>> tables_;

 public:
  using Flags = std::pair<const Word*, const Word*>;
  std::map<const std::byte*, std::pair<Flags, Flags>> ends_;  ///< by slots
};

void check_places(const Places& places, int ranks, std::size_t links) {
  EXPECT_EQ(places.senders.size(), links);
  EXPECT_EQ(places.receivers.size(), links);
  for (const auto& [slots, ends] : places.ends_) EXPECT_EQ(ends.first, ends.second);
  const std::size_t bytes = places.layout.bytes(places.layout.channels());
  std::size_t most = 0;
  auto last = std::pair(std::pair(-1, std::size_t{0}), std::size_t{0});
  for (const auto& [at, length] : places.taken) {
    if (at.first == last.first.first) {
      EXPECT_GE(at.second, last.first.second + last.second) << "overlaps";
    }
    EXPECT_LT(at.first, ranks);
    most = std::max(most, at.second + length);
    last = {at, length};
  }
  EXPECT_LE(most, bytes);
  EXPECT_GT(most + 128, bytes);
}

TEST(Layout, GivesEachLinkItsOwnPlaceThatBothEndsSee) {
  for (const int ranks : {2, 3, 8, 9, 17}) {
    std::mt19937_64 random(static_cast<unsigned>(ranks));
    const auto shapes = random_channels(random, ranks, 32);
    const Places places(small_form(256, 4), ranks, shapes);
    std::size_t links = 0;
    const auto n = static_cast<std::size_t>(ranks);
    for (const ChannelShape& shape : shapes) {
      links += kProtocols * n;
      if (!shape.grid.empty()) links += 2 * n;
      for (const auto& tree : shape.trees) links += tree.empty() ? 0 : kProtocols * 2 * (n - 1);
      if (ranks <= kMostPairwise) links += 2 * n * (n - 1);  // by LL and LL128
    }
    links += n * (n - 1) * std::max<std::size_t>(1, shapes.size() / (n - 1));  // of the exchange
    check_places(places, ranks, links);
  }
}

TEST(Layout, KnowsWhereARankStands) {
  const ChannelShape shape{
      .ring = {2, 0, 3, 1}, .trees = {{1, kNobody, 1, 2}, {}}, .weight = 3, .tree_weight = 5};
  const Places places(small_form(256, 4), 4, {shape, shape});
  const auto peer = [&](const std::byte* slots) { return Memory::rank_of(slots); };
  const Channel& of_3 = places.channel_of(3, 1);
  EXPECT_EQ(of_3.of_ring.before, 3U);
  EXPECT_EQ(of_3.of_ring.own, 3U);
  EXPECT_EQ(of_3.of_trees.before, 5U);
  EXPECT_EQ(of_3.of_trees.own, 5U);
  EXPECT_EQ(of_3.of_trees.place, 1U);
  EXPECT_EQ(of_3.of_pairs.before, 1U);
  EXPECT_EQ(of_3.of_pairs.own, 1U);
  EXPECT_EQ(places.layout.total_weight(LinkKind::kRing, 2), 6U);
  EXPECT_EQ(places.layout.total_weight(LinkKind::kTree, 1), 5U);
  EXPECT_EQ(places.layout.total_weight(LinkKind::kPairwise, 2), 2U);
  EXPECT_EQ(of_3.ring.position, 2);
  EXPECT_EQ(of_3.ring.size, 4);
  EXPECT_EQ(peer(of_3.ring.ends[0].to[0].slots), 1);
  EXPECT_EQ(places.senders.at(of_3.ring.ends[0].from[0].slots), 0);
}

TEST(Layout, KnowsWhereARankStandsInAGrid) {
  ChannelShape shape{.ring = {5, 0, 3, 1, 2, 4}, .weight = 3};
  shape.add_grid({0, 1, 1, 0, 1, 0});
  EXPECT_EQ(shape.columns, 3);
  EXPECT_EQ(shape.grid, (std::vector<int>{5, 0, 3, 1, 2, 4}));
  const Places places(small_form(256, 4), 6, {shape, shape});
  const Channel& of_2 = places.channel_of(2, 1);
  EXPECT_EQ(of_2.of_grid.before, 3U);
  EXPECT_EQ(of_2.of_grid.own, 3U);
  EXPECT_EQ(places.layout.total_weight(LinkKind::kGrid, 2), 6U);
  EXPECT_EQ(of_2.grid.row, 1);
  EXPECT_EQ(of_2.grid.rows, 2);
  EXPECT_EQ(of_2.grid.column, 1);
  EXPECT_EQ(of_2.grid.columns, 3);
  EXPECT_EQ(std::vector<int>(of_2.grid.ranks, of_2.grid.ranks + 6), shape.grid);
  const auto next = [](const Ends<1>& ends) { return Memory::rank_of(ends.to[0].slots); };
  const auto previous = [&](const Ends<1>& ends) { return places.senders.at(ends.from[0].slots); };
  EXPECT_EQ(next(of_2.grid.local), 4);
  EXPECT_EQ(previous(of_2.grid.local), 1);
  EXPECT_EQ(next(of_2.grid.rail), 0);
  EXPECT_EQ(previous(of_2.grid.rail), 0);
  EXPECT_EQ(next(places.channel_of(4, 0).grid.local), 1) << "around";
}

TEST(Layout, MakesGridsWhereHostsHaveEquallyManyRanksAlone) {
  const auto grid_of = [](std::vector<int> ring, const std::vector<int>& hosts) {
    ChannelShape shape{.ring = std::move(ring)};
    shape.add_grid(hosts);
    EXPECT_EQ(shape.has(LinkKind::kGrid), shape.columns > 0);
    return shape.grid;
  };
  using Ranks = std::vector<int>;
  EXPECT_EQ(grid_of({3, 0, 2, 1}, {7, 9, 7, 9}), (Ranks{3, 1, 0, 2})) << "in the order of the ring";
  EXPECT_EQ(grid_of({0, 1, 2, 3}, {}), Ranks());
  EXPECT_EQ(grid_of({0, 1, 2, 3}, {0, 0, 0, 0}), Ranks()) << "one host";
  EXPECT_EQ(grid_of({0, 1, 2, 3}, {0, 1, 2, 3}), Ranks()) << "a rank each";
  EXPECT_EQ(grid_of({0, 1, 2, 3}, {0, 0, 0, 1}), Ranks());
  EXPECT_EQ(grid_of({0, 1, 2, 3, 4}, {0, 0, 1, 1, 1}), Ranks());
  EXPECT_EQ(grid_of({}, {0, 0, 1, 1}), Ranks());
}

/// From a neighbour on, and once around: in whatever direction a call goes, the others stand in one row.
TEST(Layout, HasTheNeighboursOfATreeInACircle) {
  const ChannelShape shape{.trees = {{1, kNobody, 1, 2, 2}, {}}};
  const Places places(small_form(256, 4), 5, {shape});
  const auto sends_to = [&](int rank) {
    std::vector<int> peers;
    const Tree& tree = places.channel_of(rank, 0).tree[0];
    for (int i = 0; i < 2 * tree.neighbours - 1; ++i) {
      peers.push_back(Memory::rank_of(tree.ends[1].to[i].slots));
      EXPECT_EQ(places.senders.at(tree.ends[1].from[i].slots), peers.back());
    }
    return peers;
  };
  EXPECT_EQ(sends_to(1), (std::vector<int>{0, 2, 0}));
  EXPECT_EQ(sends_to(2), (std::vector<int>{1, 3, 4, 1, 3}));
  EXPECT_EQ(sends_to(4), (std::vector<int>{2}));
  EXPECT_EQ(places.channel_of(1, 0).tree[0].parent, kNoHead);
  EXPECT_EQ(places.channel_of(2, 0).tree[0].parent, 0);
  const auto heads = [&](int rank) {
    const int* const by_root = places.channel_of(rank, 0).tree[0].heads;
    return std::vector<int>(by_root, by_root + 5);
  };
  EXPECT_EQ(heads(1), (std::vector<int>{0, kNoHead, 1, 1, 1}));
  EXPECT_EQ(heads(2), (std::vector<int>{0, 0, kNoHead, 1, 2}));
  EXPECT_EQ(heads(4), (std::vector<int>{0, 0, 0, 0, kNoHead}));
}

TEST(Layout, MayHaveMoreRingsThanTrees) {
  std::vector<ChannelShape> shapes = plain_channels(3, 3);
  shapes[1].trees[0].clear();
  shapes[2].trees[0].clear();
  const Layout layout(small_form(256, 4), 3, shapes);
  EXPECT_EQ(layout.total_weight(LinkKind::kRing, 3), 3U);
  EXPECT_EQ(layout.total_weight(LinkKind::kTree, 3), 1U);
}

TEST(Layout, NeedsLessForFewerChannels) {
  ChannelForm form = small_form(256, 4);
  form.exchange[0] = {};  // which all channels share
  const Layout layout(form, 4, plain_channels(4, 16));
  EXPECT_EQ(layout.bytes(0), 0U);
  EXPECT_EQ(layout.bytes(16), 16 * layout.bytes(1));
}

TEST(Layout, KnowsWhoseMemoryARankReaches) {
  const auto peers_of = [](int rank, int ranks) {
    ChannelForm form = small_form(256, 4);
    form.exchange[0] = {};
    const Layout layout(form, ranks, plain_channels(ranks, 2));
    const std::vector<bool> reached = layout.near_peers(rank, layout.channels());
    std::vector<int> peers;
    for (int peer = 0; peer < ranks; ++peer)
      if (reached[static_cast<std::size_t>(peer)]) peers.push_back(peer);
    return peers;
  };
  EXPECT_EQ(peers_of(4, 10), (std::vector<int>{3, 5}));
  EXPECT_EQ(peers_of(0, 10), (std::vector<int>{1, 9}));
  EXPECT_EQ(peers_of(1, 4), (std::vector<int>{0, 2, 3})) << "few ranks have links with all";
  EXPECT_EQ(peers_of(0, 1), std::vector<int>{});
}

TEST(Layout, RefusesWhatIsNoRingOrTreeOfAllRanks) {
  const auto refused = [](ChannelShape shape, int ranks) {
    EXPECT_THROW(Layout(small_form(256, 4), ranks, {shape}), Error);
  };
  refused({.ring = {0, 1, 1}}, 3);
  refused({.ring = {0, 1}}, 3);
  refused({.ring = {0, 1, 3}}, 3);
  refused({.trees = {{kNobody, 0}}}, 3);
  refused({.trees = {{kNobody, kNobody, 0}}}, 3);
  refused({.trees = {{kNobody, 2, 1}}}, 3);
  refused({.trees = {{kNobody, 0, 7}}}, 3);
  refused({.trees = {{kNobody, 0, 0, 0, 0}}}, 5);
  refused({.grid = {0, 1, 2, 2}, .columns = 2}, 4);
  refused({.grid = {0, 1, 2, 3}, .columns = 1}, 4);
  refused({.grid = {0, 1, 2, 3}, .columns = 3}, 4);
  refused({.grid = {0, 1, 2, 3}, .columns = 4}, 4);
}

}  // namespace
}  // namespace loom::device::steps
