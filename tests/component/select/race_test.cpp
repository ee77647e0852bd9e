#include "component/select/race.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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
        if (race.settle(race.own_time(), kMargin)) news.push_back(call);
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
      const std::uint32_t rest = pace.period - 2 * pace.lap;
      EXPECT_EQ(run.met.size(), 3 * (2 * pace.timed + 2 + rest / pace.watched_every));
      EXPECT_EQ(run.news.size(), rival_is_faster ? 1 : 0);
    }
}

TEST(Race, TimesTheLastCallsOfALapAndAFewOfTheRest) {
  Races races;
  std::vector<int> timed;
  const auto note = [&](bool, int call) {
    timed.push_back(call);
    return 1;
  };
  Calls(races.of(Collective::kAllreduce, kLongBytes), 30, note);
  EXPECT_EQ(timed, (std::vector{1, 2, 3, 5, 6, 7, 14, 21, 28}));
}

TEST(Race, FollowsAMachineThatChanges) {
  for (const std::size_t bytes : {kShortBytes, kLongBytes}) {
    Races races;
    const Race::Pace& pace = bytes == kShortBytes ? Race::kShort : Race::kLong;
    const int watched_every = calls_of(pace.watched_every), laps = 2 * calls_of(pace.lap);
    const int first = laps + watched_every, second = first + 2 * calls_of(pace.period);
    const Calls run(races.of(Collective::kBroadcast, bytes), calls_of(pace.period) + second,
                    [&](bool by_rival, int call) {
                      const bool rival_is_faster = call >= first && call < second;
                      return by_rival == rival_is_faster ? 100 : 200;
                    });
    // Two watched calls tell, the second of them at the next one.
    ASSERT_EQ(run.news.size(), 2);
    EXPECT_LE(run.news[0] - first, laps + 3 * watched_every);
    EXPECT_LE(run.news[1] - second, laps + 3 * watched_every);
  }
}

TEST(Race, DoesNotBeginAgainForASingleCall) {
  Races races;
  const int period = calls_of(Race::kLong.period);
  const int first_watched = 2 * calls_of(Race::kLong.lap) + 6;
  for (const int odd_one : {first_watched, first_watched + 7})
    for (const int odd_time : {10, 10'000}) {
      const Calls run(races.of(Collective::kReduce, kLongBytes), period, [&](bool by_rival, int call) {
        return call == odd_one ? odd_time : by_rival ? 150 : 100;
      });
      EXPECT_EQ(std::ranges::count(run.by_rival, true), Race::kLong.lap) << odd_one << " " << odd_time;
    }
}

TEST(Race, FindsTheFasterAmongCallsThatAreNotAlike) {
  // Every so many calls, some find their buffers in the cache and take half as long.
  for (const std::size_t bytes : {kShortBytes, kLongBytes})
    for (int turns = 2; turns <= 5; ++turns)
      for (unsigned hot = 1; hot < (1U << turns) - 1; ++hot)
        for (const bool rival_is_faster : {false, true}) {
          Races races;
          constexpr int kCalls = 20'000;
          const Calls run(races.of(Collective::kAllreduce, bytes), kCalls, [&](bool by_rival, int call) {
            return (by_rival == rival_is_faster ? 200 : 300) / ((hot >> call % turns & 1) + 1);
          });
          const auto slower = std::ranges::count(run.by_rival, !rival_is_faster);
          EXPECT_LT(slower, turns <= 4 ? kCalls / 8 : kCalls / 2)
              << bytes << " bytes, " << turns << " by turns, hot " << hot << ", rival " << rival_is_faster;
        }
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

TEST(Trials, ComeNowAndThenAndLeaveALeadThatIsNotLostByALittle) {
  Trials trials;
  std::vector<std::uint32_t> due;
  for (std::uint32_t call = 0; call < Trials::kFirst + 2 * Trials::kPeriod; ++call)
    if (trials.is_due()) due.push_back(call);
  EXPECT_EQ(due, (std::vector{Trials::kFirst, Trials::kFirst + Trials::kPeriod}));
  EXPECT_FALSE(trials.settle(105, 100));
  EXPECT_FALSE(trials.star_leads);
  EXPECT_TRUE(trials.settle(115, 100));
  EXPECT_TRUE(trials.star_leads);
  EXPECT_FALSE(trials.settle(105, 100));
  EXPECT_TRUE(trials.star_leads);
  EXPECT_TRUE(trials.settle(95, 100));
  EXPECT_FALSE(trials.star_leads);
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
  EXPECT_NE(&races.of(Collective::kReduce, 1 << 20, false), &races.of(Collective::kReduce, 1 << 20, true));
  EXPECT_NE(&races.of(Collective::kReduce, 1 << 20), &races.of(Collective::kAllToAll, 1 << 20));
  EXPECT_EQ(&races.of(Collective::kReduceScatter, 1 << 20), &races.of(Collective::kReduceScatterV, 1 << 20));
}

}  // namespace
}  // namespace loom
