#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "tools/doctor/machine.hpp"
#include "tools/words.hpp"
#include "topo/library.hpp"

namespace loom::tools {
namespace {

/// "12.4", "" without a driver.
std::string version_of(const std::string& driver) {
  const topo::Library library(driver, true, true);
  const auto get = library.function<int(int*)>("cuDriverGetVersion");
  int version = 0;
  return get != nullptr && get(&version) == 0 ? loom::format("{}.{}", version / 1000, version % 1000 / 10)
                                              : "";
}

/// Pairs of GPUs of which at least one may not reach the other's memory.
std::size_t denied_pairs(const std::vector<topo::GpuInfo>& gpus) {
  std::set<std::pair<int, int>> pairs;
  for (const topo::GpuInfo& gpu : gpus)
    for (const int denied : gpu.p2p_denied) pairs.insert(std::minmax({gpu.device, denied}));
  return pairs.size();
}

}  // namespace

void look_at_gpus(const topo::LiveSources& sources, const std::string& kernels, Findings& findings) {
  const std::string driver = version_of(sources.cuda);
  if (driver.empty()) return findings.fine("GPUs", "no CUDA driver: loom handles host memory only");
  topo::Discovered found;
  try {
    found = topo::discover(sources);
  } catch (const Error& error) {
    return findings.warn("GPUs", error.what(), "calls on host memory do not need them");
  }
  std::vector<topo::GpuInfo> gpus;
  for (const topo::Node& node : found.system.nodes())
    if (const auto* gpu = std::get_if<topo::GpuInfo>(&node.info); gpu != nullptr && !gpu->is_virtual)
      gpus.push_back(*gpu);
  if (gpus.empty())
    return findings.warn("GPUs", loom::format("CUDA {} has a driver here, but no GPU", driver),
                         "in a container: --gpus all; in a batch job: ask for GPUs");
  int least = gpus.front().compute_capability;
  for (const topo::GpuInfo& gpu : gpus) least = std::min(least, gpu.compute_capability);
  findings.fine("GPUs", loom::format("{} of compute capability {}.{} or later, driver for CUDA {}",
                                     counted(gpus.size(), "GPU"), least / 10, least % 10, driver));
  if (kernels.empty())
    findings.warn("kernels", "this build has none: buffers on GPUs go through the host",
                  "build it with clang or the CUDA Toolkit installed");
  else if (least > 0 && least < 70)
    findings.warn("kernels", loom::format("{}; these GPUs are older", kernels),
                  "buffers on these GPUs go through the host");
  else
    findings.fine("kernels", kernels);
  if (const std::size_t pairs = denied_pairs(gpus); pairs > 0)
    findings.warn(
        "peer access", loom::format("the driver denies it to {} of GPUs", counted(pairs, "pair")),
        "virtual machines and IOMMU settings do that; these GPUs reach each other through the host");
}

}  // namespace loom::tools
