#include "base/format.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace loom {
namespace {

TEST(Format, ShowsValuesByTheirSpecifications) {
  const std::string name = "ring";
  EXPECT_EQ(loom::format("{} {:>4} {:.1f} {:#x} {:g}", name, 7, 2.25F, 255, 1e6), "ring    7 2.2 0xff 1e+06");
}

TEST(FormatInto, EndsATextThatFits) {
  char room[8];
  std::memset(room, 'x', sizeof(room));
  loom::format_into(room, "{}", 1234567);
  EXPECT_STREQ(room, "1234567");
}

TEST(FormatInto, CutsOffWhatDoesNotFit) {
  for (const std::size_t length : {8U, 300U, 1000U}) {  // fmt writes through a buffer of 256 bytes
    struct {
      char room[8];
      char behind;
    } memory;
    std::memset(&memory, 'x', sizeof(memory));
    loom::format_into(memory.room, "{}{}", 1, std::string(length - 1, '2'));
    EXPECT_STREQ(memory.room, "1222222");
    EXPECT_EQ(memory.behind, 'x');
  }
}

TEST(Print, WritesToTheFile) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  loom::print(file, "{}-{}\n", 1, "two");
  std::rewind(file);
  char line[16] = {};
  EXPECT_NE(std::fgets(line, sizeof(line), file), nullptr);
  EXPECT_STREQ(line, "1-two\n");
  std::fclose(file);
}

TEST(Print, LeavesAFullDiskToFerror) {
  std::FILE* file = std::fopen("/dev/full", "w");
  if (file == nullptr) GTEST_SKIP() << "no /dev/full";
  loom::print(file, "{}\n", std::string(100000, 'x'));
  EXPECT_NE(std::ferror(file), 0);
  std::fclose(file);
}

TEST(Join, PutsTheTextBetweenValuesAlone) {
  EXPECT_EQ(loom::join(std::vector<int>{}, ", "), "");
  EXPECT_EQ(loom::join(std::vector{3}, ", "), "3");
  EXPECT_EQ(loom::join(std::set<std::string>{"b", "a", ""}, ", "), ", a, b");
}

}  // namespace
}  // namespace loom
