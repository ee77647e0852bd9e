// Calls that have two algorithms (tuner.hpp): by both, whichever would be faster, with changes from one to
// the other in a row of calls; and with the tuner's own decisions.
#include <algorithm>
#include <cstdint>
#include <tuple>

#include "forced_tuner.hpp"
#include "tests/component/allreduce_cases.hpp"

namespace loom::test {
namespace {

using device::Collective;

constexpr Collective kAll[] = {
    Collective::kAllreduce, Collective::kReduce,    Collective::kReduceScatter, Collective::kReduceScatterV,
    Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll,      Collective::kBarrier};

/// One call of `count` elements in a message or block, checked on the calling rank. Sums are exact.
void check_call(Rank& self, Communicator& communicator, Collective collective, std::size_t count,
                bool in_place, int call) {
  const auto ranks = static_cast<std::size_t>(self.size()), rank = static_cast<std::size_t>(self.rank());
  const int root = call % self.size();
  const bool reduces = device::is_reduction(collective);
  const bool many_in = collective == Collective::kAllToAll || device::scatters_result(collective);
  const bool many_out = collective == Collective::kAllToAll || collective == Collective::kAllGather;
  // Of a reduce_scatter parts differ: rank r has r elements more than the first.
  std::vector<std::uint64_t> bounds;
  for (std::size_t r = 0; r <= ranks; ++r) bounds.push_back(r * count + r * (r - 1) / 2);
  const bool unequal = collective == Collective::kReduceScatterV;
  const std::size_t own_count = unequal ? bounds[rank + 1] - bounds[rank] : count;
  const std::size_t in_count = unequal ? bounds[ranks] : many_in ? ranks * count : count;
  const std::size_t out_count = many_out ? ranks * count : own_count;

  const std::vector<std::int32_t> mine = operands<std::int32_t>(self.rank(), in_count, call);
  std::vector<std::int32_t> in = mine, out(std::max(out_count, in_place ? in_count : 0), -1);
  std::size_t own_at = 0;
  if (in_place) {
    own_at = collective == Collective::kAllGather ? rank * count : 0;
    std::ranges::copy(mine, out.begin() + static_cast<std::ptrdiff_t>(own_at));
  }
  device::Call job{.collective = collective,
                   .in = in_place ? bytes_of(out) + own_at * sizeof(out[0]) : bytes_of(in),
                   .out = bytes_of(out),
                   .count = collective == Collective::kBarrier ? 0
                            : unequal                          ? in_count
                                                               : count,
                   .type = device::Type::kInt32,
                   .op = device::Op::kSum,
                   .root = root};
  if (unequal) job.bounds = bounds.data();
  ASSERT_TRUE(communicator.perform(job));

  if (collective == Collective::kBarrier || (collective == Collective::kReduce && self.rank() != root) ||
      (collective == Collective::kBroadcast && self.rank() == root))
    return;
  std::vector<std::int32_t> expected;
  const auto append = [&](const std::vector<std::int32_t>& from, std::size_t first, std::size_t n) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
    expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(n));
  };
  const std::size_t own_first = unequal ? bounds[rank] : many_in ? rank * count : 0;
  if (reduces)
    append(expected_sum<std::int32_t>(self.size(), in_count, call), own_first, own_count);
  else if (collective == Collective::kBroadcast)
    append(operands<std::int32_t>(root, count, call), 0, count);
  else
    for (int from = 0; from < self.size(); ++from)
      append(operands<std::int32_t>(from, in_count, call), own_first, count);
  out.resize(out_count);
  EXPECT_EQ(out, expected) << "rank " << self.rank() << ", call " << call << ", collective "
                           << static_cast<int>(collective) << ", count " << count;
}

class TunedCalls : public ::testing::TestWithParam<int> {};

TEST_P(TunedCalls, MayChangeTheirAlgorithmBetweenAnyTwo) {
  Job job{.ranks = GetParam()};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    check_call(self, *communicator, Collective::kBarrier, 0, false, 0);  // makes the links
    if (!ForcedTuner::start(*communicator)) return;
    int call = 0;
    // Within a line; immediate or by single copy; never immediate; in several tiles.
    for (const std::size_t count : {5UL, 2100UL, 9000UL, 150'000UL})
      for (const Collective collective : kAll) {
        // Each algorithm after each; and another collective finds what the change leaves behind.
        for (const bool candidates_lead : {false, true, true, false, false, true}) {
          ForcedTuner::set(*communicator, candidates_lead);
          check_call(self, *communicator, collective, count,
                     call % 2 == 1 && !device::scatters_result(collective), call);
          check_call(self, *communicator, kAll[static_cast<std::size_t>(call) % std::size(kAll)], 3000, false,
                     call);
          ++call;
        }
      }
    for (const Algorithm way : {Algorithm::kImmediate, Algorithm::kCico, Algorithm::kSingleCopy})
      EXPECT_GT(ForcedTuner::performed(*communicator, way), 0U);
  });
}

TEST_P(TunedCalls, TakeTurns) {
  Job job{.ranks = GetParam()};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    check_call(self, *communicator, Collective::kBarrier, 0, false, 0);
    if (!ForcedTuner::start(*communicator)) return;
    constexpr std::size_t kShortCount = 30'000, kLongCount = 300'000;
    for (const auto& [collective, count, pace] :
         {std::tuple{Collective::kAllreduce, kShortCount, Window::kShort},
          std::tuple{Collective::kBroadcast, kShortCount, Window::kShort},
          std::tuple{Collective::kAllreduce, kLongCount, Window::kLong}}) {
      const auto performed = [&](Algorithm way) { return ForcedTuner::performed(*communicator, way); };
      const std::uint64_t by_cico = performed(Algorithm::kCico), by_copy = performed(Algorithm::kSingleCopy);
      const int calls = static_cast<int>(4 * pace.probe);
      for (int call = 0; call < calls; ++call)
        check_call(self, *communicator, collective, count, call % 2 == 1, call);
      EXPECT_EQ(performed(Algorithm::kCico) - by_cico + performed(Algorithm::kSingleCopy) - by_copy, calls);
      EXPECT_GE(performed(Algorithm::kCico), by_cico + pace.probe);
      EXPECT_GE(performed(Algorithm::kSingleCopy), by_copy + pace.probe);
    }
  });
}

TEST_P(TunedCalls, UseTheAlgorithmThatLeads) {
  Job job{.ranks = GetParam()};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    check_call(self, *communicator, Collective::kBarrier, 0, false, 0);
    if (!ForcedTuner::start(*communicator)) return;
    for (const bool candidates_lead : {false, true}) {
      ForcedTuner::set(*communicator, candidates_lead);
      const Algorithm way = candidates_lead ? Algorithm::kSingleCopy : Algorithm::kCico;
      const std::uint64_t before = ForcedTuner::performed(*communicator, way);
      for (const Collective collective :
           {Collective::kAllreduce, Collective::kReduceScatter, Collective::kReduceScatterV})
        check_call(self, *communicator, collective, 50'000, false, 1);
      EXPECT_EQ(ForcedTuner::performed(*communicator, way), before + 3);
    }
  });
}

/// Of a rank: on this clock the first calls that are timed, which are by the usual algorithm, take twice as
/// long as the later ones, or half as long.
thread_local int looks;
template <bool kLater>
double faster_later() {
  const int call = looks / 2;
  const bool is_early = call < static_cast<int>(Window::kLong.timed);
  return 100 * call + (looks++ % 2 == 0 ? 0 : is_early == kLater ? 2 : 1);
}

TEST_P(TunedCalls, GoByTheClockOfTheRuntime) {
  for (const bool candidate_is_faster : {false, true}) {
    Job job{.ranks = GetParam(), .now = candidate_is_faster ? faster_later<true> : faster_later<false>};
    job.run([&](Rank& self) {
      const auto communicator = self.connect();
      check_call(self, *communicator, Collective::kBarrier, 0, false, 0);
      if (!ForcedTuner::start(*communicator)) return;
      constexpr int kCalls = 10;
      for (int call = 0; call < static_cast<int>(2 * Window::kLong.probe) + kCalls; ++call)
        check_call(self, *communicator, Collective::kAllreduce, 300'000, false, call);
      EXPECT_EQ(ForcedTuner::performed(*communicator,
                                       candidate_is_faster ? Algorithm::kSingleCopy : Algorithm::kCico),
                Window::kLong.probe + kCalls);
    });
  }
}

/// Some ranks take the slow path, the others the fast one where they can: all count alike, through several
/// periods, with either algorithm in the lead. Some receivers have more room than the root sends, and perform
/// the root's call.
TEST_P(TunedCalls, MayTakeTheFastPathOnSomeRanks) {
  Job job{.ranks = GetParam(), .now = [] { return 0.0; }};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    check_call(self, *communicator, Collective::kBarrier, 0, false, 0);
    if (!ForcedTuner::start(*communicator)) return;
    constexpr int kCalls = 4000;
    std::vector<std::int32_t> in(9000), out(in.size());
    int fast = 0;
    for (int call = 0; call < kCalls; ++call) {
      if (call == 600) ForcedTuner::set(*communicator, true);
      if (call == 1200) ForcedTuner::set(*communicator, false);
      in[0] = in[4999] = call;
      const bool reduces = call % 8 == 7;
      device::Call each{.collective = reduces ? Collective::kAllreduce : Collective::kBroadcast,
                        .in = bytes_of(in),
                        .out = bytes_of(out),
                        .count = reduces ? 2600UL : 5000UL,
                        .type = device::Type::kInt32,
                        .op = device::Op::kMax,
                        .root = call / 8 % self.size()};
      const bool receives = reduces || self.rank() != each.root;
      if (!reduces && receives && call % 97 == 3 + self.rank()) each.count = in.size();
      const bool tries = self.rank() != 0 || call % 1000 > 500;
      const std::uint64_t offered = each.count * sizeof(in[0]);
      if (tries && offered <= ForcedTuner::most_in_middle(*communicator, each.collective) &&
          communicator->perform_middle(each)) {
        ++fast;
      } else {
        ASSERT_TRUE(communicator->perform(each));
      }
      if (!receives) continue;
      ASSERT_EQ(out[0], call);
      if (!reduces) {
        ASSERT_EQ(out[4999], call);
      }
    }
    EXPECT_GT(fast, kCalls * (self.rank() == 0 ? 0.3 : 0.6));
    EXPECT_LT(fast, kCalls * (self.rank() == 0 ? 0.5 : 0.9));
  });
}

/// Small calls by a rule, on ranks of which some take the fast path.
TEST(TieredCalls, MayTakeTheFastPathOnSomeRanks) {
  loom_parameters parameters{};
  parameters.tune = "all:tiered";
  Job job{.ranks = 6, .parameters = parameters};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    constexpr Collective kTiered[] = {Collective::kBroadcast, Collective::kAllreduce, Collective::kReduce,
                                      Collective::kBroadcast, Collective::kAllGather};
    int fast = 0;
    for (int call = 0; call < 400; ++call) {
      const Collective collective = kTiered[static_cast<std::size_t>(call) % std::size(kTiered)];
      if (self.rank() % 2 == 0 || call < 100) {
        check_call(self, *communicator, collective, 5, false, call);
        continue;
      }
      // As check_call(), but by perform_middle() where that takes it.
      std::vector<std::int32_t> in = operands<std::int32_t>(self.rank(), 5, call), out(5UL * 6, -1);
      const device::Call each{.collective = collective,
                              .in = bytes_of(in),
                              .out = bytes_of(out),
                              .count = 5,
                              .type = device::Type::kInt32,
                              .op = device::Op::kSum,
                              .root = call % self.size()};
      if (communicator->perform_middle(each))
        ++fast;
      else
        ASSERT_TRUE(communicator->perform(each));
      const std::vector<std::int32_t> expected = collective == Collective::kAllreduce
                                                     ? expected_sum<std::int32_t>(self.size(), 5, call)
                                                     : operands<std::int32_t>(each.root, 5, call);
      const bool is_rooted = collective == Collective::kReduce || each.root == self.rank();
      if (collective == Collective::kAllreduce || (collective == Collective::kBroadcast && !is_rooted)) {
        out.resize(5);
        EXPECT_EQ(out, expected) << "call " << call;
      }
    }
    if (self.rank() % 2 == 1) {
      EXPECT_EQ(fast, 300);
    }
    EXPECT_EQ(ForcedTuner::performed(*communicator, Algorithm::kTiered), 400U);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, TunedCalls, ::testing::Values(2, 3, 4),
                         [](const auto& test) { return std::to_string(test.param) + "Ranks"; });

}  // namespace
}  // namespace loom::test
