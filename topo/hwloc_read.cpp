// hwloc_read.cpp -- hwloc's XML. Elements and attributes are those of hwloc 2; what is read of them is the
// PCI tree, the NUMA nodes and the NVLink bandwidths.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/bandwidth.hpp"
#include "topo/cpu_mask.hpp"
#include "topo/draft_reader.hpp"
#include "topo/hwloc_objects.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/pci_ids.hpp"

namespace loom::topo {
namespace {

class HwlocReader : DraftReader {
 public:
  HwlocReader(std::string text, const std::string& name, Model model)
      : DraftReader(std::move(text), name), model_(model) {}

  Draft read(bool from_file) {
    const pugi::xml_node root = xml_.root();
    if (std::string_view(root.name()) != "topology")
      xml_.fail(root, "the outermost element of hwloc's XML is <topology>.");
    walk(root, [&](pugi::xml_node object) { read_numa_node(object); });
    if (draft_.nodes.empty()) add_only_cpu(root);
    walk(root, [&](pugi::xml_node object) { read_io(object); });
    for (const pugi::xml_node element : root.children())
      if (element.attribute("name").value() == std::string_view("NVLinkBandwidth"))
        read_nvlink_matrix(element);
    if (from_file)
      number();
    else
      number_gpus(draft_);
    if (model_ != Model::kNccl) name_bridges();
    sort_depth_first(draft_);
    return std::move(draft_);
  }

 private:
  template <class Visit>
  void walk(pugi::xml_node root, Visit visit) {
    int depth = 0;
    for (pugi::xml_node e = next_element(root, true, depth); e; e = next_element(e, true, depth))
      if (std::string_view(e.name()) == "object") visit(e);
  }

  void read_numa_node(pugi::xml_node object) {
    if (type_of(object) != "NUMANode") return;
    CpuInfo cpu;
    const auto os_index = xml_.integer(object, "os_index", 0, kMostIds);
    cpu.numa_id = static_cast<int>(loom_int(xml_, object, "numaid", -1, kMostIds, os_index));
    const std::string mask = info(object, "loom.affinity") ? info_text(object, "loom.affinity")
                                                           : xml_.text_or(object, "cpuset", "");
    if (const auto cpus = cpu_mask(mask))
      cpu.affinity = *cpus;
    else
      xml_.fail(object, "attribute 'cpuset' is not a mask of CPUs.");
    const bool ours = !info(object, "loom.numaid").empty();
    if (!ours && (cpu.affinity.empty() || !affinities_.insert(cpu.affinity).second))
      return;  // memory without CPUs of its own
    describe_cpu(object, cpu);
    std::uint64_t hash = 0;
    if (const pugi::xml_node element = info(object, "loom.host_hash"))
      hash = xml_.unsigned64(element, "value");
    const NodeId id = add(object, {std::move(cpu), kNoNode, host_of(hash), std::nullopt});
    cpu_of_numa_.try_emplace(static_cast<int>(os_index), id);
  }

  /// Vendor and model are those of the package that the NUMA node is in, or of the first one in it.
  void describe_cpu(pugi::xml_node object, CpuInfo& cpu) {
    pugi::xml_node package = above(object, "Package");
    for (pugi::xml_node top = object.parent(); !package && top; top = top.parent())
      package =
          first_child(package_in_, top, [](pugi::xml_node child) { return type_of(child) == "Package"; });
    const auto [known, is_new] = cpu_of_package_.try_emplace(package);
    if (is_new) known->second = cpu_in(package, above(object, "Machine"));
    const CpuInfo& like = known->second;
    cpu.arch = like.arch, cpu.vendor = like.vendor, cpu.family = like.family, cpu.model = like.model;
  }

  static CpuInfo cpu_in(pugi::xml_node package, pugi::xml_node machine) {
    CpuInfo cpu;
    const auto number = [&](const char* name) {
      const pugi::xml_node element = info(package, name);
      int value = -1;
      const std::string_view text = element.attribute("value").value();
      std::from_chars(text.data(), text.data() + text.size(), value);
      return std::clamp(value, -1, 0xffff);
    };
    if (const pugi::xml_node arch = info(package, "loom.arch")) {
      cpu.arch = arch.attribute("value").value();
    } else {
      cpu.arch = info_text(machine, "Architecture");
      if (cpu.arch == "aarch64") cpu.arch = "arm64";
      if (cpu.arch.starts_with("ppc64")) cpu.arch = "ppc64";
    }
    cpu.vendor = info_text(package, "CPUVendor");
    cpu.family = number("CPUFamilyNumber"), cpu.model = number("CPUModelNumber");
    return cpu;
  }

  /// What find_child says, kept: an element with many children is asked by each of them.
  using FirstChild = std::map<pugi::xml_node, pugi::xml_node>;  // by parent
  template <class Test>
  static pugi::xml_node first_child(FirstChild& known, pugi::xml_node parent, Test test) {
    const auto [entry, is_new] = known.try_emplace(parent);
    if (is_new) entry->second = parent.find_child(test);
    return entry->second;
  }

  void add_only_cpu(pugi::xml_node root) {
    CpuInfo cpu;
    describe_cpu(root.child("object"), cpu);
    add(root, {std::move(cpu), kNoNode, host_of(0), std::nullopt});
    note(root, "it has no NUMANode; one for the whole machine is assumed.");
  }

  void read_io(pugi::xml_node object) {
    const std::string_view type = type_of(object);
    if (type == "Bridge" || type == "PCIDev") read_function(object);
    if (type == "OSDev") read_os_device(object);
  }

  /// The node that an I/O object hangs below: a switch above it, else its NUMA node.
  NodeId parent_of(pugi::xml_node object) {
    for (pugi::xml_node up = object.parent(); up; up = up.parent()) {
      if (const auto node = node_of_.find(up); node != node_of_.end()) return node->second;
      const std::string_view type = type_of(up);
      if (type == "Bridge" || type == "PCIDev") continue;
      return cpu_for(up);
    }
    return 0;
  }

  /// The same for a PCI function, which hangs below a switch or a NUMA node.
  NodeId tree_parent_of(pugi::xml_node function) {
    const NodeId parent = parent_of(function);
    if (const NodeKind kind = draft_.node(parent).kind();
        kind != NodeKind::kCpu && kind != NodeKind::kPciSwitch)
      xml_.fail(function, "it stands in a device that is no bridge.");
    return parent;
  }

  /// The NUMA node above an I/O object, whatever PCI bridges stand between.
  NodeId cpu_above(pugi::xml_node object) {
    pugi::xml_node up = object.parent();
    while (type_of(up) == "Bridge" || type_of(up) == "PCIDev") up = up.parent();
    return up ? cpu_for(up) : 0;
  }

  NodeId cpu_for(pugi::xml_node locality) {
    const std::vector<int> numa_nodes = cpus_of(cpu_mask(xml_.text_or(locality, "nodeset", "")).value_or(""));
    std::vector<NodeId> known;
    for (const int numa_node : numa_nodes)
      if (const auto cpu = cpu_of_numa_.find(numa_node); cpu != cpu_of_numa_.end())
        known.push_back(cpu->second);
    if (known.size() > 1)
      note_once(
          "locality", locality,
          loom::format(
              "hwloc does not say which of {} NUMA nodes its PCI devices are near; the first is assumed. "
              "Inside virtual machines that is common: give loom a file with the true places.",
              known.size()));
    return known.empty() ? 0 : known.front();
  }

  void read_function(pugi::xml_node object) {
    const bool ours = !info(object, "loom.class").empty();
    const bool is_bridge = type_of(object) == "Bridge";
    if (is_bridge && !xml_.has(object, "pci_busid")) return;  // between CPU and PCI
    PciFunction pci = hwloc_function(xml_, object);
    if (is_bridge && !may_be_switch(pci)) pci.class_code = kClassPciBridge;
    if (is_bridge) {
      if (ours || is_upstream_port(object)) add_function(object, PciSwitchInfo{}, pci);
      return;
    }
    const auto child_with = [&](auto&& test) { return object.find_child(test); };
    const bool has_port = !child_with([](pugi::xml_node c) { return is_port(c); }).empty();
    const bool has_gpu = !child_with([](pugi::xml_node c) { return !info(c, "loom.sm").empty(); }).empty();
    if (has_gpu) return gpu_functions_.insert({object, pci}), void();  // its OSDevs are the GPUs
    if (is_gpu(pci) && !ours) return add_plain_gpu(object, pci);
    if (ours || (is_nic(pci) && has_port)) add_function(object, NicInfo{}, pci);
  }

  void add_function(pugi::xml_node object, NodeInfo node_info, const PciFunction& pci) {
    const NodeId parent = tree_parent_of(object);
    const int host = draft_.node(parent).host;
    if (auto* pci_switch = std::get_if<PciSwitchInfo>(&node_info))
      for (const pugi::xml_node child : object.children("info"))
        if (child.attribute("name").value() == std::string_view("loom.peer"))
          pci_switch->peers.push_back(bus_id(xml_, child, "value"));
    if (std::holds_alternative<NicInfo>(node_info) && !functions_.insert({host, pci.bus_id}).second)
      xml_.fail(object, "this host has another function with this bus id.");
    node_of_[object] = add(object, {std::move(node_info), parent, host, pci});
  }

  /// A GPU as hwloc knows it.
  void add_plain_gpu(pugi::xml_node object, const PciFunction& pci) {
    const NodeId parent = tree_parent_of(object);
    GpuInfo gpu;
    gpu.device = next_device_++;
    gpu.compute_capability = compute_capability_of(pci);
    gpu.gpu_direct = base_class(pci) != 0x03 || (pci.class_code & 0xff00) == 0x0200;  // made for computing
    if (pci.vendor == kVendorAmd) gpu.gcn_arch = "gfx";
    // hwloc's NVML plugin knows the generations one to three, and takes later ones for the third.
    if (gpu.compute_capability >= 80 && pci_lane_gbit(pci.link_speed, Model::kLoom) == kUnknownLaneGbit)
      note_once("third generation", object,
                "hwloc with NVML says 8 GT/s of all faster PCI links of GPUs, too; this GPU can have a "
                "faster one. Give "
                "link_speed in a topology file of NCCL's if that is so.");
    if (gpu.compute_capability == 0 && gpu.gcn_arch.empty())
      note(object, "its compute capability is not known; links count as those of old GPUs.");
    const int host = draft_.node(parent).host;
    if (!functions_.insert({host, pci.bus_id}).second)
      xml_.fail(object, "this host has another function with this bus id.");
    const NodeId id = add(object, {std::move(gpu), parent, host, pci});
    node_of_[object] = id;
  }

  void read_os_device(pugi::xml_node object) {
    if (info(object, "loom.sm") || info(object, "loom.cpu_count")) return read_loom_gpu(object);
    if (!is_port(object)) return;
    const bool ours = !info(object, "loom.dev").empty();
    const pugi::xml_node up = object.parent();
    // A card's network interface and its OpenFabrics device are the same port; the latter is the faster way.
    const bool is_network = object.attribute("osdev_type").as_int() == 2;
    if (!ours && is_network && first_child(verbs_in_, up, [](pugi::xml_node c) {
          return is_port(c) && c.attribute("osdev_type").as_int() == 3;
        }))
      return;
    const auto nic = node_of_.find(up);
    NodeId parent = kNoNode;
    if (nic != node_of_.end() && draft_.node(nic->second).kind() == NodeKind::kNic)
      parent = nic->second;
    else if (type_of(up) == "PCIDev" || !ours)
      return;
    else
      parent = bare_nic(object, cpu_above(object));
    add_port(object, parent);
  }

  NodeId bare_nic(pugi::xml_node object, NodeId cpu) {
    const int host = draft_.node(cpu).host;
    const auto [nic, is_new] = bare_nic_of_.try_emplace(model_ == Model::kNccl ? host : cpu, kNoNode);
    if (is_new) nic->second = add(object, {NicInfo{}, cpu, host, std::nullopt});
    return nic->second;
  }

  void add_port(pugi::xml_node object, NodeId parent) {
    NetInfo net;
    net.name = info(object, "loom.name") ? info_text(object, "loom.name") : xml_.text_or(object, "name", "");
    net.device = static_cast<int>(loom_int(xml_, object, "dev", 0, kMostIds, next_net_++));
    const bool verbs = object.attribute("osdev_type").as_int() == 3;
    net.port = static_cast<int>(loom_int(xml_, object, "port", 0, kMostIds, verbs ? 1 : 0));
    net.max_connections =
        static_cast<int>(loom_int(xml_, object, "maxconn", 0, 1 << 30, kUnknownMaxConnections));
    net.gpu_direct = loom_int(xml_, object, "gdr", 0, 1, verbs) != 0;
    net.collectives = loom_int(xml_, object, "coll", 0, 1, 0) != 0;
    net.is_net = loom_int(xml_, object, "net", 0, 1, 1) != 0;
    net.is_gin = loom_int(xml_, object, "gin", 0, 1, 0) != 0,
    net.is_rma = loom_int(xml_, object, "rma", 0, 1, 0) != 0;
    net.rail = loom_optional(xml_, object, "rail", -1, kMostIds);
    net.plane = loom_optional(xml_, object, "plane", -1, kMostIds);
    if (const pugi::xml_node guid = info(object, "loom.guid"))
      net.guid = xml_.unsigned64(guid, "value");
    else
      net.guid = guid_of(info_text(object, "NodeGUID"));
    if (const pugi::xml_node e = info(object, "loom.latency"))
      net.latency_us = xml_.number_or(e, "value", 0, 1e6, 0);
    if (const pugi::xml_node e = info(object, "loom.speed"))
      net.speed_mbps = xml_.number_or(e, "value", kLeastNetMbps, kMostNetMbps, 0);
    const int host = draft_.node(parent).host;
    add(object, {std::move(net), parent, host, std::nullopt});
  }

  void read_loom_gpu(pugi::xml_node object) {
    GpuInfo gpu;
    gpu.device = static_cast<int>(loom_int(xml_, object, "dev", 0, kMostIds, 0));
    gpu.rank = static_cast<int>(loom_int(xml_, object, "rank", -1, kMostIds, kNoRank));
    if (gpu.rank != kNoRank && !ranks_.insert(gpu.rank).second)
      xml_.fail(object, loom::format("another GPU has rank {} already.", gpu.rank));
    gpu.is_virtual = !info(object, "loom.cpu_count").empty();
    if (gpu.is_virtual) {
      gpu.first_cpu = static_cast<int>(loom_int(xml_, object, "first_cpu", 0, kMostIds, 0));
      gpu.cpu_count = static_cast<int>(loom_int(xml_, object, "cpu_count", 1, kMostIds, 1));
      const NodeId cpu = parent_of(object);
      if (draft_.node(cpu).kind() != NodeKind::kCpu)
        xml_.fail(object, "a virtual GPU stands beside a NUMA node.");
      add(object, {std::move(gpu), cpu, draft_.node(cpu).host, std::nullopt});
      return;
    }
    gpu.compute_capability = static_cast<int>(loom_int(xml_, object, "sm", 0, 10000, 0));
    gpu.gpu_direct = loom_int(xml_, object, "gdr", 0, 1, 0) != 0;
    gpu.partition = loom_optional(xml_, object, "mlopart", 0, kMostPartitions - 1);
    gpu.gcn_arch = info_text(object, "loom.gcn");
    if (const pugi::xml_node denied = info(object, "loom.nop2p"))
      gpu.p2p_denied = xml_.integers(denied, "value", 0, kMostIds);
    const auto function = gpu_functions_.find(object.parent());
    if (function == gpu_functions_.end()) xml_.fail(object, "a GPU stands in a PCIDev.");
    const NodeId tree_parent = tree_parent_of(object.parent());
    const int host = draft_.node(tree_parent).host;
    const auto [first, is_first] = first_gpu_of_.try_emplace(object.parent(), kNoNode);
    if (is_first && !functions_.insert({host, function->second.bus_id}).second)
      xml_.fail(object.parent(), "this host has another function with this bus id.");
    if (gpu.partition && !partitions_.insert({host, function->second.bus_id, *gpu.partition}).second)
      xml_.fail(object, loom::format("this function has another GPU with mlopart {}.", *gpu.partition));
    const bool shares = !is_first && !gpu.partition;
    if (!shares) read_loom_links(object, gpu);
    const NodeId id =
        add(object, {std::move(gpu), shares ? first->second : tree_parent, host, function->second});
    if (is_first) first->second = id;
  }

  void read_loom_links(pugi::xml_node object, GpuInfo& gpu) {
    for (const pugi::xml_node child : object.children("info")) {
      const std::string_view name = child.attribute("name").value();
      if (name == "loom.nvlink") {
        if (const NvLinks row = loom_nvlinks(xml_, child); row.count > 0) add_row(child, gpu, row);
      } else if (name == "loom.c2c") {
        if (const C2cLinks row = loom_c2c(xml_, child); row.mbps > 0 && row.count > 0)
          add_row(child, gpu, row);
      }
    }
  }

  /// The function that an object of the matrix stands for: itself, or the PCIDev that an OSDev is in.
  static pugi::xml_node function_of(pugi::xml_node object) {
    return type_of(object) == "OSDev" ? object.parent() : object;
  }

  /// What NVLinks from a GPU to another object of the matrix lead to; nullopt: to nothing that has NVLinks.
  std::optional<NvLinks> row_to(pugi::xml_node object, int count) {
    const std::string_view type = type_of(object);
    // On POWER they lead to CPUs, too, which hwloc names by whatever stands for them.
    if (type == "Package" || type == "NUMANode" || type == "Machine")
      return NvLinks{BusId{}, count, kClassCpuBridge, false};
    if (type != "PCIDev" && type != "Bridge") return std::nullopt;
    const PciFunction pci = hwloc_function(xml_, object);
    const bool is_switch = pci.vendor == kVendorNvidia && pci.class_code >> 8 == kClassNvSwitch >> 8;
    const auto node = node_of_.find(object);
    const bool is_gpu = node != node_of_.end() && draft_.node(node->second).kind() == NodeKind::kGpu;
    if (!is_switch && !is_gpu) return std::nullopt;
    return NvLinks{pci.bus_id, count, is_gpu ? kClassGpu3d : kClassNvSwitch, true};
  }

  void read_nvlink_matrix(pugi::xml_node element) {
    if (by_index_.empty())
      walk(xml_.root(), [&](pugi::xml_node object) {
        if (xml_.has(object, "gp_index")) by_index_[xml_.unsigned64(object, "gp_index")] = object;
      });
    for (const NvLinkBandwidth& entry : nvlink_matrix(xml_, element)) {
      const pugi::xml_node from = function_of(by_index_[entry.from_index]),
                           to = function_of(by_index_[entry.to_index]);
      const auto node = node_of_.find(from);
      if (node == node_of_.end() || from == to || draft_.node(node->second).kind() != NodeKind::kGpu)
        continue;
      auto& gpu = std::get<GpuInfo>(draft_.node(node->second).info);
      const auto count = std::llround(entry.mbps / hwloc_nvlink_mbps(gpu.compute_capability));
      if (count > kMostNvLinks)
        xml_.fail(element, loom::format("{:g} MB/s is more than NVLinks carry.", entry.mbps));
      if (count == 0) continue;
      if (const auto row = row_to(to, static_cast<int>(count)))
        add_row(element, gpu, *row);
      else
        note_once(loom::format("matrix {}", entry.to_index), element,
                  loom::format("NVLinks to object {}, which is no GPU, NVSwitch or CPU, are left out.",
                               entry.to_index));
    }
  }

  Model model_;
  FirstChild package_in_, verbs_in_;
  std::map<pugi::xml_node, CpuInfo> cpu_of_package_;
  std::map<int, NodeId> cpu_of_numa_;  // by os_index
  std::set<std::string> affinities_;
  std::map<int, NodeId> bare_nic_of_;  // by CPU; under NCCL's model by host
  std::set<std::pair<int, BusId>> functions_;
  std::set<int> ranks_;
  std::set<std::tuple<int, BusId, int>> partitions_;
  std::map<pugi::xml_node, NodeId> node_of_, first_gpu_of_;
  std::map<pugi::xml_node, PciFunction> gpu_functions_;  // whose OSDevs are GPUs
  std::map<std::uint64_t, pugi::xml_node> by_index_;     // by gp_index; filled for a matrix
  int next_device_ = 0, next_net_ = 0;
};

}  // namespace

Draft draft_from_hwloc_xml(std::string text, const std::string& name) {
  return HwlocReader(std::move(text), name, Model::kLoom).read(false);
}

SystemWithNotes parse_hwloc_xml(std::string text, const std::string& name, Model model) {
  Draft draft = HwlocReader(std::move(text), name, model).read(true);
  return build(std::move(draft), model);
}

SystemWithNotes read_hwloc_xml(const std::string& path, Model model) {
  return parse_hwloc_xml(read_text_file(path), path, model);
}

}  // namespace loom::topo
