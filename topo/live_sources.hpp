// live_sources.hpp -- inside topo: what the running machine says of the nodes that hwloc has found. Each
// source adds what it knows to the draft; one that is absent changes nothing. What is not known because of
// that, or because a source fails, becomes a note.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "topo/discover.hpp"
#include "topo/draft.hpp"

namespace loom::topo {

/// GPUs of `bus_ids` that hwloc has not found: below the closest switch or at the NUMA node that sysfs names,
/// or, with a note, at the first NUMA node. `root`: /sys.
void add_missing_gpus(Draft& draft, std::span<const BusId> bus_ids, const std::string& root);

/// PCI link speeds and widths, ports' speeds and GUIDs, further ports of a device; ports that are down are
/// left out. `root`: /sys.
void add_from_sysfs(Draft& draft, const std::string& root);

/// UCX: speeds and latencies that sysfs does not tell, GPUDirect, and which ports it cannot use. No ports:
/// UCX was not asked, and what it would say of GPUDirect is assumed.
void add_from_ucx(Draft& draft, const std::vector<UcxPort>& ports);

/// The CUDA driver: compute capability, GPUDirect, which GPUs may not access each other. NVIDIA GPUs that it
/// does not list, in containers and under CUDA_VISIBLE_DEVICES, lose their rank. `library`: libcuda.so.1.
/// Unless it is to `initialise` CUDA, it asks only where the process has done so itself.
void add_from_cuda(Draft& draft, const std::string& library, bool initialise);

/// NVML: GPU indices, NVLinks and what they lead to, C2C links, which GPUs may not access each other. Returns
/// the GPUs that it hides while it shows others. `library`: libnvidia-ml.so.1.
std::vector<BusId> add_from_nvml(Draft& draft, const std::string& library);

}  // namespace loom::topo
