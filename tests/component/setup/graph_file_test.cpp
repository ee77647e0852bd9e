#include <gmock/gmock.h>

#include "search/graph_xml.hpp"
#include "tests/component/allreduce_cases.hpp"
#include "tests/component/temporary_file.hpp"
#include "topo/place.hpp"

namespace loom::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using GraphFile = WithFiles;

loom_parameters with_graphs(const char* graph_file, const char* graph_dump_file) {
  loom_parameters parameters{};
  parameters.graph_file = graph_file;
  parameters.graph_dump_file = graph_dump_file;
  return parameters;
}

/// A ring over GPUs with these attributes.
std::string ring_over(const std::vector<std::string>& gpus) {
  std::string text =
      "<graphs version='1'><graph id='0' pattern='4' crossnic='0' nchannels='1' speedintra='10' "
      "speedinter='10' "
      "latencyinter='0' typeintra='SYS' typeinter='LOC' samechannels='1'>\n<channel>\n";
  for (const std::string& gpu : gpus) text += "<gpu " + gpu + "/>\n";
  return text + "</channel></graph></graphs>";
}

/// The ring that rank 0 wrote to `path`.
std::vector<int> written_ring(const std::string& path, int ranks) {
  const search::PathTables tables(topo::hosts_of(std::vector<topo::Place>(ranks)).at(0).system);
  return search::read_graph_xml(path, tables).at(0).parts.at(0).channels.at(0).ranks;
}

TEST_F(GraphFile, GivesTheRingAndIsWrittenAgain) {
  const std::string in = temporary("loom-ring.xml", ring_over({"rank='2'", "rank='0'", "rank='1'"}));
  const std::string out = temporary("loom-ring-out.xml");
  Job job{.ranks = 3, .parameters = with_graphs(in.c_str(), out.c_str())};
  job.run([](Rank& self) { EXPECT_NE(self.connect(), nullptr); });
  EXPECT_THAT(written_ring(out, 3), ElementsAre(2, 0, 1));
}

TEST_F(GraphFile, IsNotNeededToWriteOne) {
  const std::string out = temporary("loom-ring-found.xml");
  Job job{.ranks = 2, .parameters = with_graphs(nullptr, out.c_str())};
  job.run([](Rank& self) { EXPECT_NE(self.connect(), nullptr); });
  EXPECT_THAT(written_ring(out, 2), ElementsAre(0, 1));
}

TEST_F(GraphFile, WithoutRanksServesEveryHost) {
  const std::string in = temporary("loom-ring-devices.xml", ring_over({"dev='1'", "dev='0'"}));
  Job job{.ranks = 4,
          .host = [](int rank) { return rank < 2 ? "a" : "b"; },
          .parameters = with_graphs(in.c_str(), nullptr)};
  job.run([](Rank& self) { EXPECT_NE(self.connect(), nullptr); });
}

TEST_F(GraphFile, ThatDoesNotFitMakesAllRanksStepAsideAndSaysWhere) {
  const std::string in = temporary("loom-ring-bad.xml", ring_over({"rank='0'", "rank='5'"}));
  Job job{.ranks = 2, .parameters = with_graphs(in.c_str(), nullptr)};
  job.run([](Rank& self) { EXPECT_EQ(self.connect(), nullptr); });
  const auto messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(messages[0], HasSubstr("loom-ring-bad.xml:4: <gpu>: this machine has no such GPU"));
}

TEST_F(GraphFile, WithoutARingIsRefused) {
  std::string tree = ring_over({"rank='0'", "rank='1'"});
  tree.replace(tree.find("id='0' pattern='4'"), 18, "id='1' pattern='3'");
  const std::string in = temporary("loom-no-ring.xml", tree);
  Job job{.ranks = 2, .parameters = with_graphs(in.c_str(), nullptr)};
  job.run([](Rank& self) { EXPECT_EQ(self.connect(), nullptr); });
  EXPECT_THAT(job.transcript.messages(LOOM_MESSAGE_DECLINED).at(0), HasSubstr("no ring"));
}

}  // namespace
}  // namespace loom::test
