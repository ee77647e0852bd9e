#include "topo/live_sources.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "test_data.hpp"
#include "topo/check.hpp"
#include "topo/discover.hpp"
#include "topo/xml_file.hpp"

namespace loom::topo {
namespace {

using ::testing::ElementsAre;

Draft two_gpus() {
  return draft_from_hwloc_xml(read_text_file(data_file("lstopo-2gpu.xml")), "lstopo-2gpu.xml");
}

std::vector<GpuInfo> gpus_of(const Draft& draft) {
  std::vector<GpuInfo> gpus;
  for (const Node& node : draft.nodes)
    if (node.kind() == NodeKind::kGpu) gpus.push_back(node.gpu());
  return gpus;
}

TEST(Nvml, TellsNvLinksAndC2c) {
  Draft draft = two_gpus();
  add_from_nvml(draft, LOOM_FAKE_NVIDIA);
  const auto gpus = gpus_of(draft);
  EXPECT_EQ(gpus[1].device, 1);
  EXPECT_EQ(gpus[0].compute_capability, 90);
  const NvLinks peer{*BusId::parse("0000:14:00.0"), 4, 0x030200, true}, hidden{{}, 14, 0x068000, false};
  EXPECT_THAT(gpus[0].nvlinks, ElementsAre(peer, hidden));
  EXPECT_THAT(gpus[0].c2c, ElementsAre(C2cLinks{44712, 10}));
  assume_speeds(draft, "test");
  const System system = build(std::move(draft), Model::kLoom).system;
  EXPECT_TRUE(check(system).empty());
  EXPECT_EQ(system.of_kind(NodeKind::kNvSwitch).size(), 1);
}

TEST(Cuda, TellsCapabilityAndWhoMayNotAccessWhom) {
  Draft draft = two_gpus();
  add_from_cuda(draft, LOOM_FAKE_NVIDIA);
  const auto gpus = gpus_of(draft);
  EXPECT_EQ(gpus[0].compute_capability, 90);
  EXPECT_TRUE(gpus[0].gpu_direct);
  EXPECT_THAT(gpus[0].p2p_denied, ElementsAre(1));
  EXPECT_THAT(gpus[1].p2p_denied, ElementsAre());
}

TEST(LiveSources, ThatAreAbsentChangeNothing) {
  Draft draft = two_gpus();
  add_from_nvml(draft, "libno-such-thing.so.1");
  add_from_cuda(draft, "libno-such-thing.so.1");
  add_from_sysfs(draft, "/no/such/folder");
  EXPECT_EQ(draft.nodes, two_gpus().nodes);
}

TEST(Sysfs, TellsWhatLinksAndPortsCanDo) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / "loom-sysfs";
  std::filesystem::remove_all(root);
  const auto put = [&](const std::filesystem::path& path, const char* line) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << line << "\n";
  };
  const auto device = [&](const char* bus_id, const char* above, const char* speed, const char* width) {
    put(std::filesystem::path("devices") / above / bus_id / "max_link_speed", speed);
    put(std::filesystem::path("devices") / above / bus_id / "max_link_width", width);
    std::filesystem::create_directories(root / "bus/pci/devices");
    std::filesystem::create_directory_symlink(root / "devices" / above / bus_id,
                                              root / "bus/pci/devices" / bus_id);
  };
  put("devices/port/max_link_speed", "16.0 GT/s PCIe");
  put("devices/port/max_link_width", "8");
  device("0000:13:00.0", "port", "32.0 GT/s PCIe", "16");    // a faster device in a slower port
  device("0000:14:00.0", "other", "16.0 GT/s PCIe", "255");  // as virtual machines have it
  put("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  Draft draft = two_gpus();
  const std::vector<Node> before = draft.nodes;
  add_from_sysfs(draft, root);
  for (std::size_t i = 0; i < draft.nodes.size(); ++i) {
    const Node& node = draft.nodes[i];
    if (node.pci && node.pci->bus_id.bus == 0x13) {
      EXPECT_EQ(node.pci->link_speed, "16.0 GT/s PCIe");
      EXPECT_EQ(node.pci->link_width, 8);
    }
    if (node.pci && node.pci->bus_id.bus == 0x14) {
      EXPECT_EQ(node.pci, before[i].pci);
    }
    if (node.kind() == NodeKind::kNet) {
      EXPECT_EQ(node.net().speed_mbps, 400'000);
    }
  }
  std::filesystem::remove_all(root);
}

TEST(Ucx, FillsInWhatSysfsDoesNotTellAndNamesPortsThatItCannotUse) {
  Draft draft = two_gpus();
  draft.notes.clear();
  std::vector<NetInfo*> ports;
  for (Node& node : draft.nodes)
    if (auto* net = std::get_if<NetInfo>(&node.info)) ports.push_back(net);
  ASSERT_EQ(ports.size(), 1);
  ports[0]->name = "rdmap0", ports[0]->port = 1, ports[0]->speed_mbps = 0, ports[0]->latency_us = 0;
  ports[0]->gpu_direct = false;

  add_from_ucx(draft, {});
  EXPECT_EQ(ports[0]->speed_mbps, 0);
  EXPECT_TRUE(draft.notes.empty());

  const UcxPort port{.name = "rdmap0", .port = 1, .speed_mbps = 100'000, .latency_us = 1.5, .gpu_direct = true};
  add_from_ucx(draft, {port});
  EXPECT_EQ(ports[0]->speed_mbps, 100'000);
  EXPECT_EQ(ports[0]->latency_us, 1.5);
  EXPECT_TRUE(ports[0]->gpu_direct);

  UcxPort other = port;
  other.port = 2, other.speed_mbps = 1;
  add_from_ucx(draft, {other});
  EXPECT_EQ(ports[0]->speed_mbps, 100'000);
  EXPECT_FALSE(ports[0]->gpu_direct);
  ASSERT_EQ(draft.notes.size(), 1);
  EXPECT_NE(draft.notes[0].find("no transport over rdmap0"), std::string::npos);
}

TEST(Discovery, GivesASoundSystemOfThisMachine) {
  const SystemWithNotes live = discover();
  EXPECT_TRUE(check(live.system).empty());
  EXPECT_GE(live.system.of_kind(NodeKind::kCpu).size(), 1);
  EXPECT_EQ(parse_system(to_hwloc_xml(live.system), "written").system, live.system);
  EXPECT_EQ(parse_system(to_nccl_xml(live.system), "written").system, live.system);
}

}  // namespace
}  // namespace loom::topo
