#include "search/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "search/columns.hpp"
#include "topo/bandwidth.hpp"

namespace loom::search {
namespace {

// The field rounds what is left of a link to 0.001 GB/s; a part in a million is arithmetic.
constexpr double kSlackGbps = 1e-3, kSlackShare = 1e-6;

class Validator {
 public:
  Validator(const topo::Paths& paths, const ChannelPlan& plan)
      : paths_(paths),
        system_(paths.system()),
        plan_(plan),
        table_(paths, plan.network,
               plan.pattern == Pattern::kCollnetChain || plan.pattern == Pattern::kCollnetDirect,
               plan.pattern == Pattern::kNvls),
        load_(system_.links().size(), 0.0) {
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
    for (std::size_t i = 0; i < plan_.channels.size(); ++i) {
      if (check_gpus(i) && check_ports(i) && !plan_.in_order) charge(i);
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
  constexpr static double kLeastCountedShare = 0.5;  // the field does not count links of smaller shares

  template <class... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args) {
    found_.push_back(fmt::format(text, std::forward<Args>(args)...));
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
    const int in = table_.net_at(channel.nets[0]), out = table_.net_at(channel.nets[1]);
    if (in < 0 || out < 0) {
      fail("Channel {}: a port is none of this machine's that the pattern may use.", number);
      return false;
    }
    if (plan_.in_order || table_.may_pair(in, out, 0)) return true;
    const bool pair_allowed = plan_.limits.cross_nic != 0 && table_.may_pair(in, out, plan_.limits.cross_nic);
    if (!pair_allowed) {
      fail("Channel {} goes in at {} and out at {}, which cross-NIC {} does not allow.", number,
           topo::label(system_, channel.nets[0]), topo::label(system_, channel.nets[1]),
           plan_.limits.cross_nic);
    } else if (plan_.limits.cross_nic == 2 && plan_.pattern == Pattern::kRing) {
      const std::size_t partner = number ^ 1U;
      if (partner >= plan_.channels.size() || plan_.channels[partner].nets[0] != channel.nets[1] ||
          plan_.channels[partner].nets[1] != channel.nets[0] ||
          plan_.channels[partner].inter_gbps != channel.inter_gbps) {
        fail("Channel {} has no partner that comes back where it goes out.", number);
        return false;
      }
    }
    return pair_allowed;
  }

  void charge(std::size_t number) {
    const Channel& channel = plan_.channels[number];
    // With the network, multicast hops are listed at half the ports' speed; the plan says what they really
    // carry.
    const double multicast = plan_.pattern == Pattern::kNvls && plan_.network ? 2 : 1;
    for (const Charge& hop : charges_of(table_, plan_.pattern, order_of(table_, channel))) {
      const topo::NodeId from = table_.node(hop.from), to = table_.node(hop.to);
      const topo::PathType type = from == to ? topo::PathType::kLoc : paths_.between(from, to).type;
      const topo::PathType limit = hop.network ? plan_.type_inter : plan_.type_intra;
      if (type >= topo::PathType::kNet || (hop.limited && type > limit)) {
        fail("Channel {}: the way from {} to {} is {}, allowed is up to {}.", number,
             topo::label(system_, from), topo::label(system_, to), topo::name_of(type), topo::name_of(limit));
        continue;
      }
      if (hop.factor >= kLeastCountedShare && from != to) hops_ += paths_.between(from, to).hops;
      const double gbps = hop.factor * (hop.network ? channel.inter_gbps : channel.intra_gbps * multicast);
      for (const auto& [link, factor] : charges(paths_, from, to))
        load_[static_cast<std::size_t>(link)] += factor * gbps;
      if (hop.network && system_.node(from).kind() == topo::NodeKind::kNet) receive(from, gbps);
    }
  }

  /// What comes in at the ports passes every GPU; multicast heads may send more than they multicast.
  void check_speeds(std::size_t number) {
    const Channel& channel = plan_.channels[number];
    const double slack = kSlackGbps + kSlackShare * channel.inter_gbps;
    if (plan_.network ? !has_heads(plan_.pattern) && channel.intra_gbps < channel.inter_gbps - slack
                      : std::abs(channel.intra_gbps - channel.inter_gbps) > slack)
      fail("Channel {} carries {} GB/s between GPUs and {} beyond.", number, channel.intra_gbps,
           channel.inter_gbps);
  }

  /// What the plan says of its channels together.
  void check_sums() {
    if (plan_.in_order || !found_.empty()) return;
    if (hops_ != plan_.hops) fail("The channels cross {} links, the plan says {}.", hops_, plan_.hops);
    const bool same = std::all_of(plan_.channels.begin(), plan_.channels.end(), [&](const Channel& channel) {
      return channel.ranks == plan_.channels[0].ranks;
    });
    if (!plan_.channels.empty() && same != plan_.same_channels)
      fail("The channels have {} order of GPUs, the plan says {}.", same ? "one" : "more than one",
           plan_.same_channels ? "one" : "more than one");
  }

  void receive(topo::NodeId port, double gbps) {
    const topo::NetInfo& net = system_.node(port).net();
    if (net.guid) received_[{*net.guid, net.port}].first += gbps;
  }

  void check_loads() {
    for (std::size_t i = 0; i < load_.size(); ++i) {
      const topo::Link& link = system_.links()[i];
      if (load_[i] > link.gbps * (1 + kSlackShare) + kSlackGbps)
        fail("{} to {} ({}) has {:g} GB/s; the channels take {:g}.", topo::label(system_, link.from),
             topo::label(system_, link.to), topo::name_of(link.type), link.gbps, load_[i]);
    }
    for (const auto& [port, load] : received_)
      if (load.first > load.second * (1 + kSlackShare) + kSlackGbps)
        fail("Ports of ASIC {:#x} receive {:g} GB/s, of {:g}.", port.first, load.first, load.second);
  }

  const topo::Paths& paths_;
  const topo::System& system_;
  const ChannelPlan& plan_;
  HopTable table_;
  std::vector<double> load_;
  std::map<std::pair<std::uint64_t, int>, std::pair<double, double>> received_;  // by cable: load, capacity
  int hops_ = 0;
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
