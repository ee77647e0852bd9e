// bandwidth.hpp -- what links carry: GB/s per direction, as a collective sees them, so below what is on the
// box. The figures are NCCL 2.30's, so that results can be compared; where Model::kLoom differs it is said
// beside the figure.
#pragma once

#include <optional>
#include <string_view>

#include "topo/system.hpp"

namespace loom::topo {

/// Inside one device: more than any link, so never the bottleneck.
inline constexpr float kLocalGbps = 5000;
/// Between the partitions of a split GPU (NCCL: 2618).
inline constexpr float kPartitionGbps = 2618;

/// One NVLink, by generation: four fifths of the signalling rate in NVIDIA's data sheets, which is 20 GB/s
/// (P100), 25 (V100, A100, H100) and 50 (B200); packet headers take the rest. NCCL 2.30, topo.h. Boards of
/// sm_86 (RTX A6000, A40) have links of half the rate. What is older than NVLink counts as its second
/// generation.
inline constexpr float kPascalNvLinkGbps = 18, kVoltaNvLinkGbps = 20, kAmpereBoardNvLinkGbps = 12,
                       kHopperNvLinkGbps = 20.6F, kBlackwellNvLinkGbps = 40.1F;
constexpr float nvlink_gbps(int compute_capability) {
  if (compute_capability >= 100) return kBlackwellNvLinkGbps;
  if (compute_capability >= 90) return kHopperNvLinkGbps;
  if (compute_capability == 86) return kAmpereBoardNvLinkGbps;
  if (compute_capability >= 60 && compute_capability < 70) return kPascalNvLinkGbps;
  return kVoltaNvLinkGbps;
}

/// One xGMI link between AMD GPUs, three quarters of the peak in AMD's CDNA white papers: MI300 64, MI250 50,
/// earlier 46 GB/s. Only Model::kLoom reads such machines; NCCL does not load them.
inline constexpr float kMi300XgmiGbps = 48, kMi200XgmiGbps = 37.5F, kOldXgmiGbps = 34.5F;
float xgmi_gbps(std::string_view gcn_arch);

/// A lane's rate in Gbit/s after encoding and protocol, from its signalling rate as sysfs writes it: "8.0
/// GT/s PCIe" is 6. nullopt: not known. Model::kNccl knows a list of spellings; Model::kLoom reads the
/// number, so that "16.0 GT/s" is sixteen too (Linux before 5.9 wrote "16 GT/s", newer ones "16.0 GT/s
/// PCIe").
std::optional<double> pci_lane_gbit(std::string_view link_speed, Model model);
/// Assumed where a source does not know the lane rate, as NCCL does: third generation.
inline constexpr double kUnknownLaneGbit = 6;
/// Assumed where a source gives no width, or one that is none. The widest that PCI has is 32.
inline constexpr int kUnknownWidth = 16, kWidestPci = 32;

constexpr bool width_known(const PciFunction& pci) {
  return pci.link_width > 0 && pci.link_width <= kWidestPci;
}

/// GB/s of the link above `pci`.
float pci_gbps(const PciFunction& pci, Model model);

/// Between the NUMA nodes of one host, seen from `source`, for data that GPUs send across. All are
/// NCCL 2.30's (topo.h): POWER9's X bus; AMD's Infinity Fabric between sockets; Intel's links, by CPUID
/// model: QPI until Broadwell, UPI from Skylake (0x55), Sapphire Rapids (0x8f) and Emerald Rapids (0xcf) on;
/// ARM; Zhaoxin, and its YongFeng (family 7, model 0x5b). Of others nothing is known, and nothing is counted.
/// What P2P through an Intel CPU costs besides is kIntelP2pFactor in search/hop_table.cpp.
inline constexpr float kPower9Gbps = 32, kArmGbps = 6, kAmdGbps = 16, kQpiGbps = 6, kSkylakeGbps = 10,
                       kSapphireRapidsGbps = 22, kEmeraldRapidsGbps = 40, kZhaoxinGbps = 6, kYongFengGbps = 9;
float cpu_gbps(const CpuInfo& source);

bool is_intel(const CpuInfo& cpu);
bool is_amd(const CpuInfo& cpu);

/// NCCL's and our guess for a port whose speed the source does not know, in Mbit/s.
inline constexpr double kUnknownNetMbps = 10000;
/// A port's speed in Mbit/s, 0 where it is not known, as GB/s.
constexpr float net_gbps(double speed_mbps) {
  return static_cast<float>((speed_mbps > 0 ? speed_mbps : kUnknownNetMbps) / 8000);
}
inline constexpr int kUnknownMaxConnections = 64;

}  // namespace loom::topo
