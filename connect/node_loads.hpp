// node_loads.hpp -- what flows at the same time take from the links of one node, and how long each of them
// lasts.
#pragma once

#include <string>
#include <vector>

#include "connect/summary.hpp"
#include "search/resources.hpp"
#include "topo/paths.hpp"

namespace loom::connect {

/// A kind of node with its machine: what the simulator knows beyond the summary.
struct Machine {
  const topo::Paths* paths = nullptr;
  std::vector<int> ranks;  ///< of its System, by local index
};

/// Ends are local indices, or ports.
struct End {
  int index = 0;
  bool is_port = false;
  static End rank(int local) { return {local, false}; }
  static End port(int port) { return {port, true}; }
};

/// What it takes beyond the machine's links.
struct Costs {
  double cpu_gbps = 0;  ///< what the CPU of a rank sends and receives itself, both together; 0: no limit
  double net_efficiency = 1;  ///< of the bytes that cross a port, those that are data
};

/// One node while data flows.
class NodeLoads {
 public:
  explicit NodeLoads(const Machine& machine, const Costs& costs = {});

  /// A flow of `bytes` from a rank to another or to a port, or from a port to a rank; an unknown port
  /// (kNoPort) is as fast as ports of unknown speed are assumed to be. Returns its number.
  int add(End from, End to, double bytes);
  /// Microseconds that the busiest link of the flow's path needs for all flows that share it.
  double us(int flow) const;
  /// The same of the busiest of all links.
  double busiest_us() const;
  /// That link and what it carries: "NIC 0000:19:00.0 -> mlx5_0 (NET), 50 GB/s".
  std::string busiest() const;

 private:
  std::size_t first_cpu() const;
  double us_of(std::size_t link) const;

  const Machine* machine_;
  search::Resources resources_;
  Costs costs_;
  std::vector<double> load_,
      gbps_;  // by number of Resources, then the unknown port's two ways, then ranks' CPUs
  std::vector<std::vector<std::size_t>> flows_;
};

/// What a node does in one tree over the nodes, as bits.
enum TreeRole { kHasParent = 1, kHasFirstChild = 2, kHasSecondChild = 4 };

/// The flows of one channel's tree on a node: `bytes` along the chain, to the parent and from the children
/// (`up`), and the other way (`down`).
void add_tree_flows(NodeLoads& loads, search::Pattern pattern, const ChannelSummary& channel, int roles,
                    double bytes, bool up, bool down);

/// What the channels of a node's trees carry in an all-reduce where the node is inside one tree of each pair
/// and a leaf of the other: GB/s, to be compared with what its plan promises. The plan charges each hop once,
/// whatever crosses it.
double inner_node_gbps(const Machine& machine, const FamilySummary& trees);

}  // namespace loom::connect
