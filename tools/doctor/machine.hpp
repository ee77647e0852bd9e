// machine.hpp -- what of this host, its network and its GPUs matters to loom.
#pragma once

#include <string>

#include "tools/doctor/finding.hpp"
#include "topo/discover.hpp"

namespace loom::tools {

/// CPUs, single copies, file descriptors, shared memory. cgroup: where the container's limits are.
/// is_bound: mpirun may have bound this process, so its own CPUs say nothing of the host's.
void look_at_host(Findings& findings, bool is_bound = false, const std::string& cgroup = "/sys/fs/cgroup",
                  const std::string& shared_memory = "/dev/shm");
/// Between hosts.
void look_at_network(const std::vector<topo::UcxPort>& ports, Findings& findings);
/// kernels: which ones loom's build has for them; empty: none.
void look_at_gpus(const topo::LiveSources& sources, const std::string& kernels, Findings& findings);

}  // namespace loom::tools
