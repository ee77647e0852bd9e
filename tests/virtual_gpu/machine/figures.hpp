// figures.hpp -- what makers publish of GPUs, links and processors. Rates are those of the wires, which a
// copy reaches to some 85 to 95 %: times from them are bounds. None of it is taken from loom's model.
#pragma once

#include <string>
#include <string_view>

namespace virtual_gpu::machine {

struct GpuModel {
  unsigned device_id;  ///< on PCI, of NVIDIA
  const char* name;
  int capability;  ///< 90: 9.0
  int multiprocessors;
  double ghz;
  std::size_t memory_gib;
  double memory_gbps;
  bool pcie_peers = true;  ///< reaches peers over PCIe; GeForce does not
};
/// By its id, or the first of the highest capability that is not above.
const GpuModel& gpu_model(unsigned device_id, int capability);

/// One NVLink in one direction.
double nvlink_gbps(int capability);
/// How many NVLinks a GPU has.
int nvlink_ports(int capability);
int nvlink_version(int capability);

/// In one direction, after encoding. What the file does not tell ("" or 0) counts as PCIe 3.0 x16.
double pcie_gbps(std::string_view link_speed, int link_width);

struct Processor {
  std::string arch, vendor;
  int family = 0, model = 0;  ///< as CPUID has them, or added up to one byte as NCCL writes them
};
/// What GPUs get through between two NUMA nodes.
double socket_gbps(const Processor& processor);
double host_memory_gbps(const Processor& processor);
/// Whether drivers let GPUs of two sockets be peers.
bool peers_across_sockets(const Processor& processor);

/// Nanoseconds of one link.
/// A load from memory: 466 to 479 cycles on A100 and H100 (Luo et al., "Benchmarking and Dissecting the
/// Nvidia Hopper GPU Architecture", 2024), 270 ns at 1.755 GHz.
inline constexpr double kMemoryLatencyNs = 270;
/// Direct; nobody publishes it: an estimate, from remote loads that take some 0.4 us longer than local ones.
inline constexpr double kNvlinkLatencyNs = 350;
/// To or from an NVSwitch, which adds some 100 ns: an estimate.
inline constexpr double kNvswitchLatencyNs = 225;
/// Between GPU and Grace: an estimate.
inline constexpr double kC2cLatencyNs = 200;
/// Half of the 550 ns that a read of 64 bytes takes from a device to the root complex and back (Neugebauer et
/// al., "Understanding PCIe performance for end host networking", SIGCOMM 2018).
inline constexpr double kPcieRootLatencyNs = 275;
/// Through a switch: Broadcom and Microchip promise 100 to 130 ns.
inline constexpr double kPcieSwitchLatencyNs = 115;
/// Remote memory takes that much longer than local (Intel's Memory Latency Checker, two Xeons).
inline constexpr double kSocketLatencyNs = 70;

}  // namespace virtual_gpu::machine
