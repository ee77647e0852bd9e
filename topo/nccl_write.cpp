
#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/nccl_xml.hpp"
#include "topo/xml.hpp"

namespace loom::topo {
namespace {

void set(pugi::xml_node element, const char* name, const std::string& value) {
  element.append_attribute(name).set_value(value.c_str());
}
void set(pugi::xml_node element, const char* name, int value) {
  set(element, name, std::to_string(value));
}
void set_hex(pugi::xml_node element, const char* name, std::uint64_t value, int digits) {
  set(element, name, loom::format("0x{:0{}x}", value, digits));
}

class NcclWriter {
 public:
  explicit NcclWriter(const System& system)
      : system_(system), elements_(static_cast<std::size_t>(system.size())) {}

  std::string write() {
    root_ = document_.append_child("system");
    bool is_amd = false;
    for (const NodeId id : system_.of_kind(NodeKind::kGpu))
      is_amd |= !system_.node(id).gpu().gcn_arch.empty();
    set(root_, "version", is_amd ? 2 : 1);
    for (NodeId id = 0; id < system_.size(); ++id) write_node(id);
    return to_text(document_);
  }

 private:
  pugi::xml_node& element(NodeId id) { return elements_[static_cast<std::size_t>(id)]; }

  void write_node(NodeId id) {
    const Node& node = system_.node(id);
    switch (node.kind()) {
      case NodeKind::kCpu:
        write_cpu(id, node);
        break;
      case NodeKind::kPciSwitch:
        write_pci(id, node);
        for (const BusId& peer : std::get<PciSwitchInfo>(node.info).peers)
          set(element(id).append_child("pcilink"), "target", peer.to_string());
        break;
      case NodeKind::kNic:
        write_nic(id, node);
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
    pugi::xml_node out = element(id) = root_.append_child("cpu");
    if (const std::uint64_t hash = system_.hosts()[static_cast<std::size_t>(node.host)]; hash != 0)
      set_hex(out, "host_hash", hash, 1);
    set(out, "numaid", cpu.numa_id);
    set(out, "affinity", cpu.affinity);
    set(out, "arch", cpu.arch);
    if (!cpu.vendor.empty()) set(out, "vendor", cpu.vendor);
    if (cpu.family >= 0) set(out, "familyid", cpu.family);
    if (cpu.model >= 0) set(out, "modelid", cpu.model);
  }

  pugi::xml_node write_pci(NodeId id, const Node& node) {
    const PciFunction& pci = *node.pci;
    pugi::xml_node out = element(id) = element(node.parent).append_child("pci");
    set(out, "busid", pci.bus_id.to_string());
    set_hex(out, "class", pci.class_code, 6);
    set_hex(out, "vendor", pci.vendor, 4);
    set_hex(out, "device", pci.device, 4);
    set_hex(out, "subsystem_vendor", pci.subsystem_vendor, 4);
    set_hex(out, "subsystem_device", pci.subsystem_device, 4);
    set(out, "link_speed", pci.link_speed);
    set(out, "link_width", pci.link_width);
    return out;
  }

  void write_nic(NodeId id, const Node& node) {
    const pugi::xml_node parent = node.pci ? write_pci(id, node) : element(node.parent);
    element(id) = pugi::xml_node(parent).append_child("nic");
  }

  void write_net(const Node& node) {
    const NetInfo& net = node.net();
    pugi::xml_node out = element(node.parent).append_child("net");
    if (!net.name.empty()) set(out, "name", net.name);
    set(out, "dev", net.device);
    if (net.speed_mbps > 0) set(out, "speed", loom::format("{}", net.speed_mbps));
    set(out, "port", net.port);
    set(out, "latency", loom::format("{}", net.latency_us));
    if (net.guid) set_hex(out, "guid", *net.guid, 1);
    set(out, "maxconn", net.max_connections);
    set(out, "gdr", net.gpu_direct);
    if (net.collectives) set(out, "coll", 1);
    if (net.rail) set(out, "rail", *net.rail);
    if (net.plane) set(out, "plane", *net.plane);
    if (!net.is_net) set(out, "net", 0);
    if (net.is_gin) set(out, "gin", 1);
    if (net.is_rma) set(out, "rma", 1);
  }

  void write_gpu(NodeId id, const Node& node) {
    const GpuInfo& gpu = node.gpu();
    if (gpu.is_virtual)
      throw Error(ErrorCode::kBadInput,
                  loom::format("{}: NCCL's XML has no word for virtual GPUs; write hwloc's XML instead.",
                               label(system_, id)));
    const pugi::xml_node pci = shares_function(system_, id) ? element(id - 1).parent() : write_pci(id, node);
    pugi::xml_node out = element(id) = pugi::xml_node(pci).append_child("gpu");
    set(out, "dev", gpu.device);
    set(out, "sm", gpu.compute_capability);
    if (!gpu.gcn_arch.empty()) set(out, "gcn", gpu.gcn_arch);
    if (gpu.partition) set(out, "mlopart", *gpu.partition);
    if (gpu.rank != kNoRank) set(out, "rank", gpu.rank);
    set(out, "gdr", gpu.gpu_direct);
    if (!gpu.p2p_denied.empty()) set(out, "nop2p", loom::join(gpu.p2p_denied, " "));
    for (const NvLinks& row : gpu.nvlinks) {
      pugi::xml_node link = out.append_child(gpu.gcn_arch.empty() ? "nvlink" : "xgmi");
      set(link, "target", row.target_seen ? row.target.to_string() : "fffffff:ffff:ff");
      set(link, "count", row.count);
      set_hex(link, "tclass", row.target_class, 6);
    }
    for (const C2cLinks& row : gpu.c2c) {
      pugi::xml_node link = out.append_child("c2c");
      set(link, "bw", row.mbps);
      set(link, "count", row.count);
    }
  }

  const System& system_;
  std::vector<pugi::xml_node> elements_;  // per node: what its children go into
  pugi::xml_document document_;
  pugi::xml_node root_;
};

}  // namespace

std::string to_nccl_xml(const System& system) {
  return NcclWriter(system).write();
}

}  // namespace loom::topo
