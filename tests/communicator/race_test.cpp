#include "component/race.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace loom {
namespace {

using device::Collective;

constexpr std::size_t kShortBytes = 64 << 10, kLongBytes = 8 << 20;
constexpr double kMargin = 1.1;

/// What one rank's calls of a kind come to, where a call takes took(by_rival, call).
struct Calls {
  std::vector<bool> by_rival;
  std::vector<int> met, news;  ///< calls

  Calls(Race& race, int calls, const std::function<std::uint64_t(bool, int)>& took) {
    for (int call = 0; call < calls; ++call) {
      if (race.meets()) {
        met.push_back(call);
        if (race.settle(race.own_ns(), kMargin)) news.push_back(call);
      }
      by_rival.push_back(race.by_rival());
      race.finish(race.is_timed() ? took(by_rival.back(), call) : 0);
    }
  }
};

constexpr int calls_of(std::uint32_t calls) {
  return static_cast<int>(calls);
}

TEST(Race, GivesTheRestOfAPeriodToTheFaster) {
  for (const std::size_t bytes : {kShortBytes, kLongBytes})
    for (const bool rival_is_faster : {false, true}) {
      const Race::Pace& pace = bytes == kShortBytes ? Race::kShort : Race::kLong;
      Races races;
      const Calls run(races.of(Collective::kAllreduce, bytes), 3 * calls_of(pace.period),
                      [&](bool by_rival, int) { return by_rival == rival_is_faster ? 100 : 200; });
      for (int call = 0; call < calls_of(3 * pace.period); ++call) {
        const std::uint32_t at = static_cast<std::uint32_t>(call) % pace.period;
        const bool expected = at < pace.lap ? false : at < 2 * pace.lap ? true : rival_is_faster;
        EXPECT_EQ(run.by_rival[static_cast<std::size_t>(call)], expected) << call;
      }
      EXPECT_EQ(run.met.size(), 3 * (2 * pace.timed + 2));
      EXPECT_EQ(run.news.size(), rival_is_faster ? 1 : 0);
    }
}

TEST(Race, TimesTheLastCallsOfALap) {
  Races races;
  std::vector<int> timed;
  const int calls = calls_of(2 * Race::kLong.lap);
  Calls(races.of(Collective::kAllreduce, kLongBytes), calls, [&](bool, int call) {
    timed.push_back(call);
    return 1;
  });
  EXPECT_EQ(timed, (std::vector{1, 2, 4, 5}));
}

TEST(Race, FollowsAMachineThatChanges) {
  Races races;
  const int period = calls_of(Race::kLong.period);
  const Calls run(races.of(Collective::kBroadcast, kLongBytes), 6 * period, [&](bool by_rival, int call) {
    const bool rival_is_faster = call >= 2 * period && call < 4 * period;
    return by_rival == rival_is_faster ? 100 : 200;
  });
  const int lap = calls_of(Race::kLong.lap);
  EXPECT_EQ(run.news, (std::vector{2 * period + 2 * lap, 4 * period + 2 * lap}));
}

TEST(Race, IsNotLostByOneCallThatWasHeldUp) {
  Races races;
  const int lap = calls_of(Race::kShort.lap), period = calls_of(Race::kShort.period);
  for (const int held_up : {lap - 1, lap - calls_of(Race::kShort.timed), 2 * lap - 1}) {
    const Calls run(races.of(Collective::kAllGather, kShortBytes), period, [&](bool by_rival, int call) {
      return (by_rival ? 150 : 100) + (call == held_up ? 100'000 : 0);
    });
    EXPECT_TRUE(run.news.empty()) << held_up;
  }
}

TEST(Race, HasALeadThatIsNotLostByALittle) {
  Races races;
  Race& race = races.of(Collective::kAllToAll, kShortBytes);
  const int period = calls_of(Race::kShort.period);
  const auto with = [&](std::uint64_t usual, std::uint64_t rival) {
    Calls(race, period, [&](bool by_rival, int) { return by_rival ? rival : usual; });
    return race.rival_leads();
  };
  EXPECT_FALSE(with(105, 100));
  EXPECT_TRUE(with(115, 100));
  EXPECT_TRUE(with(105, 100));
  EXPECT_FALSE(with(95, 100));
}

TEST(Race, IsOneForEachCollectiveAndPowerOfTwo) {
  Races races;
  const auto same = [&](std::size_t a, std::size_t b) {
    return &races.of(Collective::kReduce, a) == &races.of(Collective::kReduce, b);
  };
  EXPECT_TRUE(same((64 << 10) + 1, 128 << 10));
  EXPECT_FALSE(same(64 << 10, (64 << 10) + 1));
  EXPECT_FALSE(same(1 << 20, 2 << 20));
  EXPECT_TRUE(same(0, 1));
  EXPECT_TRUE(same(std::size_t{1} << 40, ~std::size_t{0}));
  EXPECT_NE(&races.of(Collective::kReduce, 1 << 20), &races.of(Collective::kAllToAll, 1 << 20));
  EXPECT_EQ(&races.of(Collective::kReduceScatter, 1 << 20), &races.of(Collective::kReduceScatterV, 1 << 20));
}

}  // namespace
}  // namespace loom
