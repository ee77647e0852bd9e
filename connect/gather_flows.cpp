#include "connect/gather_flows.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "connect/view.hpp"
#include "topo/bandwidth.hpp"

namespace loom::connect {
namespace {

constexpr double kBytesPerUs = 1000;  // of one GB/s
constexpr double kWhole = 1e6;        // bytes
constexpr double kRounding = 1e-6;

/// Of hosts like one, while what all ranks have flows.
class Flows {
 public:
  Flows(const Machine& machine, int hosts)
      : machine_(&machine), hosts_(static_cast<std::size_t>(hosts), NodeLoads(machine)) {}

  /// By local index. Ranks of one GPU exchange in its memory.
  void inside(int host, int from, int to, double part) {
    const auto gpu = [&](int local) { return machine_->ranks[static_cast<std::size_t>(local)]; };
    if (gpu(from) != gpu(to)) of(host).add(End::rank(from), End::rank(to), part * kWhole);
  }
  void leaves(int host, int rank, int port, double part) {
    of(host).add(End::rank(rank), End::port(port), part * kWhole);
  }
  void enters(int host, int rank, int port, double part) {
    of(host).add(End::port(port), End::rank(rank), part * kWhole);
  }

  double gbps() const {
    double us = 0;
    for (const NodeLoads& host : hosts_) us = std::max(us, host.busiest_us());
    const double most = topo::kLocalGbps;
    return us > 0 ? std::min(most, kWhole / us / kBytesPerUs) : most;
  }

 private:
  NodeLoads& of(int host) { return hosts_[static_cast<std::size_t>(host)]; }

  const Machine* machine_;
  std::vector<NodeLoads> hosts_;
};

/// By rank: what share of all ranks it and those below it are.
std::vector<double> shares_below(const std::vector<TreeLinks>& tree) {
  std::vector<std::size_t> from_root;
  for (std::size_t rank = 0; rank < tree.size(); ++rank)
    if (tree[rank].parent == kNobody) from_root.push_back(rank);
  for (std::size_t i = 0; i < from_root.size(); ++i)
    for (int c = 0; c < tree[from_root[i]].child_count; ++c)
      from_root.push_back(static_cast<std::size_t>(tree[from_root[i]].children[static_cast<std::size_t>(c)]));
  std::vector<double> below(tree.size(), 1 / static_cast<double>(tree.size()));
  for (auto rank = from_root.rbegin(); rank != from_root.rend(); ++rank)
    if (const int parent = tree[*rank].parent; parent != kNobody)
      below[static_cast<std::size_t>(parent)] += below[*rank];
  return below;
}

/// What crosses between two hosts, by ports. A channel works at one block at a time, from its first one on
/// (device/steps/trees.hpp), so all that it has crosses one way, and then the other. A port carries both at a
/// time where the channels that use it are at blocks of both hosts.
class Crossings {
 public:
  /// A channel. ends: hosts, and their ports. begins: with which block, of all as 1. part: of the whole.
  void add(const std::set<std::pair<int, int>>& ends, double begins, double part) {
    for (const auto& end : ends) channels_[end].push_back({begins, part});
  }

  /// Of the whole, if nothing else limits.
  double gbps(std::span<const float> port_gbps) const {
    double most = topo::kLocalGbps;
    for (const auto& [end, channels] : channels_) {
      const int port = end.second;
      double at_once = 0;  // cross the same way
      for (const Channel& first : channels) {
        double parts = 0;
        for (const Channel& other : channels) {
          const double behind = other.begins - first.begins + (other.begins < first.begins ? 1 : 0);
          if (behind < 0.5 - kRounding) parts += other.part;
        }
        at_once = std::max(at_once, parts);
      }
      const double port_speed = port == kNoPort
                                    ? topo::net_gbps(topo::kUnknownNetMbps)
                                    : static_cast<double>(port_gbps[static_cast<std::size_t>(port)]);
      most = std::min(most, port_speed / at_once);
    }
    return most;
  }

 private:
  struct Channel {
    double begins, part;
  };
  std::map<std::pair<int, int>, std::vector<Channel>> channels_;  // by host and port
};

/// A link of a tree carries, each way, what the ranks behind it have.
double trees_gbps(const Machine& machine, const NodeSummary& summary, int hosts) {
  std::vector<std::vector<int>> nodes(static_cast<std::size_t>(hosts));
  for (int rank = 0; rank < hosts * summary.ranks; ++rank)
    nodes[static_cast<std::size_t>(rank / summary.ranks)].push_back(rank);
  const std::vector<NodeSummary> summaries(nodes.size(), summary);
  const int channels = static_cast<int>(summary.family(Family::kTree).channels.size());
  const Job job = job_of(nodes, summaries, {channels, channels});
  const Agreed& agreed = job.agreed(Family::kTree);
  Flows flows(machine, hosts);
  Crossings crossings;
  for (int c = 0; c < agreed.channels; ++c) {
    std::vector<DoubleTree> of_rank;
    for (int rank = 0; rank < job.ranks(); ++rank) of_rank.push_back(tree_of(job, c, rank));
    const double part = agreed.inter_gbps[static_cast<std::size_t>(c)] / agreed.total_gbps() / 2;
    std::set<std::pair<int, int>> ends;
    for (std::size_t t = 0; t < of_rank.front().trees.size(); ++t) {
      std::vector<TreeLinks> tree;
      for (const DoubleTree& both : of_rank) tree.push_back(both.trees[t]);
      const std::vector<double> below = shares_below(tree);
      for (int rank = 0; rank < job.ranks(); ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        const int parent = tree[r].parent;
        if (parent == kNobody) continue;
        const int host = rank / summary.ranks, other = parent / summary.ranks;
        const int local = rank % summary.ranks, above = parent % summary.ranks;
        const double up = part * below[r], down = part * (1 - below[r]);
        if (host == other) {
          flows.inside(host, local, above, up);
          flows.inside(host, above, local, down);
        } else {
          const int port = of_rank[static_cast<std::size_t>(parent)].port;
          flows.leaves(host, local, of_rank[r].port, up), flows.enters(other, above, port, up);
          flows.leaves(other, above, port, down), flows.enters(host, local, of_rank[r].port, down);
          ends.insert({host, of_rank[r].port}), ends.insert({other, port});
        }
      }
    }
    crossings.add(ends, tree_begin(c), 2 * part);
  }
  return hosts > 1 ? std::min(flows.gbps(), crossings.gbps(summary.port_gbps)) : flows.gbps();
}

/// What other hosts have of the whole, of two hosts, of four, and of many.
double share_at(std::size_t point) {
  return 0.5 + 0.25 * static_cast<double>(point);
}

/// A row brings each of its ranks what the others have, and a column what other hosts have; `others`: that
/// share of the whole.
double grids_gbps_of(const Machine& machine, std::span<const ChannelSummary> rows,
                     std::span<const std::vector<std::int16_t>> near, double others) {
  const auto ranks = static_cast<double>(rows.front().order.size());
  double all = 0;
  for (const ChannelSummary& row : rows) all += static_cast<double>(row.intra_gbps);
  Flows flows(machine, 1);
  for (std::size_t c = 0; c < rows.size(); ++c) {
    const std::vector<std::uint16_t>& row = rows[c].order;
    const double part = static_cast<double>(rows[c].intra_gbps) / all;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::vector<std::int16_t>& ports = near[row[i]];
      const int port = ports.empty() ? kNoPort : ports[c % ports.size()];
      flows.inside(0, row[i], row[(i + 1) % row.size()], part * (ranks - 1) / ranks);
      flows.leaves(0, row[i], port, part * others / ranks);
      flows.enters(0, row[i], port, part * others / ranks);
    }
  }
  return flows.gbps();
}

}  // namespace

GatherGbps::Grids grids_gbps(const Machine& machine, std::span<const ChannelSummary> rows,
                             std::span<const std::vector<std::int16_t>> near, double most_gbps) {
  const auto ranks = static_cast<double>(rows.front().order.size());
  const double by_blocks = most_gbps * static_cast<double>(rows.size()) * ranks / (ranks - 1);
  GatherGbps::Grids grids;
  for (std::size_t i = 0; i < grids.size(); ++i) {
    grids[i] = grids_gbps_of(machine, rows, near, share_at(i));
    if (most_gbps > 0) grids[i] = std::min(grids[i], by_blocks);
  }
  return grids;
}

GatherGbps gather_gbps(const Machine& machine, const NodeSummary& summary,
                       std::span<const std::vector<std::int16_t>> near, bool between_hosts) {
  GatherGbps gather{.trees = trees_gbps(machine, summary, between_hosts ? 2 : 1)};
  if (between_hosts && summary.ranks > 1)
    gather.grids_by_rings = grids_gbps(machine, summary.family(Family::kRing).channels, near, 0);
  return gather;
}

double tree_begin(int channel) {
  const int pair = channel / 2, spread = (pair & 1) * 4 + (pair & 2) + (pair & 4) / 4;
  return (channel % 2 * 8 + spread) / 16.0;
}

/// The time of the busiest link bends upwards with the share that other hosts have: a straight line between
/// two points is never below it.
double grids_gbps(const GatherGbps::Grids& grids, int hosts) {
  if (grids.front() <= 0) return 0;
  const double others = 1 - 1.0 / hosts;
  std::size_t next = 1;
  while (share_at(next) < others) ++next;
  const double way = (others - share_at(next - 1)) / (share_at(next) - share_at(next - 1));
  return 1 / ((1 - way) / grids[next - 1] + way / grids[next]);
}

}  // namespace loom::connect
