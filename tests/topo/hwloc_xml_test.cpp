#include "topo/hwloc_xml.hpp"

#include <gmock/gmock.h>
#include <hwloc.h>

#include <memory>

#include "base/format.hpp"
#include "test_data.hpp"
#include "topo/check.hpp"
#include "topo/nccl_xml.hpp"
#include "topo/paths.hpp"
#include "topo/xml_file.hpp"

namespace loom::topo {
namespace {

using ::testing::HasSubstr;

TEST(HwlocXml, ReadsWhatLstopoWrites) {
  const auto read = read_system(data_file("lstopo-2gpu.xml"));
  const System& system = read.system;
  EXPECT_TRUE(check(system).empty());
  ASSERT_EQ(system.of_kind(NodeKind::kCpu).size(), 2);
  EXPECT_EQ(system.node(system.of_kind(NodeKind::kCpu)[0]).cpu().model, 106);
  ASSERT_EQ(system.of_kind(NodeKind::kPciSwitch).size(), 1);  // not root ports, not downstream ports
  EXPECT_EQ(system.node(system.of_kind(NodeKind::kPciSwitch)[0]).pci->bus_id.to_string(), "0000:11:00.0");
  ASSERT_EQ(system.gpus().size(), 2);
  EXPECT_EQ(system.node(system.gpus()[0]).gpu().compute_capability, 86);
  ASSERT_EQ(system.of_kind(NodeKind::kNet).size(), 1);  // one port, though it has two names
  EXPECT_EQ(system.node(system.of_kind(NodeKind::kNet)[0]).net().name, "mlx5_0");
  EXPECT_EQ(system.node(system.of_kind(NodeKind::kNet)[0]).net().guid, 0xb8599f0300a86b42);
  const Paths paths(system);
  EXPECT_EQ(paths.between(system.gpus()[0], system.gpus()[1]),
            (Path{PathType::kNvl, 48, 1}));  // four links of 12 GB/s
  EXPECT_EQ(paths.physical(system.gpus()[0], system.of_kind(NodeKind::kCpu)[0]).gbps, 24);
  EXPECT_THAT(read.notes,
              ::testing::Contains(HasSubstr("mlx5_0: Its speed is not known. 10 Gbit/s is assumed")));
}

using HwlocTopology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

/// What hwloc makes of `xml`, with all its devices; null where it refuses it.
HwlocTopology in_hwloc(const std::string& xml) {
  hwloc_topology_t topology = nullptr;
  EXPECT_EQ(hwloc_topology_init(&topology), 0);
  HwlocTopology owner(topology, &hwloc_topology_destroy);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_set_xmlbuffer(topology, xml.c_str(), static_cast<int>(xml.size()) + 1) != 0 ||
      hwloc_topology_load(topology) != 0)
    owner.reset();
  return owner;
}

TEST(HwlocXml, OfTheseTestsIsTrueToHwloc) {
  const HwlocTopology topology = in_hwloc(read_text_file(data_file("lstopo-2gpu.xml")));
  ASSERT_TRUE(topology);
  EXPECT_EQ(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE), 2);
  EXPECT_EQ(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PCI_DEVICE), 3);
  unsigned count = 1;
  hwloc_distances_s* matrix = nullptr;
  ASSERT_EQ(hwloc_distances_get_by_name(topology.get(), "NVLinkBandwidth", &count, &matrix, 0), 0);
  ASSERT_EQ(count, 1);
  EXPECT_EQ(matrix->nbobjs, 2);
  EXPECT_EQ(matrix->values[1], 100'000);
  hwloc_distances_release(topology.get(), matrix);
  // What hwloc writes of it again reads the same.
  char* text = nullptr;
  int length = 0;
  ASSERT_EQ(hwloc_topology_export_xmlbuffer(topology.get(), &text, &length, 0), 0);
  EXPECT_EQ(parse_system(text, "exported").system, read_system(data_file("lstopo-2gpu.xml")).system);
  hwloc_free_xmlbuffer(topology.get(), text);
}

TEST(HwlocXml, ThatIsWrittenIsReadByHwlocToo) {
  for (const char* name : {"dgx1v.xml", "dgxa100.xml", "dgxh100.xml", "pcie-2socket.xml", "gh200.xml"}) {
    SCOPED_TRACE(name);
    const System system = read_system(data_file(name)).system;
    const std::string xml = to_hwloc_xml(system);
    const HwlocTopology topology = in_hwloc(xml);
    ASSERT_TRUE(topology);
    EXPECT_EQ(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE),
              static_cast<int>(system.of_kind(NodeKind::kCpu).size()));
    const int devices = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PCI_DEVICE);
    EXPECT_EQ(devices, static_cast<int>(system.of_kind(NodeKind::kGpu).size() +
                                        system.of_kind(NodeKind::kNic).size()));
  }
}

/// lstopo-2gpu.xml with other text in place of some of its own.
std::string two_gpus_with(const std::string& old, const std::string& now) {
  std::string text = read_text_file(data_file("lstopo-2gpu.xml"));
  EXPECT_NE(text.find(old), std::string::npos) << old;
  return text.replace(text.find(old), old.size(), now);
}

/// The rows of the first GPU where the matrix is of it and the object with index 99, which stands in the
/// first package.
std::vector<NvLinks> rows_to(const std::string& object, std::vector<std::string>& notes) {
  std::string text = two_gpus_with("<indexes length=\"5\">14 17", "<indexes>14 99");
  const std::string before = "<object type=\"PU\" os_index=\"0\"";
  text.insert(text.find(before), object);
  SystemWithNotes read = parse_system(text, "f.xml");
  notes = std::move(read.notes);
  return read.system.node(read.system.gpus()[0]).gpu().nvlinks;
}

TEST(HwlocXml, TellsWhatNvLinksLeadTo) {
  std::vector<std::string> notes;
  const std::string nvswitch =
      "<object type='PCIDev' gp_index='99' pci_busid='0000:05:00.0' pci_type='0680 [10de:1af1] [10de:1796] "
      "a1'/>";
  EXPECT_THAT(rows_to(nvswitch, notes),
              ::testing::ElementsAre(NvLinks{*BusId::parse("0000:05:00.0"), 4, 0x068000, true}));
  // POWER9: hwloc names the CPU by its package or NUMA node.
  for (const char* type : {"Package", "NUMANode"}) {
    const std::string cpu =
        loom::format("<object type='{}' os_index='7' gp_index='99' cpuset='0x0' nodeset='0x0'/>", type);
    EXPECT_THAT(rows_to(cpu, notes), ::testing::ElementsAre(NvLinks{BusId{}, 4, 0x068001, false})) << type;
  }
  const std::string disk =
      "<object type='PCIDev' gp_index='99' pci_busid='0000:05:00.0' pci_type='0108 [144d:a808] [144d:a801] "
      "00'/>";
  EXPECT_THAT(rows_to(disk, notes), ::testing::IsEmpty());
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("NVLinks to object 99")));
  EXPECT_THAT(rows_to("", notes), ::testing::IsEmpty());
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("NVLinks to object 99")));
}

TEST(HwlocXml, TakesAGuidOfZeroForNone) {
  const auto guid = [](const std::string& text) {
    const System system = parse_system(text, "f.xml").system;
    return system.node(system.of_kind(NodeKind::kNet)[0]).net().guid;
  };
  EXPECT_EQ(guid(two_gpus_with("b859:9f03:00a8:6b42", "0000:0000:0000:0000")), std::nullopt);
  EXPECT_EQ(guid(two_gpus_with("b859:9f03:00a8:6b42", "0000:0000:0000:0001")), 1);
}

/// NCCL's XML has no NICs below a bridge that are no PCI functions.
TEST(HwlocXml, HangsAPortRightBelowABridgeAtTheNumaNode) {
  const System system = parse_system(
                            R"(<topology version="2.0"><object type="Machine" cpuset="0x1" nodeset="0x1">
      <object type="NUMANode" os_index="0" cpuset="0x1" nodeset="0x1"/>
      <object type="Bridge" bridge_type="1-1" pci_busid="0000:11:00.0" pci_type="0604 [1000:c010] [1000:a000] b0">
        <info name="loom.class" value="0x060400"/>
        <object type="OSDev" name="port" osdev_type="3"><info name="loom.dev" value="0"/></object>
      </object></object></topology>)",
                            "f.xml")
                            .system;
  ASSERT_EQ(system.of_kind(NodeKind::kPciSwitch).size(), 1);
  const NodeId nic = system.node(system.of_kind(NodeKind::kNet)[0]).parent;
  EXPECT_EQ(system.node(system.node(nic).parent).kind(), NodeKind::kCpu);
  EXPECT_TRUE(parse_system(to_nccl_xml(system), "nccl").system == system);
}

TEST(HwlocXml, SaysThatHwlocTakesFastGpuLinksForTheThirdGeneration) {
  const auto read = parse_system(two_gpus_with("[10de:145a] a1\" pci_link_speed=\"31.507692\"",
                                               "[10de:145a] a1\" pci_link_speed=\"15.753846\""),
                                 "f.xml");
  EXPECT_THAT(read.notes, ::testing::Contains(HasSubstr("8 GT/s of all faster")));
}

class BadHwlocXml : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};
TEST_P(BadHwlocXml, IsRefusedWithFileLineAndElement) {
  const auto [inside, complaint] = GetParam();
  const std::string text =
      std::string(
          "<topology version='2.0'>\n<object type='Machine' cpuset='0x3' nodeset='0x1'>\n"
          "<object type='NUMANode' os_index='0' cpuset='0x3' nodeset='0x1'/>\n") +
      inside + "</object></topology>";
  EXPECT_THAT(complaint_about(text), ::testing::MatchesRegex(complaint));
}
INSTANTIATE_TEST_SUITE_P(
    Files, BadHwlocXml,
    ::testing::Values(
        std::pair("<object type='PCIDev' pci_busid='0' pci_type='0302 [10de:2235] [10de:145a] a1'/>",
                  "f.xml:4: <object.*no PCI address.*"),
        std::pair("<object type='PCIDev' pci_busid='0000:01:00.0' pci_type='GPU'/>",
                  "f.xml:4: <object.*pci_type.*"),
        std::pair("<object type='PCIDev' pci_busid='0000:01:00.0' pci_type='0302 [10de:2235] [10de:145a] a1' "
                  "pci_link_speed='-3'/>",
                  "f.xml:4: <object.*pci_link_speed.*"),
        std::pair("<object type='NUMANode' os_index='-1' cpuset='0x4'/>", "f.xml:4: <object.*os_index.*"),
        std::pair("<object type='NUMANode' os_index='0' cpuset='0x4'/>",
                  "f.xml:4: <object.*another NUMA node.*"),
        std::pair("<object type='OSDev' osdev_type='5'><info name='loom.sm' value='90'/></object>",
                  "f.xml:4: <object.*stands in a PCIDev.*"),
        std::pair("<object type='OSDev' osdev_type='5'><info name='loom.cpu_count' value='0'/></object>",
                  "f.xml:4: <info.*value.*"),
        std::pair("<object type='PCIDev'", "f.xml:4: this is not well-formed.*")),
    [](const auto& test) { return "Case" + std::to_string(test.index); });

TEST(HwlocXml, RefusesMoreNumaNodesThanAMachineHas) {
  std::string text = "<topology version='2.0'><object type='Machine'>\n";
  for (int i = 0; i < 300; ++i)
    text += loom::format("<object type='NUMANode' os_index='{}' cpuset='0x{:x}'/>\n", i, i + 1);
  EXPECT_THAT(complaint_about(text + "</object></topology>"),
              HasSubstr("f.xml:258: <object type=\"NUMANode\">: this host has more than 256 NUMA nodes"));
}

TEST(HwlocXml, RefusesAMatrixOfTheWrongSize) {
  EXPECT_THAT(complaint_about("<topology version='2.0'><object type='Machine'/>\n<distances2 "
                              "name='NVLinkBandwidth'><indexes>1 2</indexes>"
                              "<u64values>1 2 3</u64values></distances2></topology>"),
              HasSubstr("f.xml:2: <distances2 name=\"NVLinkBandwidth\">: it has 3 values for 2 objects"));
}

}  // namespace
}  // namespace loom::topo
