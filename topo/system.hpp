// system.hpp -- what is this machine? GPUs, switches, NUMA nodes, NICs and ports, and the links between them.
// A System is a value: read, discovered or made up, it is the same to whoever reads it. It knows nothing of
// channels, communicators or transports. Best paths are in paths.hpp, ways to get a System in nccl_xml.hpp,
// hwloc_xml.hpp and discover.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "topo/bus_id.hpp"

namespace loom::topo {

using NodeId = std::int32_t;  ///< index in System::nodes()
using LinkId = std::int32_t;  ///< index in System::links()
inline constexpr NodeId kNoNode = -1;
inline constexpr LinkId kNoLink = -1;
inline constexpr int kNoRank = -1;

/// Which rules turn what a machine has into links and bandwidths. They agree but for what bandwidth.hpp
/// lists.
enum class Model : std::uint8_t { kLoom, kNccl };

enum class NodeKind : std::uint8_t {
  kGpu,  ///< a GPU, a partition of one, or a further rank on one; see GpuInfo
  kPciSwitch,
  kNvSwitch,  ///< all NVSwitches of an NVLink domain as one
  kCpu,       ///< a NUMA node with its cores
  kNic,       ///< a PCI function that has network ports
  kNet,       ///< a network port
  kC2cPort,   ///< where the partitions of one GPU share its C2C links
};
inline constexpr int kNodeKindCount = 7;

enum class LinkType : std::uint8_t {
  kLoc,  ///< inside one device
  kNvl,  ///< NVLink, xGMI
  kC2c,  ///< NVLink-C2C between a GPU and its CPU
  kPci,
  kSys,  ///< between NUMA nodes
  kNet,  ///< between a NIC and its port
};

/// A function on a PCI bus and its link upwards. Zeros and empty text: not known.
struct PciFunction {
  BusId bus_id;
  std::uint32_t class_code = 0;  ///< e.g. 0x030200
  std::uint16_t vendor = 0, device = 0, subsystem_vendor = 0, subsystem_device = 0;
  std::string link_speed;  ///< of one lane, as the source spells it, e.g. "16.0 GT/s PCIe"
  int link_width = 0;      ///< lanes, as the source says: virtual machines say 64 or 255
  friend bool operator==(const PciFunction&, const PciFunction&) = default;
};

/// NVLinks (on AMD: xGMI links) of a GPU that lead to one target.
struct NvLinks {
  BusId target;  ///< of a GPU, or of a CPU bridge on POWER; switches' are for display alone
  int count = 0;
  std::uint32_t target_class =
      0;                    ///< PCI class of the target: 0x03.... GPU, 0x068000 switch, 0x068001 CPU bridge
  bool target_seen = true;  ///< false: the driver hides it, as it does with the switches of virtual machines
  friend bool operator==(const NvLinks&, const NvLinks&) = default;
};

struct C2cLinks {
  int mbps = 0;  ///< MB/s of one link, per direction
  int count = 0;
  friend bool operator==(const C2cLinks&, const C2cLinks&) = default;
};

/// A place where data is reduced. A GPU that several ranks share is one node with its links, and one more
/// node for each further rank whose parent is the first. A GPU split by its driver is one node per partition.
struct GpuInfo {
  int device = 0;                ///< index on its host, as NVML counts
  int rank = kNoRank;            ///< in the communicator; kNoRank: on the machine, but not taking part
  int compute_capability = 0;    ///< times ten: 90 is sm_90
  bool gpu_direct = false;       ///< a NIC may read and write its memory
  std::optional<int> partition;  ///< of a split GPU
  std::string gcn_arch;          ///< AMD: gfx942, ...; empty: NVIDIA
  std::vector<NvLinks> nvlinks;
  std::vector<C2cLinks> c2c;
  std::vector<int> p2p_denied;       ///< devices of its host whose memory its driver denies it; ascending
  bool is_virtual = false;           ///< a rank's share of a CPU, where there is no GPU
  int first_cpu = 0, cpu_count = 0;  ///< virtual: the CPUs that the rank may run on
  friend bool operator==(const GpuInfo&, const GpuInfo&) = default;
};

struct PciSwitchInfo {
  std::vector<BusId> peers;  ///< switches that it has a direct link to
  friend bool operator==(const PciSwitchInfo&, const PciSwitchInfo&) = default;
};

struct NvSwitchInfo {
  std::vector<BusId> bus_ids;  ///< of the switches, where the driver shows them
  friend bool operator==(const NvSwitchInfo&, const NvSwitchInfo&) = default;
};

struct CpuInfo {
  int numa_id = 0;              ///< operating system index
  std::string arch;             ///< x86_64, arm64, ppc64
  std::string vendor;           ///< as CPUID says: GenuineIntel, AuthenticAMD, ...; empty unless x86
  int family = -1, model = -1;  ///< CPUID; -1: not known
  std::string affinity;         ///< its CPUs as a mask in groups of 8 hexadecimal digits: "ffffffff,00000000"
  friend bool operator==(const CpuInfo&, const CpuInfo&) = default;
};

struct NicInfo {
  friend bool operator==(const NicInfo&, const NicInfo&) = default;
};

struct NetInfo {
  std::string name;       ///< e.g. mlx5_0
  int device = 0;         ///< index on its host
  double speed_mbps = 0;  ///< Mbit/s, per direction; 0: not known
  int port = 0;
  std::optional<std::uint64_t> guid;  ///< ports with one guid are on one ASIC
  double latency_us = 0;
  int max_connections = 0;
  bool gpu_direct = false;
  bool collectives = false;  ///< the network reduces by itself (SHARP)
  std::optional<int> rail, plane;
  bool is_net = true, is_gin = false, is_rma = false;  ///< which uses the port is for
  friend bool operator==(const NetInfo&, const NetInfo&) = default;
};
/// The port's name in UCX_NET_DEVICES: "mlx5_0:1", "eth0".
std::string ucx_name(const NetInfo& net);

struct C2cPortInfo {
  friend bool operator==(const C2cPortInfo&, const C2cPortInfo&) = default;
};

/// In the order of NodeKind.
using NodeInfo = std::variant<GpuInfo, PciSwitchInfo, NvSwitchInfo, CpuInfo, NicInfo, NetInfo, C2cPortInfo>;

struct Node {
  NodeInfo info;
  NodeId parent = kNoNode;         ///< up the PCI tree; a NIC for its ports; kNoNode for CPUs and NVSwitches
  int host = 0;                    ///< index in System::hosts()
  std::optional<PciFunction> pci;  ///< of GPUs, switches and NICs, unless virtual

  NodeKind kind() const noexcept { return static_cast<NodeKind>(info.index()); }
  const GpuInfo& gpu() const { return std::get<GpuInfo>(info); }
  const CpuInfo& cpu() const { return std::get<CpuInfo>(info); }
  const NetInfo& net() const { return std::get<NetInfo>(info); }
  friend bool operator==(const Node&, const Node&) = default;
};

/// One direction of a link.
struct Link {
  NodeId from = kNoNode, to = kNoNode;
  LinkType type = LinkType::kLoc;
  float gbps = 0;            ///< GB/s
  LinkId reverse = kNoLink;  ///< the other direction; kNoLink only under Model::kNccl
  friend bool operator==(const Link&, const Link&) = default;
};

/// Constant once built. Equal Systems have equal nodes and links in equal order.
class System {
 public:
  System() = default;

  /// Nodes in the order of their source (parents first, the PCI order of searches), then NVSwitches and C2C
  /// ports.
  std::span<const Node> nodes() const noexcept { return nodes_; }
  const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  int size() const noexcept { return static_cast<int>(nodes_.size()); }
  /// All nodes of a kind, ascending. kGpu includes GPUs without a rank.
  std::span<const NodeId> of_kind(NodeKind kind) const { return by_kind_[static_cast<std::size_t>(kind)]; }
  /// The GPUs that take part: those with a rank, ascending by NodeId.
  std::span<const NodeId> gpus() const noexcept { return ranked_gpus_; }
  /// kNoNode if no GPU has the rank.
  NodeId gpu_of_rank(int rank) const;

  /// Grouped by Link::from.
  std::span<const Link> links() const noexcept { return links_; }
  const Link& link(LinkId id) const { return links_[static_cast<std::size_t>(id)]; }
  /// The links that leave a node: descending by bandwidth, except that the way up the PCI tree comes last.
  std::span<const Link> links_of(NodeId id) const;
  LinkId id_of(const Link& link) const noexcept { return static_cast<LinkId>(&link - links_.data()); }

  /// One entry per host, in order of appearance: what tells it from the others, 0 where the source says
  /// nothing.
  std::span<const std::uint64_t> hosts() const noexcept { return hosts_; }
  Model model() const noexcept { return model_; }

  friend bool operator==(const System&, const System&) = default;

 private:
  friend class SystemBuilder;
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<LinkId> first_link_;  // per node, and one more
  std::vector<std::vector<NodeId>> by_kind_ = std::vector<std::vector<NodeId>>(kNodeKindCount);
  std::vector<NodeId> ranked_gpus_;
  std::vector<std::uint64_t> hosts_;
  Model model_ = Model::kLoom;
};

/// A System, and what had to be assumed, corrected or left out to get it, in whole sentences.
struct SystemWithNotes {
  System system;
  std::vector<std::string> notes;
};

/// Makes the links that follow from `nodes` under `model`. `nodes` holds neither NVSwitches nor C2C ports,
/// parents come before their children, and a root is a CPU. Throws Error (kInternal) where check() finds a
/// broken invariant.
SystemWithNotes build_system(std::vector<Node> nodes, std::vector<std::uint64_t> hosts,
                             Model model = Model::kLoom);

/// The nodes that build_system needs to make `system` again.
std::vector<Node> source_nodes(const System& system);

/// Whether a GPU stands in the PCI function of the node before it: a further partition of a split GPU, or a
/// further rank.
bool shares_function(const System& system, NodeId gpu);

/// The System in which only the GPUs of `ranks` take part; the others stay as devices without a rank.
System trimmed_to(const System& system, std::span<const int> ranks);

/// The System without those ports for which `keep` says no; it is asked for each.
System with_ports(const System& system, const std::function<bool(const NetInfo&)>& keep);

/// Names for people: "GPU", "PCI switch", "NVL", "kLoom" is "loom".
std::string_view name_of(NodeKind kind);
std::string_view name_of(LinkType type);
std::string_view name_of(Model model);
/// "GPU 3", "mlx5_0", "NUMA 1", "switch 0000:c4:00.0"; with " (host 2)" where there are several.
std::string label(const System& system, NodeId id);
/// The same without the host.
std::string label_on_host(const System& system, NodeId id);
/// Every node and link, a line each.
std::string to_string(const System& system);

}  // namespace loom::topo
