// live_sources.hpp -- inside topo: what the running machine says of the nodes that hwloc has found. Each
// source adds what it knows to the draft; one that is absent changes nothing.
#pragma once

#include <string>

#include "topo/discover.hpp"
#include "topo/draft.hpp"

namespace loom::topo {

/// PCI link speeds and widths, ports' speeds and GUIDs. `root`: /sys.
void add_from_sysfs(Draft& draft, const std::string& root);

/// UCX: speeds and latencies that sysfs does not tell, GPUDirect, and which ports it cannot use.
void add_from_ucx(Draft& draft, const std::vector<UcxPort>& ports);

/// The CUDA driver: compute capability, GPUDirect, which GPUs may not access each other. `library`:
/// libcuda.so.1.
void add_from_cuda(Draft& draft, const std::string& library);

/// NVML: GPU indices, NVLinks and what they lead to, C2C links. `library`: libnvidia-ml.so.1.
void add_from_nvml(Draft& draft, const std::string& library);

}  // namespace loom::topo
