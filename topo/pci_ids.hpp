// pci_ids.hpp -- what PCI's numbers say about a function.
#pragma once

#include "topo/system.hpp"

namespace loom::topo {

inline constexpr std::uint16_t kVendorNvidia = 0x10de, kVendorAmd = 0x1002;
inline constexpr std::uint32_t kBaseClassDisplay = 0x03, kClassGpu3d = 0x030200;
/// "0x06" bridges: kClassNvSwitch is "other bridge", which NVSwitches report.
inline constexpr std::uint32_t kClassPciBridge = 0x060400, kClassNvSwitch = 0x068000,
                               kClassCpuBridge = 0x068001;

constexpr std::uint32_t base_class(const PciFunction& pci) {
  return pci.class_code >> 16;
}
/// A GPU that computes: a display or accelerator of NVIDIA's or AMD's, not a server's little video chip.
constexpr bool is_gpu(const PciFunction& pci) {
  return (base_class(pci) == kBaseClassDisplay || base_class(pci) == 0x12) &&
         (pci.vendor == kVendorNvidia || pci.vendor == kVendorAmd);
}
/// NCCL takes every class for a switch that it does not know as something else.
constexpr bool may_be_switch(const PciFunction& pci) {
  return base_class(pci) != 0x02 && base_class(pci) != kBaseClassDisplay &&
         pci.class_code != kClassNvSwitch && pci.class_code != kClassCpuBridge;
}
/// Or of no known class.
constexpr bool is_bridge(const PciFunction& pci) {
  return base_class(pci) == 0x06 || pci.class_code == 0;
}
constexpr bool is_nic(const PciFunction& pci) {
  return base_class(pci) == 0x02;
}

/// Compute capability times ten of an NVIDIA GPU from its device id, by the ranges of the PCI ID database; 0:
/// not known.
constexpr int compute_capability_of(const PciFunction& pci) {
  if (pci.vendor != kVendorNvidia) return 0;
  struct Range {
    int first, last, capability;
  };
  constexpr Range kRanges[] = {{0x15f0, 0x15ff, 60},  {0x1b00, 0x1d7f, 61}, {0x1d80, 0x1dff, 70},
                               {0x1e00, 0x21ff, 75},  {0x2080, 0x20ff, 80}, {0x2200, 0x25ff, 86},
                               {0x2680, 0x28ff, 89},  {0x2300, 0x23ff, 90}, {0x2900, 0x29ff, 100},
                               {0x2b80, 0x2fff, 120}, {0x3180, 0x31ff, 103}};
  int found = 0;
  for (const Range& range : kRanges)
    if (pci.device >= range.first && pci.device <= range.last) found = range.capability;
  return found;
}

}  // namespace loom::topo
