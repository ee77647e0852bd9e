// charged_machine.hpp -- a machine and what channels take of its links, memories and cables, worked out from
// paths without the search.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "topo/paths.hpp"
#include "topo/system.hpp"

namespace loom {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr double kMemoryGbps = 5000;

/// What is taken or what there is, by the names that `loom search` prints, GB/s.
using ByName = std::map<std::string, double>;

class ChargedMachine {
 public:
  /// `ranks` take part.
  ChargedMachine(const topo::System& machine, const std::vector<int>& ranks)
      : system_(topo::trimmed_to(machine, ranks)), paths_(system_, inside()) {
    gpus_.assign(system_.gpus().begin(), system_.gpus().end());
    for (const topo::NodeId id : system_.of_kind(topo::NodeKind::kNet))
      if (system_.node(id).net().is_net) ports_.push_back(id);
    const auto switches = system_.of_kind(topo::NodeKind::kNvSwitch);
    if (!switches.empty()) switch_ = switches.front();
  }
  ChargedMachine(const ChargedMachine&) = delete;
  ChargedMachine& operator=(const ChargedMachine&) = delete;

  const std::vector<topo::NodeId>& ports() const { return ports_; }
  std::vector<topo::NodeId> gpus_of(const std::vector<int>& ranks) const {
    std::vector<topo::NodeId> gpus;
    for (const int rank : ranks) gpus.push_back(system_.gpu_of_rank(rank));
    return gpus;
  }

  /// Adds what a printed channel takes of everything, by name. Of a hop that does not exist there is nothing.
  void add_taken(const std::string& pattern, const nlohmann::json& channel, ByName& taken) const {
    const double inside = channel.at("bandwidth_intra_gbps"), beyond = channel.at("bandwidth_gbps");
    for (const Hop& hop : hops_of(pattern, channel)) {
      const Way found = way(hop.from, hop.to);
      const bool leaves = is_port(hop.from) || is_port(hop.to);
      const double gbps = hop.share * (leaves ? beyond : inside);
      if (!found.exists) {
        taken[loom::format("a way from {} to {}", topo::label(system_, hop.from),
                           topo::label(system_, hop.to))] += gbps;
        continue;
      }
      for (const auto* links : {&found.links, &found.back})
        for (const auto& [id, factor] : *links) taken[label_of(system_.link(id))] += factor * gbps;
      if (has_memory(hop.from)) taken[gives(hop.from)] += gbps;
      if (has_memory(hop.to)) taken[takes(hop.to)] += gbps;
      if (!is_port(hop.from)) continue;
      const auto cable = [&](topo::NodeId port) { return share_cable(port, hop.from); };
      taken[topo::label(system_, *std::find_if(ports_.begin(), ports_.end(), cable))] += gbps;
    }
  }
  /// What is taken beyond what there is; "": nothing.
  std::string overloaded(const ByName& taken) const {
    const ByName there = what_there_is();
    for (const auto& [name, gbps] : taken) {
      const auto found = there.find(name);
      const double has = found == there.end() ? 0 : found->second;
      if (found == there.end() || gbps > has * (1 + 1e-5) + 1e-3)
        return loom::format("{}: {:g} GB/s of {:g}", name, gbps, has);
    }
    return "";
  }

  /// Everything that can have a price or be overloaded, by its name, which is its own on machines of the
  /// repository.
  ByName what_there_is() const {
    ByName there;
    const auto add = [&](const std::string& name, double gbps) {
      EXPECT_TRUE(there.emplace(name, gbps).second) << "two are called " << name;
    };
    for (const topo::Link& link : system_.links()) add(label_of(link), static_cast<double>(link.gbps));
    for (const topo::NodeId gpu : system_.of_kind(topo::NodeKind::kGpu))  // those of other parts too
      if (has_memory(gpu)) add(gives(gpu), kMemoryGbps), add(takes(gpu), kMemoryGbps);
    if (gpus_.size() == 1) add(topo::label(system_, gpus_[0]), kMemoryGbps);
    for (const topo::NodeId port : ports_) {
      double slowest = kNever;
      for (const topo::NodeId other : ports_) {
        const double mbps = system_.node(other).net().speed_mbps;
        if (share_cable(port, other)) slowest = std::min(slowest, (mbps > 0 ? mbps : 10000) / 8000);
      }
      add(topo::label(system_, port), slowest);
    }
    return there;
  }

  /// GB/s that other GPUs can send to one, or receive from it.
  double most_between_gpus(int rank, bool in) const {
    const topo::NodeId gpu = system_.gpu_of_rank(rank);
    std::map<topo::LinkId, double> links;  // the last ones, or the first ones; what a GB/s takes at least
    for (const topo::NodeId other : gpus_) {
      const Way taken = other == gpu ? Way{} : way(in ? other : gpu, in ? gpu : other);
      if (taken.links.empty()) continue;
      const auto& [link, factor] = in ? taken.links.back() : taken.links.front();
      const auto known = links.try_emplace(link, factor).first;
      known->second = std::min(known->second, factor);
    }
    double sum = 0;
    for (const auto& [link, factor] : links) sum += static_cast<double>(system_.link(link).gbps) / factor;
    return std::min(sum, kMemoryGbps);
  }
  double widest_from_port() const {
    double widest = 0;
    for (const topo::NodeId port : ports_)
      for (const topo::NodeId gpu : gpus_) widest = std::max(widest, width(port, gpu));
    return widest;
  }
  /// The fastest path between GPUs. Heads multicast to all of them, and so no faster than to the slowest.
  double widest_between_gpus(bool multicast) const {
    double widest = 0, slowest = kNever;
    for (const topo::NodeId gpu : gpus_) {
      if (multicast) slowest = std::min(slowest, width(switch_, gpu));
      for (const topo::NodeId other : gpus_)
        if (other != gpu) widest = std::max(widest, width(gpu, other));
    }
    return multicast ? slowest : widest;
  }

 protected:
  struct Hop {
    topo::NodeId from, to;
    double share = 1;  // of what the channel carries
  };
  struct Way {
    bool exists = false;
    std::vector<std::pair<topo::LinkId, double>> links, back;
  };

  static topo::PathRules inside() {
    topo::PathRules rules;
    rules.network_inside_host = false;
    return rules;
  }

  std::string label_of(const topo::Link& link) const {
    return loom::format("{} -> {} ({})", topo::label(system_, link.from), topo::label(system_, link.to),
                        topo::name_of(link.type));
  }
  std::string gives(topo::NodeId gpu) const {
    return loom::format("memory of {} -> GPU", topo::label(system_, gpu));
  }
  std::string takes(topo::NodeId gpu) const {
    return loom::format("{} -> its memory", topo::label(system_, gpu));
  }

  bool is_gpu(topo::NodeId id) const { return system_.node(id).kind() == topo::NodeKind::kGpu; }
  bool is_port(topo::NodeId id) const { return system_.node(id).kind() == topo::NodeKind::kNet; }
  /// A further rank on a GPU reaches its memory over a link.
  bool has_memory(topo::NodeId id) const {
    const topo::NodeId parent = system_.node(id).parent;
    return is_gpu(id) && (parent == topo::kNoNode || !is_gpu(parent));
  }
  bool share_cable(topo::NodeId a, topo::NodeId b) const {
    const topo::NetInfo &x = system_.node(a).net(), &y = system_.node(b).net();
    return a == b || (x.guid && x.guid == y.guid && x.port == y.port);
  }

  /// What a GB/s from one end to another takes: of each link of its path, and of the way back where data that
  /// comes in also takes from that.
  Way way(topo::NodeId from, topo::NodeId to) const {
    const topo::Path path = paths_.between(from, to);
    if (path.type >= topo::PathType::kNet || path.gbps <= 0) return {};
    Way way{true, {}, {}};
    const std::vector<topo::LinkId> route = paths_.route(from, to);
    const bool intel = std::any_of(route.begin(), route.end(), [&](topo::LinkId id) {
      const topo::Node& node = system_.node(system_.link(id).to);
      return node.kind() == topo::NodeKind::kCpu && node.cpu().vendor == "GenuineIntel";
    });
    const bool slow = intel && is_gpu(from) && path.type == topo::PathType::kPhb;
    for (const topo::LinkId id : route) {
      const topo::Link& link = system_.link(id);
      const topo::Node& end = system_.node(link.to);
      const double factor = slow && link.type == topo::LinkType::kPci ? 1.2 : 1;
      way.links.emplace_back(id, factor);
      if (link.reverse == topo::kNoLink) continue;
      const bool old_gpu = is_gpu(link.to) && end.gpu().compute_capability < 80;
      const bool power = end.kind() == topo::NodeKind::kCpu && end.cpu().arch == "ppc64";
      if (old_gpu && !is_gpu(from) && link.type != topo::LinkType::kLoc)
        way.back.emplace_back(link.reverse, factor / 8);
      if (power && link.type == topo::LinkType::kNvl) way.back.emplace_back(link.reverse, factor);
    }
    return way;
  }

  /// GB/s.
  double width(topo::NodeId from, topo::NodeId to) const {
    const Way taken = way(from, to);
    if (!taken.exists) return 0;
    double width = kMemoryGbps;
    for (const auto& [id, factor] : taken.links)
      width = std::min(width, static_cast<double>(system_.link(id).gbps) / factor);
    return width;
  }

  /// Whether a channel that comes in at one port may go out at another one: of one rail (where rails are not
  /// known, of one cable), or crossing NICs, between which there may be planes.
  bool on_one_rail(topo::NodeId a, topo::NodeId b) const {
    const topo::NetInfo &x = system_.node(a).net(), &y = system_.node(b).net();
    if (a == b) return true;
    return may_cross(a, b) && (x.rail && y.rail ? x.rail == y.rail : share_cable(a, b));
  }
  bool may_cross(topo::NodeId a, topo::NodeId b) const {
    const topo::NetInfo &x = system_.node(a).net(), &y = system_.node(b).net();
    return !x.plane || !y.plane || x.plane == y.plane;
  }

 private:
  std::vector<Hop> hops_of(const std::string& pattern, const nlohmann::json& channel) const {
    const std::vector<topo::NodeId> order = gpus_of(channel.at("gpus"));
    const topo::NodeId first = order.front(), second = order[order.size() > 1 ? 1 : 0], last = order.back();
    const bool network = !channel.at("nets").empty();
    std::vector<Hop> hops;
    for (const topo::NodeId gpu : pattern == "nvls" ? gpus_ : std::vector<topo::NodeId>{}) {
      const double share = gpu == first ? 2 : 1;
      hops.insert(hops.end(), {{switch_, gpu, share}, {gpu, switch_, share}});
    }
    for (const topo::NodeId gpu : pattern == "collnet-direct" ? gpus_ : std::vector<topo::NodeId>{}) {
      const double share = 1 / (static_cast<double>(gpus_.size()) - 1);
      if (gpu != first) hops.insert(hops.end(), {{first, gpu, share}, {gpu, first, share}});
    }
    for (std::size_t i = 0; i + 1 < order.size(); ++i) hops.push_back({order[i], order[i + 1]});
    if (!network && pattern == "ring" && order.size() > 1) hops.push_back({last, first});
    if (!network) return hops;
    const topo::NodeId in = port_called(channel.at("nets").at(0)),
                       out = port_called(channel.at("nets").at(1));
    hops.push_back({in, first});
    if (pattern == "balanced-tree")
      hops.insert(hops.end(), {{first, out, 0.5}, {second, out, 0.5}});
    else
      hops.push_back({pattern == "ring" ? last : pattern == "split-tree" ? second : first, out});
    return hops;
  }
  topo::NodeId port_called(const std::string& name) const {
    const auto found = std::find_if(ports_.begin(), ports_.end(),
                                    [&](topo::NodeId port) { return topo::label(system_, port) == name; });
    return found == ports_.end() ? topo::kNoNode : *found;
  }

 protected:
  topo::System system_;
  topo::Paths paths_;
  std::vector<topo::NodeId> gpus_, ports_;
  topo::NodeId switch_ = topo::kNoNode;
};

}  // namespace loom
