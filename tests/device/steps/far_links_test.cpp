// Links between hosts, whose two ends lie apart: somebody carries what crosses them. Here a thread does, from
// memory to memory, by the rules of device/link/carrier.hpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "tests/device/steps/step_calls.hpp"

namespace loom::device::steps {
namespace {

class MemoryCarrier {
 public:
  MemoryCarrier(HostWorld& world, int ranks) {
    std::map<int, Link> links;
    for (int rank = 0; rank < ranks; ++rank)
      for (const FarEnd& end : world.far_ends(rank)) {
        (end.sends ? links[end.link].from : links[end.link].to) = end;
        (end.sends ? links[end.link].sender : links[end.link].receiver) = rank;
      }
    for (auto& [number, link] : links) {
      EXPECT_EQ(link.from.peer, link.receiver);
      EXPECT_EQ(link.to.peer, link.sender);
      EXPECT_EQ(link.from.channel, link.to.channel);
      links_.push_back(link);
    }
  }
  ~MemoryCarrier() { EXPECT_EQ(carried_ > 0, !links_.empty()); }
  MemoryCarrier(const MemoryCarrier&) = delete;
  MemoryCarrier& operator=(const MemoryCarrier&) = delete;

  void carry(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (Link& link : links_) carry(link);
      std::this_thread::yield();
    }
    for (Link& link : links_) carry(link);
  }
  std::size_t links() const { return links_.size(); }
  std::size_t bytes() const { return bytes_; }
  /// Messages of no call.
  Word passed_over() const { return passed_over_; }

 private:
  struct Link {
    FarEnd from, to;
    int sender = -1, receiver = -1;
    Word carried = 0;
  };

  void carry(Link& link) {
    const Word filled = load_acquire(link.from.filled), consumed = load_acquire(link.to.consumed),
               slots = link.from.form.slot_count;
    // Nobody has written to the slots of messages before these since they were carried.
    for (Word m = std::max(link.carried, filled > slots ? filled - slots : 0) + 1; m <= filled; ++m) {
      const Sent& sent = link.from.sent[(m - 1) % slots];
      if (sent.message != m) continue;
      ASSERT_LE(m, consumed + slots) << "the slot is not free at the receiver";
      ASSERT_LE(sent.bytes, link.from.form.slot_bytes);
      const std::size_t at = link.from.form.offset_of(m);
      std::memset(link.to.slots + at, 0xee, link.to.form.slot_bytes);
      std::memcpy(link.to.slots + at, link.from.slots + at, sent.bytes);
      passed_over_ += m - link.carried - 1;
      link.carried = m;
      ++carried_;
      bytes_ += sent.bytes;
      store_release(link.to.filled, m);
    }
    store_release(link.from.consumed, consumed);
  }

  std::vector<Link> links_;
  Word carried_ = 0, passed_over_ = 0;
  std::size_t bytes_ = 0;
};

/// Such as links between hosts can have.
ChannelForm simple_form(std::size_t slot_bytes, std::size_t slots, bool exchange = false) {
  ChannelForm form;
  form.ring[0] = form.tree[0] = {slot_bytes, slots};
  if (exchange) form.exchange[0] = form.ring[0];
  return form;
}

void check(HostWorld& world, MemoryCarrier& carrier, const Call& call) {
  SCOPED_TRACE(about(call));
  Buffers<int> buffers(call);
  std::jthread carries([&](const std::stop_token& stop) { carrier.carry(stop); });
  ASSERT_TRUE((world.perform<Sum, int>(call, buffers.in, buffers.out, call.size)));
  carries.request_stop();
  carries.join();
  buffers.check();
}

/// Calls of all kinds in any order, from any root, so that trees pass over directions of their links.
Word check_calls(int ranks, int hosts, unsigned seed, unsigned patience = 0) {
  std::mt19937_64 random(seed);
  std::vector<int> host_of(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < host_of.size(); ++r)
    host_of[r] =
        static_cast<int>(r < static_cast<std::size_t>(hosts) ? r : random() % static_cast<unsigned>(hosts));
  HostWorld world(ranks, 1, simple_form(256, 4, true), random_channels(random, ranks, 2), host_of);
  if (patience > 0) world.be_patient(patience);
  MemoryCarrier carrier(world, ranks);
  EXPECT_GT(carrier.links(), 0U);
  for (int i = 0; i < 40; ++i) {
    const Algorithm algorithms[] = {
        Algorithm::kAllreduceRing,     Algorithm::kReduceScatterRing, Algorithm::kAllGatherRing,
        Algorithm::kBroadcastChain,    Algorithm::kReduceChain,       Algorithm::kAllreduceTree,
        Algorithm::kBroadcastTree,     Algorithm::kReduceTree,        Algorithm::kAllGatherTree,
        Algorithm::kReduceScatterTree, Algorithm::kAllToAll};
    check(world, carrier,
          {algorithms[random() % std::size(algorithms)],
           Protocol::kSimple,
           ranks,
           static_cast<int>(random() % static_cast<unsigned>(ranks)),
           1 + random() % 1500,
           sizeof(int),
           find_reduce(Op::kSum, Type::kInt32),
           random() % 2 == 0,
           {},
           random_slice(random)});
  }
  return carrier.passed_over();
}

TEST(FarLinks, CarryEveryCallOfRingsAndTrees) {
  Word passed_over = 0;
  for (const int ranks : {2, 3, 5, 9})
    for (int hosts = 2; hosts <= std::min(ranks, 4); ++hosts)
      passed_over += check_calls(ranks, hosts, static_cast<unsigned>(10 * ranks + hosts));
  EXPECT_GT(passed_over, 100U) << "no call after one that had passed over a direction";
}

TEST(FarLinks, GoOnWhereKernelsHaveLeft) {
  check_calls(4, 2, 1, 50);
}

/// Hosts are the rows. Ranks of a host are in any place; so are blocks of any length.
void check_grid(int rows, int columns, unsigned seed, unsigned patience = 0) {
  const int ranks = rows * columns;
  std::mt19937_64 random(seed);
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank % rows);
  std::ranges::shuffle(host_of, random);
  auto shapes = random_channels(random, ranks, 2);
  for (ChannelShape& shape : shapes) {
    shape.add_grid(host_of);
    ASSERT_EQ(shape.columns, columns);
  }
  HostWorld world(ranks, 1, simple_form(256, 2 + random() % 5), std::move(shapes), host_of);
  if (patience > 0) world.be_patient(patience);
  MemoryCarrier carrier(world, ranks);
  for (int i = 0; i < 24; ++i) {
    const Algorithm algorithms[] = {Algorithm::kAllreduceHier, Algorithm::kReduceScatterHier,
                                    Algorithm::kAllGatherHier, Algorithm::kAllreduceRing};
    Call call{algorithms[i % 4],
              Protocol::kSimple,
              ranks,
              0,
              random() % 1500,
              sizeof(int),
              find_reduce(Op::kSum, Type::kInt32),
              random() % 2 == 0};
    if (call.has_blocks() && random() % 2 == 0) call.counts = random_counts(random, call, call.count);
    call.slice_bytes = random_slice(random);
    check(world, carrier, call);
  }
}

/// Blocks of any lengths, with ranks of a host anywhere; more channels than distances, and fewer.
void check_exchanges(int ranks, int hosts, int channels, unsigned seed, unsigned patience = 0) {
  std::mt19937_64 random(seed);
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank % hosts);
  std::ranges::shuffle(host_of, random);
  HostWorld world(ranks, 1, simple_form(128 * (1 + random() % 3), 1 + random() % 4, true),
                  random_channels(random, ranks, channels), host_of);
  if (patience > 0) world.be_patient(patience);
  MemoryCarrier carrier(world, ranks);
  for (int i = 0; i < 8; ++i) {
    Call call{Algorithm::kAllToAll, Protocol::kSimple, ranks, 0, random() % 700, sizeof(int), nullptr};
    if (i % 3 != 0) call.counts = random_counts(random, call, call.count);
    check(world, carrier, call);
  }
}

TEST(FarLinks, CarryExchanges) {
  for (const int ranks : {2, 3, 4, 7})
    for (int hosts = 2; hosts <= std::min(ranks, 4); ++hosts)
      for (const int channels : {1, 2, 5})
        check_exchanges(ranks, hosts, channels, static_cast<unsigned>(100 * ranks + 10 * hosts + channels));
}

TEST(FarLinks, GoOnWhereKernelsOfExchangesHaveLeft) {
  check_exchanges(4, 2, 2, 1, 50);
}

/// Each byte goes where it is meant to go, once.
TEST(FarLinks, SendNothingTwiceInExchanges) {
  constexpr std::size_t kCount = 1000;
  const std::vector<int> host_of{0, 0, 1, 1, 2};
  HostWorld world(5, 1, simple_form(512, 4, true), plain_channels(5, 3), host_of);
  MemoryCarrier carrier(world, 5);
  check(world, carrier, {Algorithm::kAllToAll, Protocol::kSimple, 5, 0, kCount, sizeof(int), nullptr});
  EXPECT_EQ(carrier.bytes(), (4 * 3 + 4) * kCount * sizeof(int))
      << "four ranks send three others, one sends four";
}

TEST(FarLinks, CarryGrids) {
  for (const int rows : {2, 3, 5})
    for (const int columns : {2, 3, 4}) check_grid(rows, columns, static_cast<unsigned>(10 * rows + columns));
}

TEST(FarLinks, GoOnWhereKernelsOfGridsHaveLeft) {
  check_grid(2, 2, 1, 50);
}

/// What crosses hosts is what a ring of hosts sends, once for each of its blocks.
TEST(FarLinks, SendLessInGrids) {
  constexpr int kRows = 3, kColumns = 4, kRanks = kRows * kColumns;
  constexpr std::size_t kCount = 12'000;
  std::vector<int> host_of;
  for (int rank = 0; rank < kRanks; ++rank) host_of.push_back(rank / kColumns);
  const auto bytes_by = [&](Algorithm algorithm) {
    HostWorld world(kRanks, 1, simple_form(4096, 4), plain_channels(kRanks, 1, host_of), host_of);
    MemoryCarrier carrier(world, kRanks);
    check(
        world, carrier,
        {algorithm, Protocol::kSimple, kRanks, 0, kCount, sizeof(int), find_reduce(Op::kSum, Type::kInt32)});
    return carrier.bytes();
  };
  // Lines are whole.
  EXPECT_NEAR(static_cast<double>(bytes_by(Algorithm::kAllreduceRing)),
              kRows * 2.0 * (kRanks - 1) / kRanks * kCount * sizeof(int), 5000);
  EXPECT_NEAR(static_cast<double>(bytes_by(Algorithm::kAllreduceHier)),
              kRows * 2.0 * (kRows - 1) / kRows * kCount * sizeof(int), 5000);
}

TEST(FarLinks, AreOfRanksOnDifferentHostsAlone) {
  HostWorld world(4, 1, simple_form(256, 4), plain_channels(4, 1), {0, 0, 1, 1});
  std::vector<std::pair<int, int>> sends;
  for (int rank = 0; rank < 4; ++rank)
    for (const FarEnd& end : world.far_ends(rank)) {
      EXPECT_EQ(end.sends, end.sent != nullptr);
      if (end.sends) sends.emplace_back(rank, end.peer);
    }
  std::ranges::sort(sends);
  const std::vector<std::pair<int, int>> right = {{1, 2}, {1, 2}, {2, 1}, {3, 0}};
  EXPECT_EQ(sends, right) << "of the ring 1 to 2 and 3 to 0, of the chain both ways between 1 and 2";
}

TEST(FarLinks, GoBySimpleAlone) {
  EXPECT_THROW(Layout(small_form(256, 4, false), 2, plain_channels(2, 1), {0, 1}), Error);
  EXPECT_NO_THROW(Layout(small_form(256, 4, false), 2, plain_channels(2, 1), {7, 7}));
}

TEST(FarLinks, LieApartInTheMemoryOfTheirRank) {
  std::mt19937_64 random(3);
  const int ranks = 9;
  std::size_t most = 0;
  const Layout layout(simple_form(384, 5), ranks, random_channels(random, ranks, 4),
                      {0, 1, 2, 0, 1, 2, 2, 2, 0});
  for (int rank = 0; rank < ranks; ++rank)
    for (const int channels : {1, 4}) {
      // By beginning, of the host's memory and of the GPU's.
      std::map<const std::byte*, std::size_t> on_host, on_gpu;
      const auto host = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 30);
      const auto gpu = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
      const auto take = [&](auto& taken, const void* at, std::size_t bytes) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % 128, 0U);
        EXPECT_TRUE(taken.emplace(static_cast<const std::byte*>(at), bytes).second);
      };
      const auto end_of = [](const auto& taken, const std::byte* begin) {
        const std::byte* last = begin;
        for (const auto& [at, bytes] : taken) {
          EXPECT_GE(at, last);
          last = at + bytes;
        }
        return static_cast<std::size_t>(last - begin);
      };
      std::vector<FarEnd> ends = layout.far_ends(rank, channels);
      for (FarEnd& end : ends) end.on_gpu = random() % 2 == 0;
      const FarBytes bytes = far_bytes(ends);
      place(ends, host, gpu);
      for (const FarEnd& end : ends) {
        take(end.on_gpu ? on_gpu : on_host, end.slots, end.form.bytes());
        take(on_host, end.filled, sizeof(Word));
        take(on_host, end.consumed, sizeof(Word));
        if (end.sends) take(on_host, end.sent, end.form.slot_count * sizeof(Sent));
      }
      EXPECT_LE(end_of(on_host, host), bytes.host);
      EXPECT_EQ(end_of(on_gpu, gpu), bytes.gpu);
      most = std::max(most, bytes.host + bytes.gpu);
    }
  EXPECT_EQ(most, layout.most_far_bytes(4));
}

}  // namespace
}  // namespace loom::device::steps
