#include "topo/live_sources.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/format.hpp"
#include "test_data.hpp"
#include "topo/check.hpp"
#include "topo/discover.hpp"
#include "topo/nvlink_peers.hpp"
#include "topo/xml_file.hpp"

namespace loom::topo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Draft two_gpus() {
  return draft_from_hwloc_xml(read_text_file(data_file("lstopo-2gpu.xml")), "lstopo-2gpu.xml");
}

std::vector<GpuInfo> gpus_of(const Draft& draft) {
  std::vector<GpuInfo> gpus;
  for (const Node& node : draft.nodes)
    if (node.kind() == NodeKind::kGpu) gpus.push_back(node.gpu());
  return gpus;
}

/// Sets a variable of the environment while it lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Environment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Nvml, TellsNvLinksAndC2c) {
  const Environment machine("VIRTUAL_GPU_MACHINE", LOOM_TWO_H100);
  Draft draft = two_gpus();
  add_from_nvml(draft, LOOM_VIRTUAL_NVML);
  const auto gpus = gpus_of(draft);
  EXPECT_EQ(gpus[1].device, 1);
  EXPECT_EQ(gpus[0].compute_capability, 90);
  const NvLinks peer{*BusId::parse("0000:14:00.0"), 4, 0x030200, true}, hidden{{}, 14, 0x068000, false};
  EXPECT_THAT(gpus[0].nvlinks, ElementsAre(peer, hidden));
  EXPECT_THAT(gpus[0].c2c, ElementsAre(C2cLinks{44712, 9}));
  const System system = build(std::move(draft), Model::kLoom).system;
  EXPECT_TRUE(check(system).empty());
  EXPECT_EQ(system.of_kind(NodeKind::kNvSwitch).size(), 1);
}

TEST(Nvml, TellsWhoMayNotAccessWhom) {
  Draft draft = two_gpus();
  {
    const Environment machine("VIRTUAL_GPU_MACHINE", LOOM_TWO_H100);
    add_from_nvml(draft, LOOM_VIRTUAL_NVML);
  }
  EXPECT_THAT(gpus_of(draft)[0].p2p_denied, ElementsAre());
  // Without NVLinks and on two sockets of a kind that passes nothing on.
  const std::string path = ::testing::TempDir() + "loom-denied-" + std::to_string(getpid()) + ".xml";
  const auto cpu = [](int numa, const char* bus_id, int device) {
    return loom::format(
        "<cpu numaid='{}' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='79'><pci busid='{}' "
        "class='0x030200' vendor='0x10de' device='0x2330'><gpu dev='{}' sm='90'/></pci></cpu>",
        numa, bus_id, device);
  };
  write_text_file(
      path, "<system version='1'>" + cpu(0, "0000:13:00.0", 0) + cpu(1, "0000:14:00.0", 1) + "</system>");
  const Environment machine("VIRTUAL_GPU_MACHINE", path.c_str());
  add_from_nvml(draft, LOOM_VIRTUAL_NVML);
  std::filesystem::remove(path);
  EXPECT_THAT(gpus_of(draft)[0].p2p_denied, ElementsAre(1));
  EXPECT_THAT(gpus_of(draft)[1].p2p_denied, ElementsAre(0));
}

TEST(NvlinkPeers, AreThoseThatNvmlNames) {
  const std::string one = "0000:13:00.0", two = "0000:14:00.0";
  const auto reaches = [&](const std::string& from, const std::vector<std::string>& others) {
    return reaches_all_by_nvlink(from, others, LOOM_VIRTUAL_NVML);
  };
  {
    const Environment machine("VIRTUAL_GPU_MACHINE", LOOM_TWO_H100);
    EXPECT_TRUE(reaches(one, {two}));
    EXPECT_TRUE(reaches(two, {one}));
    EXPECT_FALSE(reaches(one, {two, "0000:15:00.0"})) << "there is none";
    EXPECT_FALSE(reaches(one, {"?"}));
    EXPECT_FALSE(reaches_all_by_nvlink(one, std::vector{two}, "/no/such/library"));
    const Environment silent("VIRTUAL_GPU_FAIL", "nvmlDeviceGetP2PStatus:0:3");  // not supported
    EXPECT_FALSE(reaches(one, {two}));
  }
  const Environment machine("VIRTUAL_GPU_MACHINE", LOOM_TEST_DATA "/pcie-2socket.xml");
  EXPECT_FALSE(reaches("0000:10:00.0", {"0000:12:00.0"}));
}

TEST(Cuda, TellsCapabilityAndWhoMayNotAccessWhom) {
  Draft draft = two_gpus();
  add_from_cuda(draft, LOOM_FAKE_NVIDIA, true);
  const auto gpus = gpus_of(draft);
  EXPECT_EQ(gpus[0].compute_capability, 90);
  EXPECT_TRUE(gpus[0].gpu_direct);
  EXPECT_THAT(gpus[0].p2p_denied, ElementsAre(1));
  EXPECT_THAT(gpus[1].p2p_denied, ElementsAre());
}

TEST(Nvml, ThatFailsOrHidesGpusSaysThatNvLinksAreNotKnown) {
  const Environment machine("VIRTUAL_GPU_MACHINE", LOOM_TWO_H100);
  Draft draft = two_gpus();
  draft.notes.clear();
  {
    const Environment failing("VIRTUAL_GPU_FAIL", "nvmlInit:0:18");
    add_from_nvml(draft, LOOM_VIRTUAL_NVML);
  }
  EXPECT_EQ(draft.nodes, two_gpus().nodes);
  EXPECT_THAT(draft.notes,
              ElementsAre(HasSubstr("NVML fails with error 18: NVLinks and C2C links of 2 GPUs")));
  draft.notes.clear();
  const Environment one("VIRTUAL_GPU_FAIL", "nvmlDeviceGetHandleByPciBusId:1:6");  // not found
  EXPECT_THAT(add_from_nvml(draft, LOOM_VIRTUAL_NVML), ElementsAre(*BusId::parse("0000:14:00.0")));
  EXPECT_THAT(draft.notes, ElementsAre(HasSubstr("NVLinks and C2C links of 1 GPUs")));
}

/// Whatever was initialised by other tests: the library is loaded anew once nobody has it.
TEST(Cuda, IsNotInitialisedForProgramsThatDoNot) {
  const std::string copy = ::testing::TempDir() + "/libfake_cuda_" + std::to_string(::getpid()) + ".so";
  std::filesystem::copy_file(LOOM_FAKE_NVIDIA, copy, std::filesystem::copy_options::overwrite_existing);
  const auto expect_unknown = [&] {
    Draft draft = two_gpus();
    draft.notes.clear();
    add_from_cuda(draft, copy, false);
    EXPECT_EQ(draft.nodes, two_gpus().nodes);
    EXPECT_THAT(draft.notes,
                ElementsAre(HasSubstr("The program has not initialised CUDA: whether programs")));
  };
  expect_unknown();
  EXPECT_EQ(::dlopen(copy.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr) << "it is loaded";
  void* const library = ::dlopen(copy.c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr);
  expect_unknown();
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(library, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDeviceGetCount"));
  int devices = 0;
  EXPECT_EQ(count(&devices), 3) << "it is initialised";
  ASSERT_EQ(init(0), 0);
  Draft draft = two_gpus();
  add_from_cuda(draft, copy, false);
  EXPECT_EQ(gpus_of(draft)[0].compute_capability, 90);
  ::dlclose(library);
  std::filesystem::remove(copy);
}

TEST(Cuda, ThatFailsSaysWhatIsNotKnown) {
  Draft draft = two_gpus();
  draft.notes.clear();
  const Environment failing("LOOM_FAKE_CUDA_ERROR", "803");
  add_from_cuda(draft, LOOM_FAKE_NVIDIA, true);
  EXPECT_EQ(draft.nodes, two_gpus().nodes);
  EXPECT_THAT(draft.notes, ElementsAre(HasSubstr("error 803: whether programs can use the 2 NVIDIA GPUs")));
}

TEST(Cuda, TakesRanksFromGpusThatItDoesNotList) {
  Draft draft = two_gpus();
  draft.notes.clear();
  const Environment one("LOOM_FAKE_GPUS", "1");
  add_from_cuda(draft, LOOM_FAKE_NVIDIA, true);
  EXPECT_EQ(gpus_of(draft)[0].rank, 0);
  EXPECT_EQ(gpus_of(draft)[1].rank, kNoRank);
  EXPECT_THAT(draft.notes, ElementsAre(HasSubstr("CUDA lists 1 GPUs; 1 more")));
}

TEST(LiveSources, SayNothingWhereThereIsNothingToKnow) {
  Draft draft = two_gpus();
  std::vector<bool> is_gpu;
  for (const Node& node : draft.nodes) is_gpu.push_back(node.kind() == NodeKind::kGpu);
  erase_leaves(draft, is_gpu);
  draft.notes.clear();
  add_from_nvml(draft, "libno-such-thing.so.1");
  add_from_cuda(draft, "libno-such-thing.so.1", true);
  add_from_ucx(draft, {});
  EXPECT_THAT(draft.notes, ElementsAre());
}

TEST(LiveSources, ThatAreAbsentChangeNothingAndSaySo) {
  Draft draft = two_gpus();
  draft.notes.clear();
  add_from_nvml(draft, "libno-such-thing.so.1");
  add_from_cuda(draft, "libno-such-thing.so.1", true);
  add_from_sysfs(draft, "/no/such/folder");
  EXPECT_EQ(draft.nodes, two_gpus().nodes);
  EXPECT_THAT(draft.notes, ElementsAre(HasSubstr("libno-such-thing.so.1 is not there: NVLinks"),
                                       HasSubstr("libno-such-thing.so.1 is not there: whether programs")));
}

/// A folder that looks like /sys, gone again with the object.
class FakeSysfs {
 public:
  FakeSysfs() { std::filesystem::remove_all(root_); }
  ~FakeSysfs() { std::filesystem::remove_all(root_); }
  void put(const std::filesystem::path& path, const char* line) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << line << "\n";
  }
  void device(const char* bus_id, const char* above, const char* speed, const char* width) const {
    put(std::filesystem::path("devices") / above / bus_id / "max_link_speed", speed);
    put(std::filesystem::path("devices") / above / bus_id / "max_link_width", width);
    std::filesystem::create_directories(root_ / "bus/pci/devices");
    std::filesystem::create_directory_symlink(root_ / "devices" / above / bus_id,
                                              root_ / "bus/pci/devices" / bus_id);
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) / ("loom-sysfs-" + std::to_string(getpid()));
};

/// Of the GPU at this address: the label of what it hangs on.
std::string above(const System& system, const char* bus_id) {
  for (const NodeId gpu : system.of_kind(NodeKind::kGpu))
    if (system.node(gpu).pci->bus_id == BusId::parse(bus_id)) return label(system, system.node(gpu).parent);
  return "nothing";
}

TEST(MissingGpus, ArePutWhereSysfsKnowsThem) {
  const FakeSysfs sysfs;
  Draft draft = draft_from_hwloc_xml(read_text_file(data_file("lstopo-2gpu.xml")), "lstopo-2gpu.xml");
  const auto pci_switch = std::find_if(draft.nodes.begin(), draft.nodes.end(),
                                       [](const Node& node) { return node.kind() == NodeKind::kPciSwitch; });
  ASSERT_NE(pci_switch, draft.nodes.end());
  const std::string switch_id = pci_switch->pci->bus_id.to_string();
  // Below a bridge that hwloc leaves out, below a switch that it has.
  sysfs.device("0000:aa:00.0", ("pci0000:00/" + switch_id + "/0000:a0:00.0").c_str(), "16.0 GT/s PCIe", "8");
  sysfs.device("0000:bb:00.0", "pci0000:80", "16.0 GT/s PCIe", "16");
  sysfs.put("bus/pci/devices/0000:bb:00.0/numa_node", "0");
  draft.notes.clear();
  const std::vector ids{*BusId::parse("0000:aa:00.0"), *BusId::parse("0000:bb:00.0"),
                        *BusId::parse("0000:cc:00.0"), *BusId::parse("0000:13:00.0")};
  add_missing_gpus(draft, ids, sysfs.root());
  add_from_sysfs(draft, sysfs.root());
  EXPECT_THAT(draft.notes, ElementsAre(HasSubstr("Where GPU 0000:cc:00.0 is on this machine is not known")));
  const System system = build(std::move(draft), Model::kLoom).system;
  EXPECT_TRUE(check(system).empty());
  EXPECT_EQ(system.of_kind(NodeKind::kGpu).size(), 5);
  EXPECT_EQ(above(system, "0000:aa:00.0"), "switch " + switch_id);
  EXPECT_EQ(above(system, "0000:bb:00.0"), "NUMA 0");
  EXPECT_EQ(above(system, "0000:cc:00.0"), "NUMA 0");
}

std::vector<NetInfo> ports_of(const Draft& draft) {
  std::vector<NetInfo> ports;
  for (const Node& node : draft.nodes)
    if (node.kind() == NodeKind::kNet) ports.push_back(node.net());
  return ports;
}

TEST(Sysfs, TellsWhatLinksAndPortsCanDo) {
  const FakeSysfs sysfs;
  sysfs.put("devices/port/max_link_speed", "16.0 GT/s PCIe");
  sysfs.put("devices/port/max_link_width", "8");
  sysfs.device("0000:13:00.0", "port", "32.0 GT/s PCIe", "16");    // a faster device in a slower port
  sysfs.device("0000:14:00.0", "other", "16.0 GT/s PCIe", "255");  // as virtual machines have it
  sysfs.put("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  Draft draft = two_gpus();
  const std::vector<Node> before = draft.nodes;
  add_from_sysfs(draft, sysfs.root());
  ASSERT_EQ(draft.nodes.size(), before.size());
  int seen = 0;
  for (std::size_t i = 0; i < draft.nodes.size(); ++i) {
    const Node& node = draft.nodes[i];
    if (node.pci && node.pci->bus_id.bus == 0x13) {
      ++seen;
      EXPECT_EQ(node.pci->link_speed, "16.0 GT/s PCIe");
      EXPECT_EQ(node.pci->link_width, 8);
    }
    if (node.pci && node.pci->bus_id.bus == 0x14) {
      ++seen;
      EXPECT_EQ(node.pci, before[i].pci);
    }
  }
  EXPECT_EQ(seen, 2);
  ASSERT_EQ(ports_of(draft).size(), 1);
  EXPECT_EQ(ports_of(draft)[0].speed_mbps, 400'000);
}

TEST(Sysfs, TellsWhichFabricAPortIsOf) {
  const FakeSysfs sysfs;
  const auto fabric = [&](const char* name, int port) {
    return fabric_of({.name = name, .port = port}, sysfs.root());
  };
  sysfs.put("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand");
  sysfs.put("class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0001:b859:9f03:00f7:1234");
  sysfs.put("class/infiniband/mlx5_0/ports/2/link_layer", "Ethernet");
  EXPECT_EQ(fabric("mlx5_0", 1), "InfiniBand fe80:0000:0000:0001");
  EXPECT_EQ(fabric("mlx5_0", 2), "Ethernet");
  EXPECT_EQ(fabric("eth0", 0), "");
}

TEST(Sysfs, TellsWhichPortsAreUp) {
  const FakeSysfs sysfs;
  sysfs.put("class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)");
  sysfs.put("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  sysfs.put("class/infiniband/mlx5_0/ports/2/rate", "100 Gb/sec (4X EDR)");
  sysfs.put("class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE");
  sysfs.put("class/infiniband/mlx5_0/ports/3/state", "1: DOWN");
  Draft draft = two_gpus();
  draft.notes.clear();
  add_from_sysfs(draft, sysfs.root());
  const auto ports = ports_of(draft);
  ASSERT_EQ(ports.size(), 2);
  EXPECT_EQ(ports[0].port, 1);
  EXPECT_EQ(ports[1].port, 2);
  EXPECT_EQ(ports[1].device, 1);
  EXPECT_EQ(ports[1].speed_mbps, 100'000);
  EXPECT_EQ(ports[1].guid, ports[0].guid);
  EXPECT_THAT(draft.notes, ElementsAre("mlx5_0 port 3 is left out: it is DOWN."));
  EXPECT_TRUE(check(build(draft, Model::kLoom).system).empty());

  for (const char* port : {"1", "2"})
    sysfs.put(std::filesystem::path("class/infiniband/mlx5_0/ports") / port / "state", "1: DOWN");
  draft = two_gpus();
  add_from_sysfs(draft, sysfs.root());
  EXPECT_TRUE(ports_of(draft).empty());
  EXPECT_TRUE(check(build(draft, Model::kLoom).system).empty());
}

TEST(Sysfs, LeavesOutInterfacesThatAreDown) {
  const FakeSysfs sysfs;
  Draft draft = two_gpus();
  for (Node& node : draft.nodes)
    if (auto* net = std::get_if<NetInfo>(&node.info)) net->name = "eth0", net->port = 0;
  sysfs.put("class/net/eth0/operstate", "unknown");
  sysfs.put("class/net/eth0/speed", "25000");
  add_from_sysfs(draft, sysfs.root());
  ASSERT_EQ(ports_of(draft).size(), 1);
  EXPECT_EQ(ports_of(draft)[0].speed_mbps, 25'000);
  sysfs.put("class/net/eth0/operstate", "down");
  add_from_sysfs(draft, sysfs.root());
  EXPECT_TRUE(ports_of(draft).empty());
}

TEST(Sysfs, TakesAGuidOfZeroForNone) {
  const FakeSysfs sysfs;
  sysfs.put("class/infiniband/mlx5_0/node_guid", "0000:0000:0000:0000");
  Draft draft = two_gpus();
  for (Node& node : draft.nodes)
    if (auto* net = std::get_if<NetInfo>(&node.info)) net->guid.reset();
  add_from_sysfs(draft, sysfs.root());
  ASSERT_EQ(ports_of(draft).size(), 1);
  EXPECT_EQ(ports_of(draft)[0].guid, std::nullopt);
  sysfs.put("class/infiniband/mlx5_0/node_guid", "b859:9f03:00a8:6b42");
  add_from_sysfs(draft, sysfs.root());
  EXPECT_EQ(ports_of(draft)[0].guid, 0xb8599f0300a86b42);
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
  ports[0]->gpu_direct = true;  // as hwloc has it of all verbs devices
  add_from_ucx(draft, {});
  EXPECT_TRUE(ports[0]->gpu_direct);
  EXPECT_THAT(draft.notes, ElementsAre(HasSubstr("that the 1 with verbs reach GPU memory is assumed")));
  draft.notes.clear();

  const UcxPort port{
      .name = "rdmap0", .port = 1, .speed_mbps = 100'000, .latency_us = 1.5, .gpu_direct = true};
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
