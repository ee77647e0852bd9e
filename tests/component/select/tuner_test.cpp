#include "component/select/tuner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace loom {
namespace {

using device::Collective;

constexpr std::size_t kShortBytes = 64 << 10, kLongBytes = 8 << 20;
constexpr double kMargin = 1.1;

/// What the window decides for one rank's calls of a kind, where a call takes took(by_candidate, call).
struct Calls {
  std::vector<bool> by_candidate;
  std::vector<int> met, news;  ///< calls

  Calls(Window& window, int calls, const std::function<std::uint64_t(bool, int)>& took) {
    for (int call = 0; call < calls; ++call) {
      if (window.agrees()) {
        met.push_back(call);
        if (window.settle(window.own_time(), kMargin)) news.push_back(call);
      }
      by_candidate.push_back(window.by_candidate());
      window.finish(window.is_timed() ? took(by_candidate.back(), call) : 0);
    }
  }
};

constexpr int calls_of(std::uint32_t calls) {
  return static_cast<int>(calls);
}

TEST(Window, GivesTheRestOfAPeriodToTheFaster) {
  for (const std::size_t bytes : {kShortBytes, kLongBytes})
    for (const bool candidate_is_faster : {false, true}) {
      const Window::Pace& pace = bytes == kShortBytes ? Window::kShort : Window::kLong;
      Tuner tuner;
      const Calls run(
          tuner.of(Collective::kAllreduce, bytes), 3 * calls_of(pace.period[0]),
          [&](bool by_candidate, int) { return by_candidate == candidate_is_faster ? 100 : 115; });
      for (int call = 0; call < calls_of(3 * pace.period[0]); ++call) {
        const std::uint32_t at = static_cast<std::uint32_t>(call) % pace.period[0];
        const bool expected = at < pace.probe ? false : at < 2 * pace.probe ? true : candidate_is_faster;
        EXPECT_EQ(run.by_candidate[static_cast<std::size_t>(call)], expected) << call;
      }
      const std::uint32_t rest = pace.period[0] - 2 * pace.probe;
      EXPECT_EQ(run.met.size(), 3 * (2 * pace.timed + 2 + rest / pace.watched_every[0]));
      EXPECT_EQ(run.news.size(), candidate_is_faster ? 1 : 0);
    }
}

TEST(Window, ProbesAMuchSlowerOneRarely) {
  for (const std::size_t bytes : {kShortBytes, kLongBytes})
    for (const bool candidate_is_faster : {false, true})
      for (const int slower : {150, 200, 700, 2000}) {
        const Window::Pace& pace = bytes == kShortBytes ? Window::kShort : Window::kLong;
        Tuner tuner;
        Window& window = tuner.of(Collective::kBroadcast, bytes);
        const auto took = [&](bool by_candidate, int) {
          return by_candidate == candidate_is_faster ? 100 : slower;
        };
        // Longer step by step, from the period on after that which finds the leader again.
        Calls(window, calls_of(pace.period[0]) * (candidate_is_faster ? 2 : 1), took);
        const Calls second(window, calls_of(pace.period[1]), took), third(window, calls_of(pace.probe), took);
        EXPECT_EQ(std::ranges::count(second.by_candidate, !candidate_is_faster), calls_of(pace.probe))
            << slower;
        EXPECT_EQ(std::ranges::count(third.by_candidate, false), calls_of(pace.probe)) << slower;
        const int all = 4 * calls_of(pace.period.back());
        const Calls run(window, all, took);
        const auto probes = std::ranges::count(run.by_candidate, !candidate_is_faster);
        EXPECT_GT(probes, 0) << slower;
        const double cost = static_cast<double>(probes) * (slower - 100) / 100 / all;
        EXPECT_LE(cost, (slower > 1000 && bytes == kLongBytes ? 2 : 1.5) * Window::kMostCost) << slower;
      }
}

TEST(Window, ProbesSoonAgainAfterAChange) {
  Tuner tuner;
  Window& window = tuner.of(Collective::kBroadcast, kShortBytes);
  const auto by_usual = [](bool by_candidate, int) { return by_candidate ? 700 : 100; };
  Calls(window, 2 * calls_of(Window::kShort.period.back()), by_usual);
  // Two watched calls tell, and then it is as at the beginning.
  const int soon = calls_of(3 * Window::kShort.watched_every.back() + 2 * Window::kShort.probe);
  const Calls run(window, soon, [](bool by_candidate, int) { return by_candidate ? 100 : 700; });
  EXPECT_EQ(run.news.size(), 1U);
  EXPECT_TRUE(run.by_candidate.back());
}

/// Calls that take longer by either begin a period early; that one is short, so that a change after it is
/// found.
TEST(Window, IsShortAfterAnEarlyBeginning) {
  Tuner tuner;
  Window& window = tuner.of(Collective::kBroadcast, kShortBytes);
  const auto times = [](int factor) {
    return [factor](bool by_candidate, int) { return factor * (by_candidate ? 700 : 100); };
  };
  Calls(window, calls_of(Window::kShort.period[0] + Window::kShort.period[1]), times(1));
  const int begins = calls_of(2 * Window::kShort.probe + 3 * Window::kShort.watched_every[2]);
  Calls(window, begins, times(1));  // of a long period
  Calls(window, begins, times(2));  // and of the short one that begins early
  const Calls run(window, calls_of(Window::kShort.period[0] + 2 * Window::kShort.probe),
                  [](bool by_candidate, int) { return by_candidate ? 100 : 700; });
  EXPECT_EQ(run.news.size(), 1U);
  EXPECT_TRUE(run.by_candidate.back());
}

TEST(Window, TimesTheLastCallsOfAProbeAndAFewOfTheRest) {
  Tuner tuner;
  std::vector<int> timed;
  const auto note = [&](bool, int call) {
    timed.push_back(call);
    return 1;
  };
  Calls(tuner.of(Collective::kAllreduce, kLongBytes), 30, note);
  EXPECT_EQ(timed, (std::vector{1, 2, 3, 5, 6, 7, 14, 21, 28}));
}

/// The fast path of one rank, and the slow one of another.
TEST(Window, CountsAPlainCallAsAnyOther) {
  for (const std::size_t bytes : {kShortBytes, kLongBytes}) {
    Tuner tuner;
    Window &fast = tuner.of(Collective::kBroadcast, bytes), &slow = tuner.of(Collective::kReduce, bytes);
    const Window::Pace& pace = bytes == kShortBytes ? Window::kShort : Window::kLong;
    const int turn = 2 * calls_of(pace.period[2]), all = 3 * turn;
    int plain = 0;
    for (int call = 0; call < all; ++call) {
      const bool candidate_is_faster = call / turn == 1;
      const auto took = [&](bool by_candidate, int) {
        return by_candidate == candidate_is_faster ? 100U : 700U;
      };
      ASSERT_EQ(fast.agrees(), slow.agrees()) << call;
      ASSERT_EQ(fast.by_candidate(), slow.by_candidate()) << call;
      if (fast.is_plain()) {
        ++plain;
        ASSERT_FALSE(fast.agrees() || fast.is_timed() || fast.by_candidate()) << call;
        fast.pass();
      } else {
        Calls(fast, 1, took);
      }
      Calls(slow, 1, took);
    }
    EXPECT_GT(plain, turn * (bytes == kShortBytes ? 1.9 : 1.3));
  }
}

TEST(Window, FollowsAMachineThatChanges) {
  for (const std::size_t bytes : {kShortBytes, kLongBytes}) {
    Tuner tuner;
    const Window::Pace& pace = bytes == kShortBytes ? Window::kShort : Window::kLong;
    const int watched_every = calls_of(pace.watched_every[1]), probes = 2 * calls_of(pace.probe);
    const int first = probes + watched_every, second = first + 2 * calls_of(pace.period[0]);
    const Calls run(tuner.of(Collective::kBroadcast, bytes), calls_of(pace.period[0]) + second,
                    [&](bool by_candidate, int call) {
                      const bool candidate_is_faster = call >= first && call < second;
                      return by_candidate == candidate_is_faster ? 100 : 200;
                    });
    // Two watched calls tell; the second one counts when the next one begins.
    ASSERT_EQ(run.news.size(), 2);
    EXPECT_LE(run.news[0] - first, probes + 3 * watched_every);
    EXPECT_LE(run.news[1] - second, probes + 3 * watched_every);
  }
}

TEST(Window, DoesNotBeginAgainForASingleCall) {
  const int period = calls_of(Window::kLong.period[0]);
  const int first_watched = 2 * calls_of(Window::kLong.probe) + 6;
  for (const int odd_one : {first_watched, first_watched + 7})
    for (const int odd_time : {10, 10'000}) {
      Tuner tuner;
      const Calls run(tuner.of(Collective::kReduce, kLongBytes), period, [&](bool by_candidate, int call) {
        return call == odd_one ? odd_time : by_candidate ? 150 : 100;
      });
      EXPECT_EQ(std::ranges::count(run.by_candidate, true), Window::kLong.probe)
          << odd_one << " " << odd_time;
    }
}

TEST(Window, FindsTheFasterAmongCallsThatAreNotAlike) {
  // Every so many calls, some find their buffers in the cache and take half as long.
  for (const std::size_t bytes : {kShortBytes, kLongBytes})
    for (int turns = 2; turns <= 5; ++turns)
      for (unsigned hot = 1; hot < (1U << turns) - 1; ++hot)
        for (const bool candidate_is_faster : {false, true}) {
          Tuner tuner;
          constexpr int kCalls = 20'000;
          const Calls run(tuner.of(Collective::kAllreduce, bytes), kCalls, [&](bool by_candidate, int call) {
            return (by_candidate == candidate_is_faster ? 200 : 300) / ((hot >> call % turns & 1) + 1);
          });
          const auto slower = std::ranges::count(run.by_candidate, !candidate_is_faster);
          EXPECT_LT(slower, turns <= 4 ? kCalls / 8 : kCalls / 2)
              << bytes << " bytes, " << turns << " by turns, hot " << hot << ", candidate "
              << candidate_is_faster;
        }
}

TEST(Window, IsNotLostByOneDelayedCall) {
  Tuner tuner;
  const int probe = calls_of(Window::kShort.probe), period = calls_of(Window::kShort.period[0]);
  for (const int delayed : {probe - 1, probe - calls_of(Window::kShort.timed), 2 * probe - 1}) {
    const Calls run(tuner.of(Collective::kAllGather, kShortBytes), period, [&](bool by_candidate, int call) {
      return (by_candidate ? 150 : 100) + (call == delayed ? 100'000 : 0);
    });
    EXPECT_TRUE(run.news.empty()) << delayed;
  }
}

TEST(Window, HasALeadThatIsNotLostByALittle) {
  Tuner tuner;
  Window& window = tuner.of(Collective::kAllToAll, kShortBytes);
  const int period = calls_of(Window::kShort.period[0]);
  const auto with = [&](std::uint64_t usual, std::uint64_t candidate) {
    Calls(window, period, [&](bool by_candidate, int) { return by_candidate ? candidate : usual; });
    return window.candidate_leads();
  };
  EXPECT_FALSE(with(105, 100));
  EXPECT_TRUE(with(115, 100));
  EXPECT_TRUE(with(105, 100));
  EXPECT_FALSE(with(95, 100));
}

TEST(Window, IsOneForEachCollectiveAndPowerOfTwo) {
  Tuner tuner;
  const auto same = [&](std::size_t a, std::size_t b) {
    return &tuner.of(Collective::kReduce, a) == &tuner.of(Collective::kReduce, b);
  };
  EXPECT_TRUE(same((64 << 10) + 1, 128 << 10));
  EXPECT_FALSE(same(64 << 10, (64 << 10) + 1));
  EXPECT_FALSE(same(1 << 20, 2 << 20));
  EXPECT_TRUE(same(0, 1));
  EXPECT_TRUE(same(std::size_t{1} << 40, ~std::size_t{0}));
  using enum Tuner::Usual;
  EXPECT_NE(&tuner.of(Collective::kReduce, 1 << 20, kOther),
            &tuner.of(Collective::kReduce, 1 << 20, kImmediate));
  EXPECT_NE(&tuner.of(Collective::kReduce, 1 << 20, kOther),
            &tuner.of(Collective::kReduce, 1 << 20, kVarying));
  EXPECT_NE(&tuner.of(Collective::kReduce, 1 << 20), &tuner.of(Collective::kAllToAll, 1 << 20));
  EXPECT_EQ(&tuner.of(Collective::kReduceScatter, 1 << 20), &tuner.of(Collective::kReduceScatterV, 1 << 20));
}

TEST(TunerWindows, AreThoseOfTheFormWithEqualBlocks) {
  using device::Collective;
  Tuner tuner;
  EXPECT_EQ(&tuner.of(Collective::kReduceScatterV, 1 << 20), &tuner.of(Collective::kReduceScatter, 1 << 20));
  EXPECT_EQ(&tuner.of(Collective::kAllGatherV, 1 << 20), &tuner.of(Collective::kAllGather, 1 << 20));
}

}  // namespace
}  // namespace loom
