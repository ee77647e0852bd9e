#include "tests/virtual_gpu/machine/figures.hpp"

#include <cstdlib>

namespace virtual_gpu::machine {
namespace {

// NVIDIA's data sheets; clocks are the boost clocks.
constexpr GpuModel kModels[] = {
    {0x15f9, "Tesla P100-SXM2-16GB", 60, 56, 1.48, 16, 732},
    {0x1db1, "Tesla V100-SXM2-16GB", 70, 80, 1.53, 16, 900},
    {0x1db5, "Tesla V100-SXM2-32GB", 70, 80, 1.53, 32, 900},
    {0x1db8, "Tesla V100-SXM3-32GB", 70, 80, 1.60, 32, 900},
    {0x1eb8, "Tesla T4", 75, 40, 1.59, 16, 320},
    {0x20b0, "NVIDIA A100-SXM4-40GB", 80, 108, 1.41, 40, 1555},
    {0x20b2, "NVIDIA A100-SXM4-80GB", 80, 108, 1.41, 80, 2039},
    {0x20b5, "NVIDIA A100 80GB PCIe", 80, 108, 1.41, 80, 1935},
    {0x2235, "NVIDIA A40", 86, 84, 1.74, 48, 696},
    {0x2237, "NVIDIA A10G", 86, 80, 1.71, 24, 600},
    {0x2230, "NVIDIA RTX A6000", 86, 84, 1.80, 48, 768},
    {0x2204, "NVIDIA GeForce RTX 3090", 86, 82, 1.70, 24, 936, false},
    {0x26b9, "NVIDIA L40S", 89, 142, 2.52, 48, 864},
    {0x2684, "NVIDIA GeForce RTX 4090", 89, 128, 2.52, 24, 1008, false},
    {0x2330, "NVIDIA H100 80GB HBM3", 90, 132, 1.98, 80, 3350},
    {0x2331, "NVIDIA H100 PCIe", 90, 114, 1.755, 80, 2000},
    {0x2324, "NVIDIA H800", 90, 132, 1.98, 80, 3350},
    {0x2335, "NVIDIA H200", 90, 132, 1.98, 141, 4800},
    {0x2342, "NVIDIA GH200 480GB", 90, 132, 1.98, 96, 4000},
    {0x2901, "NVIDIA B200", 100, 148, 1.965, 180, 8000},
    {0x2941, "NVIDIA GB200", 100, 152, 2.06, 186, 8000},
    {0x2bb5, "NVIDIA RTX PRO 6000 Blackwell Server Edition", 120, 188, 2.60, 96, 1597},
    {0x2b85, "NVIDIA GeForce RTX 5090", 120, 170, 2.41, 32, 1792, false},
};

/// NCCL writes families above 15 as the byte 0xf + 16 times the rest.
int family_of(const Processor& processor) {
  return processor.family > 127 ? 15 + (processor.family >> 4) : processor.family;
}

}  // namespace

const GpuModel& gpu_model(unsigned device_id, int capability) {
  const GpuModel* nearest = &kModels[0];
  for (const GpuModel& model : kModels) {
    if (model.device_id == device_id) return model;
    if (model.capability <= capability && model.capability > nearest->capability) nearest = &model;
  }
  return *nearest;
}

double nvlink_gbps(int capability) {
  if (capability >= 100) return 50;
  if (capability == 86) return 14.0625;  // bridges: 112.5 GB/s, both ways, of four
  return capability < 70 ? 20 : 25;
}
int nvlink_ports(int capability) {
  if (capability >= 90) return 18;
  if (capability == 86) return 4;
  if (capability >= 80) return 12;
  return capability >= 75 ? 2 : capability >= 70 ? 6 : 4;
}
int nvlink_version(int capability) {
  if (capability >= 100) return 5;
  if (capability >= 90) return 4;
  return capability >= 80 ? 3 : capability >= 70 ? 2 : 1;
}

double pcie_gbps(std::string_view link_speed, int link_width) {
  constexpr double kUnknown = 8;
  const double told = std::strtod(std::string(link_speed).c_str(), nullptr);
  const double gigatransfers = told > 0 ? told : kUnknown;
  // Bits of payload: 8 of 10 up to 2.0, 128 of 130 up to 5.0, 236 of 256 bytes in flits.
  const double payload = gigatransfers <= 5 ? 0.8 : gigatransfers < 64 ? 128. / 130 : 236. / 256;
  return gigatransfers * (link_width > 0 ? link_width : 16) / 8 * payload;
}

/// The makers publish what passes between processors, but not what of it GPUs get: these are NVIDIA's own
/// figures for that (NCCL, src/graph/topo.h).
double socket_gbps(const Processor& processor) {
  if (processor.arch == "ppc64") return 32;
  if (processor.arch == "arm64") return 6;
  if (processor.vendor == "AuthenticAMD") return 16;
  if (processor.vendor == "GenuineIntel" && family_of(processor) == 6)
    return processor.model >= 0xcf ? 40 : processor.model >= 0x8f ? 22 : processor.model >= 0x55 ? 10 : 6;
  return 6;
}

/// Channels times their rate.
double host_memory_gbps(const Processor& processor) {
  if (processor.arch == "ppc64") return 170;  // POWER9
  if (processor.arch == "arm64") return 512;  // Grace
  const int family = family_of(processor), model = processor.model;
  if (processor.vendor == "AuthenticAMD") {
    if (family >= 26) return 576;                                                       // 12 of DDR5-6000
    return family == 25 && ((model >= 0x10 && model < 0x20) || model >= 0xa0) ? 460.8   // 12 of DDR5-4800
                                                                              : 204.8;  // 8 of DDR4-3200
  }
  if (model >= 0xcf) return 358.4;  // 8 of DDR5-5600
  if (model >= 0x8f) return 307.2;  // 8 of DDR5-4800
  if (model >= 0x6a) return 204.8;  // 8 of DDR4-3200
  return model >= 0x55 ? 140.8      // 6 of DDR4-2933
                       : 76.8;      // 4 of DDR4-2400
}

/// Before Skylake, Intel's sockets did not pass on what peers send ("IOH topology not supported").
bool peers_across_sockets(const Processor& processor) {
  return processor.vendor != "GenuineIntel" || processor.model >= 0x55;
}

}  // namespace virtual_gpu::machine
