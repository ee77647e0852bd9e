// paths.hpp -- the best path between every two nodes of a System: its type, what it carries, the links that
// it takes. The rules are NCCL 2.30's; those that Model::kLoom changes are marked. Levels compare before
// bandwidths: a slow NVLink path beats a fast one through a CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "topo/system.hpp"

namespace loom::topo {

/// From closest to farthest; the names are the field's.
enum class PathType : std::uint8_t {
  kLoc,  ///< inside one device
  kNvl,  ///< NVLinks, and switches of them
  kNvb,  ///< NVLinks through another GPU
  kC2c,  ///< C2C
  kPix,  ///< at most one PCI switch
  kPxb,  ///< several PCI switches, no CPU
  kP2c,  ///< C2C to a CPU, PCI from there
  kPxn,  ///< to a NIC through another GPU over NVLink
  kPhb,  ///< through a CPU
  kSys,  ///< from one NUMA node to another
  kNet,  ///< over the network
  kDis,  ///< there is none
};
std::string_view name_of(PathType type);

struct Path {
  PathType type = PathType::kDis;
  float gbps = 0;  ///< of its slowest link
  int hops = 0;    ///< links
  friend bool operator==(const Path&, const Path&) = default;
};

/// What a user may override; the defaults are the field's.
struct PathRules {
  /// GPUs write to each other's memory up to this level. Not set: kPxb, or kSys on AMD hosts with at most two
  /// GPUs.
  std::optional<PathType> p2p_limit;
  /// NICs read and write GPU memory up to this level.
  PathType gpu_direct_limit = PathType::kP2c;
  /// NICs read GPU memory: not set: from sm_80 on, or with an NVLink peer, or with one GPU alone.
  std::optional<bool> gpu_direct_read;
  bool nvb = true;                  ///< NVLink paths through another GPU
  bool pxn = true;                  ///< to a NIC through a GPU beside it
  bool network_inside_host = true;  ///< GPUs of one host may use the network where it is faster
};

/// Memory: 20 bytes for each pair of a node and a GPU, CPU, port or NVSwitch; 32 to GPUs and ports where the
/// rules for P2P, GPUDirect and PXN change a path. Refers to the System, which must live on.
class Paths {
 public:
  /// Throws Error (kBadInput) where the System is too large: more than 10 million pairs, or so many GPUs and
  /// ports that the rules take seconds.
  explicit Paths(const System& system, const PathRules& rules = {});

  /// The best path, under the rules for P2P, GPUDirect and PXN.
  Path between(NodeId from, NodeId to) const;
  /// The same before these rules: what the links allow.
  Path physical(NodeId from, NodeId to) const;
  /// The links of between()'s path, in order; empty for from == to and where there is none.
  std::vector<LinkId> route(NodeId from, NodeId to) const;
  /// Adds the same to `links`.
  void append_route(NodeId from, NodeId to, std::vector<LinkId>& links) const;

  /// The nodes of a kind with the highest bandwidth from `from`, of these those of the lowest type;
  /// ascending.
  std::vector<NodeId> nearest(NodeId from, NodeKind kind) const;
  /// The CPU that serves a GPU.
  NodeId local_cpu(NodeId gpu) const;
  /// The port that `gpu` uses in a channel; kNoNode where there is none.
  NodeId local_net(NodeId gpu, int channel) const;
  /// Those that it uses in all its channels, each once, in their order.
  std::vector<NodeId> local_nets(NodeId gpu) const;
  /// The GPU that uses `net` first; kNoNode where none does.
  NodeId local_gpu(NodeId net) const;

  bool p2p_allowed(NodeId gpu, NodeId peer) const;
  enum class Direction { kRead, kWrite };  ///< of GPU memory, by the NIC
  bool gpu_direct(NodeId gpu, NodeId net, Direction direction) const;
  /// Data between two GPUs is to leave through the network, though they are in one System.
  bool uses_network(NodeId gpu, NodeId peer) const { return between(gpu, peer).type == PathType::kNet; }

  const System& system() const noexcept { return *system_; }
  const PathRules& rules() const noexcept { return rules_; }

 private:
  struct Label {  // a path's last step towards its base, and the path from there
    LinkId via;
    std::int32_t rest;
  };
  struct Entry {
    float gbps = 0;
    std::int32_t label = -1;
    std::uint16_t hops = 0;
    PathType type = PathType::kDis;
    bool detour = false;  // Row::detours has the path
  };
  struct Detour {  // what the rules make of a path
    float gbps = 0;
    NodeId relay = kNoNode;  // kNoNode: the physical route
    std::uint16_t hops = 0;
    PathType type = PathType::kDis;
  };
  struct Row {  // the paths from every node to one base
    std::vector<Entry> entries;
    std::vector<Label> labels;
    std::vector<Detour> detours;  // as long as entries; empty where the rules change nothing
  };

  struct PortChoice {  // the ports that a GPU uses in turn
    std::vector<NodeId> nets;
    std::size_t start = 0, per_gpu = 1;
    NodeId in_channel(int channel) const;
  };

  Row paths_to(NodeId base) const;
  PortChoice port_choice(NodeId gpu) const;
  const Row* row_of(NodeId base) const;
  NodeId owner(NodeId gpu) const;
  void apply_p2p_rules();
  void avoid_slow_pairs();
  void apply_c2c_rules();
  void apply_network_rules();
  bool pxn_helps(NodeId gpu, NodeId net, NodeId relay) const;
  void set_detour(NodeId from, NodeId to, const Path& path, NodeId relay);
  Path through(NodeId from, NodeId relay, NodeId to) const;
  void append_physical_route(NodeId from, NodeId to, std::vector<LinkId>& route) const;
  PathType p2p_limit() const;
  const Detour* detour(NodeId from, NodeId to) const;

  const System* system_;
  PathRules rules_;
  PathType p2p_limit_ = PathType::kPxb;
  std::vector<std::int32_t> row_index_;  // per node; -1: not a base
  std::vector<Row> rows_;
  std::vector<NodeId> local_cpus_;  // per node; kNoNode unless a GPU
};

/// The Systems that remain if every GPU keeps only those that it reaches other than through the network: the
/// groups of ranks, in order of their lowest GPU. One group where all reach each other.
std::vector<std::vector<int>> domains_of(const Paths& paths);

/// The highest bandwidth from any GPU to another one, or to a port (`to_network`); kLocalGbps for one GPU
/// alone.
float max_gbps(const Paths& paths, bool to_network);
/// The most that a GPU can send: the sum of its NVLinks or its PCI link, whichever is more, of the best GPU.
float total_gbps(const System& system);

}  // namespace loom::topo
