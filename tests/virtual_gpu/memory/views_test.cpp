// Litmus tests of both models: with the right fences a forbidden outcome never appears, whatever the seed,
// and without them it does for some seed.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "tests/virtual_gpu/test_space.hpp"

namespace virtual_gpu::memory {
namespace {

constexpr int kSeeds = 3000;

/// Two blocks of 64 threads each, perhaps on two GPUs, and memory that both reach.
struct Blocks {
  explicit Blocks(std::uint64_t seed, const TestSpace::Kind& kind = {})
      : random(seed),
        memory(space.add(4096, kind)),
        other(space.add(4096)),
        writer(weak_view(space, 64, seed * 2)),
        reader(weak_view(space, 64, seed * 2 + 1)) {}

  static void store(View& view, unsigned thread, std::uint64_t at, std::uint64_t value,
                    Order order = Order::kWeak, Scope scope = Scope::kSystem) {
    const Access access{thread, at, reinterpret_cast<std::byte*>(&value)};
    view.store({8, order, scope}, {&access, 1});
  }
  static std::uint64_t load(View& view, unsigned thread, std::uint64_t at, Order order = Order::kWeak,
                            Scope scope = Scope::kSystem) {
    std::uint64_t value = 0;
    const Access access{thread, at, reinterpret_cast<std::byte*>(&value)};
    view.load({8, order, scope}, {&access, 1});
    return value;
  }
  /// Time passes for the writer: some of what waits may go to memory.
  void pass() {
    for (auto i = random() % 4; i > 0; --i) load(*writer, 63, other);
  }

  TestSpace space;
  std::mt19937_64 random;
  std::uint64_t memory, other;
  std::unique_ptr<View> writer, reader;
};

/// How a message is passed: data by the writer, then a flag; the reader has loaded the data before.
struct Way {
  Order flag_store = Order::kRelease, flag_load = Order::kAcquire;
  Scope store_scope = Scope::kSystem, load_scope = Scope::kSystem;
  unsigned storing_thread = 0, loading_thread = 0;  ///< of the data; the flag's is 0
  bool writers_meet = false, readers_meet = false;
  bool neighbours_meet = false;  ///< the storing thread and the one beside it
  bool fences = false;           ///< beside relaxed flags
  TestSpace::Kind kind{};
};
/// Over all seeds: how often the flag was seen, and how often old data behind it.
struct Seen {
  int flags = 0, old_data = 0;
};
Seen pass_messages(const Way& way) {
  Seen seen;
  constexpr unsigned kThreads[] = {0, 40};
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Blocks blocks(seed, way.kind);
    const std::uint64_t data = blocks.memory, flag = blocks.memory + 1024;
    Blocks::load(*blocks.reader, way.loading_thread, data);
    Blocks::store(*blocks.writer, way.storing_thread, data, 1);
    if (way.writers_meet) blocks.writer->meet(kThreads);
    if (way.neighbours_meet) blocks.writer->meet(std::array{way.storing_thread, way.storing_thread + 1});
    if (way.fences) blocks.writer->fence(0, Scope::kSystem);
    Blocks::store(*blocks.writer, 0, flag, 1, way.flag_store, way.store_scope);
    blocks.pass();
    if (Blocks::load(*blocks.reader, 0, flag, way.flag_load, way.load_scope) != 1) continue;
    ++seen.flags;
    if (way.fences) blocks.reader->fence(0, Scope::kSystem);
    if (way.readers_meet) blocks.reader->meet(kThreads);
    seen.old_data += Blocks::load(*blocks.reader, way.loading_thread, data) == 0;
  }
  return seen;
}
void expect_right(const Way& way) {
  const Seen seen = pass_messages(way);
  EXPECT_GT(seen.flags, 0);
  EXPECT_EQ(seen.old_data, 0);
}
void expect_wrong(const Way& way) {
  EXPECT_GT(pass_messages(way).old_data, 0);
}

TEST(WeakMemory, PassesAMessageByReleaseAndAcquire) {
  expect_right({});
  expect_wrong({.flag_store = Order::kRelaxed});
  expect_wrong({.flag_store = Order::kWeak});
  expect_wrong({.flag_load = Order::kRelaxed});
}
TEST(WeakMemory, PassesAMessageByFences) {
  expect_right({.flag_store = Order::kRelaxed, .flag_load = Order::kRelaxed, .fences = true});
}
TEST(WeakMemory, ReleasesWhatAnotherThreadHasStoredBehindABarrierAlone) {
  expect_right({.storing_thread = 40, .writers_meet = true});
  expect_wrong({.storing_thread = 40});
  expect_wrong({.storing_thread = 40, .neighbours_meet = true});
}
TEST(WeakMemory, PassesOnThroughAThirdThread) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Blocks blocks(seed);
    Blocks::store(*blocks.writer, 50, blocks.memory, 1);
    blocks.writer->meet(std::array{50U, 40U});
    blocks.writer->meet(std::array{40U, 0U});
    ASSERT_EQ(Blocks::load(*blocks.writer, 0, blocks.memory), 1U);
    Blocks::store(*blocks.writer, 0, blocks.other, 1, Order::kRelease);
    ASSERT_EQ(Blocks::load(*blocks.reader, 0, blocks.memory, Order::kRelaxed), 1U) << "seed " << seed;
  }
}

// Who synchronises inside a GPU passes on what lies elsewhere.
TEST(WeakMemory, PassesOnWhatLiesBeyondTheScope) {
  const auto add = [](std::uint64_t old, std::uint64_t a, std::uint64_t) { return old + a; };
  const Form in_gpu{8, Order::kAcquireRelease, Scope::kGpu};
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Blocks blocks(seed);
    const std::uint64_t count = blocks.space.add(64, {.this_gpu_only = true}), data = blocks.memory,
                        flag = blocks.other;
    const auto third = weak_view(blocks.space, 64, seed);
    Blocks::load(*third, 0, data);
    Blocks::store(*blocks.writer, 0, data, 1);
    blocks.writer->update(in_gpu, 0, count, add, 1, 0);
    ASSERT_EQ(third->update(in_gpu, 0, count, add, 1, 0), 1U);
    ASSERT_EQ(Blocks::load(*third, 0, data), 1U) << "seed " << seed;
    Blocks::store(*third, 0, flag, 1, Order::kRelease);
    ASSERT_EQ(Blocks::load(*blocks.reader, 0, flag, Order::kAcquire), 1U);
    ASSERT_EQ(Blocks::load(*blocks.reader, 0, data), 1U) << "seed " << seed;
  }
}
TEST(WeakMemory, LetsAThreadUseAnothersAcquireBehindABarrierAlone) {
  expect_right({.loading_thread = 40, .readers_meet = true});
  expect_wrong({.loading_thread = 40});
}
TEST(WeakMemory, NeedsTheScopeOfThoseWhoReachTheMemory) {
  expect_wrong({.store_scope = Scope::kGpu});
  expect_wrong({.load_scope = Scope::kGpu});
  expect_wrong({.store_scope = Scope::kBlock, .kind = {.this_gpu_only = true}});
  expect_right({.store_scope = Scope::kGpu, .load_scope = Scope::kGpu, .kind = {.this_gpu_only = true}});
}

TEST(WeakMemory, KeepsTheOrderOfStoresToAWord) {
  bool saw_first = false;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Blocks blocks(seed);
    Blocks::store(*blocks.writer, 0, blocks.memory, 1, Order::kRelaxed);
    blocks.pass();
    if (seed % 2 == 0) blocks.writer->meet(std::array{0U, 40U});
    Blocks::store(*blocks.writer, seed % 2 == 0 ? 40 : 0, blocks.memory, 2, Order::kRelaxed);
    EXPECT_EQ(Blocks::load(*blocks.writer, seed % 2 == 0 ? 40 : 0, blocks.memory), 2U);
    std::uint64_t latest = 0;
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t now =
          Blocks::load(*blocks.reader, 0, blocks.memory, i % 2 == 0 ? Order::kRelaxed : Order::kWeak);
      ASSERT_GE(now, latest) << "seed " << seed;
      latest = now;
      saw_first |= now == 1;
      blocks.pass();
    }
    blocks.writer->finish();
    EXPECT_EQ(blocks.space.get<std::uint64_t>(blocks.memory), 2U);
  }
  EXPECT_TRUE(saw_first);
}

TEST(WeakMemory, ChangesWordsInMemoryBehindEarlierStoresToThem) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Blocks blocks(seed);
    Blocks::store(*blocks.writer, 0, blocks.memory, 5);
    const auto add = [](std::uint64_t old, std::uint64_t a, std::uint64_t) { return old + a; };
    EXPECT_EQ(blocks.writer->update({8, Order::kRelaxed, Scope::kSystem}, 0, blocks.memory, add, 3, 0), 5U);
    EXPECT_EQ(Blocks::load(*blocks.reader, 0, blocks.memory, Order::kRelaxed), 8U);
  }
}

/// A slot is loaded, given back by a flag and stored to again. What a view says of it, over all seeds.
struct GiveBack {
  Order flag_store = Order::kRelease, flag_load = Order::kAcquire;
  Scope store_scope = Scope::kSystem, load_scope = Scope::kSystem;
  Order slot_load = Order::kWeak, slot_store = Order::kWeak;
  bool readers_meet = true, looks_again = false;
  bool polls = false;  ///< nobody has stored to the slot yet: what is loaded from it is of no use
};
bool is_unordered(const GiveBack& way) {
  constexpr unsigned kThreads[] = {0, 40};
  int given_back = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Blocks blocks(seed, {.watches_loads = true});
    const auto pass = [&](View& view) { Blocks::load(view, 63, blocks.other + 1024); };
    try {
      if (!way.polls) Blocks::store(*blocks.writer, 40, blocks.memory, 1);
      blocks.writer->fence(40, Scope::kSystem);
      Blocks::load(*blocks.reader, 40, blocks.memory, way.slot_load);
      if (way.readers_meet) blocks.reader->meet(kThreads);
      Blocks::store(*blocks.reader, 0, blocks.other, 1, way.flag_store, way.store_scope);
      for (int i = 0; i < 500; ++i) pass(*blocks.reader);
      if (Blocks::load(*blocks.writer, 0, blocks.other, way.flag_load, way.load_scope) != 1) continue;
      ++given_back;
      blocks.writer->meet(kThreads);
      Blocks::store(*blocks.writer, 40, blocks.memory, 2, way.slot_store);
      blocks.writer->finish();
      if (way.looks_again) Blocks::load(*blocks.reader, 40, blocks.memory, way.slot_load);
      blocks.reader->finish();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::kUnordered);
      return true;
    }
  }
  EXPECT_GT(given_back, 0);
  return false;
}
TEST(WeakMemory, FindsStoresThatEarlierLoadsOfOthersMightSee) {
  EXPECT_FALSE(is_unordered({}));
  EXPECT_FALSE(is_unordered({.slot_load = Order::kRelaxed}));
  EXPECT_TRUE(is_unordered({.flag_store = Order::kRelaxed}));
  EXPECT_TRUE(is_unordered({.flag_load = Order::kRelaxed}));
  EXPECT_TRUE(is_unordered({.store_scope = Scope::kGpu}));
  EXPECT_TRUE(is_unordered({.load_scope = Scope::kGpu}));
  EXPECT_TRUE(is_unordered({.readers_meet = false})) << "the thread that releases has loaded nothing";
}
TEST(WeakMemory, LetsLoadsThatPollAndStoresRunAgainstEachOtherIfBothAreStrong) {
  for (const bool looks_again : {false, true}) {
    const auto is_wrong = [&](Order load, Order store, bool polls) {
      return is_unordered({.flag_store = Order::kRelaxed,
                           .slot_load = load,
                           .slot_store = store,
                           .looks_again = looks_again,
                           .polls = polls});
    };
    EXPECT_FALSE(is_wrong(Order::kRelaxed, Order::kRelaxed, true));
    EXPECT_TRUE(is_wrong(Order::kRelaxed, Order::kWeak, true));
    EXPECT_TRUE(is_wrong(Order::kWeak, Order::kRelaxed, true));
    EXPECT_TRUE(is_wrong(Order::kRelaxed, Order::kRelaxed, false))
        << "it has used what it loaded, and looks again for the next message, if at all";
  }
}
// By LL: a slot's two halves of a vector, message after message.
TEST(WeakMemory, LetsBothWordsOfAPieceBeStoredWhileSomebodyPolls) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Blocks blocks(seed, {.watches_loads = true});
    for (std::uint64_t message = 1; message <= 3; ++message) {
      for (const std::uint64_t word : {0, 8}) {
        Blocks::store(*blocks.writer, 0, blocks.memory + word, message, Order::kRelaxed);
        for (int i = 0; i < 500; ++i) {
          blocks.pass();
          if (i % 100 == 0) Blocks::load(*blocks.reader, 0, blocks.memory + word, Order::kRelaxed);
        }
        if (seed % 2 == 0) continue;
        blocks.reader->finish();  // it leaves, and is launched again
        blocks.reader = weak_view(blocks.space, 64, seed);
      }
      for (const std::uint64_t word : {0, 8})
        ASSERT_EQ(Blocks::load(*blocks.reader, 0, blocks.memory + word, Order::kRelaxed), message);
      Blocks::store(*blocks.reader, 0, blocks.other + 1024, message, Order::kRelease);
      Blocks::load(*blocks.reader, 0, blocks.memory, Order::kRelaxed);
      ASSERT_EQ(Blocks::load(*blocks.writer, 0, blocks.other + 1024, Order::kAcquire), message);
    }
  }
}

/// A line of 16 words that lanes store `at_once` at a time and others load so. How often it was torn.
int torn_lines(Path path, std::size_t stored_at_once, std::size_t loaded_at_once) {
  int torn = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Blocks blocks(seed, {.path = path});
    std::array<std::uint64_t, 16> stored, loaded{};
    stored.fill(7);
    const auto lanes = [&](std::array<std::uint64_t, 16>& words, std::size_t first, std::size_t count) {
      std::vector<Access> result;
      for (std::size_t lane = first; lane < first + count; ++lane)
        result.push_back({static_cast<unsigned>(lane), blocks.memory + lane * 16,
                          reinterpret_cast<std::byte*>(&words[lane * 2])});
      return result;
    };
    const Form form{16, Order::kRelaxed, Scope::kSystem};
    for (std::size_t lane = 0; lane < 8; lane += stored_at_once)
      blocks.writer->store(form, lanes(stored, lane, stored_at_once));
    blocks.pass();
    for (std::size_t lane = 0; lane < 8; lane += loaded_at_once) {
      blocks.reader->load(form, lanes(loaded, lane, loaded_at_once));
      blocks.pass();
    }
    torn += std::any_of(loaded.begin(), loaded.end(), [&](std::uint64_t word) { return word != loaded[0]; });
    blocks.writer->finish();
    EXPECT_THAT(blocks.space.get<decltype(stored)>(blocks.memory), ::testing::Each(7));
  }
  return torn;
}
TEST(WeakMemory, KeepsLinesWholeThatOneInstructionStoresAndOneLoads) {
  EXPECT_EQ(torn_lines(Path::kSameGpu, 8, 8), 0);
  EXPECT_EQ(torn_lines(Path::kNvlink, 8, 8), 0);
  EXPECT_GT(torn_lines(Path::kPcie, 8, 8), 0);
  EXPECT_GT(torn_lines(Path::kHost, 8, 8), 0);
  EXPECT_GT(torn_lines(Path::kNvlink, 4, 8), 0);
  EXPECT_GT(torn_lines(Path::kNvlink, 8, 4), 0);
}

TEST(StrongMemory, HasEveryStoreAtOnce) {
  TestSpace space;
  const std::uint64_t at = space.add(64);
  const auto writer = strong_view(space), reader = strong_view(space);
  Blocks::store(*writer, 0, at, 5);
  EXPECT_EQ(Blocks::load(*reader, 0, at), 5U);
}

TEST(Views, NameWrongAccesses) {
  TestSpace space;
  const std::uint64_t memory = space.add(24), new_memory = space.add(64, {.tracks_written = true}),
                      constant = space.add(64, {.writable = false});
  for (const bool weak : {false, true}) {
    const auto view = weak ? weak_view(space, 32, 1) : strong_view(space);
    const auto kind_of = [&](auto&& body) {
      try {
        body();
      } catch (const Error& error) {
        EXPECT_EQ(error.thread(), 3U);
        return std::optional(error.kind());
      }
      return std::optional<Error::Kind>();
    };
    using Kind = Error::Kind;
    EXPECT_EQ(kind_of([&] { Blocks::load(*view, 3, memory + 16); }), std::nullopt);
    EXPECT_EQ(kind_of([&] { Blocks::load(*view, 3, memory + 4); }), Kind::kMisaligned);
    EXPECT_EQ(kind_of([&] { Blocks::load(*view, 3, memory + 24); }), Kind::kForeignAddress);
    EXPECT_EQ(kind_of([&] { Blocks::store(*view, 3, 8, 1); }), Kind::kForeignAddress);
    EXPECT_EQ(kind_of([&] { Blocks::store(*view, 3, constant, 1); }), Kind::kReadOnly);
    EXPECT_EQ(kind_of([&] { Blocks::load(*view, 3, new_memory + (weak ? 8 : 0)); }), Kind::kNeverWritten);
    Blocks::store(*view, 3, new_memory + (weak ? 8 : 0), 1);
    EXPECT_EQ(kind_of([&] { Blocks::load(*view, 3, new_memory + (weak ? 8 : 0)); }), std::nullopt);
  }
}

/// Whatever is cached, merged or late: what instructions ask for.
TEST(Views, CountWhatIsLoadedAndStoredWhereSomebodyCounts) {
  for (const bool weak : {false, true}) {
    std::atomic<std::uint64_t> loaded = 0, stored = 0;
    TestSpace space;
    const std::uint64_t counted = space.add(4096, {.loaded = &loaded, .stored = &stored});
    std::vector<std::uint64_t> others;
    for (int i = 0; i < 20; ++i) others.push_back(space.add(64));  // more than a view remembers
    {
      const auto view = weak ? weak_view(space, 64, 1) : strong_view(space);
      for (int i = 0; i < 3; ++i) Blocks::store(*view, 0, counted + 8, 1);
      for (const std::uint64_t other : others) Blocks::store(*view, 0, other, 1);
      for (int i = 0; i < 2; ++i) Blocks::load(*view, 1, counted + 8);
      Blocks::load(*view, 1, counted, Order::kAcquire);
      const auto sum = [](std::uint64_t old, std::uint64_t a, std::uint64_t) { return old + a; };
      view->update({4, Order::kRelaxed, Scope::kSystem}, 0, counted, sum, 1, 0);
      std::array<std::uint64_t, 16> line{};
      std::vector<Access> lanes;
      for (unsigned i = 0; i < 16; ++i)
        lanes.push_back({i, counted + 128 + 8 * i, reinterpret_cast<std::byte*>(&line[i])});
      view->store({8, Order::kRelaxed, Scope::kSystem}, lanes);
      view->load({8, Order::kRelaxed, Scope::kSystem}, lanes);
      view->finish();
    }
    EXPECT_EQ(loaded, 3 * 8 + 4 + 128);
    EXPECT_EQ(stored, 3 * 8 + 4 + 128);
  }
}

}  // namespace
}  // namespace virtual_gpu::memory
