#include "component/mca/counters.h"

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

#include "component/core.h"

namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kCollectives = LOOM_COLLECTIVE_COUNT, kAlgorithms = LOOM_ALGORITHM_COUNT,
              kReasons = LOOM_FALLBACK_COUNT;

const coll_loom_counter& counter(const std::string& name) {
  const coll_loom_counter* row = coll_loom_counter_table;
  while (row->name != nullptr && row->name != name) ++row;
  return *row;
}

std::string description(const coll_loom_counter& row) {
  std::string text(coll_loom_describe_counter(&row, nullptr, 0), '\0');
  EXPECT_EQ(coll_loom_describe_counter(&row, text.data(), text.size() + 1), text.size());
  return text;
}

/// Programs take the description apart at its ; and : (mpi_examples/support/loom_pvars.cpp).
TEST(CounterTable, HasTextsThatDescriptionsCanBeMadeOf) {
  std::set<std::string> names;
  for (const coll_loom_counter* row = coll_loom_counter_table; row->name != nullptr; ++row) {
    EXPECT_TRUE(names.insert(row->name).second) << row->name;
    EXPECT_THAT(row->help, Not(HasSubstr(":"))) << row->name;
    EXPECT_THAT(row->help, Not(HasSubstr("|"))) << row->name;
  }
  for (const auto dimension : {COLL_LOOM_COLLECTIVE, COLL_LOOM_ALGORITHM, COLL_LOOM_REASON}) {
    std::set<std::string> places;
    for (int place = 0; place < coll_loom_dimension_length(dimension); ++place) {
      const std::string name = coll_loom_place_name(dimension, place);
      EXPECT_TRUE(places.insert(name).second) << name;
      EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << name;
    }
  }
}

TEST(CounterTable, DescribesItsElementsInOrder) {
  const std::string calls = description(counter("calls"));
  EXPECT_THAT(calls, StartsWith(counter("calls").help));
  EXPECT_THAT(calls, HasSubstr("; element [collective][algorithm]; collective: allreduce reduce "));
  EXPECT_THAT(calls, EndsWith(std::string(" ") + loom_algorithm_name(kAlgorithms - 1)));
  EXPECT_THAT(description(counter("bytes")),
              HasSubstr("; element [collective]; collective: allreduce reduce "));
  EXPECT_EQ(description(counter("declined")), counter("declined").help);
}

TEST(CounterTable, DescribesAsFarAsThereIsRoom) {
  std::string text(8, 'x');
  EXPECT_GT(coll_loom_describe_counter(&counter("calls"), text.data(), 5), 5U);
  EXPECT_EQ(text, std::string("Call\0xxx", 8));
}

TEST(CounterTable, HasAnElementForEachPairOfNames) {
  EXPECT_EQ(coll_loom_counter_elements(&counter("calls")), kCollectives * kAlgorithms);
  EXPECT_EQ(coll_loom_counter_elements(&counter("fallbacks")), kCollectives * kReasons);
  EXPECT_EQ(coll_loom_counter_elements(&counter("bytes")), kCollectives);
  EXPECT_EQ(coll_loom_counter_elements(&counter("declined")), 1);
}

TEST(CounterTable, ReadsEachElementWhereItsNamesSay) {
  loom_runtime runtime{};
  loom_initialize(&runtime);
  loom_count_fallback(LOOM_BARRIER, LOOM_NOT_ORDERED);
  loom_count_fallback(LOOM_BARRIER, LOOM_NOT_ORDERED);
  loom_count_fallback(LOOM_ALLTOALLW, LOOM_ANY_START_ORDER);
  for (const coll_loom_counter* row = coll_loom_counter_table; row->name != nullptr; ++row) {
    const auto elements = static_cast<std::size_t>(coll_loom_counter_elements(row));
    std::vector<std::uint64_t> values(elements + 1, 42);
    coll_loom_read_counter(row, values.data());
    EXPECT_EQ(values.back(), 42U) << row->name << ": behind the last element";
    values.pop_back();
    if (row->name == std::string("fallbacks")) {
      std::uint64_t& twice = values[LOOM_BARRIER * kReasons + LOOM_NOT_ORDERED];
      std::uint64_t& once = values[LOOM_ALLTOALLW * kReasons + LOOM_ANY_START_ORDER];
      EXPECT_EQ(twice, 2U);
      EXPECT_EQ(once, 1U);
      twice = once = 0;
    }
    EXPECT_THAT(values, Each(0U)) << row->name;
  }
  loom_finalize();
}

}  // namespace
