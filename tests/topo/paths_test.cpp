#include <algorithm>

#include "topo/paths.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "base/format.hpp"
#include "test_data.hpp"
#include "topo/bandwidth.hpp"
#include "topo/place.hpp"

namespace loom::topo {
namespace {

/// What is known of well-known machines. Types are as `nvidia-smi topo -m` has them (NV# is NVL; NODE and SYS
/// differ there by whether NUMA nodes share a socket), bandwidths those of the field's model of the published
/// link speeds.
///
/// DGX-1V, "NVIDIA DGX-1 With Tesla V100 System Architecture" (WP-08437-001):
///   six NVLinks per GPU of 25 GB/s each way (20 in the model); in the hybrid cube mesh one or two for a
///   pair, and none to three GPUs, which one GPU in between reaches.
/// DGX A100, "NVIDIA DGX A100 System Architecture" (WP-10083):
///   twelve NVLinks per GPU, 600 GB/s both ways, so 25 each way (20 in the model, 240 in all); PCIe 4 x16
///   (24) between a GPU and the HDR ports of its switch; two EPYC 7742.
/// DGX H100, "NVIDIA DGX H100/H200 User Guide":
///   18 NVLinks per GPU, 900 GB/s both ways (18 x 20.6 in the model); PCIe 5 x16 (48) to a ConnectX-7 of 400
///   Gbit/s; two Xeon 8480C, UPI between them.
/// Two-socket PCIe server with L40S, "NVIDIA L40S" data sheet:
///   PCIe 4 x16, no NVLink; PIX below one switch, PHB between switches of a socket, SYS between sockets.
/// GH200, "NVIDIA Grace Hopper Superchip Architecture":
///   NVLink-C2C of 900 GB/s both ways, 450 each.
struct Truth {
  const char* file;
  int rank;
  const char* other;  ///< "g3": the GPU of rank 3; "n1": port 1; "c0": NUMA node 0
  PathType type;
  float gbps;
};

class KnownMachine : public ::testing::TestWithParam<Truth> {};

TEST_P(KnownMachine, HasThePathsThatArePublished) {
  const Truth& truth = GetParam();
  const System system = read_system(data_file(truth.file)).system;
  const Paths paths(system);
  const int number = truth.other[1] - '0';
  NodeId to = kNoNode;
  if (truth.other[0] == 'g') to = system.gpu_of_rank(number);
  for (const NodeId id : system.of_kind(truth.other[0] == 'n' ? NodeKind::kNet : NodeKind::kCpu))
    if (truth.other[0] != 'g' &&
        (truth.other[0] == 'n' ? system.node(id).net().device : system.node(id).cpu().numa_id) == number)
      to = id;
  ASSERT_NE(to, kNoNode);
  const Path path = paths.between(system.gpu_of_rank(truth.rank), to);
  EXPECT_EQ(path.type, truth.type) << name_of(path.type);
  EXPECT_FLOAT_EQ(path.gbps, truth.gbps);
}

using enum PathType;
INSTANTIATE_TEST_SUITE_P(
    Published, KnownMachine,
    ::testing::Values(
        Truth{"dgx1v.xml", 0, "g1", kNvl, 20}, Truth{"dgx1v.xml", 0, "g2", kNvl, 20},
        Truth{"dgx1v.xml", 0, "g3", kNvl, 40}, Truth{"dgx1v.xml", 0, "g6", kNvl, 40},
        Truth{"dgx1v.xml", 0, "g4", kNvb, 20}, Truth{"dgx1v.xml", 0, "g5", kNvb, 40},
        Truth{"dgx1v.xml", 0, "g7", kNvb, 20}, Truth{"dgx1v.xml", 3, "g6", kNvb, 40},
        Truth{"dgx1v.xml", 5, "g7", kNvl, 20}, Truth{"dgx1v.xml", 0, "n0", kPix, 12},
        Truth{"dgx1v.xml", 0, "n1", kPxn, 12}, Truth{"dgxa100.xml", 0, "g1", kNvl, 240},
        Truth{"dgxa100.xml", 0, "g7", kNvl, 240}, Truth{"dgxa100.xml", 0, "n0", kPix, 24},
        Truth{"dgxa100.xml", 0, "n1", kPix, 24}, Truth{"dgxa100.xml", 0, "n4", kPxn, 24},
        Truth{"dgxa100.xml", 0, "c3", kPhb, 24}, Truth{"dgxa100.xml", 0, "c7", kSys, 16},
        Truth{"dgxh100.xml", 0, "g7", kNvl, 370.8F}, Truth{"dgxh100.xml", 3, "n3", kPix, 48},
        Truth{"dgxh100.xml", 3, "n4", kPxn, 48}, Truth{"dgxh100.xml", 0, "c1", kSys, 22},
        Truth{"pcie-2socket.xml", 0, "g1", kPix, 24}, Truth{"pcie-2socket.xml", 2, "g3", kPix, 24},
        Truth{"pcie-2socket.xml", 2, "n0", kPix, 24}, Truth{"pcie-2socket.xml", 0, "n0", kPhb, 24},
        Truth{"pcie-2socket.xml", 0, "c0", kPhb, 24}, Truth{"pcie-2socket.xml", 0, "n1", kSys, 22},
        Truth{"pcie-2socket.xml", 0, "g2", kPhb, 24}, Truth{"pcie-2socket.xml", 0, "g4", kSys, 22},
        Truth{"gh200.xml", 0, "c0", kC2c, 447.12F}, Truth{"gh200.xml", 0, "n0", kP2c, 48}),
    [](const auto& test) {
      std::string name = loom::format("{}_{}_{}", test.param.file, test.param.rank, test.param.other);
      std::replace_if(
          name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
      return name;
    });

TEST(Paths, AreWhatTheirRoutesCarry) {
  for (const auto& file : all_files()) {
    SCOPED_TRACE(file);
    const System system = read_system(file).system;
    const Paths paths(system);
    for (const NodeId from : system.gpus())
      for (NodeId to = 0; to < system.size(); ++to) {
        // Paths to switches and NICs are computed anew at each question: some are enough.
        const NodeKind kind = system.node(to).kind();
        if ((kind == NodeKind::kPciSwitch || kind == NodeKind::kNic) && (to > 30 || from > 10)) continue;
        const Path path = paths.between(from, to);
        const std::vector<LinkId> route = paths.route(from, to);
        if (from == to || path.gbps == 0) continue;
        ASSERT_EQ(static_cast<int>(route.size()), path.hops);
        float slowest = kLocalGbps;  // a GPU's own memory
        NodeId at = from;
        for (const LinkId link : route) {
          ASSERT_EQ(system.link(link).from, at);
          at = system.link(link).to;
          slowest = std::min(slowest, system.link(link).gbps);
        }
        EXPECT_EQ(at, to);
        EXPECT_FLOAT_EQ(slowest, path.gbps);
      }
  }
}

TEST(Paths, GoThroughTheCpuWhereP2pIsNotAllowed) {
  const System system = read_system(data_file("pcie-2socket.xml")).system;
  PathRules rules;
  rules.p2p_limit = PathType::kLoc;
  const Paths paths(system, rules);
  EXPECT_EQ(paths.between(system.gpu_of_rank(0), system.gpu_of_rank(1)).type, PathType::kPhb);
  EXPECT_EQ(Paths(system).between(system.gpu_of_rank(0), system.gpu_of_rank(1)).type, PathType::kPix);
  rules = {};
  rules.pxn = false;
  const System dgx = read_system(data_file("dgxh100.xml")).system;
  EXPECT_EQ(Paths(dgx, rules).between(dgx.gpu_of_rank(3), dgx.of_kind(NodeKind::kNet)[4]).type,
            PathType::kSys);
  rules.nvb = rules.network_inside_host = false;
  const System mesh = read_system(data_file("dgx1v.xml")).system;
  EXPECT_EQ(Paths(mesh, rules).between(mesh.gpu_of_rank(0), mesh.gpu_of_rank(4)).type, PathType::kSys);
}

TEST(Paths, ObeyADriverThatDeniesPeerAccess) {
  std::vector<Node> nodes = source_nodes(read_system(data_file("pcie-2socket.xml")).system);
  for (Node& node : nodes)
    if (auto* gpu = std::get_if<GpuInfo>(&node.info); gpu != nullptr && gpu->rank == 0) gpu->p2p_denied = {1};
  const System system = build_system(std::move(nodes), {0}).system;
  EXPECT_EQ(Paths(system).between(system.gpu_of_rank(0), system.gpu_of_rank(1)).type, PathType::kPhb);
  EXPECT_EQ(Paths(system).between(system.gpu_of_rank(1), system.gpu_of_rank(0)).type, PathType::kPix);
}

TEST(Trimming, KeepsTheRanksOfTheCommunicator) {
  const System system = read_system(data_file("dgx1v.xml")).system;
  const std::vector<int> ranks = {0, 4};
  const System pair = trimmed_to(system, ranks);
  EXPECT_EQ(pair.gpus().size(), 2);
  EXPECT_EQ(pair.of_kind(NodeKind::kGpu).size(), 8);  // the others are still there to pass through
  EXPECT_EQ(Paths(pair).between(pair.gpu_of_rank(0), pair.gpu_of_rank(4)).type, PathType::kNvb);
  EXPECT_THROW(trimmed_to(system, std::vector<int>{99}), Error);
}

TEST(Domains, SeparateGpusThatCannotReachEachOther) {
  // Two hosts in one file, with nothing between them.
  const std::string host = "<pci busid='0000:01:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'>";
  const System system =
      parse_nccl_xml("<system version='1'><cpu host_hash='1' numaid='0' affinity='f' arch='arm64'>" + host +
                         "<gpu dev='0' sm='80' rank='0' gdr='1'/></pci></cpu><cpu host_hash='2' numaid='0' "
                         "affinity='f' arch='arm64'>" +
                         host + "<gpu dev='0' sm='80' rank='1' gdr='1'/></pci></cpu></system>",
                     "f.xml")
          .system;
  const Paths paths(system);
  EXPECT_EQ(paths.between(system.gpus()[0], system.gpus()[1]).type, PathType::kNet);
  EXPECT_TRUE(paths.route(system.gpus()[0], system.gpus()[1]).empty());
  EXPECT_EQ(domains_of(paths), (std::vector<std::vector<int>>{{0}, {1}}));
}

TEST(VirtualGpus, ReachEachOtherThroughTheirNumaNodes) {
  const std::vector<Place> places = {{{}, 0, 0, 1}, {{}, 0, 1, 1}, {{}, 1, 2, 1}};
  const System system = hosts_of(places).at(0).system;
  const Paths paths(system);
  EXPECT_EQ(paths.between(system.gpus()[0], system.gpus()[1]).type, PathType::kLoc);
  EXPECT_EQ(paths.between(system.gpus()[0], system.gpus()[2]).type, PathType::kSys);
  EXPECT_EQ(parse_system(to_hwloc_xml(system), "written").system, system);
  EXPECT_THROW(to_nccl_xml(system), Error);
}

/// `hosts` hosts of four GPUs with a NIC each, in one NVLink domain.
std::vector<Node> nvlink_domain(int hosts) {
  std::vector<Node> nodes;
  for (int host = 0; host < hosts; ++host)
    for (int numa = 0; numa < 2; ++numa) {
      const auto cpu = static_cast<NodeId>(nodes.size());
      CpuInfo info;
      info.numa_id = numa, info.arch = "arm64";
      nodes.push_back({info, kNoNode, host, std::nullopt});
      for (int i = 0; i < 2; ++i) {
        const auto bus = static_cast<std::uint8_t>(16 * numa + 4 * i + 1);
        const auto function = [&](std::uint8_t n) {
          return PciFunction{{0, n, 0, 0}, 0, 0, 0, 0, 0, "32.0 GT/s PCIe", 16};
        };
        GpuInfo gpu;
        gpu.device = 2 * numa + i, gpu.rank = 4 * host + gpu.device, gpu.compute_capability = 100,
        gpu.gpu_direct = true;
        gpu.nvlinks = {{BusId{}, 18, 0x068000, false}};
        gpu.c2c = {{22360, 10}};
        nodes.push_back({PciSwitchInfo{}, cpu, host, function(bus)});
        const auto pci_switch = static_cast<NodeId>(nodes.size()) - 1;
        nodes.push_back({gpu, pci_switch, host, function(bus + 1)});
        nodes.push_back({NicInfo{}, pci_switch, host, function(bus + 2)});
        NetInfo net;
        net.device = gpu.device, net.speed_mbps = 400000, net.gpu_direct = true;
        nodes.push_back({net, static_cast<NodeId>(nodes.size()) - 1, host, std::nullopt});
      }
    }
  return nodes;
}

TEST(Paths, OfADomainOf576GpusTakeLittleMemory) {
  std::vector<std::uint64_t> hosts;
  for (std::uint64_t i = 1; i <= 144; ++i) hosts.push_back(i);
  const std::string xml = to_nccl_xml(build_system(nvlink_domain(144), hosts).system);
  const System system = parse_nccl_xml(xml, "domain").system;
  const Paths paths(system);
  EXPECT_EQ(system.gpus().size(), 576);
  EXPECT_EQ(paths.between(system.gpus()[0], system.gpus()[575]).type, PathType::kNvl);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  loom::print("576 GPUs, {} nodes: {} MB at most in this process\n", system.size(), usage.ru_maxrss / 1024);
#if defined(__OPTIMIZE__) && defined(NDEBUG) && !defined(LOOM_SANITIZED)
  EXPECT_LT(usage.ru_maxrss / 1024, 200);
#endif
}

/// GPUs without P2P: a way through the CPU for each pair.
TEST(Paths, Of2000GpusWithoutP2pTakeLittleMemory) {
  std::vector<Node> nodes;
  CpuInfo cpu;
  cpu.arch = "arm64";
  nodes.push_back({cpu, kNoNode, 0, std::nullopt});
  for (int i = 0; i < 2000; ++i) {
    GpuInfo gpu;
    gpu.device = gpu.rank = i, gpu.compute_capability = 90;
    const BusId bus_id{static_cast<std::uint32_t>(i), 1, 0, 0};
    nodes.push_back({gpu, 0, 0, PciFunction{bus_id, 0, 0, 0, 0, 0, "16.0 GT/s PCIe", 16}});
  }
  const System system = build_system(std::move(nodes), {0}).system;
  const Paths paths(system);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_EQ(paths.between(system.gpus()[0], system.gpus()[1999]), (Path{PathType::kPhb, 24, 2}));
  loom::print("2000 GPUs without P2P: {} MB at most in this process\n", usage.ru_maxrss / 1024);
#if defined(__OPTIMIZE__) && defined(NDEBUG) && !defined(LOOM_SANITIZED)
  EXPECT_LT(usage.ru_maxrss / 1024, 250);  // 4 million pairs of 32 bytes, and what tests before this one left
#endif
}

TEST(Paths, RefuseMoreGpusAndPortsThanCanBeMatched) {
  std::string text = "<system version='1'><cpu numaid='0' affinity='f' arch='arm64'>";
  for (int i = 0; i < 1000; ++i)
    text += loom::format(
        "<pci busid='{:04x}:01:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'>"
        "<gpu dev='0' sm='90' rank='{}' gdr='1'/></pci><nic><net dev='{}' speed='1000'/></nic>",
        i, i, i);
  const System system = parse_system(text + "</cpu></system>", "f.xml").system;
  EXPECT_THROW(Paths{system}, Error);
}

TEST(Paths, RefuseATableThatWouldNotFit) {
  std::vector<std::uint64_t> hosts;
  for (std::uint64_t i = 1; i <= 900; ++i) hosts.push_back(i);
  const System system = build_system(nvlink_domain(900), hosts).system;
  EXPECT_THROW(Paths{system}, Error);
}

}  // namespace
}  // namespace loom::topo
