// channel_plan.hpp -- which channels fit inside a node? What a search gives: channels, how good they are, and
// the proof.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "topo/paths.hpp"
#include "topo/system.hpp"

namespace loom::search {

class PathTables;

/// How data passes the GPUs of a node. With the network, `in` and `out` are the ports of a channel.
enum class Pattern : std::uint8_t {
  kRing,           ///< every GPU to the next; the last to the first, or in -> first and last -> out
  kTree,           ///< a chain of GPUs; the first one talks to the network
  kSplitTree,      ///< a chain; in -> first, second -> out
  kBalancedTree,   ///< a chain; in -> first, half of the way out from the first, half from the second
  kNvls,           ///< multicast through the NVSwitches; one GPU, the head, reduces and talks to the network
  kCollnetChain,   ///< as kTree, over ports whose network reduces
  kCollnetDirect,  ///< a head that exchanges with every other GPU, over ports whose network reduces
};
inline constexpr int kPatternCount = 7;
/// "ring", "tree", "split-tree", "balanced-tree", "nvls", "collnet-chain", "collnet-direct".
std::string_view name_of(Pattern pattern);

/// One channel inside a node.
struct Channel {
  std::vector<int>
      ranks;  ///< in the order in which the data passes them; nvls, collnet-direct: the head alone
  std::vector<topo::NodeId> nets{};  ///< ports in and out; empty inside one node
  double intra_gbps = 0;             ///< GB/s between GPUs
  double inter_gbps = 0;             ///< GB/s at the ports; inside one node the same as intra_gbps
};

/// Which hops a search may use. The stricter, the closer together what talks to each other.
struct Limits {
  int cross_nic =
      0;  ///< 0: in and out are one rail; 1: any two ports; 2: any two, swapped in the next channel
  topo::PathType type_inter = topo::PathType::kPix;  ///< between GPUs and ports, at most
  topo::PathType type_intra = topo::PathType::kNvl;  ///< between GPUs, at most
  friend bool operator==(const Limits&, const Limits&) = default;
};
/// "cross-NIC 0, GPUs to ports up to PIX, between GPUs up to NVL".
std::string to_string(const Limits& limits);

/// What came of one entry of the list of limits.
struct Attempt {
  Limits limits;
  double total_gbps = 0;
  std::string outcome;  ///< a sentence
};

/// Why no channels of a pattern carry more than `gbps` together. Mostly by prices: a GB/s of any channel
/// costs at least 1 (of two rings that swap their ports on average), and all that there is of what has a
/// price costs `gbps`. Nobody buys more for that (duality of linear programs). Where prices are those of the
/// links of a cut, `side` has the ranks on one side. Otherwise `because` says how the number of channels
/// limits what they carry; where they are too few to begin at all GPUs of `side`, with these.
struct Proof {
  struct Price {
    int number;         ///< of Resources; -1: what ports of one ASIC receive in sum, or a GPU alone
    topo::NodeId node;  ///< where `number` is -1: the first of these ports, or the GPU
    double gbps;        ///< that there are
    double price;       ///< of one of them
  };
  double gbps = std::numeric_limits<double>::infinity();
  std::vector<Price> prices{};
  std::vector<int> side{};
  std::string because{};
  bool together = false;  ///< of several parts: a GB/s in all of them at the same time costs at least 1
};

struct ChannelPlan {
  std::vector<Channel> channels;  ///< each visits every GPU of the System exactly once
  Pattern pattern = Pattern::kRing;
  bool network = false;   ///< channels begin and end at ports
  double total_gbps = 0;  ///< sum over the channels, of inter_gbps with the network
  double bound_gbps = 0;  ///< no set of channels of this pattern carries more; see NodePlans
  Proof proof{};          ///< of that; of channels that were not searched for there may be none
  Limits limits{};        ///< the strictest that reach total_gbps
  topo::PathType type_intra = topo::PathType::kLoc,
                 type_inter = topo::PathType::kLoc;  ///< the worst hops used
  bool same_channels = false;                        ///< all channels have one order of GPUs
  bool in_order = false;   ///< nothing fitted: GPUs in the order of the machine's description
  std::string absent{};    ///< why this machine does not have the pattern; then there are no channels
  int hops = 0;            ///< links of all channels
  std::int64_t steps = 0;  ///< of Request::max_steps
  std::vector<Attempt> attempts{};
};

struct Request {
  Pattern pattern = Pattern::kRing;
  int nodes = 1;         ///< like this one, in the communicator
  int cross_nic = 2;     ///< 0: never, 1: always, 2: where it carries more
  int min_channels = 1;  ///< fewer are split into equal parts
  int max_channels = 32;
  double most_gbps = 0;  ///< of one channel; faster ones are split into equal parts. 0: any
  int exact_gpus = 16;   ///< up to so many, 16 at most, orders and bounds are exact as far as the steps go
  std::int64_t max_steps =
      0;  ///< about nanoseconds of work, so that every rank stops at the same point; 0: by the GPUs
};

/// The channels that carry most, and of those the ones with the closest paths and the fewest hops. A pure
/// function: every rank finds the same. With `request.nodes` > 1 they begin and end at ports. Where the
/// machine has none, or no port that reduces for a collnet pattern, or no NVSwitch that joins all GPUs for
/// kNvls, the plan has no channels and says why.
ChannelPlan find_channels(const topo::Paths& paths, const Request& request);

/// The plans of a machine: one for the whole, or one for each of the parts that talk to each other through
/// the network because that is faster. All parts have the pattern that was asked for, or none has channels.
/// Parts carry what they do at the same time. Where they share links, all carry the same, and the bound of
/// each is that of all together.
struct NodePlans {
  std::vector<ChannelPlan> parts;
  std::vector<std::vector<int>> ranks;  ///< of each part
  double total_gbps = 0;                ///< of the slowest part, while all others carry as much
  double alone_gbps = 0;  ///< the same as NCCL counts: the others are silent, and a head has one channel
  double alone_bound_gbps = 0;  ///< of the slowest part, while the others are silent
};
NodePlans find_plans(const PathTables& tables, const Request& request);
/// The parts' plans, at the same time: where their channels together would overload a link, they share it.
/// Nothing where the slowest carries no more than `more_than` GB/s (-1: whatever they carry).
NodePlans plan_parts(const PathTables& tables, const Request& request, double more_than = -1);
/// The same as find_plans() above for one request alone.
NodePlans find_plans(const topo::System& system, const Request& request, topo::PathRules rules = {});

/// Gives channels that were not searched for, those of a file, the bounds that the search of the same GPUs
/// under `request` proves. Where it finds none to compare with they stay as they are. Channels above such a
/// bound contradict it: violations() says so.
void prove_bounds(const PathTables& tables, const Request& request, NodePlans& plans);

/// The one ring that carries most and, of equally good ones, crosses the fewest links: on a host without GPU
/// links it passes from one NUMA node to another as seldom as it can, and inside a node follows the System's
/// order.
ChannelPlan find_ring(const topo::System& system);

}  // namespace loom::search
