// nvlink_peers.hpp -- which GPUs of this machine are joined by NVLink, as NVML says it now.
#pragma once

#include <span>
#include <string>

namespace loom::topo {

/// Whether a GPU reaches each of the others over NVLink. By bus ids, as CUDA's driver writes them. False also
/// where NVML is not there, does not show one of them, or does not say. `library`: libnvidia-ml.so.1.
bool reaches_all_by_nvlink(const std::string& gpu, std::span<const std::string> others,
                           const std::string& library = "libnvidia-ml.so.1");

}  // namespace loom::topo
