// hwloc_write.cpp -- a System as hwloc's XML. What hwloc needs to accept a file (CPUs, host bridges, root
// ports) is made up where a System does not say; the "loom." infos hold the truth.
#include <algorithm>
#include <set>

#include "base/format.hpp"
#include "topo/bandwidth.hpp"
#include "topo/cpu_mask.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/nccl_xml.hpp"
#include "topo/xml.hpp"

namespace loom::topo {
namespace {

template <class Value>
void set(pugi::xml_node element, const char* name, const Value& value) {
  element.append_attribute(name).set_value(loom::format("{}", value).c_str());
}
template <class Value>
void add_info(pugi::xml_node object, const char* name, const Value& value) {
  const pugi::xml_node info = object.append_child("info");
  set(info, "name", name);
  set(info, "value", value);
}

class HwlocWriter {
 public:
  explicit HwlocWriter(const System& system)
      : system_(system), objects_(static_cast<std::size_t>(system.size())) {}

  std::string write() {
    document_.append_child(pugi::node_doctype).set_value("topology SYSTEM \"hwloc2.dtd\"");
    pugi::xml_node root = document_.append_child("topology");
    set(root, "version", "2.0");
    choose_cpus();
    machine_ = add_object(root, "Machine");
    set(machine_, "os_index", 0);
    set_sets(machine_, mask_of(all_cpus_), mask_of(all_numa_));
    const auto cpus = system_.of_kind(NodeKind::kCpu);
    if (!cpus.empty()) add_info(machine_, "Architecture", system_.node(cpus[0]).cpu().arch);
    for (NodeId id = 0; id < system_.size(); ++id) write_node(id);
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + to_text(document_);
  }

 private:
  pugi::xml_node& object(NodeId id) { return objects_[static_cast<std::size_t>(id)]; }

  pugi::xml_node add_object(pugi::xml_node parent, const char* type) {
    pugi::xml_node made = parent.append_child("object");
    set(made, "type", type);
    set(made, "gp_index", next_index_++);
    return made;
  }

  static void set_sets(pugi::xml_node object, const std::string& cpus, const std::string& numa_nodes) {
    for (const char* name : {"cpuset", "complete_cpuset"}) set(object, name, to_hwloc_mask(cpus));
    for (const char* name : {"nodeset", "complete_nodeset"}) set(object, name, to_hwloc_mask(numa_nodes));
    if (object.attribute("type").value() != std::string_view("Machine")) return;
    set(object, "allowed_cpuset", to_hwloc_mask(cpus));
    set(object, "allowed_nodeset", to_hwloc_mask(numa_nodes));
  }

  /// hwloc wants every NUMA node to have CPUs of its own, and numbers that are unique on the machine.
  void choose_cpus() {
    std::set<int> taken_cpus, taken_numa;
    bool real = system_.hosts().size() == 1;
    for (const NodeId id : system_.of_kind(NodeKind::kCpu)) {
      const CpuInfo& cpu = system_.node(id).cpu();
      real = real && cpu.numa_id >= 0 && cpu.numa_id < 4096 && taken_numa.insert(cpu.numa_id).second &&
             !cpu.affinity.empty();
      for (const int number : cpus_of(cpu.affinity)) real = real && taken_cpus.insert(number).second;
    }
    // hwloc wants them in ascending order, too.
    int before = -1;
    for (const NodeId id : system_.of_kind(NodeKind::kCpu)) {
      const std::vector<int> cpus = cpus_of(system_.node(id).cpu().affinity);
      real = real && !cpus.empty() && cpus.front() > before;
      before = cpus.empty() ? before : cpus.front();
    }
    int next = 0;
    for (const NodeId id : system_.of_kind(NodeKind::kCpu)) {
      const CpuInfo& cpu = system_.node(id).cpu();
      numa_.push_back(real ? cpu.numa_id : next);
      cpus_.push_back(real ? cpus_of(cpu.affinity) : std::vector<int>{next});
      ++next;
      all_numa_.push_back(numa_.back());
      all_cpus_.insert(all_cpus_.end(), cpus_.back().begin(), cpus_.back().end());
    }
  }

  void write_node(NodeId id) {
    const Node& node = system_.node(id);
    switch (node.kind()) {
      case NodeKind::kCpu:
        write_cpu(id, node);
        break;
      case NodeKind::kPciSwitch: {
        object(id) = write_pci(node, "Bridge");
        for (const BusId& peer : std::get<PciSwitchInfo>(node.info).peers)
          add_info(object(id), "loom.peer", peer.to_string());
        break;
      }
      case NodeKind::kNic:
        object(id) = node.pci ? write_pci(node, "PCIDev") : object(node.parent);
        break;
      case NodeKind::kNet:
        write_net(node);
        break;
      case NodeKind::kGpu:
        write_gpu(id, node);
        break;
      case NodeKind::kNvSwitch:
      case NodeKind::kC2cPort:
        break;  // they follow from the rest
    }
  }

  void write_cpu(NodeId id, const Node& node) {
    const CpuInfo& cpu = node.cpu();
    const std::string cpus = mask_of(cpus_[written_cpus_]), numa = mask_of({numa_[written_cpus_]});
    pugi::xml_node package = object(id) = add_object(machine_, "Package");
    set(package, "os_index", written_cpus_);
    set_sets(package, cpus, numa);
    if (!cpu.vendor.empty()) add_info(package, "CPUVendor", cpu.vendor);
    if (cpu.family >= 0) add_info(package, "CPUFamilyNumber", cpu.family);
    if (cpu.model >= 0) add_info(package, "CPUModelNumber", cpu.model);
    add_info(package, "loom.arch", cpu.arch);
    pugi::xml_node numa_node = add_object(package, "NUMANode");
    set(numa_node, "os_index", numa_[written_cpus_]);
    set_sets(numa_node, cpus, numa);
    add_info(numa_node, "loom.numaid", cpu.numa_id);
    add_info(numa_node, "loom.affinity", cpu.affinity);
    if (const std::uint64_t hash = system_.hosts()[static_cast<std::size_t>(node.host)]; hash != 0)
      add_info(numa_node, "loom.host_hash", loom::format("0x{:x}", hash));
    for (const int number : cpus_[written_cpus_]) {
      pugi::xml_node unit = add_object(package, "PU");
      set(unit, "os_index", number);
      set_sets(unit, mask_of({number}), numa);
    }
    ++written_cpus_;
  }

  /// The object for a function, below what hwloc expects above it.
  pugi::xml_node write_pci(const Node& node, const char* type) {
    const PciFunction& pci = *node.pci;
    pugi::xml_node parent = object(node.parent);
    const std::string buses =
        loom::format("{:04x}:[{:02x}-{:02x}]", pci.bus_id.domain, pci.bus_id.bus, pci.bus_id.bus);
    const bool is_bridge = std::string_view(type) == "Bridge";
    if (system_.node(node.parent).kind() == NodeKind::kCpu) {
      parent = add_object(parent, "Bridge");
      set(parent, "bridge_type", "0-1");
      set(parent, "depth", 0);
      set(parent, "bridge_pci", buses);
    }
    pugi::xml_node out = add_object(parent, type);
    if (is_bridge) {
      set(out, "bridge_type", "1-1");
      set(out, "depth", 1);
      set(out, "bridge_pci", buses);
    }
    set(out, "pci_busid", pci.bus_id.to_string());
    set(out, "pci_type",
        loom::format("{:04x} [{:04x}:{:04x}] [{:04x}:{:04x}] 00", pci.class_code >> 8, pci.vendor, pci.device,
                     pci.subsystem_vendor, pci.subsystem_device));
    set(out, "pci_link_speed",
        loom::format("{:.6f}", pci_gbps(pci, Model::kLoom) / 0.7616));  // what hwloc counts of a lane
    add_info(out, "loom.class", loom::format("0x{:06x}", pci.class_code));
    add_info(out, "loom.link_speed", pci.link_speed);
    add_info(out, "loom.link_width", pci.link_width);
    return out;
  }

  void write_net(const Node& node) {
    const NetInfo& net = node.net();
    pugi::xml_node out = add_object(object(node.parent), "OSDev");
    set(out, "name", net.name.empty() ? loom::format("net{}", net.device) : net.name);
    constexpr int kNetwork = 2, kOpenFabrics = 3;
    set(out, "osdev_type", net.guid || net.port > 0 ? kOpenFabrics : kNetwork);
    add_info(out, "loom.name", net.name);
    add_info(out, "loom.dev", net.device);
    if (net.speed_mbps > 0) add_info(out, "loom.speed", net.speed_mbps);
    add_info(out, "loom.port", net.port);
    add_info(out, "loom.maxconn", net.max_connections);
    add_info(out, "loom.latency", net.latency_us);
    add_info(out, "loom.gdr", net.gpu_direct ? 1 : 0);
    if (net.guid) add_info(out, "loom.guid", loom::format("0x{:x}", *net.guid));
    if (net.collectives) add_info(out, "loom.coll", 1);
    if (net.rail) add_info(out, "loom.rail", *net.rail);
    if (net.plane) add_info(out, "loom.plane", *net.plane);
    if (!net.is_net) add_info(out, "loom.net", 0);
    if (net.is_gin) add_info(out, "loom.gin", 1);
    if (net.is_rma) add_info(out, "loom.rma", 1);
  }

  void write_gpu(NodeId id, const Node& node) {
    const GpuInfo& gpu = node.gpu();
    pugi::xml_node above = object(node.parent);
    if (!gpu.is_virtual) {
      above = shares_function(system_, id) ? object(id - 1).parent() : write_pci(node, "PCIDev");
    }
    pugi::xml_node out = object(id) = add_object(above, "OSDev");
    set(out, "name", loom::format("{}{}", gpu.is_virtual ? "virtual" : "cuda", id));
    set(out, "osdev_type", 5);
    add_info(out, "loom.dev", gpu.device);
    if (gpu.rank != kNoRank) add_info(out, "loom.rank", gpu.rank);
    if (gpu.is_virtual) {
      add_info(out, "loom.first_cpu", gpu.first_cpu);
      add_info(out, "loom.cpu_count", gpu.cpu_count);
      return;
    }
    add_info(out, "loom.sm", gpu.compute_capability);
    add_info(out, "loom.gdr", gpu.gpu_direct ? 1 : 0);
    if (gpu.partition) add_info(out, "loom.mlopart", *gpu.partition);
    if (!gpu.gcn_arch.empty()) add_info(out, "loom.gcn", gpu.gcn_arch);
    if (!gpu.p2p_denied.empty()) add_info(out, "loom.nop2p", loom::join(gpu.p2p_denied, " "));
    for (const NvLinks& row : gpu.nvlinks)
      add_info(out, "loom.nvlink",
               loom::format("{} {} {:06x}", row.target_seen ? row.target.to_string() : "-", row.count,
                            row.target_class));
    for (const C2cLinks& row : gpu.c2c) add_info(out, "loom.c2c", loom::format("{} {}", row.mbps, row.count));
  }

  const System& system_;
  std::vector<pugi::xml_node> objects_;  // per node
  std::vector<std::vector<int>> cpus_;   // per CPU node
  std::vector<int> numa_, all_numa_, all_cpus_;
  std::size_t written_cpus_ = 0;
  int next_index_ = 1;
  pugi::xml_document document_;
  pugi::xml_node machine_;
};

}  // namespace

std::string to_hwloc_xml(const System& system) {
  return HwlocWriter(system).write();
}

SystemWithNotes parse_system(std::string text, const std::string& name, Model model) {
  // The first element's name tells; prologs, comments and document types come before it.
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    if (text.compare(at, 4, "<!--") == 0) {
      at = text.find("-->", at);
      if (at == std::string::npos) break;
    } else if (text.compare(at, 9, "<topology") == 0) {
      return parse_hwloc_xml(std::move(text), name, model);
    } else if (text[std::min(at + 1, text.size() - 1)] != '!' &&
               text[std::min(at + 1, text.size() - 1)] != '?') {
      break;
    }
  }
  return parse_nccl_xml(std::move(text), name, model);
}

SystemWithNotes read_system(const std::string& path, Model model) {
  return parse_system(read_text_file(path), path, model);
}

}  // namespace loom::topo
