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

/// One NVLink. Signalling rates are 20 (P100), 25 (V100, A100, H100) and 50 GB/s (B200) in NVIDIA's data
/// sheets, of which packet headers leave about four fifths. RTX A6000 and other sm_86 boards have links of
/// half the rate.
constexpr float nvlink_gbps(int compute_capability) {
  if (compute_capability >= 100) return 40.1F;
  if (compute_capability >= 90) return 20.6F;
  if (compute_capability == 86) return 12;
  if (compute_capability >= 70) return 20;
  if (compute_capability >= 60) return 18;
  return 20;
}

/// One xGMI link between AMD GPUs, three quarters of the peak in AMD's CDNA white papers: MI300 64, MI250 50,
/// earlier 46 GB/s. Only Model::kLoom reads such machines; NCCL does not load them.
float xgmi_gbps(std::string_view gcn_arch);

/// A lane's rate in Gbit/s after encoding and protocol, from its signalling rate as sysfs writes it: "8.0
/// GT/s PCIe" is 6. nullopt: not known. Model::kNccl knows a list of spellings; Model::kLoom reads the
/// number, so that "16.0 GT/s" is sixteen too (Linux before 5.9 wrote "16 GT/s", newer ones "16.0 GT/s
/// PCIe").
std::optional<double> pci_lane_gbit(std::string_view link_speed, Model model);
/// Assumed where a source does not know the lane rate, as NCCL does: third generation.
inline constexpr double kUnknownLaneGbit = 6;
/// Assumed where a source gives no width, or 0. The widest that PCI has is 32.
inline constexpr int kUnknownWidth = 16, kWidestPci = 32;

/// GB/s of the link above `pci`.
float pci_gbps(const PciFunction& pci, Model model);

/// Between the NUMA nodes of one host, seen from `source`, for data that GPUs send across.
/// POWER9: X bus. AMD: Infinity Fabric between sockets. Intel, by CPUID model: QPI until Broadwell, UPI from
/// Skylake (0x55), Sapphire Rapids (0x8f), Emerald Rapids (0xcf). ARM and others: what NCCL takes.
float cpu_gbps(const CpuInfo& source);

bool is_intel(const CpuInfo& cpu);
bool is_amd(const CpuInfo& cpu);

/// A port's speed in Mbit/s as GB/s.
constexpr float net_gbps(double speed_mbps) {
  return static_cast<float>(speed_mbps / 8000);
}
/// NCCL's and our guess for a port whose speed the source does not know, in Mbit/s.
inline constexpr double kUnknownNetMbps = 10000;
inline constexpr int kUnknownMaxConnections = 64;

}  // namespace loom::topo
