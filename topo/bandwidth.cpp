#include "topo/bandwidth.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace loom::topo {
namespace {

/// Signalling rate in GT/s and what NCCL counts of it, in Gbit/s per lane.
constexpr std::array<std::pair<double, double>, 6> kLaneGbit = {
    {{2.5, 1.5}, {5, 3}, {8, 6}, {16, 12}, {32, 24}, {64, 48}}};

/// The spellings that NCCL 2.30 knows; any other is to it a third-generation link.
constexpr std::array<std::string_view, 10> kNcclSpellings = {
    "2.5 GT/s",      "5 GT/s",        "8 GT/s",         "16 GT/s",        "32 GT/s",
    "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"};

bool starts_with_any(std::string_view text, const auto& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

}  // namespace

float xgmi_gbps(std::string_view gcn_arch) {
  if (gcn_arch.starts_with("gfx")) gcn_arch.remove_prefix(3);
  if (gcn_arch.starts_with("94") || gcn_arch.starts_with("95")) return kMi300XgmiGbps;
  if (gcn_arch == "90a" || gcn_arch == "910") return kMi200XgmiGbps;  // 910: as older files number it
  return kOldXgmiGbps;
}

std::optional<double> pci_lane_gbit(std::string_view link_speed, Model model) {
  if (model == Model::kNccl && !starts_with_any(link_speed, kNcclSpellings)) return std::nullopt;
  double rate = 0;
  const auto [end, error] = std::from_chars(link_speed.data(), link_speed.data() + link_speed.size(), rate);
  if (error != std::errc()) return std::nullopt;
  for (const auto& [gtps, gbit] : kLaneGbit)
    if (std::abs(rate - gtps) < 0.01) return gbit;
  return std::nullopt;
}

float pci_gbps(const PciFunction& pci, Model model) {
  const int width = width_known(pci) ? pci.link_width : kUnknownWidth;
  return static_cast<float>(width * pci_lane_gbit(pci.link_speed, model).value_or(kUnknownLaneGbit) / 8);
}

bool is_intel(const CpuInfo& cpu) {
  return cpu.arch == "x86_64" && cpu.vendor == "GenuineIntel";
}
bool is_amd(const CpuInfo& cpu) {
  return cpu.arch == "x86_64" && cpu.vendor == "AuthenticAMD";
}

float cpu_gbps(const CpuInfo& source) {
  constexpr int kIntelFamily = 6, kSkylake = 0x55, kSapphireRapids = 0x8f, kEmeraldRapids = 0xcf;
  constexpr int kYongFengFamily = 7, kYongFeng = 0x5b;
  if (source.arch == "ppc64") return kPower9Gbps;
  if (source.arch == "arm64") return kArmGbps;
  if (is_amd(source)) return kAmdGbps;
  if (is_intel(source)) {
    if (source.family != kIntelFamily || source.model < kSkylake) return kQpiGbps;
    if (source.model >= kEmeraldRapids) return kEmeraldRapidsGbps;
    return source.model >= kSapphireRapids ? kSapphireRapidsGbps : kSkylakeGbps;
  }
  if (source.arch == "x86_64" && source.vendor == "  Shanghai  ")
    return source.family == kYongFengFamily && source.model == kYongFeng ? kYongFengGbps : kZhaoxinGbps;
  return kLocalGbps;
}

}  // namespace loom::topo
