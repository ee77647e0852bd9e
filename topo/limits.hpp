// limits.hpp -- inside topo: what a description of a machine may have at most. Far above real machines, and
// low enough that any file is read, or refused, within about a second and a few hundred megabytes.
#pragma once

#include <cstddef>

namespace loom::topo {

inline constexpr int kMostIds = 1 << 20;  ///< device numbers, ranks, NUMA ids
/// Speeds of ports, in Mbit/s. GB/s of what is slower would be no number to divide by.
inline constexpr double kLeastNetMbps = 1e-6, kMostNetMbps = 1e9;
inline constexpr std::size_t kMostNodes = 32'768;
/// Every NUMA node of a host is linked to every other: 256 have 65 280 links.
inline constexpr std::size_t kMostNumaNodesOfHost = 256, kMostNumaNodes = 4096;
inline constexpr int kMostNvLinks = 1024;           ///< to one target; a GPU of today has at most 36 in all
inline constexpr int kMostC2cMbps = 100'000'000;    ///< of one link
inline constexpr std::size_t kMostLinkRows = 1024;  ///< targets of one GPU
inline constexpr int kMostPartitions = 16;          ///< of one GPU
inline constexpr std::size_t kMostNotes = 1000;

}  // namespace loom::topo
