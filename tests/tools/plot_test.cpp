// `loom plot`: what it makes of the files of loom_bench --json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pugixml.hpp>

#include "base/error.hpp"
#include "tests/component/temporary_file.hpp"
#include "tools/plot/measurements.hpp"

namespace loom::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class Plots : public test::WithFiles {
 protected:
  static std::string results(const std::string& collective, const std::string& rows,
                             const std::string& form = "blocking") {
    return R"({"program": "loom_bench", "format": 1, "environment": {"ranks": 2, "hosts": [{"name": "a", "ranks": 2}]},
              "options": {"collective": ")" +
           collective + R"(", "form": ")" + form + R"(", "memory": "host"}, "results": [)" + rows + "]}";
  }
  static std::string row(int bytes, double loom, double tuned, double sm) {
    return R"({"size_bytes": )" + std::to_string(bytes) + R"(, "measured": {"p50_us": )" +
           std::to_string(loom) + R"(}, "peers": {"tuned": {"p50_us": )" + std::to_string(tuned) +
           R"(}, "sm": {"p50_us": )" + std::to_string(sm) + "}}}";
  }
  /// Throws where it is no XML.
  static std::string text_of(const std::string& svg) {
    pugi::xml_document document;
    const auto parsed = document.load_string(svg.c_str());
    if (!parsed) throw std::runtime_error(parsed.description());
    std::string text;
    for (const auto& node : document.select_nodes("//text"))
      text += std::string(node.node().text().get()) + "|";
    return text;
  }
  static void expect_refused(const std::string& file, const char* why) {
    try {
      read_measurements({file});
      ADD_FAILURE() << "this was taken: " << file;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadInput);
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  }
};

TEST_F(Plots, JoinTheSizesOfSeveralRunsOfACollective) {
  const auto read =
      read_measurements({temporary("a", results("bcast", row(64, 1, 2, 4))),
                         temporary("b", results("bcast", row(8, 1, 3, 2) + "," + row(64, 9, 9, 9)))});
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].title, "bcast");
  EXPECT_EQ(read[0].where, "2 ranks on 1 host");
  ASSERT_EQ(read[0].curves.size(), 3U);
  EXPECT_EQ(read[0].curves[0].name, "loom");
  EXPECT_THAT(read[0].curves[0].points, ElementsAre(Pair(8, 1), Pair(64, 1)));
  EXPECT_EQ(ratio_at(read[0], 8), 2);
  EXPECT_EQ(ratio_at(read[0], 64), 2);
  EXPECT_EQ(ratio_at(read[0], 9), 0);
}

TEST_F(Plots, SayThatLoomWasOff) {
  std::string off = results("bcast", row(8, 1, 2, 3));
  off.replace(off.find("\"ranks\": 2"), 0, "\"loom\": \"loaded, but not enabled\", ");
  EXPECT_EQ(read_measurements({temporary("a", off)})[0].curves[0].name, "as is: loom is off");
}

TEST_F(Plots, KeepFormsApart) {
  EXPECT_EQ(read_measurements({temporary("a", results("bcast", row(8, 1, 2, 3))),
                               temporary("b", results("bcast", row(8, 1, 2, 3), "persistent"))})
                .size(),
            2U);
}

TEST_F(Plots, RefuseWhatIsNoMeasurement) {
  expect_refused(temporary("absent"), "absent: No such file or directory");
  expect_refused("/tmp", "/tmp: this is a folder");
  expect_refused(temporary("a", "no json"), "is not what loom_bench --json writes");
  expect_refused(temporary("b", "[1]"), "is not what loom_bench --json writes");
  expect_refused(temporary("c", R"({"program": "loom_bench", "format": 2})"), "format 2");
  expect_refused(temporary("d", R"({"program": "loom_bench", "format": 1})"), "is not whole");
  expect_refused(temporary("e", results("bcast", "")), "no results");
  const std::string odd = temporary("f", R"({"program": 5})");
  expect_refused(odd, (odd + " is not whole").c_str());
}

TEST_F(Plots, NameTheirCurves) {
  const auto read = read_measurements(
      {temporary("a", results("bcast", row(8, 0.1, 0.2, 0.4) + "," + row(1 << 20, 100, 200, 300)))});
  const std::string latency = text_of(curves_svg(read[0], false)),
                    bandwidth = text_of(curves_svg(read[0], true));
  for (const char* text : {"bcast, 2 ranks on 1 host", "loom", "tuned", "sm", "us", "128 Ki"})
    EXPECT_THAT(latency, HasSubstr(std::string(text) + "|"));
  EXPECT_THAT(bandwidth, HasSubstr("GB/s|"));
}

TEST_F(Plots, ShowRatiosByCollectiveAndSize) {
  const std::string text =
      text_of(ratios_svg(read_measurements({temporary("a", results("bcast", row(8, 2, 3, 5))),
                                            temporary("b", results("barrier", row(0, 2, 24, 25)))})));
  EXPECT_THAT(text, HasSubstr("bcast|1.50|"));
  EXPECT_THAT(text, HasSubstr("barrier|12|"));
  EXPECT_THAT(text, HasSubstr("How many times faster than the best of "));
}

TEST_F(Plots, ShowSizesThatRanksDoNotDivideInOneColumn) {
  const auto rows = [](std::initializer_list<int> sizes) {
    std::string text;
    for (const int size : sizes) text += (text.empty() ? "" : ",") + row(size, 2, 3, 5);
    return text;
  };
  const std::string text =
      text_of(ratios_svg(read_measurements({temporary("a", results("bcast", rows({128, 160, 512}))),
                                            temporary("b", results("allgather", rows({120, 504})))})));
  EXPECT_THAT(text, HasSubstr("128|"));
  EXPECT_THAT(text, HasSubstr("160|"));  // has its own column: bcast was measured with both
  EXPECT_THAT(text, HasSubstr("512|"));
  EXPECT_THAT(text, testing::Not(HasSubstr("120|")));
  EXPECT_THAT(text, testing::Not(HasSubstr("504|")));
}

TEST_F(Plots, OfOneSizeOrOfNothingToSeeAreStillPictures) {
  const auto read = read_measurements({temporary("a", results("barrier", row(0, 1, 2, 3)))});
  EXPECT_THAT(text_of(curves_svg(read[0], false)), HasSubstr("barrier"));
  const auto one = read_measurements({temporary("b", results("bcast", row(8, 1, 2, 3)))});
  EXPECT_THAT(text_of(curves_svg(one[0], false)), HasSubstr("bcast"));
}

}  // namespace
}  // namespace loom::tools
