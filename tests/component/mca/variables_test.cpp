#include "component/mca/variables.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "component/core.h"

namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<const coll_loom_variable*> rows() {
  std::vector<const coll_loom_variable*> rows;
  for (const coll_loom_variable* row = coll_loom_variable_table; row->name != nullptr; ++row)
    rows.push_back(row);
  return rows;
}

/// Values as Open MPI has them after registration, save that only `memory` is a copy.
class Variables : public ::testing::Test {
 protected:
  Variables() {
    for (const coll_loom_variable* row : rows()) coll_loom_set_default(row, &values);
    values.memory = ::strdup(values.memory);
  }
  ~Variables() override { std::free(values.memory); }

  std::string correct() {
    std::array<char, 2048> report;
    coll_loom_correct(&values, report.data(), report.size());
    return report.data();
  }
  coll_loom_variables values{};
};

TEST(VariableTable, HasEachNameAndEachPlaceOnce) {
  std::set<std::string> names;
  std::set<std::size_t> places;
  for (const coll_loom_variable* row : rows()) {
    EXPECT_TRUE(names.insert(row->name).second) << row->name;
    EXPECT_TRUE(places.insert(row->at).second) << row->name;
    EXPECT_LT(row->at, sizeof(coll_loom_variables)) << row->name;
  }
}

TEST(VariableTable, GoesByLevel) {
  int level = 1;
  for (const coll_loom_variable* row : rows()) {
    EXPECT_GE(row->level, level) << row->name;
    EXPECT_LE(row->level, 9) << row->name;
    level = row->level;
  }
}

TEST(VariableTable, HasHelpThatFitsATable) {
  for (const coll_loom_variable* row : rows()) {
    EXPECT_THAT(row->help, Not(HasSubstr("|"))) << row->name;
    EXPECT_NE(std::string(row->help).back(), '.')
        << row->name << ": Open MPI's own texts have none at the end";
  }
}

TEST(VariableTable, NamesTheAlgorithmsInTheHelp) {
  std::string names;
  for (int i = 0; i < LOOM_ALGORITHM_COUNT; ++i) names += std::string(loom_algorithm_name(i)) + ", ";
  EXPECT_THAT(names, StartsWith("copy, immediate, "));
  for (const coll_loom_variable* row : rows()) {
    std::array<char, 1024> text;
    coll_loom_write_help(row, text.data(), text.size());
    EXPECT_LT(std::strlen(text.data()), text.size() - 1) << row->name << ": it may be cut";
    if (std::strcmp(row->name, "tune") == 0)
      EXPECT_THAT(text.data(), HasSubstr("ALGORITHM is " + names + "staged (copies"));
    else
      EXPECT_STREQ(text.data(), row->help);
  }
}

TEST(VariableTable, CutsHelpThatHasNoRoom) {
  coll_loom_variable row{};
  row.help = "{algorithms}.";
  std::array<char, 12> text;
  coll_loom_write_help(&row, text.data(), text.size());
  EXPECT_STREQ(text.data(), "copy, immed");
}

TEST(VariableTable, HasWordsForEveryEnumeration) {
  for (const coll_loom_variable* row : rows()) {
    if (row->words == nullptr) {
      EXPECT_NE(row->type, COLL_LOOM_ENUM) << row->name;
      continue;
    }
    std::array<char, 64> text;
    coll_loom_write_default(row, text.data(), text.size());
    EXPECT_STRNE(text.data(), "(null)") << row->name << ": the default is none of the words";
  }
}

TEST_F(Variables, AreInRangeByDefault) {
  EXPECT_THAT(correct(), IsEmpty());
}

TEST_F(Variables, OutOfRangeGetTheirDefaultsWithALineForEach) {
  values.priority = 101;
  values.verbose = -1;
  values.timeout_s = -0.5;
  values.memory_limit = static_cast<unsigned long long>(-5LL);
  const std::string report = correct();
  EXPECT_EQ(values.priority, 90);
  EXPECT_EQ(values.verbose, 0);
  EXPECT_EQ(values.timeout_s, 0);
  EXPECT_EQ(values.memory_limit, 256ULL << 20);
  EXPECT_THAT(report, HasSubstr("coll_loom_priority = 101 is out of range (0 to 100); loom takes 90\n"));
  EXPECT_THAT(report, HasSubstr("coll_loom_verbose = -1 is out of range (0 or more); loom takes 0\n"));
  EXPECT_THAT(report, HasSubstr("coll_loom_timeout = -0.5 is out of range (0 or more); loom takes 0\n"));
  EXPECT_THAT(report,
              HasSubstr("coll_loom_memory_limit = -5 is out of range (0 or more); loom takes 256 MiB\n"));
  EXPECT_THAT(correct(), IsEmpty());
}

TEST_F(Variables, AtTheEndsOfTheirRangesStay) {
  values.priority = 100;
  values.timeout_s = std::numeric_limits<double>::infinity();
  values.memory_limit = std::numeric_limits<long long>::max();
  values.overlap_bytes = 0;
  EXPECT_THAT(correct(), IsEmpty());
  EXPECT_EQ(values.priority, 100);
}

TEST_F(Variables, ThatAreNoNumberGetTheirDefaults) {
  values.timeout_s = std::nan("");
  EXPECT_THAT(correct(), HasSubstr("coll_loom_timeout = nan is out of range"));
  EXPECT_EQ(values.timeout_s, 0);
}

TEST_F(Variables, WithAnUnknownWordGetTheirDefaults) {
  std::free(values.memory);
  values.memory = ::strdup("gpu");
  EXPECT_THAT(correct(), HasSubstr("coll_loom_memory = gpu is out of range (auto, host); loom takes auto\n"));
  EXPECT_STREQ(values.memory, "auto");
}

TEST_F(Variables, WithAnotherKnownWordStay) {
  std::free(values.memory);
  values.memory = ::strdup("host");
  EXPECT_THAT(correct(), IsEmpty());
  EXPECT_STREQ(values.memory, "host");
}

/// Of mpirun --mca, which sets the environment. Open MPI itself has read the value by then.
class NumberOfTheEnvironment : public Variables {
 protected:
  ~NumberOfTheEnvironment() override { ::unsetenv(kTimeout), ::unsetenv(kLimit); }
  static constexpr const char *kTimeout = "OMPI_MCA_coll_loom_timeout",
                              *kLimit = "OMPI_MCA_coll_loom_memory_limit";
};

TEST_F(NumberOfTheEnvironment, ThatOpenMpiReadsOtherwiseIsReported) {
  for (const char* text : {"abc", "5m", "5 s", "-", "s"}) {
    ::setenv(kTimeout, text, 1);
    EXPECT_EQ(correct(),
              std::string("  coll_loom_timeout = ") + text + " is not a number; Open MPI takes it as 0\n");
  }
  ::setenv(kTimeout, "1", 1);
  values.memory_limit = 1;
  for (const char* text : {"1.5m", "x", "1t", "1mb/s", "k"}) {
    ::setenv(kLimit, text, 1);
    EXPECT_THAT(correct(), HasSubstr(std::string("coll_loom_memory_limit = ") + text +
                                     " is not a number; Open MPI takes it as 1\n"));
  }
}

TEST_F(NumberOfTheEnvironment, ThatIsOneIsNotReported) {
  for (const char* text : {"", "0", "5", "5s", "1e3", " 7", "0.5", "inf"}) {
    ::setenv(kTimeout, text, 1);
    EXPECT_THAT(correct(), IsEmpty()) << text;
  }
  for (const char* text : {"", "1", "0x10", "1k", "1M", "2g", "64KiB", "64kb", "64B"}) {
    ::setenv(kLimit, text, 1);
    EXPECT_THAT(correct(), IsEmpty()) << text;
  }
}

TEST_F(Variables, AreReportedAsFarAsThereIsRoom) {
  values.priority = -1;
  values.timeout_s = -1;
  std::array<char, 20> report;
  coll_loom_correct(&values, report.data(), report.size());
  EXPECT_STREQ(report.data(), "  coll_loom_timeout");
  EXPECT_EQ(values.priority, 90);
}

}  // namespace
