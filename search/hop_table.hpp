// hop_table.hpp -- what a hop takes: the links that data crosses from a GPU or a port to another one, and how
// much of each link's bandwidth a unit of the channel's bandwidth uses up. The charges are NCCL 2.30's.
// Everything after this is arithmetic on the table.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "search/resources.hpp"
#include "topo/paths.hpp"

namespace loom::search {

/// One GB/s on a hop takes `factor` GB/s from a resource.
struct Load {
  int resource;
  double factor;
};

/// One of Resources, or what ports that share an ASIC may receive in sum, or what a GPU alone does by itself.
struct Resource {
  double gbps = 0;
  int number = kNone;                 ///< of Resources
  topo::NodeId node = topo::kNoNode;  ///< where it is none of these: the first port, or the GPU
  static constexpr int kNone = -1;
};

struct Hop {
  topo::PathType type = topo::PathType::kDis;
  int hops = 0;  ///< links
  std::size_t first = 0, count = 0;
};

/// The links that a hop from `from` to `to` crosses, with what one GB/s takes from each. Beyond the path's
/// own:
/// * PCI links lose 1.2 where the path goes through an Intel CPU and no farther (PHB), starting at a GPU;
/// * entering a GPU before sm_80 from a port takes an eighth from the way back too;
/// * entering a POWER CPU over NVLink takes the same from the way back.
std::vector<std::pair<topo::LinkId, double>> link_charges(const topo::Paths& paths, topo::NodeId from,
                                                          topo::NodeId to);
/// The same, numbers of Resources, and the memory of GPUs at its ends.
std::vector<std::pair<int, double>> charges(const topo::Paths& paths, topo::NodeId from, topo::NodeId to);

/// Ends are numbered: GPUs from 0 in the order of System::gpus(), then ports, then the NVSwitch.
class HopTable {
 public:
  /// `collnet`: only ports whose network reduces. `network`: false leaves out all ports.
  HopTable(const topo::Paths& paths, bool network, bool collnet, bool multicast);

  int gpus() const noexcept { return gpus_; }
  int nets() const noexcept { return nets_; }
  int ends() const noexcept { return static_cast<int>(nodes_.size()); }
  /// The end that is port `net`.
  int net(int net) const noexcept { return gpus_ + net; }
  /// The end that is the NVSwitch; -1: there is none.
  int nv_switch() const noexcept { return nv_switch_; }
  topo::NodeId node(int end) const { return nodes_[static_cast<std::size_t>(end)]; }
  int rank(int gpu) const { return system_->node(node(gpu)).gpu().rank; }

  /// -1: not here.
  int gpu_of_rank(int rank) const;
  int net_at(topo::NodeId id) const;

  const Hop& hop(int from, int to) const { return hops_[static_cast<std::size_t>(from * ends() + to)]; }
  std::span<const Load> loads(const Hop& hop) const {
    return std::span(loads_).subspan(hop.first, hop.count);
  }
  /// GB/s of a channel that has all that a hop takes to itself.
  double width(const Hop& hop) const;
  std::span<const Resource> resources() const noexcept { return resources_; }
  /// What a channel takes that crosses no link: a GPU alone.
  int local_resource() const noexcept { return local_; }
  /// How many ports a head's channels fill together: without a limit, but a search may set one. Of tables
  /// with ports whose patterns have heads; -1: of others.
  int head_resource(int gpu) const noexcept { return first_head_ < 0 ? -1 : first_head_ + gpu; }

  /// A channel that comes in at port `in` may go out at `out`.
  bool may_pair(int in, int out, int cross_nic) const;
  const topo::System& system() const noexcept { return *system_; }

 private:
  struct Work {  // of one hop, so that the next one need not allocate
    std::vector<topo::LinkId> route;
    std::vector<std::pair<int, double>> taken;
  };
  void add_hop(const topo::Paths& paths, int from, int to, Work& work);
  void share_ports();
  int resource_of(int number);

  const topo::System* system_;
  int gpus_ = 0, nets_ = 0, nv_switch_ = -1, local_ = -1, first_head_ = -1;
  std::vector<topo::NodeId> nodes_;
  std::vector<Hop> hops_;
  std::vector<Load> loads_;
  std::vector<Resource> resources_;
  Resources all_;
  std::vector<int> number_of_;  // of Resources -> here; -1: no hop takes it
  std::vector<int> pool_of_net_;
};

}  // namespace loom::search
