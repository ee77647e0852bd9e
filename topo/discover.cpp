#include "topo/discover.hpp"

#include <hwloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <memory>

#include "base/error.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/live_sources.hpp"

namespace loom::topo {
namespace {

struct BitmapDeleter {
  void operator()(hwloc_bitmap_s* bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using BitmapPtr = std::unique_ptr<hwloc_bitmap_s, BitmapDeleter>;

/// FNV-1a over 64 bits, from any basis: two bases give two independent halves.
std::uint64_t hash(std::string_view text, std::uint64_t basis) {
  std::uint64_t value = basis;
  for (const char c : text) {
    value ^= static_cast<unsigned char>(c);
    value *= 0x100000001b3ULL;
  }
  return value;
}

}  // namespace

std::uint64_t fingerprint(std::string_view text) {
  return hash(text, 0xcbf29ce484222325ULL) | 1;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) throw system_error("gethostname failed", errno);
  return name.data();
}

HostId host_id(std::string_view host_name) {
  std::string identity(host_name);
  std::string boot_id;
  if (std::ifstream file("/proc/sys/kernel/random/boot_id"); std::getline(file, boot_id))
    identity += '\n' + boot_id;
  struct stat pid_namespace {};
  if (::stat("/proc/self/ns/pid", &pid_namespace) == 0)
    identity += '\n' + std::to_string(pid_namespace.st_ino);
  return {hash(identity, 0xcbf29ce484222325ULL), hash(identity, 0x9e3779b97f4a7c15ULL)};
}

namespace {

/// hwloc's own description of this machine with its I/O devices, as XML.
std::string hwloc_description() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw system_error("hwloc_topology_init failed", errno);
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> owner(topology,
                                                                                 hwloc_topology_destroy);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // opencl and gl take seconds and tell nothing that is needed here; pci leaks what its library allocates,
  // and without it hwloc reads the same from sysfs.
  for (const char* component : {"opencl", "gl", "pci"})
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  char* xml = nullptr;
  int length = 0;
  if (hwloc_topology_load(topology) != 0 || hwloc_topology_export_xmlbuffer(topology, &xml, &length, 0) != 0)
    throw system_error("hwloc could not read this machine's topology", errno);
  std::string text(xml);  // `length` counts the final zero
  hwloc_free_xmlbuffer(topology, xml);
  return text;
}

}  // namespace

Discovered discover(const LiveSources& sources, Model model) {
  Draft draft = draft_from_hwloc_xml(hwloc_description(), "this machine");
  add_missing_gpus(draft, sources.gpus, sources.sysfs);
  add_from_sysfs(draft, sources.sysfs);
  add_from_ucx(draft, sources.ucx_ports);
  std::vector<BusId> unseen = add_from_nvml(draft, sources.nvml);
  if (!sources.cuda.empty()) add_from_cuda(draft, sources.cuda, sources.initialise_cuda);
  return {build(std::move(draft), model), std::move(unseen)};
}

namespace {

BitmapPtr empty_bitmap() {
  BitmapPtr bitmap(hwloc_bitmap_alloc());
  if (!bitmap) throw Error(ErrorCode::kOutOfMemory, "hwloc_bitmap_alloc failed");
  return bitmap;
}

BitmapPtr cpus_of_this_thread(hwloc_topology_t topology) {
  BitmapPtr cpus = empty_bitmap();
  // Where binding cannot be asked for, the rank may run anywhere that the machine allows.
  if (hwloc_get_cpubind(topology, cpus.get(), HWLOC_CPUBIND_THREAD) != 0)
    hwloc_bitmap_copy(cpus.get(), hwloc_topology_get_allowed_cpuset(topology));
  hwloc_bitmap_and(cpus.get(), cpus.get(), hwloc_topology_get_allowed_cpuset(topology));
  return cpus;
}

/// Of the lowest CPU; nullptr where hwloc knows none.
hwloc_const_nodeset_t nodes_of_first(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  const int first = hwloc_bitmap_first(cpus);
  if (first < 0) return nullptr;
  const hwloc_obj_t cpu = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(first));
  return cpu != nullptr ? cpu->nodeset : nullptr;
}

/// See Place. Where no cache is known each CPU has one.
int first_of_last_cache(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  const int cpu = hwloc_bitmap_first(cpus);
  const hwloc_obj_t own = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(cpu));
  hwloc_const_cpuset_t of_cache = own == nullptr ? nullptr : own->cpuset;
  for (hwloc_obj_t up = own; up != nullptr; up = up->parent)
    if (hwloc_obj_type_is_dcache(up->type)) of_cache = up->cpuset;
  if (of_cache == nullptr) return cpu;
  return hwloc_bitmap_isincluded(cpus, of_cache) ? hwloc_bitmap_first(of_cache) : Place::kSeveralCaches;
}

}  // namespace

Machine::Machine() {
  if (hwloc_topology_init(&topology_) != 0) throw system_error("hwloc_topology_init failed", errno);
  // Containers and cpusets may allow each rank other CPUs: what these share is the same for all only if hwloc
  // shows the CPUs of the others, too.
  hwloc_topology_set_flags(topology_, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(topology_) != 0) {
    const int error = errno;
    hwloc_topology_destroy(topology_);
    throw system_error("hwloc could not read this machine's topology", error);
  }
}

Machine::~Machine() {
  hwloc_topology_destroy(topology_);
}

Place Machine::place_of_this_thread(const HostId& host) const {
  const BitmapPtr cpus = cpus_of_this_thread(topology_);
  Place place{.host = host};
  if (const int first = hwloc_bitmap_first(cpus.get()); first >= 0) {
    place.first_cpu = first;
    place.cpu_count = hwloc_bitmap_weight(cpus.get());
    place.first_of_cache = first_of_last_cache(topology_, cpus.get());
    const hwloc_const_nodeset_t nodes = nodes_of_first(topology_, cpus.get());
    if (nodes != nullptr && hwloc_bitmap_first(nodes) >= 0) place.numa_node = hwloc_bitmap_first(nodes);
  }
  return place;
}

std::optional<int> Machine::numa_node_of_this_thread() const {
  if (hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_NUMANODE) < 2) return {};
  const BitmapPtr cpus = cpus_of_this_thread(topology_), nodes = empty_bitmap();
  const hwloc_const_nodeset_t nodes_of_one = nodes_of_first(topology_, cpus.get());
  if (nodes_of_one == nullptr || hwloc_cpuset_to_nodeset(topology_, cpus.get(), nodes.get()) != 0) return {};
  if (!hwloc_bitmap_isequal(nodes.get(), nodes_of_one)) return {};  // it may run on others, too
  return hwloc_bitmap_first(nodes_of_one);
}

}  // namespace loom::topo
