#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "allreduce_cases.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom::test {
namespace {

using ::testing::HasSubstr;

std::string temporary(const char* name, const std::string& text = "") {
  const std::string path = ::testing::TempDir() + name;
  std::filesystem::remove(path);
  if (!text.empty()) std::ofstream(path) << text;
  return path;
}

constexpr const char* kMachine =
    "<system version='1'><cpu numaid='0' affinity='f' arch='arm64'><nic><net dev='0' name='eth7' "
    "speed='1000'/></nic></cpu></system>";

TEST(TopoFile, DescribesTheHostsAndIsWrittenWithTheirRanks) {
  const std::string in = temporary("loom-in.xml", kMachine), out = temporary("loom-out.xml");
  Job job{
      .ranks = 3,
      .parameters = {.verbose = 0, .timeout_s = 0, .topo_file = in.c_str(), .topo_dump_file = out.c_str()}};
  job.run([](Rank& self) { EXPECT_NE(self.connect(), nullptr); });
  const topo::System written = topo::read_system(out).system;
  EXPECT_EQ(written.gpus().size(), 3);
  EXPECT_EQ(written.node(written.of_kind(topo::NodeKind::kNet).front()).net().name, "eth7");
}

TEST(TopoFile, IsNotNeededToWriteOne) {
  const std::string out = temporary("loom-live.xml");
  Job job{.ranks = 2,
          .parameters = {.verbose = 0, .timeout_s = 0, .topo_file = nullptr, .topo_dump_file = out.c_str()}};
  job.run([](Rank& self) { EXPECT_NE(self.connect(), nullptr); });
  EXPECT_EQ(topo::read_system(out).system.gpus().size(), 2);
}

TEST(TopoFile, ThatIsWrongMakesAllRanksStepAsideAndSaysWhere) {
  const std::string in = temporary("loom-bad.xml", "<system version='1'>\n<cpu numaid='zero'/></system>");
  Job job{.ranks = 2,
          .parameters = {.verbose = 0, .timeout_s = 0, .topo_file = in.c_str(), .topo_dump_file = nullptr}};
  job.run([](Rank& self) { EXPECT_EQ(self.connect(), nullptr); });
  const auto messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(messages[0], HasSubstr("loom-bad.xml:2: <cpu numaid=\"zero\">"));
}

}  // namespace
}  // namespace loom::test
