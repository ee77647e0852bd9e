// kernel_costs.hpp -- what calls by kernels of GPUs cost beside their bytes, by protocol. Pure data, for
// those who predict calls and for those who choose between ways to make them.
//
// The figures are NCCL 2.30's for its own kernels (src/graph/tuning.cc), until loom's have been measured.
#pragma once

#include <string_view>

namespace loom::device {

/// Microseconds: of a call, and of one hop by what it crosses.
struct Latencies {
  double call_us = 0, nvlink_us = 0, pci_us = 0, net_us = 0;
};

struct ProtocolCosts {
  std::string_view name;
  Latencies ring, tree;
  double efficiency;  ///< of the bytes that cross a link, those that are data
};

/// LL sends a flag with every 4 bytes, LL128 one with every 120.
inline constexpr ProtocolCosts kCostsOfLL = {"LL", {6.6, 0.6, 1, 2.7}, {6.8, 0.6, 1, 5}, 0.5};
inline constexpr ProtocolCosts kCostsOfLL128 = {
    "LL128", {14, 1.9, 2.5, 4}, {14, 1.25, 1.9, 8.5}, 120.0 / 128};
inline constexpr ProtocolCosts kCostsOfSimple = {"Simple", {8.4, 3.4, 5.7, 14}, {8.4, 4, 5.7, 14}, 1};

}  // namespace loom::device
