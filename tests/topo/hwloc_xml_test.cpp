#include "topo/hwloc_xml.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <hwloc.h>

#include "test_data.hpp"
#include "topo/check.hpp"
#include "topo/paths.hpp"

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
  EXPECT_THAT(read.notes, ::testing::Contains(HasSubstr("the speed of mlx5_0 is not known")));
}

TEST(HwlocXml, ThatIsWrittenIsReadByHwlocToo) {
  for (const char* name : {"dgx1v.xml", "dgxa100.xml", "dgxh100.xml", "pcie-2socket.xml", "gh200.xml"}) {
    SCOPED_TRACE(name);
    const System system = read_system(data_file(name)).system;
    const std::string xml = to_hwloc_xml(system);
    hwloc_topology_t topology = nullptr;
    ASSERT_EQ(hwloc_topology_init(&topology), 0);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    ASSERT_EQ(hwloc_topology_set_xmlbuffer(topology, xml.c_str(), static_cast<int>(xml.size()) + 1), 0);
    ASSERT_EQ(hwloc_topology_load(topology), 0);
    EXPECT_EQ(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE),
              static_cast<int>(system.of_kind(NodeKind::kCpu).size()));
    const int devices = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PCI_DEVICE);
    EXPECT_EQ(devices, static_cast<int>(system.of_kind(NodeKind::kGpu).size() +
                                        system.of_kind(NodeKind::kNic).size()));
    hwloc_topology_destroy(topology);
  }
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
    text += fmt::format("<object type='NUMANode' os_index='{}' cpuset='0x{:x}'/>\n", i, i + 1);
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
