#include "connect/port_shares.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/format.hpp"

namespace loom::connect {
namespace {

constexpr double kSlack = 1e-5;  // of a GB/s: sums of rounded shares

/// One way of one port.
struct Load {
  double gbps = 0;
  int channels = 0, last_channel = -1;
  void add(double more, int channel) {
    gbps += more;
    channels += channel != last_channel;
    last_channel = channel;
  }
};

/// Of a node: [0] in, [1] out, by port + 1.
using Loads = std::array<std::vector<Load>, 2>;

/// What a node of this kind planned for each port. A tree's reduction may go either way through both ports of
/// a channel: which of the two the parent and the children have is the pattern's.
Loads planned(const NodeSummary& kind, Family family) {
  Loads loads;
  loads.fill(std::vector<Load>(kind.port_gbps.size() + 1));
  const FamilySummary& own = kind.family(family);
  for (std::size_t c = 0; c < own.channels.size(); ++c) {
    const ChannelSummary& channel = own.channels[c];
    const auto add = [&](std::size_t way, int port) {
      loads[way][static_cast<std::size_t>(port + 1)].add(channel.inter_gbps, static_cast<int>(c));
    };
    add(0, channel.port_in);
    add(1, channel.port_out);
    if (family == Family::kTree && channel.port_in != channel.port_out) {
      add(0, channel.port_out);
      add(1, channel.port_in);
    }
  }
  return loads;
}

class Sum {
 public:
  Sum(const Job& job, const Wires& wires, Family family, const std::function<void(const std::string&)>& fail)
      : job_(job), wires_(wires), family_(family), fail_(fail) {
    for (int node = 0; node < job.nodes(); ++node) {
      loads_.emplace_back();
      loads_.back().fill(std::vector<Load>(job.summary(node).port_gbps.size() + 1));
    }
  }

  void run() {
    for (int channel = 0; channel < job_.agreed(family_).channels; ++channel)
      for (int rank = 0; rank < job_.ranks(); ++rank)
        family_ == Family::kRing ? add_ring(channel, rank) : add_tree(channel, rank);
    std::vector<Loads> plans;
    for (const NodeSummary& kind : job_.kinds()) plans.push_back(planned(kind, family_));
    for (int node = 0; node < job_.nodes(); ++node)
      compare(node, plans[static_cast<std::size_t>(job_.kind_of(node))]);
  }

 private:
  bool is_elsewhere(int rank, int node) const {
    return rank >= 0 && rank < job_.ranks() && job_.placement().node_of(rank) != node;
  }

  void add(int rank, int way, int port, int channel, double part) {
    Loads& loads = loads_[static_cast<std::size_t>(job_.placement().node_of(rank))];
    std::vector<Load>& ports = loads[static_cast<std::size_t>(way)];
    if (port < kNoPort || port + 1 >= static_cast<int>(ports.size()))
      return fail_(loom::format("{} {}: rank {} is to use port {}, its node has {}.", name_of(family_),
                                channel, rank, port, ports.size() - 1));
    const double gbps = job_.agreed(family_).inter_gbps[static_cast<std::size_t>(channel)];
    ports[static_cast<std::size_t>(port + 1)].add(gbps * part, channel);
  }

  void add_ring(int channel, int rank) {
    const int node = job_.placement().node_of(rank);
    const Ring ring = wires_.ring(channel, rank);
    if (is_elsewhere(ring.previous, node)) add(rank, 0, ring.port_in, channel, 1);
    if (is_elsewhere(ring.next, node)) add(rank, 1, ring.port_out, channel, 1);
  }

  void add_tree(int channel, int rank) {
    const int node = job_.placement().node_of(rank);
    const DoubleTree both = wires_.tree(channel, rank);
    for (const TreeLinks& links : both.trees) {
      if (is_elsewhere(links.parent, node)) add(rank, 1, both.port, channel, 0.5);
      const int count = std::clamp(links.child_count, 0, static_cast<int>(links.children.size()));
      for (int i = 0; i < count; ++i)
        if (is_elsewhere(links.children[static_cast<std::size_t>(i)], node))
          add(rank, 0, both.port, channel, 0.5);
    }
  }

  void compare(int node, const Loads& plan) const {
    const auto& own = job_.summary(node).family(family_).channels;
    const bool equal = std::all_of(own.begin(), own.end(), [&](const ChannelSummary& channel) {
      return channel.inter_gbps == own[0].inter_gbps;
    });
    const int own_count = static_cast<int>(own.size());
    const int each = (job_.agreed(family_).channels + own_count - 1) / own_count;
    for (const std::size_t way : {0, 1})
      for (std::size_t i = 0; i < plan[way].size(); ++i) {
        const Load &load = loads_[static_cast<std::size_t>(node)][way][i], &share = plan[way][i];
        const std::string port = i == 0 ? "an unknown port" : loom::format("port {}", i - 1);
        const char* does = way == 0 ? "receive" : "send";
        if (load.gbps > share.gbps * (1 + kSlack) + kSlack)
          fail_(loom::format("{}: node {} is to {} {} GB/s by {}, it planned {}.", name_of(family_), node,
                             does, load.gbps, port, share.gbps));
        if (equal && load.channels > share.channels * each)
          fail_(loom::format("{}: node {} is to {} {} channels by {}, its share is {}.", name_of(family_),
                             node, does, load.channels, port, share.channels * each));
      }
  }

  const Job& job_;
  const Wires& wires_;
  Family family_;
  const std::function<void(const std::string&)>& fail_;
  std::vector<Loads> loads_;  // by node
};

}  // namespace

void check_ports_of(const Job& job, const Wires& wires, Family family,
                    const std::function<void(const std::string&)>& fail) {
  if (job.nodes() > 1 && job.agreed(family).channels > 0) Sum(job, wires, family, fail).run();
}

}  // namespace loom::connect
