#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "base/format.hpp"
#include "tests/component/allreduce_cases.hpp"
#include "tests/component/temporary_file.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom::test {
namespace {

using ::testing::HasSubstr;

loom_parameters with_files(const char* topo_file, const char* topo_dump_file) {
  loom_parameters parameters{};
  parameters.topo_file = topo_file;
  parameters.topo_dump_file = topo_dump_file;
  return parameters;
}

using TopoFile = WithFiles;

constexpr const char* kMachine =
    "<system version='1'><cpu numaid='0' affinity='f' arch='arm64'><nic><net dev='0' name='eth7' "
    "speed='1000'/></nic></cpu></system>";

TEST_F(TopoFile, DescribesTheHostsAndIsWrittenWithTheirRanks) {
  const std::string in = temporary("in.xml", kMachine), out = temporary("out.xml");
  Job job{.ranks = 3, .parameters = with_files(in.c_str(), out.c_str())};
  job.run([](Rank& self) { EXPECT_NE(self.connect(), nullptr); });
  const topo::System written = topo::read_system(out).system;
  EXPECT_EQ(written.gpus().size(), 3);
  EXPECT_EQ(written.node(written.of_kind(topo::NodeKind::kNet).front()).net().name, "eth7");
}

/// What all ranks must have alike, where one of them has it otherwise or not at all.
TEST_F(TopoFile, LikeOtherSettingsMustBeThatOfRank0) {
  const std::string file = temporary("in.xml", kMachine),
                    graph = temporary("graph.xml", "<graphs version='1'></graphs>");
  struct Setting {
    const char* loom_parameters::*at;
    const char* value;
    const char* cause;
  };
  for (const Setting& setting :
       {Setting{&loom_parameters::topo_file, file.c_str(),
                "Rank 2 on host here reads another coll_loom_topo_file"},
        Setting{&loom_parameters::graph_file, graph.c_str(),
                "Rank 2 on host here reads another coll_loom_graph_file"},
        Setting{&loom_parameters::tune, "all:ring", "Rank 2 on host here has another coll_loom_tune"}}) {
    Job job{.ranks = 3,
            .host = [](int) { return "here"; },
            .parameters_of =
                [&](int rank) {
                  loom_parameters parameters{};
                  if (rank == 2) parameters.*setting.at = setting.value;
                  return parameters;
                }};
    job.run([](Rank& self) { EXPECT_EQ(self.connect(), nullptr); });
    EXPECT_THAT(job.transcript.messages(LOOM_MESSAGE_DECLINED),
                ::testing::ElementsAre(HasSubstr(setting.cause)));
  }
}

TEST_F(TopoFile, OfWhichMuchMustBeAssumedIsToldOfOnceAtVerbose1) {
  const std::string in = temporary("in.xml", "<system version='1'><cpu numaid='0' affinity='f'/></system>");
  for (const int verbose : {0, 1}) {
    loom_parameters parameters = with_files(in.c_str(), nullptr);
    parameters.verbose = verbose;
    Job job{.ranks = 3, .parameters = parameters};
    job.run([](Rank& self) { EXPECT_NE(self.connect(), nullptr); });
    const auto lines = job.transcript.lines();
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [](const std::string& line) {
                              return line.find("no attribute 'arch'") != std::string::npos;
                            }),
              verbose);
  }
}

TEST_F(TopoFile, IsNotNeededToWriteOne) {
  const std::string out = temporary("live.xml");
  Job job{.ranks = 2, .parameters = with_files(nullptr, out.c_str())};
  job.run([](Rank& self) { EXPECT_NE(self.connect(), nullptr); });
  EXPECT_EQ(topo::read_system(out).system.gpus().size(), 2);
}

TEST_F(TopoFile, ThatIsWrongMakesAllRanksStepAsideAndSaysWhere) {
  const std::string in = temporary("bad.xml", "<system version='1'>\n<cpu numaid='zero'/></system>");
  Job job{.ranks = 2, .parameters = with_files(in.c_str(), nullptr)};
  job.run([](Rank& self) { EXPECT_EQ(self.connect(), nullptr); });
  const auto messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(messages[0], HasSubstr("coll_loom_topo_file: "));
  EXPECT_THAT(messages[0], HasSubstr("bad.xml:2: <cpu numaid=\"zero\">"));
}

TEST_F(TopoFile, WithFewerGpusThanRanksGivesEachItsPlaceOnAllHosts) {
  // Three ranks on one host and two on the other: some have a GPU, others share one or have none.
  const std::string in = temporary("gpus.xml",
                                   "<system version='1'><cpu numaid='0' affinity='f' arch='x86_64'>"
                                   "<pci busid='0000:01:00.0' class='0x030200' link_speed='16 GT/s' "
                                   "link_width='16'><gpu dev='0' sm='80'/></pci>"
                                   "<pci busid='0000:02:00.0' class='0x030200' link_speed='16 GT/s' "
                                   "link_width='16'><gpu dev='1' sm='80'/></pci>"
                                   "<nic><net dev='0' name='eth7' speed='1000'/></nic></cpu></system>");
  const std::string out = temporary("ranks.xml");
  loom_parameters parameters = with_files(in.c_str(), out.c_str());
  parameters.tune = "all:ring,alltoall:pairwise";
  Job job{
      .ranks = 5, .host = [](int rank) { return rank < 3 ? "host0" : "host1"; }, .parameters = parameters};
  job.run([](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    std::vector<float> values(7, 1.0F);
    EXPECT_TRUE(allreduce(*communicator, bytes_of(values), bytes_of(values), values.size(),
                          device::Type::kFloat, device::Op::kSum));
    EXPECT_THAT(values, ::testing::Each(5.0F));
  });
  const topo::System written = topo::read_system(out).system;
  ASSERT_EQ(written.gpus().size(), 3U);
  for (const topo::NodeId gpu : written.gpus()) EXPECT_TRUE(written.node(gpu).gpu().is_virtual);
}

TEST_F(TopoFile, OfSeveralHostsIsRefused) {
  const std::string in =
      temporary("hosts.xml",
                "<system version='1'><cpu host_hash='1' numaid='0' affinity='f' arch='arm64'/>"
                "<cpu host_hash='2' numaid='0' affinity='f' arch='arm64'/></system>");
  Job job{.ranks = 2, .parameters = with_files(in.c_str(), nullptr)};
  job.run([](Rank& self) { EXPECT_EQ(self.connect(), nullptr); });
  const auto messages = job.transcript.messages(LOOM_MESSAGE_DECLINED);
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(messages[0], HasSubstr("hosts.xml: it has 2 hosts."));
}

TEST_F(TopoFile, ThatDoesNotFitTheHostSaysSoAtVerbose1) {
  // Two GPUs; nobody is bound to CPU 9000 of the first NUMA node, which is numbered unlike any here.
  const std::string in =
      temporary("other.xml",
                "<system version='1'><cpu numaid='777' affinity='f' arch='x86_64'>"
                "<pci busid='0000:01:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'>"
                "<gpu dev='0' sm='80' rank='5'/></pci>"
                "<pci busid='0000:02:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'>"
                "<gpu dev='1' sm='80' rank='7'/></pci></cpu><cpu numaid='778' affinity='ffff0000,00000000' "
                "arch='x86_64'/>"
                "</system>");
  loom_parameters parameters = with_files(in.c_str(), nullptr);
  parameters.verbose = 1;
  Job job{.ranks = 2, .parameters = parameters};
  job.run([](Rank& self) { EXPECT_NE(self.connect(), nullptr); });
  const auto lines = job.transcript.lines();
  const auto about = [](const char* text) {
    return ::testing::Contains(::testing::AllOf(HasSubstr("coll_loom_topo_file: "), HasSubstr(text)))
        .Times(1);
  };
  EXPECT_THAT(
      lines,
      about("other.xml: For calls on host memory each rank is a virtual GPU at its NUMA node; its 2 GPUs"));
  EXPECT_THAT(lines, about("It has no NUMA node 0, where ranks 0, 1 may run: its first is taken."));
}

std::unique_ptr<Communicator> alone(Rank& self) {
  loom_bootstrap bootstrap = self.bootstrap();
  bootstrap.alone = true;
  return Communicator::create(Bootstrap(bootstrap), self.process(), self.engine());
}

TEST_F(TopoFile, IsReadAndWrittenByAJobOfOneRank) {
  const std::string in = temporary("in.xml", kMachine), out = temporary("out.xml");
  Job job{.ranks = 1, .parameters = with_files(in.c_str(), out.c_str())};
  job.run([&](Rank& self) {
    EXPECT_NE(self.connect(), nullptr);  // a communicator of one rank in a larger job
    EXPECT_FALSE(std::filesystem::exists(out));
    const auto communicator = alone(self);
    ASSERT_NE(communicator, nullptr);
    const float value = 3;
    float sum = 0;
    EXPECT_TRUE(allreduce(*communicator, reinterpret_cast<const std::byte*>(&value),
                          reinterpret_cast<std::byte*>(&sum), 1, device::Type::kFloat, device::Op::kSum));
    EXPECT_EQ(sum, 3);
  });
  EXPECT_EQ(topo::read_system(out).system.gpus().size(), 1);
}

TEST_F(TopoFile, ThatIsWrongIsToldByAJobOfOneRank) {
  const std::string in = temporary("bad.xml", "nonsense");
  Job job{.ranks = 1, .parameters = with_files(in.c_str(), nullptr)};
  job.run([](Rank& self) { EXPECT_EQ(alone(self), nullptr); });
  EXPECT_THAT(job.transcript.messages(LOOM_MESSAGE_DECLINED),
              ::testing::ElementsAre(HasSubstr("bad.xml:1: this is not XML")));
}

}  // namespace
}  // namespace loom::test
