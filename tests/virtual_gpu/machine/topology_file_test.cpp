#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/format.hpp"
#include "tests/virtual_gpu/machine/machine_cases.hpp"
#include "tests/virtual_gpu/machine/traffic.hpp"

namespace virtual_gpu::machine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string complaint(const std::string& text, std::size_t host = 0) {
  try {
    Machine(read_topology(text, "f.xml", host));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// One socket; `first` is what its first GPU has, the second one has nothing.
std::string two_gpus(const std::string& attributes, const std::string& first,
                     const std::string& second = "") {
  return loom::format(R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0">
      <gpu {}>{}</gpu>
    </pci>
    <pci busid="0000:11:00.0">
      <gpu dev="1" sm="90">{}</gpu>
    </pci>
  </cpu>
</system>)",
                      attributes, first, second);
}
const std::string kGood = R"(dev="0" sm="90")";

TEST(TopologyFile, ThatIsRightIsTaken) {
  EXPECT_EQ(complaint(two_gpus(kGood, "")), "");
}
TEST(TopologyFile, ThatIsNotThereIsNamed) {
  try {
    Machine::from_file("/no/such/file.xml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "/no/such/file.xml: No such file or directory; name a topology file in VIRTUAL_GPU_MACHINE.");
  }
  EXPECT_THROW(Machine::from_file("/tmp"), Error);
}
TEST(TopologyFile, ThatIsNotXmlIsRefusedWithTheLine) {
  EXPECT_THAT(complaint("<system version=\"1\">\n<cpu>\n</system>"), StartsWith("f.xml, line 3: "));
}
TEST(TopologyFile, LacksNothingThatIsNeeded) {
  EXPECT_EQ(complaint(two_gpus(R"(dev="0")", "")), "f.xml, line 4: <gpu> has no \"sm\": add it.");
  EXPECT_THAT(complaint("<system version=\"1\"/>"), HasSubstr("there is no GPU"));
}
TEST(TopologyFile, HasNumbersWhereTheyBelong) {
  EXPECT_THAT(complaint(two_gpus(R"(dev="0" sm="9x")", "")),
              StartsWith("f.xml, line 4: sm=\"9x\" of <gpu> is no"));
  EXPECT_THAT(complaint(two_gpus(kGood, R"(<nvlink target="0000:11:00.0" count="-1" tclass="0x030200"/>)")),
              HasSubstr("count=\"-1\" of <nvlink> is no number"));
  EXPECT_THAT(complaint(two_gpus(kGood, R"(<nvlink target="here" count="1" tclass="0x030200"/>)")),
              HasSubstr("target=\"here\" is no bus id"));
}
TEST(TopologyFile, NumbersEachGpuOnce) {
  EXPECT_THAT(complaint(two_gpus(R"(dev="1" sm="90")", "")),
              StartsWith("f.xml, line 7: dev 1 is there twice"));
}
TEST(TopologyFile, OrdersGpusByTheirNumber) {
  const Machine machine(read_topology(two_gpus(R"(dev="2" sm="90")", ""), "f.xml", 0));
  EXPECT_EQ(machine.gpus()[0].bus_id.to_string(), "0000:11:00.0");
}
TEST(TopologyFile, HasNvlinksWithTwoEnds) {
  const std::string two = R"(<nvlink target="0000:11:00.0" count="2" tclass="0x030200"/>)",
                    back = R"(<nvlink target="0000:10:00.0" count="2" tclass="0x030200"/>)";
  EXPECT_THAT(complaint(two_gpus(kGood, two)),
              StartsWith("f.xml, line 7: this GPU has 0 NVLinks to 0000:10:00.0, which has 2 back"));
  EXPECT_EQ(complaint(two_gpus(kGood, two, back)), "");
}
TEST(TopologyFile, HasNothingThatIsNotKnown) {
  EXPECT_THAT(complaint(two_gpus(kGood, "<xgmi/>")), StartsWith("f.xml, line 4: <xgmi> is not known here"));
  EXPECT_THAT(complaint("<system version=\"2\"/>"), HasSubstr("only version 1"));
  EXPECT_THAT(complaint(two_gpus(R"(dev="0" sm="107" mlopart="0")", "")), HasSubstr("mlopart"));
  EXPECT_THAT(complaint("<topology/>"), HasSubstr("describes no <system>"));
}
TEST(TopologyFile, OfSeveralHostsGivesTheOneThatIsAskedFor) {
  std::string text = two_gpus(kGood, "");
  const std::string cpu = text.substr(text.find("<cpu"), text.find("</system>") - text.find("<cpu"));
  std::string other = cpu;
  other.replace(0, 4, "<cpu host_hash=\"0x7\"").replace(other.find("0000:10"), 4, "0009");
  text.insert(text.find("</system>"), other);
  const auto first_gpu = [&](std::size_t host) {
    return Machine(read_topology(text, "f.xml", host)).gpus()[0].bus_id.to_string();
  };
  EXPECT_EQ(first_gpu(0), "0000:10:00.0");
  EXPECT_EQ(first_gpu(1), "0009:10:00.0");
  EXPECT_THAT(complaint(text, 2), StartsWith("f.xml, line 1: there are 2 hosts, but this is host 2"));
}
TEST(TopologyFile, HasNoMoreNvlinksToASwitchThanAGpuHas) {
  std::string rows;
  for (int i = 0; i < 7; ++i) rows += R"(<nvlink target="0000:11:00.0" count="18" tclass="0x068000"/>)";
  const Machine machine(read_topology(two_gpus(kGood, rows, rows), "f.xml", 0));
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), gpu(1)).gbps, 18 * 25);
}
TEST(TopologyFile, MayNameLinksThatAreDown) {
  const Machine machine(read_topology(
      two_gpus(kGood, R"(<c2c bw="40000" count="3"/><c2c bw="40000" count="1" active="0"/>)"), "f.xml", 0));
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), host_memory(0)).gbps, 120);
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent))
    if (entry.path().extension() == ".xml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// Whose forms this reader refuses: hwloc's, another library's, and split GPUs.
bool is_refused(const std::string& name) {
  return name == "lstopo-2gpu" || name.starts_with("amd-raw-") || name == "vr200-tray-mlopart";
}

void expect_sound_routes(const Machine& machine) {
  for (std::size_t from = 0; from < machine.place_count(); ++from)
    for (std::size_t to = 0; to < machine.place_count(); ++to) {
      SCOPED_TRACE(machine.name_of(machine.place(from)) + " to " + machine.name_of(machine.place(to)));
      const Route& route = machine.route(from, to);
      const Route& back = machine.route(to, from);
      EXPECT_EQ(route.gbps, back.gbps);
      if (machine.place(from).kind == Place::Kind::kGpu && from == to) {
        EXPECT_TRUE(route.links.empty());
        continue;
      }
      ASSERT_FALSE(route.links.empty());
      EXPECT_GT(route.gbps, 0);
      const auto link = [&](std::size_t i) { return machine.links()[route.links[i]]; };
      EXPECT_EQ(link(0).from, machine.name_of(machine.place(from)));
      EXPECT_EQ(link(route.links.size() - 1).to, machine.name_of(machine.place(to)));
      for (std::size_t i = 1; i < route.links.size(); ++i) EXPECT_EQ(link(i - 1).to, link(i).from);
      EXPECT_EQ(std::set(route.links.begin(), route.links.end()).size(), route.links.size());
    }
}

/// Each node passes on what it gets, but for what begins or ends there.
void expect_nothing_lost(const Machine& machine) {
  const SharedState state(machine, "");
  Traffic traffic(machine, state);
  std::map<std::string, std::int64_t> kept, expected;
  std::uint64_t bytes = 1;
  for (std::size_t from = 0; from < machine.place_count(); ++from)
    for (std::size_t to = 0; to < machine.place_count(); ++to) {
      bytes = bytes * 48271 % 2147483647;
      traffic.add(from, to, bytes);
      expected[machine.name_of(machine.place(from))] -= static_cast<std::int64_t>(bytes);
      expected[machine.name_of(machine.place(to))] += static_cast<std::int64_t>(bytes);
    }
  for (const TrafficReport::Row& row : traffic.report().rows) {
    kept[machine.links()[row.link].from] -= static_cast<std::int64_t>(row.bytes);
    kept[machine.links()[row.link].to] += static_cast<std::int64_t>(row.bytes);
  }
  for (const auto& [node, balance] : kept) EXPECT_EQ(balance, expected[node]) << node;
}

void expect_sound_machines(const std::filesystem::path& file) {
  SCOPED_TRACE(file);
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  if (is_refused(file.stem())) {
    EXPECT_THROW(Machine::from_file(file), Error);
    return;
  }
  std::set<std::string> hosts;
  for (std::size_t at = 0; (at = text.str().find("host_hash=", at)) != std::string::npos; ++at)
    hosts.insert(text.str().substr(at, text.str().find('"', at + 11) - at));
  for (std::size_t host = 0; host < std::max<std::size_t>(hosts.size(), 1); ++host) {
    const Machine machine = Machine::from_file(file, host);
    expect_sound_routes(machine);
    expect_nothing_lost(machine);
  }
}

TEST(EveryFile, ThatIsCarriedGivesAMachineWithSoundRoutes) {
  const auto files = files_in(LOOM_TEST_DATA);
  ASSERT_GE(files.size(), 6);
  for (const auto& file : files) expect_sound_machines(file);
}
TEST(EveryFile, BesideTheRepositoryGivesAMachineWithSoundRoutes) {
  const auto files = files_in(LOOM_SHARED_TOPOLOGIES);
  if (files.empty()) GTEST_SKIP() << "there is no " << LOOM_SHARED_TOPOLOGIES;
  for (const auto& file : files) expect_sound_machines(file);
}

}  // namespace
}  // namespace virtual_gpu::machine
