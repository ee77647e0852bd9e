// discover.hpp -- live discovery: this process on this host, through hwloc and /proc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topo/bus_id.hpp"
#include "topo/place.hpp"

struct hwloc_topology;

namespace loom::topo {

/// This host's id for a given host name: a hash of the name, the kernel's boot id and the process id
/// namespace (containers on one machine that cannot see each other's processes are different hosts).
HostId host_id(std::string_view host_name);

/// Tells texts apart: equal ones have equal numbers on all hosts. Not 0.
std::uint64_t fingerprint(std::string_view text);

/// gethostname().
std::string host_name();

/// What UCX says of a network port.
struct UcxPort {
  std::string name;         ///< mlx5_0, eth0
  int port = 0;             ///< 1 and up; 0 where the kind of device has no number
  double speed_mbps = 0;    ///< Mbit/s per direction; 0: not known
  double latency_us = 0;    ///< of one message; 0: not known
  bool gpu_direct = false;  ///< it registers CUDA memory
  std::string fabric = {};  ///< fabric_of()
};

/// What tells networks apart that a port may be of, as sysfs (`root`: /sys) shows it: the link layer, and for
/// InfiniBand the subnet ("InfiniBand fe80:0000:0000:0000"). Ports of one fabric may still not reach each
/// other, where switches or VLANs are apart. Empty: not known.
std::string fabric_of(const UcxPort& port, const std::string& root = "/sys");

/// Where live discovery looks; tests name others.
struct LiveSources {
  std::string sysfs = "/sys";
  std::string cuda = "libcuda.so.1";  ///< asked if the process has initialised it; empty: not asked
  /// For programs that are about the machine. Nobody else may: it takes a second, spends memory on every GPU,
  /// and the program may not have said yet which GPUs it wants to see, or may fork later.
  bool initialise_cuda = false;
  std::string nvml = "libnvidia-ml.so.1";  ///< opened if it is there
  std::vector<UcxPort> ucx_ports{};        ///< empty: UCX was not asked
  std::vector<BusId> gpus{};               ///< that there are, as drivers say, whether hwloc sees them or not
};

/// A host as live discovery sees it.
struct Discovered : SystemWithNotes {
  std::vector<BusId> unseen;  ///< GPUs of which NVML tells this process nothing, though it tells of others
};

/// This host as a System: its PCI tree and NUMA nodes from hwloc, link and port speeds from sysfs, GPUs from
/// CUDA and NVML. A GPU's rank is its index. Takes tens of milliseconds, a second where GPUs must wake up.
/// Throws Error.
Discovered discover(const LiveSources& sources = {}, Model model = Model::kLoom);

/// The machine as hwloc read it, which takes some milliseconds.
class Machine {
 public:
  /// Throws Error when hwloc cannot read the machine.
  Machine();
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Where the calling thread may run now.
  Place place_of_this_thread(const HostId& host) const;
  /// The NUMA node (by operating system index) to which the calling thread is bound, where there are others.
  std::optional<int> numa_node_of_this_thread() const;

 private:
  hwloc_topology* topology_ = nullptr;
};

}  // namespace loom::topo
