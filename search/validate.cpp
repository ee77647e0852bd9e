#include "search/validate.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/format.hpp"
#include "search/hop_table.hpp"
#include "topo/bandwidth.hpp"

namespace loom::search {
namespace {

// The field rounds what is left of a link to 0.001 GB/s; a part in a million is arithmetic.
constexpr double kSlackGbps = 1e-3, kSlackShare = 1e-6;

constexpr bool has_heads(Pattern pattern) {
  return pattern == Pattern::kNvls || pattern == Pattern::kCollnetDirect;
}
constexpr bool both_ways(Pattern pattern) {  // what is reduced one way is broadcast the other way
  return pattern != Pattern::kRing && !has_heads(pattern);
}

/// A hop of a channel with what it carries.
struct PlannedHop {
  topo::NodeId from, to;
  double share;  // of intra_gbps or inter_gbps
  bool to_port = false;
  bool counted = true;  // its links count
};

/// The hops of docs/search.md, written down a second time, so that a slip in the search's own list is seen.
class PlannedHops {
 public:
  PlannedHops(const topo::System& system, const ChannelPlan& plan) : plan_(plan) {
    for (const topo::NodeId gpu : system.gpus()) gpus_.emplace_back(system.node(gpu).gpu().rank, gpu);
    const auto switches = system.of_kind(topo::NodeKind::kNvSwitch);
    if (!switches.empty()) switch_ = switches.front();
  }

  std::vector<PlannedHop> of(const Channel& channel) const {
    std::vector<topo::NodeId> order;
    for (const int rank : channel.ranks) order.push_back(gpu(rank));
    const topo::NodeId first = order.front();
    std::vector<PlannedHop> hops;
    if (plan_.pattern == Pattern::kNvls) {
      for (const auto& [rank, gpu] : gpus_) {
        const double share = gpu == first ? 2 : 1;
        hops.push_back({switch_, gpu, share});
        hops.push_back({gpu, switch_, share});
      }
    } else if (plan_.pattern == Pattern::kCollnetDirect) {
      const auto others = static_cast<double>(gpus_.size() - 1);
      for (const auto& [rank, gpu] : gpus_) {
        if (gpu == first) continue;
        hops.push_back({first, gpu, 1 / others, false, others <= 2});
        hops.push_back({gpu, first, 1 / others, false, others <= 2});
      }
    } else {
      for (std::size_t i = 0; i + 1 < order.size(); ++i) hops.push_back({order[i], order[i + 1], 1});
      if (plan_.pattern == Pattern::kRing && !plan_.network) hops.push_back({order.back(), first, 1});
    }
    if (plan_.network) add_ports(hops, order, channel.nets[0], channel.nets[1]);
    std::erase_if(hops, [](const PlannedHop& hop) { return hop.from == hop.to; });  // a GPU alone
    return hops;
  }

 private:
  void add_ports(std::vector<PlannedHop>& hops, const std::vector<topo::NodeId>& order, topo::NodeId in,
                 topo::NodeId out) const {
    hops.push_back({in, order.front(), 1, true});
    if (plan_.pattern == Pattern::kBalancedTree) {
      hops.push_back({order[0], out, 0.5, true});
      hops.push_back({order[1], out, 0.5, true});
      return;
    }
    const topo::NodeId last = plan_.pattern == Pattern::kRing        ? order.back()
                              : plan_.pattern == Pattern::kSplitTree ? order[1]
                                                                     : order.front();
    hops.push_back({last, out, 1, true});
  }
  topo::NodeId gpu(int rank) const {
    for (const auto& [number, node] : gpus_)
      if (number == rank) return node;
    return topo::kNoNode;
  }

  const ChannelPlan& plan_;
  std::vector<std::pair<int, topo::NodeId>> gpus_;
  topo::NodeId switch_ = topo::kNoNode;
};

class Validator {
 public:
  Validator(const topo::Paths& paths, const ChannelPlan& plan)
      : paths_(paths),
        system_(paths.system()),
        plan_(plan),
        reduces_(plan.pattern == Pattern::kCollnetChain || plan.pattern == Pattern::kCollnetDirect),
        resources_(system_),
        load_(static_cast<std::size_t>(resources_.size()), 0.0) {
    for (const topo::NodeId id : system_.of_kind(topo::NodeKind::kNet)) {
      const topo::NetInfo& net = system_.node(id).net();
      if (!net.guid) continue;
      const double gbps = topo::net_gbps(net.speed_mbps);
      const auto [cable, is_new] = received_.try_emplace({*net.guid, net.port}, 0.0, gbps);
      if (!is_new) cable->second.second = std::min(cable->second.second, gbps);
    }
  }

  std::vector<std::string> run() {
    double total = 0;
    const bool switches = !system_.of_kind(topo::NodeKind::kNvSwitch).empty();
    if (plan_.pattern == Pattern::kNvls && !plan_.channels.empty()) {
      if (!switches) return {"The machine has no NVSwitch that could multicast."};
      for (const topo::NodeId gpu : system_.gpus())
        if (const topo::GpuInfo& info = system_.node(gpu).gpu(); info.compute_capability < 90)
          return {loom::format("Rank {}'s GPU is sm_{}; switches multicast from sm_90 on.", info.rank,
                               info.compute_capability)};
    }
    const PlannedHops hops(system_, plan_);
    for (std::size_t i = 0; i < plan_.channels.size(); ++i) {
      if (check_gpus(i) && check_ports(i) && !plan_.in_order) charge(i, hops.of(plan_.channels[i]));
      total += plan_.channels[i].inter_gbps;
    }
    check_loads();
    for (std::size_t i = 0; i < plan_.channels.size(); ++i) check_speeds(i);
    check_sums();
    if (std::abs(total - plan_.total_gbps) > kSlackGbps + kSlackShare * total)
      fail("The channels carry {} GB/s in sum, the plan says {}.", total, plan_.total_gbps);
    if (total > plan_.bound_gbps * (1 + 1e-5) + kSlackGbps)
      fail("The channels carry {} GB/s, above the bound of {}.", total, plan_.bound_gbps);
    return std::move(found_);
  }
  std::vector<double> loads() {
    run();
    return std::move(load_);
  }

 private:
  template <class... Args>
  void fail(FormatString<Args...> text, Args&&... args) {
    found_.push_back(loom::format(text, std::forward<Args>(args)...));
  }

  bool check_gpus(std::size_t number) {
    const std::vector<int>& ranks = plan_.channels[number].ranks;
    std::multiset<int> left;
    for (const topo::NodeId gpu : system_.gpus()) left.insert(system_.node(gpu).gpu().rank);
    if (has_heads(plan_.pattern)) {
      if (ranks.size() == 1 && left.count(ranks[0]) == 1) return true;
      fail("Channel {} has no head, or one that is no GPU of this machine.", number);
      return false;
    }
    for (const int rank : ranks) {
      const auto place = left.find(rank);
      if (place == left.end()) {
        fail("Channel {}: rank {} is there twice, or is not on this machine.", number, rank);
        return false;
      }
      left.erase(place);
    }
    if (!left.empty()) fail("Channel {} leaves out rank {}.", number, *left.begin());
    return left.empty();
  }

  bool check_ports(std::size_t number) {
    const Channel& channel = plan_.channels[number];
    if (channel.nets.size() != (plan_.network ? 2U : 0U)) {
      fail("Channel {} has {} ports.", number, channel.nets.size());
      return false;
    }
    if (!plan_.network) return true;
    const topo::NodeId in = channel.nets[0], out = channel.nets[1];
    for (const topo::NodeId id : {in, out}) {
      const bool usable = id >= 0 && id < system_.size() && system_.node(id).kind() == topo::NodeKind::kNet &&
                          system_.node(id).net().is_net && (!reduces_ || system_.node(id).net().collectives);
      if (usable) continue;
      fail("Channel {}: a port is none of this machine's that the pattern may use.", number);
      return false;
    }
    if (plan_.in_order || pairs_on_rail(in, out)) return true;
    if (plan_.limits.cross_nic == 0 || on_other_planes(in, out)) {
      fail("Channel {} goes in at {} and out at {}, which cross-NIC {} does not allow.", number,
           topo::label(system_, in), topo::label(system_, out), plan_.limits.cross_nic);
      return false;
    }
    if (plan_.limits.cross_nic == 2 && plan_.pattern == Pattern::kRing) {
      const std::size_t partner = number ^ 1U;
      if (partner >= plan_.channels.size() || plan_.channels[partner].nets != std::vector{out, in} ||
          plan_.channels[partner].inter_gbps != channel.inter_gbps)
        fail("Channel {} has no partner that comes back where it goes out.", number);
    }
    return true;
  }

  bool on_other_planes(topo::NodeId a, topo::NodeId b) const {
    const topo::NetInfo &in = system_.node(a).net(), &out = system_.node(b).net();
    return in.plane && out.plane && in.plane != out.plane;
  }
  /// One port, or two of one rail; where rails are not known, of one cable.
  bool pairs_on_rail(topo::NodeId a, topo::NodeId b) const {
    if (a == b) return true;
    const topo::NetInfo &in = system_.node(a).net(), &out = system_.node(b).net();
    if (on_other_planes(a, b)) return false;
    if (in.rail && out.rail) return in.rail == out.rail;
    return in.guid && in.guid == out.guid && in.port == out.port;
  }

  void charge(std::size_t number, const std::vector<PlannedHop>& hops) {
    const Channel& channel = plan_.channels[number];
    for (const PlannedHop& hop : hops) {
      topo::PathType type = paths_.between(hop.from, hop.to).type;
      if (both_ways(plan_.pattern)) type = std::max(type, paths_.between(hop.to, hop.from).type);
      const topo::PathType limit = hop.to_port ? plan_.limits.type_inter : plan_.limits.type_intra;
      if (type >= topo::PathType::kNet || type > limit) {
        fail("Channel {}: the way from {} to {} is {}, allowed is up to {}.", number,
             topo::label(system_, hop.from), topo::label(system_, hop.to), topo::name_of(type),
             topo::name_of(limit));
        continue;
      }
      topo::PathType& worst = hop.to_port ? type_inter_ : type_intra_;
      worst = std::max(worst, type);
      if (hop.counted) hops_ += paths_.between(hop.from, hop.to).hops;
      const double gbps = hop.share * (hop.to_port ? channel.inter_gbps : channel.intra_gbps);
      for (const auto& [link, factor] : link_charges(paths_, hop.from, hop.to))
        load_[static_cast<std::size_t>(link)] += factor * gbps;
      if (has_memory(hop.from)) load_[static_cast<std::size_t>(resources_.out_of_memory(hop.from))] += gbps;
      if (has_memory(hop.to)) load_[static_cast<std::size_t>(resources_.into_memory(hop.to))] += gbps;
      if (hop.to_port && system_.node(hop.from).kind() == topo::NodeKind::kNet) receive(hop.from, gbps);
    }
  }

  /// A further rank on a GPU reaches its memory by a link to the first one.
  bool has_memory(topo::NodeId id) const {
    const topo::Node& node = system_.node(id);
    return node.kind() == topo::NodeKind::kGpu &&
           (node.parent == topo::kNoNode || system_.node(node.parent).kind() != topo::NodeKind::kGpu);
  }

  /// What comes in at the ports passes every GPU; multicast heads may send more than they multicast.
  void check_speeds(std::size_t number) {
    const Channel& channel = plan_.channels[number];
    const double slack = kSlackGbps + kSlackShare * channel.inter_gbps;
    const bool short_inside =
        has_heads(plan_.pattern) ? channel.intra_gbps <= 0 : channel.intra_gbps < channel.inter_gbps - slack;
    if (plan_.network ? short_inside : std::abs(channel.intra_gbps - channel.inter_gbps) > slack)
      fail("Channel {} carries {} GB/s between GPUs and {} beyond.", number, channel.intra_gbps,
           channel.inter_gbps);
    else if (plan_.network && plan_.pattern == Pattern::kNvls &&
             channel.inter_gbps > 2 * channel.intra_gbps + slack)
      fail("Channel {} multicasts {} GB/s; of the {} at its ports twice that is of use.", number,
           channel.intra_gbps, channel.inter_gbps);
  }

  /// What the plan says of its channels together.
  void check_sums() {
    if (plan_.in_order || plan_.channels.empty() || !found_.empty()) return;
    if (plan_.type_intra != type_intra_)
      fail("Paths between GPUs are up to {}, the plan says {}.", topo::name_of(type_intra_),
           topo::name_of(plan_.type_intra));
    if (plan_.type_inter != type_inter_)
      fail("Paths to ports are up to {}, the plan says {}.", topo::name_of(type_inter_),
           topo::name_of(plan_.type_inter));
    if (hops_ != plan_.hops) fail("The channels cross {} links, the plan says {}.", hops_, plan_.hops);
    const bool same = std::all_of(plan_.channels.begin(), plan_.channels.end(), [&](const Channel& channel) {
      return channel.ranks == plan_.channels[0].ranks;
    });
    if (same != plan_.same_channels)
      fail("The channels have {} order of GPUs, the plan says {}.", same ? "one" : "more than one",
           plan_.same_channels ? "one" : "more than one");
  }

  void receive(topo::NodeId port, double gbps) {
    const topo::NetInfo& net = system_.node(port).net();
    if (net.guid) received_[{*net.guid, net.port}].first += gbps;
  }

  void check_loads() {
    for (int i = 0; i < resources_.size(); ++i)
      if (const double load = load_[static_cast<std::size_t>(i)], gbps = resources_.gbps(i);
          load > gbps * (1 + kSlackShare) + kSlackGbps)
        fail("{} has {:g} GB/s; the channels take {:g}.", resources_.label(i), gbps, load);
    for (const auto& [port, load] : received_)
      if (load.first > load.second * (1 + kSlackShare) + kSlackGbps)
        fail("Ports of ASIC {:#x} receive {:g} GB/s, of {:g}.", port.first, load.first, load.second);
  }

  const topo::Paths& paths_;
  const topo::System& system_;
  const ChannelPlan& plan_;
  bool reduces_;
  Resources resources_;
  std::vector<double> load_;                                                     // by number of Resources
  std::map<std::pair<std::uint64_t, int>, std::pair<double, double>> received_;  // by cable: load, capacity
  int hops_ = 0;
  topo::PathType type_intra_ = topo::PathType::kLoc, type_inter_ = topo::PathType::kLoc;  // the worst hops
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> violations(const topo::Paths& paths, const ChannelPlan& plan) {
  return Validator(paths, plan).run();
}

std::vector<double> link_loads(const topo::Paths& paths, const ChannelPlan& plan) {
  return Validator(paths, plan).loads();
}

}  // namespace loom::search
