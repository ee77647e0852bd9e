// equal_hosts.hpp -- which hosts of a machine are alike, so that a picture needs only one of them.
#pragma once

#include <string>
#include <vector>

#include "topo/system.hpp"

namespace loom::tools {

struct EqualHosts {
  int first = 0;            ///< index in System::hosts(): the one to draw
  std::vector<int> others;  ///< ascending
};

/// All hosts, in groups that differ in nothing but ids (of PCI functions, ports, hosts) and ranks. In order
/// of the first host of each group.
std::vector<EqualHosts> equal_hosts(const topo::System& system);
/// Every host by itself.
std::vector<EqualHosts> single_hosts(const topo::System& system);

/// "host 0", "host 0, and 17 hosts like it: 1-17".
std::string heading(const EqualHosts& hosts);

}  // namespace loom::tools
