// Small messages of one host (ImmediateExchange and TieredExchange), simulated: ranks in one thread, each
// going on by a step when it is told to. The code is the product's, with lines and a ring so few and small
// that they come round soon.
//
// A rank stops before and after it publishes, and before each look at another's flag. What it reads after a
// look it reads at once: whatever another rank could overwrite between the two it could also overwrite before
// the look, for nothing is published meanwhile that lets it go on. How stores become visible is not
// simulated: a flag is a release, a look an acquire, and between the two is what StepFlag says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "device/host/tiered_exchange_code.hpp"
#include "tests/device/host/fiber.hpp"

// In the simulator there is one thread, and its sanitizer does not know stacks that change.
#if defined(__SANITIZE_THREAD__)
#define LOOM_SKIPS_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOOM_SKIPS_FIBERS 1
#endif
#endif

namespace loom::device {
namespace {

/// Where a rank has stopped.
struct Stop {
  enum class At { kBegin, kOffer, kPublished, kLook } at = At::kBegin;
  const void* flag = nullptr;
  bool operator==(const Stop&) const = default;
};
Stop stop_of_the_rank_that_runs;

void stop(Stop::At at, const void* flag) {
  stop_of_the_rank_that_runs = {at, flag};
  Fiber::stop();
}

/// A StepFlag at which others can go first.
class WatchedFlag {
 public:
  void publish(std::uint64_t step) {
    stop(Stop::At::kOffer, this);
    flag_.publish(step);
    stop(Stop::At::kPublished, this);
  }
  std::uint64_t value() const {
    stop(Stop::At::kLook, this);
    return flag_.value();
  }

 private:
  StepFlag flag_;
};

/// Which a sender that runs ahead uses up first: all lines, the whole ring, or either.
using FewLines = ImmediateAreaOf<6, 256, 4 * 256, WatchedFlag>;
using ShortRing = ImmediateAreaOf<8, 256, 4 * 256, WatchedFlag>;
using Larger = ImmediateAreaOf<8, 512, 5 * 512, WatchedFlag>;

struct Made {
  Collective collective;
  std::size_t count;  ///< elements of a message or block
  int root = 0;
  bool in_place = false;
  bool tiered = false;
};

/// Groups of so many, in order of rank.
Tiers groups_of(int ranks, int most) {
  return {std::vector<TierPlace>(static_cast<std::size_t>(ranks)), most};
}

bool has_block_for_each(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
}
bool has_block_of_each(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kAllToAll;
}

/// Element i of what rank `from` has for rank `to` in a call. No two calls of a row have the same anywhere.
int value(std::size_t made, int from, int to, std::size_t i) {
  return static_cast<int>(made * 100'000 + i * 100) + from * 10 + to;
}

/// One rank on its way through a row of calls.
template <class Area>
class Walker {
 public:
  Walker(const std::vector<Area*>& areas, int self, bool runs_far, const Tiers& tiers,
         const std::vector<Made>& calls)
      : exchange_(areas, self, runs_far),
        tiered_(exchange_, tiers),
        self_(self),
        calls_(calls),
        fiber_([this] { perform(); }) {}

  bool done() const { return fiber_.done(); }
  /// Runs to where it stops next; false: it has to wait. A rank that looks at a flag for the third time waits
  /// for it: a first look may be one that only fetches the line.
  bool move() {
    for (int look = 0; look < 3; ++look) {
      fiber_.resume();
      if (done() || std::exchange(stop_, stop_of_the_rank_that_runs) != stop_of_the_rank_that_runs)
        return true;
    }
    return false;
  }

 private:
  void perform() {
    for (at_ = 0; at_ < calls_.size() && !::testing::Test::HasFailure(); ++at_) {
      static const WaitPolicy policy{.progress = {}, .check_peers = {}};
      Waiter waiter(policy);
      const Call call = begin();
      calls_[at_].tiered ? tiered_.perform(call, waiter) : exchange_.perform(call, waiter);
      check();
    }
  }

  Call begin() {
    const Made& made = calls_[at_];
    const auto ranks = static_cast<std::size_t>(exchange_.size());
    in_.assign(made.count * (has_block_for_each(made.collective) ? ranks : 1), 0);
    for (std::size_t i = 0; i < in_.size(); ++i)
      in_[i] = value(at_, self_, static_cast<int>(i / made.count), i % made.count);
    out_.assign(made.count * (has_block_of_each(made.collective) ? ranks : 1), -1);

    Call call{.collective = made.collective,
              .count = made.count,
              .type = Type::kInt32,
              .op = Op::kSum,
              .root = made.root};
    std::size_t own = 0;  // where in the output this rank's operand is, in place
    if (made.in_place) {
      if (made.collective == Collective::kAllGather) own = static_cast<std::size_t>(self_) * made.count;
      out_.resize(std::max(out_.size(), in_.size()), -1);
      std::ranges::copy(in_, out_.begin() + static_cast<std::ptrdiff_t>(own));
    }
    call.out = reinterpret_cast<std::byte*>(out_.data());
    call.in = made.in_place ? call.out + own * sizeof(int) : reinterpret_cast<std::byte*>(in_.data());
    return call;
  }

  /// Element i of the block that came from rank `from`, or of the only one.
  int expected(const Made& made, int from, std::size_t i) const {
    const int to = has_block_for_each(made.collective) ? self_ : 0;
    if (!is_reduction(made.collective))
      return value(at_, made.collective == Collective::kBroadcast ? made.root : from, to, i);
    int sum = 0;
    for (int rank = 0; rank < exchange_.size(); ++rank) sum += value(at_, rank, to, i);
    return sum;
  }

  void check() const {
    const Made& made = calls_[at_];
    if (made.collective == Collective::kBarrier) return;
    if (made.collective == Collective::kReduce && self_ != made.root) return;
    if (made.collective == Collective::kBroadcast && self_ == made.root) return;
    for (int from = 0; from < (has_block_of_each(made.collective) ? exchange_.size() : 1); ++from)
      for (std::size_t i = 0; i < made.count; ++i)
        ASSERT_EQ(out_[static_cast<std::size_t>(from) * made.count + i], expected(made, from, i))
            << "call " << at_ << ", rank " << self_ << ", block " << from << ", element " << i;
  }

  ImmediateExchangeOf<Area> exchange_;
  TieredExchangeOf<Area> tiered_;
  int self_;
  const std::vector<Made>& calls_;
  std::size_t at_ = 0;
  std::vector<int> in_, out_;
  Stop stop_;
  Fiber fiber_;
};

template <class Area>
class World {
 public:
  World(int ranks, bool runs_far, const Tiers& tiers, const std::vector<Made>& calls) {
    for (int rank = 0; rank < ranks; ++rank) areas_.emplace_back(new Area{});
    std::vector<Area*> areas;
    for (const auto& area : areas_) areas.push_back(area.get());
    for (int rank = 0; rank < ranks; ++rank)
      walkers_.push_back(std::make_unique<Walker<Area>>(areas, rank, runs_far, tiers, calls));
  }
  int size() const { return static_cast<int>(walkers_.size()); }
  bool done(int rank) const { return walkers_[static_cast<std::size_t>(rank)]->done(); }
  bool done() const {
    return std::ranges::all_of(walkers_, [](const auto& walker) { return walker->done(); });
  }
  bool move(int rank) { return !done(rank) && walkers_[static_cast<std::size_t>(rank)]->move(); }

 private:
  std::vector<std::unique_ptr<Area>> areas_;
  std::vector<std::unique_ptr<Walker<Area>>> walkers_;
};

struct Explored {
  std::size_t states = 0, moves = 0;
};

/// In each state that can be reached, each rank that can go on does so once. Where a rank stops next depends
/// only on how often it has stopped: so the stops of each rank are a state, whatever their order was, and
/// what a rank reads in a move depends on the state before it.
template <class Area>
Explored explore(int ranks, bool runs_far, const std::vector<Made>& calls, int most_in_group = 2) {
  using State = std::vector<int>;
  struct Tried {
    int ranks = 0;  ///< from 0 on
    bool any_moved = false;
  };
  std::map<State, Tried> tried;
  // Ways to states: who moved. In order of discovery, else what follows has been tried already.
  std::deque<std::vector<int>> open = {{}};
  Explored explored;
  while (!open.empty() && !::testing::Test::HasFailure()) {
    std::vector<int> way = std::move(open.front());
    open.pop_front();
    State state(static_cast<std::size_t>(ranks));
    for (const int rank : way) ++state[static_cast<std::size_t>(rank)];
    if (tried[state].ranks == ranks) continue;
    World<Area> world(ranks, runs_far, groups_of(ranks, most_in_group), calls);
    for (const int rank : way) EXPECT_TRUE(world.move(rank)) << "what happens depends on more than the state";
    // On from there, as far as there is something new.
    while (!::testing::Test::HasFailure()) {
      Tried& here = tried[state];
      if (here.ranks == ranks) break;
      const int rank = here.ranks++;
      const bool moved = world.move(rank);
      here.any_moved |= moved;
      const bool is_stuck = here.ranks == ranks && !here.any_moved && !world.done();
      EXPECT_FALSE(is_stuck) << "nobody can move";
      if (!moved) continue;
      ++explored.moves;
      if (here.ranks < ranks) open.push_back(way);
      way.push_back(rank);
      ++state[static_cast<std::size_t>(rank)];
    }
  }
  explored.states = tried.size();
  return explored;
}

constexpr Collective kAll[] = {Collective::kAllreduce, Collective::kReduce,    Collective::kReduceScatter,
                               Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll,
                               Collective::kBarrier};

/// Roots and sizes change. The longest offers of all ranks fit in an exchange, except of broadcasts and
/// reduces, which may take three.
template <class Area>
Made random_call(std::mt19937& random, int ranks) {
  Made made{.collective = kAll[random() % std::size(kAll)], .count = 0};
  // Broadcasts and reduces are those in which ranks run ahead.
  if (random() % 2 == 0) made.collective = random() % 2 == 0 ? Collective::kBroadcast : Collective::kReduce;
  made.tiered = random() % 2 == 0;
  if (made.collective == Collective::kBarrier) return made;
  std::size_t most = Area::kMostOffered / sizeof(int);
  if (has_block_for_each(made.collective)) most /= static_cast<std::size_t>(ranks);
  const bool takes_more = made.collective == Collective::kBroadcast || made.collective == Collective::kReduce;
  if (takes_more && random() % 4 == 0) most *= 3;
  made.count = 1 + random() % (random() % 2 == 0 ? std::min<std::size_t>(most, 8) : most);
  made.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  made.in_place = random() % 2 == 0;
  made.tiered =
      random() % 2 == 0 && TieredExchangeOf<Area>::takes(made.collective, made.count * sizeof(int), ranks);
  return made;
}

TEST(LineInterleavings, AreRightInEveryOrderOfPublishingAndLooking) {
#ifdef LOOM_SKIPS_FIBERS
  GTEST_SKIP() << "no fibers with the thread sanitizer";
#endif
  Explored all;
  const auto add = [&](const Explored& explored) {
    all.states += explored.states;
    all.moves += explored.moves;
  };
  constexpr std::size_t kInLine = 3, kInRing = 40, kWholePlace = 64;
  for (const Collective collective : kAll)
    for (const std::size_t count : {kInLine, kInRing, kWholePlace})
      for (const int ranks : {2, 3}) {
        if (HasFailure()) break;
        const std::size_t one = collective == Collective::kBarrier ? 0
                                : has_block_for_each(collective)   ? std::max<std::size_t>(count / 3, 1)
                                                                   : count;
        // A sender runs ahead until lines, or the ring, are full; then somebody else does.
        std::vector<Made> calls(ranks == 2 ? 6 : 4, {Collective::kBroadcast, count, 0});
        calls.push_back({collective, one, 1, true});
        calls.insert(calls.end(), ranks == 2 ? 6 : 4, {Collective::kReduce, count, 1});
        calls.push_back({collective, one, 0});
        calls.push_back({Collective::kBroadcast, count, 1});
        for (const bool runs_far : {false, true}) {
          if (count == kWholePlace)
            add(explore<ShortRing>(ranks, runs_far, calls));
          else
            add(explore<FewLines>(ranks, runs_far, calls));
        }
      }
  std::mt19937 random(1);
  for (int row = 0; row < 30 && !HasFailure(); ++row)
    for (const int ranks : {2, 3}) {
      std::vector<Made> calls;
      for (int i = 0; i < (ranks == 2 ? 14 : 7); ++i) calls.push_back(random_call<ShortRing>(random, ranks));
      for (const bool runs_far : {false, true}) {
        add(explore<ShortRing>(ranks, runs_far, calls));
        add(explore<FewLines>(ranks, runs_far, calls));
      }
    }
  EXPECT_GT(all.states, 1000U);
  std::printf("%zu states, %zu moves\n", all.states, all.moves);
}

TEST(LineInterleavings, AreRightInEveryOrderInGroups) {
#ifdef LOOM_SKIPS_FIBERS
  GTEST_SKIP() << "no fibers with the thread sanitizer";
#endif
  Explored all;
  const auto add = [&](const Explored& explored) {
    all.states += explored.states;
    all.moves += explored.moves;
  };
  constexpr std::size_t kInLine = 2, kInRing = 16;
  for (const Collective collective : kAll)
    for (const std::size_t count : {kInLine, kInRing}) {
      if (HasFailure() || !TieredExchangeOf<FewLines>::takes(collective)) continue;
      const std::size_t some = collective == Collective::kBarrier ? 0 : count;
      const Made tiered{collective, some, 1, false, true};
      // Two and one; the other way round for the root, with a call between all ranks, and a sender ahead.
      const Made in_place{collective, some, 2, true, true}, flat{collective, some, 0};
      add(explore<FewLines>(3, false, {tiered, in_place}));
      add(explore<FewLines>(3, false, {{Collective::kBroadcast, count, 0}, tiered, flat}));
      add(explore<ShortRing>(3, true, {{Collective::kReduce, count, 2, false, true}, tiered}));
      // Twice two.
      add(explore<FewLines>(4, false, {tiered}));
      if (collective == Collective::kBarrier && count == kInLine)
        add(explore<FewLines>(5, false, {tiered}, 3));
    }
  EXPECT_GT(all.states, 1000U);
  std::printf("%zu states, %zu moves\n", all.states, all.moves);
}

/// A rank that is chosen goes on for some steps, so that ranks get as far ahead of others as they can; one
/// rank may hardly ever be chosen.
template <class Area>
void go_in_random_order(std::mt19937& random, int ranks, bool runs_far, const std::vector<Made>& calls) {
  std::vector<TierPlace> places(static_cast<std::size_t>(ranks));
  for (TierPlace& place : places) place = {static_cast<int>(random() % 3), static_cast<int>(random() % 2)};
  World<Area> world(ranks, runs_far, {places, 2 + static_cast<int>(random() % 3)}, calls);
  const int slow = random() % 2 == 0 ? static_cast<int>(random() % static_cast<unsigned>(ranks)) : -1;
  for (int fruitless = 0; !world.done() && !::testing::Test::HasFailure();) {
    const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
    if (rank == slow && fruitless < 3 * ranks) {
      ++fruitless;
      continue;
    }
    bool moved = false;
    for (auto burst = 1 + random() % 30; burst > 0 && world.move(rank); --burst) moved = true;
    fruitless = moved ? 0 : fruitless + 1;
    ASSERT_LT(fruitless, 1000) << "nobody can move";
  }
}

TEST(LineInterleavings, AreRightInRandomOrdersOnUpToNineRanks) {
#ifdef LOOM_SKIPS_FIBERS
  GTEST_SKIP() << "no fibers with the thread sanitizer";
#endif
  for (unsigned seed = 0; seed < 2000 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 8);
    std::vector<Made> calls;
    for (int i = 0; i < 24; ++i) calls.push_back(random_call<Larger>(random, ranks));
    go_in_random_order<Larger>(random, ranks, random() % 2 == 0, calls);
  }
}

}  // namespace
}  // namespace loom::device
