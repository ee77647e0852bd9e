#include "topo/nccl_xml.hpp"

#include <gmock/gmock.h>

#include "base/format.hpp"
#include "test_data.hpp"
#include "topo/check.hpp"
#include "topo/utf8.hpp"

namespace loom::topo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kCpu =
    "<cpu numaid='0' affinity='ff' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='85'>";

std::string machine(const std::string& inside) {
  return std::string("<system version='1'>\n") + kCpu + "\n" + inside + "</cpu></system>";
}
std::string gpu(const std::string& bus_id, int rank, const std::string& inside = "") {
  return "<pci busid='" + bus_id +
         "' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'><gpu dev='" + std::to_string(rank) +
         "' sm='80' rank='" + std::to_string(rank) + "' gdr='1'>" + inside + "</gpu></pci>";
}

TEST(NcclXml, ReadsEveryAttribute) {
  const System system = parse_nccl_xml(machine(R"(
    <pci busid="0000:01:00.0" class="0x060400" vendor="0x1000" device="0xc010" subsystem_vendor="0x1" subsystem_device="0x2"
         link_speed="32.0 GT/s PCIe" link_width="8"><pcilink target="0000:02:00.0"/>
      <pci busid="0000:03:00.0" class="0x020700" link_speed="8 GT/s" link_width="4"><nic>
        <net name="mlx5_1" dev="1" speed="200000" port="2" latency="1.5" guid="0xabc" maxconn="7" gdr="1" coll="1" rail="3"
             plane="1" net="0" gin="1" rma="1"/></nic></pci></pci>
    <pci busid="0000:02:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16"><pcilink target="0000:01:00.0"/></pci>
    <pci busid="0001:04:00.0" class="0x030200" link_speed="64.0 GT/s PCIe" link_width="16">
      <gpu dev="3" sm="100" rank="5" gdr="1" mlopart="1" nop2p="1 2"><nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>
        <c2c bw="1000" count="3"/></gpu></pci>)"),
                                       "f.xml")
                            .system;
  EXPECT_TRUE(check(system).empty());
  const Node& top = system.node(1);
  EXPECT_EQ(top.pci->vendor, 0x1000);
  EXPECT_EQ(top.pci->subsystem_device, 2);
  EXPECT_EQ(top.pci->link_width, 8);
  EXPECT_EQ(std::get<PciSwitchInfo>(top.info).peers.at(0).to_string(), "0000:02:00.0");
  const NetInfo& net = system.node(3).net();
  EXPECT_EQ(net.name, "mlx5_1");
  EXPECT_EQ(net.guid, 0xabcU);
  EXPECT_EQ(net.latency_us, 1.5);
  EXPECT_EQ(net.max_connections, 7);
  EXPECT_EQ(net.rail, 3);
  EXPECT_EQ(net.plane, 1);
  EXPECT_TRUE(net.collectives && net.is_gin && net.is_rma && !net.is_net);
  const GpuInfo& last = system.node(system.gpu_of_rank(5)).gpu();
  EXPECT_EQ(last.device, 3);
  EXPECT_EQ(last.partition, 1);
  EXPECT_EQ(last.p2p_denied, (std::vector{1, 2}));
  EXPECT_FALSE(last.nvlinks.at(0).target_seen);
  EXPECT_EQ(last.c2c.at(0).mbps, 1000);
}

TEST(NcclXml, IsTheSameAfterWritingAndReading) {
  for (const auto& path : all_files())
    for (const Model model : {Model::kLoom, Model::kNccl}) {
      SCOPED_TRACE(path);
      if (model == Model::kNccl && path.filename().string().starts_with("amd-raw"))
        continue;  // NCCL cannot read them
      const System system = read_system(path, model).system;
      EXPECT_TRUE(check(system).empty()) << check(system).front();
      EXPECT_EQ(parse_nccl_xml(to_nccl_xml(system), "written", model).system, system);
      EXPECT_EQ(parse_system(to_hwloc_xml(system), "written", model).system, system);
    }
}

TEST(NcclXml, PassesOverWhatItDoesNotKnowWithOneNote) {
  const auto read = parse_nccl_xml(
      machine("<novelty/><novelty/>" +
              gpu("1:0.0", 0, "<nvlink target='0000:01:00.0' count='0' new='1' tclass='0x030200'/>")),
      "f.xml");
  EXPECT_THAT(read.notes,
              ::testing::ElementsAre(AllOf(StartsWith("f.xml:3: <novelty>"), HasSubstr("not known")),
                                     AllOf(StartsWith("f.xml:3: <nvlink"), HasSubstr("'new'")),
                                     HasSubstr("no links")));
}

TEST(NcclXml, KeepsPortsWithTheirNumaNodes) {
  const std::string text =
      "<system version='1'><cpu numaid='0' affinity='1' arch='arm64'><nic><net dev='0' "
      "speed='1000'/></nic></cpu>"
      "<cpu numaid='1' affinity='2' arch='arm64'><nic><net dev='1' speed='1000'/></nic></cpu></system>";
  const auto numa_of = [](const System& system, std::size_t port) {
    const NodeId nic = system.node(system.of_kind(NodeKind::kNet)[port]).parent;
    return system.node(system.node(nic).parent).cpu().numa_id;
  };
  for (const Model model : {Model::kLoom, Model::kNccl}) {
    const auto read = parse_nccl_xml(text, "f.xml", model);
    EXPECT_EQ(numa_of(read.system, 0), 0);
    EXPECT_EQ(numa_of(read.system, 1), model == Model::kLoom ? 1 : 0);
    EXPECT_EQ(read.notes.size(), model == Model::kLoom ? 0 : 1);
    EXPECT_EQ(parse_system(to_nccl_xml(read.system), "f.xml", model).system, read.system);
    EXPECT_EQ(parse_system(to_hwloc_xml(read.system), "f.xml", model).system, read.system);
  }
}

TEST(NcclXml, SaysOnceWhatIsThereTwice) {
  std::string text;
  for (int i = 0; i < 4; ++i)
    text +=
        "<nic><net dev='7' speed='1000'/></nic><pci busid='0000:01:00.0' class='0x060400' link_speed='16 "
        "GT/s' "
        "link_width='16'/>";
  EXPECT_THAT(parse_nccl_xml(machine(text), "f.xml").notes,
              ::testing::ElementsAre(HasSubstr("dev 7 too"), HasSubstr("another switch")));
}

TEST(NcclXml, SaysWhatItDoesNotKeep) {
  const auto read = parse_nccl_xml(
      machine("<nic><net dev='0' speed='1000' keep='1'/></nic>"
              "<pci busid='0000:01:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'>"
              "<gpu dev='0' sm='94' arch='942' gcn='gfx942' rank='0' gdr='1'/></pci>"
              "<pci busid='0000:02:00.0' class='0x060400' vendor='0x1000' device='0xc010' "
              "subsystem_vendor='0x1000' "
              "subsystem_device='0xa096' link_speed='16 GT/s' link_width='16'>"
              "<pci busid='0000:03:00.0' class='0x060400' vendor='0x1000' device='0xc010' "
              "subsystem_vendor='0x1000' "
              "subsystem_device='0xa096' link_speed='16 GT/s' link_width='16'/></pci>"),
      "f.xml");
  EXPECT_THAT(read.notes, ::testing::ElementsAre(HasSubstr("'keep'"), HasSubstr("'arch'"),
                                                 HasSubstr("1 PCI switches are parts of the switch chip")));
}

TEST(NcclXml, AssumesWhatVirtualMachinesHideAndSaysSo) {
  const auto read = parse_nccl_xml(machine("<pci busid='0000:01:00.0' class='0x030200' link_speed='' "
                                           "link_width='255'><gpu dev='0' sm='90' gdr='1'/></pci>"),
                                   "f.xml");
  EXPECT_THAT(read.notes, ::testing::ElementsAre(HasSubstr("no GPU has a rank"),
                                                 HasSubstr("width 255 say too little. 12 GB/s is assumed")));
  // What is assumed is not written as if it were known.
  EXPECT_EQ(read.system.node(1).pci->link_width, 255);
  EXPECT_EQ(parse_nccl_xml(to_nccl_xml(read.system), "f.xml").system, read.system);
  EXPECT_EQ(parse_system(to_hwloc_xml(read.system), "f.xml").system, read.system);
  EXPECT_EQ(read.system.links_of(1)[0].gbps, 12);
  EXPECT_EQ(read.system.gpus().size(), 1);
}

TEST(NcclXml, AssumesSpeedsOfPortsWithoutWritingThemDown) {
  for (const char* speed : {"", "speed=''", "speed='0'", "speed='-1'"}) {
    SCOPED_TRACE(speed);
    const auto read =
        parse_nccl_xml(machine(loom::format("<nic><net dev='0' name='eth0' {}/></nic>", speed)), "f.xml");
    EXPECT_THAT(read.notes, ::testing::ElementsAre(HasSubstr("eth0: Its speed is not known. 10 Gbit/s is")));
    const NodeId port = read.system.of_kind(NodeKind::kNet).front();
    EXPECT_EQ(read.system.links_of(port)[0].gbps, 1.25);
    const std::string nccl = to_nccl_xml(read.system), hwloc = to_hwloc_xml(read.system);
    EXPECT_THAT(nccl, ::testing::Not(HasSubstr("speed")));
    EXPECT_THAT(hwloc, ::testing::Not(HasSubstr("loom.speed")));
    EXPECT_EQ(parse_system(nccl, "f.xml").system, read.system);
    EXPECT_EQ(parse_system(hwloc, "f.xml").system, read.system);
  }
}

TEST(NcclXml, TakesForSwitchesWhatIsABridgeOrHasDevicesBelow) {
  const auto disk = [](const char* inside) {
    return machine(
        loom::format("<pci busid='0000:01:00.0' class='0x010802' link_speed='16 GT/s' link_width='4'>"
                     "{}</pci>",
                     inside));
  };
  const auto switches = [](const std::string& text, Model model) {
    return parse_nccl_xml(text, "f.xml", model).system.of_kind(NodeKind::kPciSwitch).size();
  };
  EXPECT_EQ(switches(disk(""), Model::kLoom), 0U);
  EXPECT_THAT(parse_nccl_xml(disk(""), "f.xml").notes, ::testing::ElementsAre(HasSubstr("class 0x010802")));
  EXPECT_EQ(switches(disk(""), Model::kNccl), 1U);
  const std::string with_gpu = disk(gpu("0000:02:00.0", 0).c_str());
  EXPECT_EQ(switches(with_gpu, Model::kLoom), 1U);
  const System system = parse_system(with_gpu, "f.xml").system;
  EXPECT_EQ(parse_system(to_nccl_xml(system), "f.xml").system, system);
  EXPECT_EQ(parse_system(to_hwloc_xml(system), "f.xml").system, system);
  const auto passed_over = parse_nccl_xml(
      disk("<pci busid='0000:03:00.0' class='0x060400' link_speed='16 GT/s' link_width='4'/>"), "f.xml");
  EXPECT_EQ(passed_over.system.of_kind(NodeKind::kPciSwitch).size(), 0U);
  EXPECT_THAT(passed_over.notes, ::testing::ElementsAre(HasSubstr("neither switch, GPU nor NIC")));
}

TEST(NcclXml, ReadsSpellingsOfLinkSpeedThatNcclDoesNot) {
  const std::string text = machine(
      "<pci busid='0000:01:00.0' class='0x030200' link_speed='16.0 GT/s' link_width='16'><gpu dev='0' "
      "sm='90' rank='0' gdr='1'/></pci>");
  EXPECT_EQ(parse_nccl_xml(text, "f.xml", Model::kLoom).system.links_of(1)[0].gbps, 24);
  EXPECT_EQ(parse_nccl_xml(text, "f.xml", Model::kNccl).system.links_of(1)[0].gbps, 12);
}

TEST(NcclXml, TakesNvLinksThatOneEndNamesBothWays) {
  const auto read = parse_nccl_xml(
      machine(gpu("0000:01:00.0", 0, "<nvlink target='0000:02:00.0' count='2' tclass='0x030200'/>") +
              gpu("0000:02:00.0", 1)),
      "f.xml");
  EXPECT_THAT(read.notes,
              ::testing::ElementsAre(HasSubstr("GPU 0: It names NVLinks to GPU 1, which names none "
                                               "back. They are taken to work both ways.")));
  EXPECT_EQ(read.system.links_of(2)[0].gbps, 40);
}

TEST(NcclXml, SharesAGpuBetweenRanks) {
  const System system =
      parse_nccl_xml(
          machine("<pci busid='0000:01:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'>"
                  "<gpu dev='0' sm='80' rank='0' gdr='1'/><gpu dev='0' sm='80' rank='1' gdr='1'/></pci>"),
          "f.xml")
          .system;
  ASSERT_EQ(system.gpus().size(), 2);
  EXPECT_EQ(system.node(system.gpus()[1]).parent, system.gpus()[0]);
  EXPECT_EQ(system.links_of(system.gpus()[1])[0].type, LinkType::kLoc);
  EXPECT_EQ(parse_nccl_xml(to_nccl_xml(system), "written").system, system);
}

/// `count` copies of what `element` gives for 0, 1, ...
std::string repeated(int count, auto&& element) {
  std::string text;
  for (int i = 0; i < count; ++i) text += element(i);
  return text;
}
/// `count` NUMA nodes of a host, a line each.
std::string numa_nodes(int host, int count) {
  return repeated(count, [&](int i) {
    return loom::format("<cpu host_hash='{}' numaid='{}' affinity='1' arch='arm64'/>\n", host, i);
  });
}

struct BadFile {
  const char* name;
  std::string text;
  const char* complaint;
};
class BadNcclXml : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadNcclXml, IsRefusedWithFileLineAndElement) {
  EXPECT_THAT(complaint_about(GetParam().text), ::testing::MatchesRegex(GetParam().complaint));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadNcclXml,
    ::testing::Values(
        BadFile{"Empty", "", "f.xml:1: .*"}, BadFile{"NoXml", "hello", "f.xml:1: .*"},
        BadFile{"Truncated", "<system version='1'>\n<cpu numaid='0'",
                "f.xml:2: this is not well-formed XML.*"},
        BadFile{"Mismatched", "<system version='1'>\n<cpu></pci></system>",
                "f.xml:2: this is not well-formed.*"},
        BadFile{"OtherRoot", "<html/>", "f.xml:1: <html>: the outermost.*"},
        BadFile{"Version", "<system version='9'/>", "f.xml:1: <system>: version 9.*"},
        BadFile{"NoCpu", "<system version='1'/>", "f.xml:1: <system>: it has no <cpu>."},
        BadFile{"Misplaced", machine("<gpu dev='0' sm='80'/>"), "f.xml:3: <gpu dev=.*may stand in <pci>.*"},
        BadFile{"NicInNet", machine("<nic><net dev='0'><net dev='1'/></net></nic><net dev='4'/>"),
                "f.xml:3: <net dev=.*may stand in <nic>.*"},
        BadFile{"GpuInGpu", machine(gpu("0000:01:00.0", 0, "<gpu dev='1' sm='80' rank='1'/>")),
                "f.xml:3: <gpu dev=.*may stand in <pci>.*"},
        BadFile{"BusId", machine("<pci busid='zz' class='0x060400'/>"),
                "f.xml:3: <pci busid=.*no PCI address.*"},
        BadFile{"NegativeWidth", machine("<pci busid='0000:01:00.0' class='0x060400' link_width='-1'/>"),
                "f.xml:3: .*link_width.*\"-1\".*"},
        BadFile{"HugeCount",
                machine(gpu("0000:01:00.0", 0,
                            "<nvlink target='0000:02:00.0' count='99999999999' tclass='0x03'/>")),
                "f.xml:3: <nvlink.*count.*"},
        BadFile{"NanSpeed", machine("<nic><net dev='0' speed='nan'/></nic>"), "f.xml:3: <net.*speed.*"},
        BadFile{"InfiniteSpeed", machine("<nic><net dev='0' speed='1e400'/></nic>"),
                "f.xml:3: <net.*speed.*"},
        BadFile{"DoubleGpu", machine(gpu("0000:01:00.0", 0) + "\n" + gpu("0000:01:00.0", 1)),
                "f.xml:4: <pci busid=.*another function.*"},
        BadFile{"DoubleRank", machine(gpu("0000:01:00.0", 0) + "\n" + gpu("0000:02:00.0", 0)),
                "f.xml:4: <gpu dev=.*rank 0 already.*"},
        BadFile{"DoubleNuma",
                std::string("<system version='1'>") + kCpu + "</cpu>" + kCpu + "</cpu></system>",
                "f.xml:1: <cpu numaid=.*already.*"},
        BadFile{"ManyNumaNodes", "<system version='1'>\n" + numa_nodes(1, 300) + "</system>",
                "f.xml:258: <cpu numaid=\"256\">: this host has more than 256 NUMA nodes.*"},
        BadFile{"ManyNumaNodesInAll",
                "<system version='1'>\n" + repeated(17, [](int host) { return numa_nodes(host + 1, 256); }) +
                    "</system>",
                "f.xml:4098: <cpu numaid=\"0\">: the file has more than 4096 NUMA nodes.*"},
        BadFile{"ManyPorts",
                machine("<nic>" + repeated(40'000, [](int i) { return loom::format("<net dev='{}' speed='1'/>\n", i); }) +
                        "</nic>"),
                "f.xml:32769: <net dev=\"32766\">: the file has more than 32768 devices.*"},
        BadFile{"ManyTargets",
                machine(gpu("0000:01:00.0", 0, repeated(1025, [](int i) {
                              return loom::format("<nvlink target='{:04x}:01:00.0' count='1' tclass='0x068000'/>\n", i);
                            }))),
                "f.xml:1027: <nvlink.*more than 1024 targets.*"},
        BadFile{"NotUtf8", machine("\n<nic><net dev='0' speed='1' name='a\xff'/></nic>"),
                "f.xml:4: the text is not UTF-8."},
        BadFile{"Surrogate", machine("<nic><net dev='0' speed='1' name='a&#xD800;'/></nic>"),
                "f.xml:3: <net.*'name' holds something that is no character."},
        BadFile{"ControlCharacter", machine("<nic><net dev='0' speed='1' name='a&#7;'/></nic>"),
                "f.xml:3: <net.*'name' holds something that is no character."},
        BadFile{"Affinity", "<system version='1'><cpu numaid='0' affinity='xyz'/></system>",
                "f.xml:1: <cpu.*affinity.*"},
        BadFile{"Deep",
                [] {
                  std::string text = "<system version='1'>";
                  for (int i = 0; i < 100'000; ++i) text += "<pci>";
                  return text;
                }(),
                "f.xml:1: .*"},
        BadFile{"DeepAndClosed",
                [] {
                  std::string text;
                  for (int i = 0; i < 1000; ++i) text += "<pci>\n";
                  for (int i = 0; i < 1000; ++i) text += "</pci>";
                  return text;
                }(),
                "f.xml:257: <pci>: elements are nested.*"},
        BadFile{"ManyElements",
                [] {
                  std::string text = "<system version='1'>";
                  for (int i = 0; i < 1'000'000; ++i) text += "<a/>\n";
                  return text + "</system>";
                }(),
                "f.xml:400000: the file has more than 200000 elements.*"},
        BadFile{"ManyAttributes",
                [] {
                  std::string text = "<system version='1'";
                  for (int i = 0; i < 1000; ++i) text += " a" + std::to_string(i) + "='1'";
                  return text + "/>";
                }(),
                "f.xml:1: <system>: it has more than 64 attributes.*"},
        BadFile{"TooLarge", std::string(20U << 20, ' '), "f.xml:1: the file has 20971520 bytes.*"}),
    [](const auto& test) { return test.param.name; });

TEST(Xml, ExpandsNoEntities) {
  const std::string bomb =
      R"(<!DOCTYPE system [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY f SYSTEM "file:///etc/passwd">]>
<system version="1"><cpu numaid="0" affinity="" arch="&b;" vendor="&f;"/></system>)";
  const System system = parse_system(bomb, "f.xml").system;
  EXPECT_EQ(system.node(0).cpu().arch, "&b;");
  EXPECT_EQ(system.node(0).cpu().vendor, "&f;");
}

TEST(Xml, KeepsCharactersWhole) {
  // 60 characters of two bytes each: a message that cut at bytes would cut one in half.
  std::string long_id;
  for (int i = 0; i < 70; ++i) long_id += "\xc3\xa9";
  const std::string told = complaint_about(machine("<pci busid='x" + long_id + "'/>"));
  EXPECT_EQ(valid_utf8(told), told);
  EXPECT_THAT(told, HasSubstr("\xc3\xa9...\""));
  const System system =
      parse_system(machine("<nic><net dev='0' speed='1' name='\xc3\xa9'/></nic>"), "f.xml").system;
  EXPECT_EQ(parse_system(to_hwloc_xml(system), "f.xml").system, system);
}

TEST(File, IsRefusedWithItsNameWhereItCannotBeRead) {
  for (const char* path : {"/nowhere/machine.xml", "/"}) {
    try {
      read_system(path);
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), StartsWith(path));
    }
  }
}

}  // namespace
}  // namespace loom::topo
