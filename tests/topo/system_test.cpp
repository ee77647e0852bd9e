#include "topo/system.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "test_data.hpp"
#include "topo/bandwidth.hpp"
#include "topo/check.hpp"
#include "topo/cpu_mask.hpp"

namespace loom::topo {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

TEST(System, EqualsWhatIsBuiltOfItsNodes) {
  const System system = read_system(data_file("dgx1v.xml")).system;
  const System again =
      build_system(source_nodes(system), {system.hosts().begin(), system.hosts().end()}).system;
  EXPECT_EQ(system, again);
  EXPECT_NE(system, read_system(data_file("dgxa100.xml")).system);
  EXPECT_NE(system, trimmed_to(system, std::vector<int>{0, 1}));
  EXPECT_THAT(to_string(system), HasSubstr("NVL 40 GB/s to GPU 3"));
}

TEST(System, KeepsItsOtherNodesWithoutSomePorts) {
  const System system = read_system(data_file("dgxh100.xml")).system;
  const auto names = [](const System& of) {
    std::vector<std::string> all;
    for (const NodeId net : of.of_kind(NodeKind::kNet)) all.push_back(ucx_name(of.node(net).net()));
    return all;
  };
  const System odd = with_ports(system, [](const NetInfo& net) { return net.device % 2 == 1; });
  EXPECT_THAT(names(odd), ::testing::ElementsAre("mlx5_1:1", "mlx5_3:1", "mlx5_5:1", "mlx5_7:1"));
  EXPECT_THAT(check(odd), ::testing::IsEmpty());
  EXPECT_EQ(odd.size(), system.size() - 4);
  EXPECT_EQ(odd.node(odd.node(odd.of_kind(NodeKind::kNet)[0]).parent).pci->bus_id,
            system.node(system.node(system.of_kind(NodeKind::kNet)[1]).parent).pci->bus_id);
  EXPECT_EQ(with_ports(system, [](const NetInfo&) { return true; }), system);
}

/// In debug builds build_system refuses, in others check() tells.
std::vector<std::string> broken_by(std::vector<Node> nodes) {
  try {
    return check(build_system(std::move(nodes), {0}).system);
  } catch (const Error& error) {
    return {error.what()};
  }
}

TEST(Check, FindsBrokenInvariants) {
  const auto spoiled = [](auto spoil) {
    std::vector<Node> nodes = source_nodes(read_system(data_file("gh200.xml")).system);
    spoil(nodes);
    return broken_by(std::move(nodes));
  };
  EXPECT_THAT(spoiled([](auto&) {}), ::testing::IsEmpty());
  EXPECT_THAT(spoiled([](auto& nodes) { std::get<NetInfo>(nodes[3].info).speed_mbps = -1; }),
              Contains(HasSubstr("its speed is -1")));
  EXPECT_THAT(spoiled([](auto& nodes) { std::get<GpuInfo>(nodes[1].info).rank = -7; }),
              Contains(HasSubstr("rank -7")));
  EXPECT_THAT(spoiled([](auto& nodes) { nodes[3].parent = 1; }),
              Contains(HasSubstr("a port's parent is a NIC")));
  EXPECT_THAT(spoiled([](auto& nodes) { nodes[2].pci->bus_id = nodes[1].pci->bus_id; }),
              Contains(HasSubstr("is another node's too")));
  EXPECT_THAT(spoiled([](auto& nodes) { nodes[1].host = 4; }), Contains(HasSubstr("host 4 does not exist")));
  EXPECT_THAT(spoiled([](auto& nodes) { std::get<GpuInfo>(nodes[1].info).c2c[0].count = 0; }),
              Contains(HasSubstr("0 C2C links")));
}

TEST(Bandwidth, FollowsTheGenerations) {
  const std::map<int, float> nvlink = {{52, 20}, {60, 18}, {61, 18},    {70, 20},     {75, 20},    {80, 20},
                                       {86, 12}, {89, 20}, {90, 20.6F}, {100, 40.1F}, {120, 40.1F}};
  for (const auto& [capability, gbps] : nvlink) EXPECT_FLOAT_EQ(nvlink_gbps(capability), gbps) << capability;
  const std::map<const char*, float> xgmi = {{"gfx906", 34.5F}, {"gfx908", 34.5F}, {"gfx90a", 37.5F},
                                             {"910", 37.5F},    {"gfx942", 48},    {"gfx950", 48}};
  for (const auto& [arch, gbps] : xgmi) EXPECT_FLOAT_EQ(xgmi_gbps(arch), gbps) << arch;
  EXPECT_EQ(pci_lane_gbit("5.0 GT/s PCIe", Model::kLoom), 3);
  EXPECT_EQ(pci_lane_gbit("", Model::kLoom), std::nullopt);
}

TEST(Bandwidth, BetweenNumaNodesFollowsTheCpu) {
  const auto intel = [](int family, int model) {
    return cpu_gbps({0, "x86_64", "GenuineIntel", family, model, ""});
  };
  EXPECT_EQ(intel(6, 0x4f), 6);  // Broadwell
  EXPECT_EQ(intel(6, 0x54), 6);
  EXPECT_EQ(intel(6, 0x55), 10);
  EXPECT_EQ(intel(6, 0x6a), 10);  // Ice Lake
  EXPECT_EQ(intel(6, 0x8e), 10);
  EXPECT_EQ(intel(6, 0x8f), 22);
  EXPECT_EQ(intel(6, 0xcf), 40);
  EXPECT_EQ(intel(15, 0xcf), 6);
  EXPECT_EQ(cpu_gbps({0, "x86_64", "AuthenticAMD", 25, 1, ""}), 16);
  EXPECT_EQ(cpu_gbps({0, "arm64", "", -1, -1, ""}), 6);
  EXPECT_EQ(cpu_gbps({0, "ppc64", "", -1, -1, ""}), 32);
  EXPECT_EQ(cpu_gbps({0, "x86_64", "  Shanghai  ", 7, 0x3b, ""}), 6);
  EXPECT_EQ(cpu_gbps({0, "x86_64", "  Shanghai  ", 7, 0x5b, ""}), 9);
  EXPECT_EQ(cpu_gbps({0, "riscv64", "", -1, -1, ""}), kLocalGbps);
}

TEST(BusId, IsReadAndWritten) {
  EXPECT_EQ(BusId::parse("0001:c4:1f.7")->to_string(), "0001:c4:1f.7");
  EXPECT_EQ(BusId::parse("c4:00.0")->to_string(), "0000:c4:00.0");
  EXPECT_EQ(BusId::parse("00000000:0A:00.0")->to_string(), "0000:0a:00.0");
  for (const char* bad : {"", "c4", "0000:c4:00", "0000:c4:00.0 ", "0000:1c4:00.0", "g:0.0", "0:0:0:0.0"})
    EXPECT_EQ(BusId::parse(bad), std::nullopt) << bad;
}

TEST(CpuMask, HasOneFormForBothNotations) {
  EXPECT_EQ(cpu_mask("00000000,0000ffff,00000001"), "0000ffff,00000001");
  EXPECT_EQ(cpu_mask("0xffff,,0x1"), "0000ffff,00000000,00000001");
  EXPECT_EQ(cpu_mask("0,0"), "");
  EXPECT_EQ(cpu_mask("12x"), std::nullopt);
  EXPECT_EQ(to_cpu_list("00000003,80000001"), "0,31-33");
  EXPECT_EQ(mask_of({0, 31, 32, 33}), "00000003,80000001");
  EXPECT_EQ(to_hwloc_mask("00000003,80000001"), "0x00000003,0x80000001");
}

std::vector<Finding> findings_about(auto spoil, const char* file) {
  std::vector<Node> nodes = source_nodes(read_system(data_file(file)).system);
  for (Node& node : nodes) spoil(node);
  return lint(build_system(std::move(nodes), {0}).system);
}

TEST(Lint, SaysNothingOfSoundMachines) {
  for (const auto& file : files_in(LOOM_TEST_DATA)) {
    if (file.filename() == "lstopo-2gpu.xml") continue;
    EXPECT_TRUE(lint(read_system(file).system).empty()) << file;
  }
}

TEST(Lint, KnowsAMeshFromADegradedOne) {
  const System whole = read_system(data_file("dgx1v.xml")).system;
  // Half of the machine, in a file of its own: two GPUs have more NVLinks left than the others.
  std::vector<Node> nodes = source_nodes(whole);
  const auto gpu_of = [](Node& node) { return std::get_if<GpuInfo>(&node.info); };
  std::vector<BusId> far;
  for (Node& node : nodes)
    if (gpu_of(node) && gpu_of(node)->rank >= 4)
      far.push_back(node.pci->bus_id), gpu_of(node)->rank = kNoRank;
  for (Node& node : nodes)
    if (gpu_of(node))
      std::erase_if(gpu_of(node)->nvlinks, [&](const NvLinks& row) {
        return gpu_of(node)->rank == kNoRank || std::find(far.begin(), far.end(), row.target) != far.end();
      });
  const auto has_warning = [](const System& system) {
    const auto findings = lint(system);
    return std::any_of(findings.begin(), findings.end(),
                       [](const Finding& f) { return f.severity == Severity::kWarning; });
  };
  const System half = build_system(nodes, {0}).system;
  ASSERT_EQ(half.gpus().size(), 4);
  EXPECT_FALSE(has_warning(half));
  nodes = source_nodes(whole);
  for (Node& node : nodes)
    if (gpu_of(node) && (gpu_of(node)->rank == 0 || gpu_of(node)->rank == 1))
      gpu_of(node)->nvlinks.erase(gpu_of(node)->nvlinks.begin());  // those between the two
  EXPECT_TRUE(has_warning(build_system(nodes, {0}).system));
}

TEST(Lint, SaysWhatIsWrongAndWhatItCosts) {
  const auto gpu = [](Node& node) { return std::get_if<GpuInfo>(&node.info); };
  const auto about = [](const char* what, const char* cost) {
    return Contains(
        ::testing::AllOf(Field(&Finding::what, HasSubstr(what)), Field(&Finding::cost, HasSubstr(cost))));
  };
  EXPECT_THAT(findings_about(
                  [&](Node& n) {
                    if (gpu(n) && gpu(n)->rank == 3) gpu(n)->nvlinks[0].count = 1;
                  },
                  "dgxh100.xml"),
              about("288.4", "lose up to 22 %"));
  EXPECT_THAT(findings_about(
                  [&](Node& n) {
                    if (gpu(n) && gpu(n)->rank == 3) gpu(n)->nvlinks.clear();
                  },
                  "dgxh100.xml"),
              about("no NVLinks", "fall back"));
  EXPECT_THAT(findings_about(
                  [&](Node& n) {
                    if (gpu(n))
                      for (int i = 0; i < 8; ++i) gpu(n)->nvlinks.push_back(gpu(n)->nvlinks[0]);
                  },
                  "dgxh100.xml"),
              about("58 NVLinks", "too often"));
  EXPECT_THAT(findings_about(
                  [](Node& n) {
                    if (n.pci) n.pci->link_width = 0;
                  },
                  "gh200.xml"),
              about("width is not known", "assumed"));
  EXPECT_THAT(findings_about(
                  [](Node& n) {
                    if (n.pci) n.pci->link_width = 64;
                  },
                  "gh200.xml"),
              about("width is 64, more than PCI has", "assumed"));
  EXPECT_THAT(findings_about(
                  [](Node& n) {
                    if (n.pci) n.pci->link_speed = "fast";
                  },
                  "gh200.xml"),
              about("speed \"fast\" says too little", "assumed"));
  EXPECT_THAT(findings_about(
                  [](Node& n) {
                    if (auto* net = std::get_if<NetInfo>(&n.info)) net->speed_mbps = 0;
                  },
                  "gh200.xml"),
              about("speed is not known", "10 Gbit/s is assumed"));
  EXPECT_THAT(findings_about(
                  [&](Node& n) {
                    if (gpu(n) && gpu(n)->rank == 3) gpu(n)->nvlinks.clear();
                  },
                  "dgx1v.xml"),
              about("names NVLinks to GPU 3, which names none back", "both ways"));
  EXPECT_THAT(findings_about(
                  [&](Node& n) {
                    if (gpu(n)) gpu(n)->nvlinks.push_back({*BusId::parse("0000:ee:00.0"), 1, 0x030200, true});
                  },
                  "dgx1v.xml"),
              about("to 0000:ee:00.0 lead to no GPU", "left out"));
  EXPECT_THAT(findings_about(
                  [&](Node& n) {
                    if (gpu(n)) gpu(n)->device = 0;
                  },
                  "dgx1v.xml"),
              about("Another GPU of this host has number 0", "one for the other"));
  EXPECT_THAT(findings_about(
                  [&](Node& n) {
                    if (gpu(n) && gpu(n)->rank == 0) gpu(n)->rank = 9;
                  },
                  "dgx1v.xml"),
              about("ranks, 1, 2, 3, 4, 5, 6, 7, 9, are not 0 to 7", "part of a job"));
  EXPECT_THAT(findings_about(
                  [](Node& n) {
                    if (auto* cpu = std::get_if<CpuInfo>(&n.info)) cpu->affinity = "0000000f";
                  },
                  "dgx1v.xml"),
              about("CPU 0 is another NUMA node's", "wrong one"));
  EXPECT_THAT(findings_about(
                  [](Node& n) {
                    if (n.kind() == NodeKind::kPciSwitch) n.pci->link_width = 1;
                  },
                  "dgxh100.xml"),
              about("upwards has 3", "made-up"));
  EXPECT_THAT(findings_about(
                  [](Node& n) {
                    if (n.kind() == NodeKind::kNic) n.pci->link_width = 4;
                  },
                  "gh200.xml"),
              about("PCI link 12", "76 %"));
  EXPECT_THAT(findings_about(
                  [](Node& n) {
                    if (auto* cpu = std::get_if<CpuInfo>(&n.info)) cpu->arch = "riscv64";
                  },
                  "dgx1v.xml"),
              about("riscv64", "free"));
  EXPECT_THAT(findings_about(
                  [](Node& n) {
                    if (auto* net = std::get_if<NetInfo>(&n.info)) net->speed_mbps = 4e8;
                  },
                  "gh200.xml"),
              about("more than any port", "Mbit/s"));
}

}  // namespace
}  // namespace loom::topo
