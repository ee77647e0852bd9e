#include "component/setup/device_use.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "component/select/algorithms.hpp"
#include "device/cuda/images.hpp"

namespace loom {
namespace {

const char* reason(DeviceUse use) {
  switch (use) {
    case DeviceUse::kKeepsCalls:
      break;
    case DeviceUse::kHostMemory:
      return "coll_loom_memory says that all buffers are in host memory";
    case DeviceUse::kNoDriver:
      return "CUDA's driver is not loaded";
    case DeviceUse::kNoKernels:
      return "this build of loom has no kernels";
    case DeviceUse::kOtherRules:
      return "coll_loom_tune leaves no call to algorithms on GPUs";
    case DeviceUse::kReproducible:
      return "coll_loom_reproducible asks for an order of operands that kernels do not keep";
  }
  return "";
}

}  // namespace

DeviceUse device_use(Process& process, bool looks) {
  const loom_parameters& parameters = process.runtime().parameters;
  if (parameters.only_host_memory) return DeviceUse::kHostMemory;
  if (!looks || process.staging() == nullptr) return DeviceUse::kNoDriver;
  if (!device::cuda::has_kernels()) return DeviceUse::kNoKernels;
  if (!process.wants_devices()) return DeviceUse::kOtherRules;
  if (parameters.reproducible && !process.tune().may_use_on_devices(Algorithm::kZeroCopy, false))
    return DeviceUse::kReproducible;
  return DeviceUse::kKeepsCalls;
}

std::string why_not_on_gpus(std::span<const DeviceUse> ranks, int hosts, bool in_order) {
  const auto without =
      std::ranges::find_if(ranks, [](DeviceUse use) { return use != DeviceUse::kKeepsCalls; });
  if (without == ranks.end()) return in_order && hosts > 1 ? reason(DeviceUse::kReproducible) : "";
  const bool alike = std::ranges::all_of(ranks, [&](DeviceUse use) { return use == *without; });
  return alike ? reason(*without) : loom::format("on rank {} {}", without - ranks.begin(), reason(*without));
}

bool any_has_a_driver(std::span<const DeviceUse> ranks) {
  return std::ranges::any_of(
      ranks, [](DeviceUse use) { return use != DeviceUse::kNoDriver && use != DeviceUse::kHostMemory; });
}

}  // namespace loom
