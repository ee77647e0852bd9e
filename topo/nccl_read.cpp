// nccl_read.cpp -- NCCL's topology XML. Which attributes there are and what they mean is NCCL 2.30's.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/bandwidth.hpp"
#include "topo/cpu_mask.hpp"
#include "topo/draft_reader.hpp"
#include "topo/nccl_xml.hpp"
#include "topo/pci_ids.hpp"

namespace loom::topo {
namespace {

class NcclReader : DraftReader {
 public:
  NcclReader(std::string text, const std::string& name, Model model)
      : DraftReader(std::move(text), name), model_(model) {}

  SystemWithNotes read() {
    const pugi::xml_node root = xml_.root();
    if (std::string_view(root.name()) != "system")
      xml_.fail(root, "the outermost element of a topology file is <system>.");
    const auto version = xml_.integer(root, "version", 0, 1000);
    if (version != 1 && !(version == 2 && model_ == Model::kLoom))
      xml_.fail(
          root,
          loom::format("version {} is not known: NCCL's rules have version 1, loom's (--model loom) 1 and 2.",
                       version));
    know(root, {"version"});
    read_tree(root);
    if (draft_.nodes.empty()) xml_.fail(root, "it has no <cpu>.");
    number();
    if (model_ != Model::kNccl) name_bridges();
    sort_depth_first(draft_);
    return build(std::move(draft_), model_);
  }

 private:
  /// Without recursion: parents_[d] is the node that children at depth d hang from.
  void read_tree(pugi::xml_node root) {
    int depth = 0;
    std::vector<NodeId> parents = {kNoNode};
    bool into = true;
    for (pugi::xml_node element = next_element(root, true, depth); element;
         element = next_element(element, into, depth)) {
      const auto level = static_cast<std::size_t>(depth);
      parents.resize(level + 1, kNoNode);
      const NodeId parent = parents[level - 1];
      const NodeId made = read_element(element, parent);
      into = made != kNoNode;
      parents[level] = made;
    }
  }

  /// The node whose children are the element's; kNoNode: it has none to look at.
  NodeId read_element(pugi::xml_node element, NodeId parent) {
    const std::string_view tag = element.name();
    const auto under = [&](NodeKind kind) { return parent != kNoNode && draft_.node(parent).kind() == kind; };
    const auto misplaced = [&](const char* where) {
      xml_.fail(element,
                loom::format("it may stand in {}, not in <{:.40}>.", where, element.parent().name()));
    };
    if (tag == "cpu") {
      if (parent != kNoNode) misplaced("<system>");
      return read_cpu(element);
    }
    if (tag == "pci") {
      if (!under(NodeKind::kCpu) && !under(NodeKind::kPciSwitch))
        misplaced("<cpu> and in the <pci> of a switch");
      return read_pci(element, parent);
    }
    if (tag == "nic") {
      if (under(NodeKind::kNic)) return parent;  // the <pci> has become the NIC already
      if (!under(NodeKind::kCpu)) misplaced("<cpu> and <pci>");
      return read_bare_nic(element, parent);
    }
    if (tag == "net") {
      if (!under(NodeKind::kNic)) misplaced("<nic>");
      read_net(element, parent);
      return kNoNode;
    }
    if (tag == "gpu") {
      if (!under(NodeKind::kGpu)) misplaced("<pci>");
      const auto gpu = gpu_of_.find(element);
      if (gpu == gpu_of_.end()) misplaced("<pci>");  // it stands in another <gpu>
      return gpu->second;
    }
    if (tag == "nvlink" || tag == "xgmi") {
      if (!under(NodeKind::kGpu)) misplaced("<gpu>");
      read_nvlink(element, parent);
      return kNoNode;
    }
    if (tag == "c2c") {
      if (!under(NodeKind::kGpu)) misplaced("<gpu>");
      read_c2c(element, parent);
      return kNoNode;
    }
    if (tag == "pcilink") {
      if (!under(NodeKind::kPciSwitch)) misplaced("the <pci> of a switch");
      know(element, {"target"});
      std::get<PciSwitchInfo>(draft_.node(parent).info).peers.push_back(bus_id(xml_, element, "target"));
      return kNoNode;
    }
    note_once(std::string(tag), element,
              loom::format("elements <{:.40}> are not known and passed over.", tag));
    return kNoNode;
  }

  NodeId read_cpu(pugi::xml_node element) {
    know(element, {"host_hash", "numaid", "affinity", "arch", "vendor", "familyid", "modelid"});
    CpuInfo cpu;
    cpu.numa_id = static_cast<int>(xml_.integer(element, "numaid", -1, kMostIds));
    cpu.arch = xml_.text_or(element, "arch", "");
    if (cpu.arch.empty())
      note(element, "it has no attribute 'arch'; links to other NUMA nodes count as unlimited.");
    cpu.vendor = xml_.text_or(element, "vendor", "");
    cpu.family = static_cast<int>(xml_.integer_or(element, "familyid", -1, 0xffff, -1));
    cpu.model = static_cast<int>(xml_.integer_or(element, "modelid", -1, 0xffff, -1));
    if (const auto mask = cpu_mask(xml_.text_or(element, "affinity", "")))
      cpu.affinity = *mask;
    else
      xml_.fail(element,
                "attribute 'affinity' is not a mask of CPUs, groups of hexadecimal digits with commas.");
    const std::uint64_t hash = xml_.has(element, "host_hash") ? xml_.unsigned64(element, "host_hash") : 0;
    return add(element, {std::move(cpu), kNoNode, host_of(hash), std::nullopt});
  }

  NodeId read_pci(pugi::xml_node element, NodeId parent) {
    know(element, {"busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed",
                   "link_width"});
    const int host = draft_.node(parent).host;
    PciFunction pci;
    pci.bus_id = bus_id(xml_, element, "busid");
    pci.class_code = static_cast<std::uint32_t>(xml_.integer_or(element, "class", 0, 0xffffff, 0));
    const auto id16 = [&](const char* name) {
      return static_cast<std::uint16_t>(xml_.integer_or(element, name, 0, 0xffff, 0));
    };
    pci.vendor = id16("vendor"), pci.device = id16("device");
    pci.subsystem_vendor = id16("subsystem_vendor"), pci.subsystem_device = id16("subsystem_device");
    pci.link_speed = xml_.text_or(element, "link_speed", "");
    pci.link_width = static_cast<int>(xml_.integer_or(element, "link_width", 0, 255, 0));
    const auto same = pci_of_.find({host, pci.bus_id});
    if (element.child("gpu"))
      return same == pci_of_.end() ? add_gpus(element, parent, pci) : duplicate(element);
    const bool is_nic = !element.child("nic").empty();
    if (!is_nic && !is_switch(element, pci)) {
      const std::string message = loom::format(
          "a function of class 0x{:06x} is neither switch, GPU nor NIC; it and what is below it are passed "
          "over.",
          pci.class_code);
      if (element.first_child())
        note(element, message);
      else
        note_once(loom::format("class {}", pci.class_code), element, message);
      return kNoNode;
    }
    if (same != pci_of_.end()) {
      if (is_nic) duplicate(element);
      note_once("switch twice", element,
                "this host has another switch with this bus id; such are kept apart.");
    }
    Node node{NicInfo{}, parent, host, std::move(pci)};
    if (!is_nic) node.info = PciSwitchInfo{};
    return add_function(element, std::move(node));
  }

  /// To NCCL all that it does not know as something else. A disk is none, unless GPUs or ports stand below
  /// it.
  bool is_switch(pugi::xml_node element, const PciFunction& pci) const {
    if (model_ == Model::kNccl || is_bridge(pci)) return may_be_switch(pci);
    return may_be_switch(pci) && leads_to_devices(element);
  }

  static bool leads_to_devices(pugi::xml_node pci) {
    if (pci.child("gpu") || pci.child("nic")) return true;
    const auto below = pci.children("pci");
    return std::any_of(below.begin(), below.end(), leads_to_devices);
  }

  [[noreturn]] NodeId duplicate(pugi::xml_node element) const {
    xml_.fail(element, "this host has another function with this bus id.");
  }

  /// All <gpu> of a <pci>: partitions, or ranks that share the first one's GPU. Gives the first.
  NodeId add_gpus(pugi::xml_node element, NodeId parent, const PciFunction& pci) {
    const int host = draft_.node(parent).host;
    if (model_ == Model::kNccl)
      for (const pugi::xml_node child : element.children("gpu"))
        if (!xml_.has(child, "rank")) return note(element, "a GPU without a rank is passed over."), kNoNode;
    NodeId first = kNoNode;
    std::set<int> partitions;
    for (const pugi::xml_node child : element.children("gpu")) {
      GpuInfo gpu = read_gpu(child);
      if (gpu.partition && !partitions.insert(*gpu.partition).second)
        xml_.fail(child, loom::format("this function has another GPU with mlopart {}.", *gpu.partition));
      const bool shares = first != kNoNode && !gpu.partition;
      const NodeId id = add_function(child, {std::move(gpu), shares ? first : parent, host, pci});
      if (first == kNoNode) first = id;
      gpu_of_[child] = id;
    }
    return first;
  }

  GpuInfo read_gpu(pugi::xml_node element) {
    know(element, {"dev", "sm", "rank", "gdr", "mlopart", "gcn", "arch", "nop2p"});
    pass_over(element, "arch", "is a number of AMD's for what 'gcn' names");
    GpuInfo gpu;
    gpu.device = static_cast<int>(xml_.integer(element, "dev", 0, kMostIds));
    gpu.compute_capability = static_cast<int>(xml_.integer(element, "sm", 0, 10000));
    gpu.gpu_direct = xml_.integer_or(element, "gdr", 0, 1, 0) != 0;
    gpu.rank = static_cast<int>(xml_.integer_or(element, "rank", -1, kMostIds, kNoRank));
    if (gpu.rank != kNoRank && !ranks_.insert(gpu.rank).second)
      xml_.fail(element, loom::format("another GPU has rank {} already.", gpu.rank));
    if (xml_.has(element, "mlopart"))
      gpu.partition = static_cast<int>(xml_.integer(element, "mlopart", 0, kMostPartitions - 1));
    gpu.p2p_denied = xml_.integers(element, "nop2p", 0, kMostIds);
    gpu.gcn_arch = xml_.text_or(element, "gcn", "");
    return gpu;
  }

  void read_nvlink(pugi::xml_node element, NodeId parent) {
    know(element, {"target", "count", "tclass"});
    Node& node = draft_.node(parent);
    auto& gpu = std::get<GpuInfo>(node.info);
    NvLinks row;
    row.count = static_cast<int>(xml_.integer(element, "count", 0, kMostNvLinks));
    row.target_class = static_cast<std::uint32_t>(xml_.integer_or(element, "tclass", 0, 0xffffff, 0));
    const std::string target = xml_.text(element, "target");
    row.target_seen = !target.starts_with("fffffff:ff");
    if (row.target_seen) row.target = bus_id(xml_, element, "target");
    if (row.count == 0) return note(element, "it has no links; it is passed over.");
    if (draft_.node(node.parent).kind() == NodeKind::kGpu)
      return note(element, "a GPU's links are those of its first <gpu>; these are passed over.");
    add_row(element, gpu, row);
  }

  void read_c2c(pugi::xml_node element, NodeId parent) {
    know(element, {"bw", "count"});
    Node& node = draft_.node(parent);
    C2cLinks row;
    row.mbps = static_cast<int>(xml_.integer(element, "bw", 0, kMostC2cMbps));
    row.count = static_cast<int>(xml_.integer(element, "count", 0, kMostNvLinks));
    if (row.mbps == 0 || row.count == 0) return note(element, "it has no bandwidth; it is passed over.");
    if (draft_.node(node.parent).kind() == NodeKind::kGpu)
      return note(element, "a GPU's links are those of its first <gpu>; these are passed over.");
    add_row(element, std::get<GpuInfo>(node.info), row);
  }

  /// Ports that belong to no PCI function: one NIC for all of a CPU; NCCL has one for all of a host, on its
  /// first CPU.
  NodeId read_bare_nic(pugi::xml_node element, NodeId parent) {
    const int host = draft_.node(parent).host;
    const auto [nic, is_new] = bare_nic_of_.try_emplace(model_ == Model::kNccl ? host : parent, kNoNode);
    if (is_new) nic->second = add(element, {NicInfo{}, parent, host, std::nullopt});
    if (draft_.node(nic->second).parent != parent)
      note_once("bare", element,
                "ports of this NUMA node count as those of the first that has any, as NCCL has it.");
    return nic->second;
  }

  void read_net(pugi::xml_node element, NodeId parent) {
    know(element, {"name", "dev", "speed", "port", "latency", "guid", "maxconn", "gdr", "coll", "net", "gin",
                   "rma", "rail", "plane", "keep"});
    pass_over(element, "keep", "tells NCCL to write this port again, which loom always does");
    if (!xml_.has(element, "dev")) return note(element, "it has no attribute 'dev'; it is passed over.");
    NetInfo net;
    net.device = static_cast<int>(xml_.integer(element, "dev", 0, kMostIds));
    net.name = xml_.text_or(element, "name", "");
    // Drivers say -1 where they know none.
    const double speed_mbps = xml_.number_or(element, "speed", -1, kMostNetMbps, 0);
    net.speed_mbps = speed_mbps < kLeastNetMbps ? 0 : speed_mbps;
    net.port = static_cast<int>(xml_.integer_or(element, "port", 0, kMostIds, 0));
    if (xml_.has(element, "guid")) net.guid = xml_.unsigned64(element, "guid");
    net.latency_us = xml_.number_or(element, "latency", 0, 1e6, 0);
    net.max_connections =
        static_cast<int>(xml_.integer_or(element, "maxconn", 0, 1 << 30, kUnknownMaxConnections));
    const auto flag = [&](const char* name, int fallback) {
      return xml_.integer_or(element, name, 0, 1, fallback) != 0;
    };
    net.gpu_direct = flag("gdr", 0), net.collectives = flag("coll", 0);
    net.is_net = flag("net", 1), net.is_gin = flag("gin", 0), net.is_rma = flag("rma", 0);
    if (xml_.has(element, "rail")) net.rail = static_cast<int>(xml_.integer(element, "rail", -1, kMostIds));
    if (xml_.has(element, "plane"))
      net.plane = static_cast<int>(xml_.integer(element, "plane", -1, kMostIds));
    const int host = draft_.node(parent).host;
    if (!nets_.insert({host, net.device}).second)
      note_once("port twice", element, loom::format("another port of this host has dev {} too.", net.device));
    add(element, {std::move(net), parent, host, std::nullopt});
  }

  NodeId add_function(pugi::xml_node element, Node&& node) {
    const std::pair function(node.host, node.pci->bus_id);
    const NodeId id = add(element, std::move(node));
    pci_of_.try_emplace(function, id);
    return id;
  }

  /// Attributes that say nothing of the machine, and are not written again.
  void pass_over(pugi::xml_node element, const char* name, const char* why) {
    if (xml_.has(element, name))
      note_once(loom::format("{}.{}", element.name(), name), element,
                loom::format("attribute '{}' {}; it is not kept.", name, why));
  }
  void know(pugi::xml_node element, std::initializer_list<std::string_view> names) {
    for (const pugi::xml_attribute attribute : element.attributes())
      if (std::find(names.begin(), names.end(), attribute.name()) == names.end())
        note_once(loom::format("{}.{}", element.name(), attribute.name()), element,
                  loom::format("attribute '{:.40}' is not known and passed over.", attribute.name()));
  }

  Model model_;
  std::map<int, NodeId> bare_nic_of_;  // by CPU, or by host
  std::map<std::pair<int, BusId>, NodeId> pci_of_;
  std::map<pugi::xml_node, NodeId> gpu_of_;
  std::set<std::pair<int, int>> nets_;  // host and id
  std::set<int> ranks_;
};

}  // namespace

SystemWithNotes parse_nccl_xml(std::string text, const std::string& name, Model model) {
  return NcclReader(std::move(text), name, model).read();
}

SystemWithNotes read_nccl_xml(const std::string& path, Model model) {
  return parse_nccl_xml(read_text_file(path), path, model);
}

}  // namespace loom::topo
