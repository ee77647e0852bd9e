// ports.hpp -- which network ports of this host loom goes over, by the names that UCX gives them ("mlx5_0:1",
// "eth0"). Pure functions of what the user says, what UCX knows and what the machine is like.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topo/discover.hpp"
#include "topo/system.hpp"

namespace loom {

/// Those that channels may be planned for: the ones that the user names; else the ones that UCX knows well,
/// save what he leaves out, of the fastest fabric. That is no Ethernet that UCX goes over by sockets: any of
/// a host's Ethernet devices may lead to the other hosts.
///
/// A host may have ports of several fabrics, for computing and for files: the fastest is the one whose ports
/// are as fast as those of no other, all added up. Fabrics that are equally fast are rails, and all count.
class PortChoice {
 public:
  PortChoice() = default;
  /// named: as in UCX_NET_DEVICES, also what to leave out ("^eth1"); empty or "all": the user does not say.
  /// known: by UCX; empty: it could not be asked.
  PortChoice(std::string_view named, std::vector<topo::UcxPort> known);

  bool are_named() const noexcept { return !named_.empty() && !leaves_out_; }
  /// Whether channels may be planned through it, on this host or another one with such ports.
  bool may_plan(const std::string& port) const;
  /// Whether this process can use it.
  bool may_use(const std::string& port) const;
  /// Whether UCX registers memory of GPUs for it: then it reads and writes that by itself (GPUDirect).
  bool reaches_gpus(const std::string& port) const;

  /// `machine` with no other ports than may_plan() allows; all of them where it would have none. A machine
  /// that the user describes loses those alone that he has not named, or has left out.
  topo::System planned(const topo::System& machine, bool described) const;

 private:
  std::vector<std::string> named_;
  bool leaves_out_ = false;           ///< named_
  std::vector<std::string> fabrics_;  ///< the fastest
  std::vector<topo::UcxPort> known_;
};

/// The ports nearest to places[self], of those of `machine` that loom may use. Ranks that are as near share
/// them.
std::vector<std::string> ports_near(const topo::System& machine, std::span<const topo::Place> places,
                                    std::size_t self);

/// For the links of calls on host memory, of the ports that UCX knows: those nearest to the rank of
/// places[self] where there are several of the fastest fabric that it knows well, in one order on all ranks;
/// where there is one, but others of a slower fabric, that one. Empty: as UCX finds best. Throws Error.
std::string nearest_ports(std::vector<topo::UcxPort> known, std::span<const topo::Place> places,
                          std::size_t self);

}  // namespace loom
