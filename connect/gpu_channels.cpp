#include "connect/gpu_channels.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/format.hpp"

namespace loom::connect {
namespace {

using topo::PathType;

std::string counted(int count, const char* what) {
  return loom::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::vector<int> numbers_up_to(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// What joins GPUs whose worst hop is of this type.
std::string joined_by(PathType type, bool has_switch) {
  switch (type) {
    case PathType::kLoc:
      return "";
    case PathType::kNvl:
      return has_switch ? ", NVSwitch" : ", NVLink";
    case PathType::kNvb:
      return ", NVLink through other GPUs";
    case PathType::kC2c:
    case PathType::kP2c:
      return ", C2C";
    case PathType::kPix:
    case PathType::kPxb:
      return ", PCIe switches";
    case PathType::kSys:
      return ", PCIe and links between NUMA nodes";
    default:
      return ", PCIe through a CPU";
  }
}

/// What connect makes of the job.
void take_channels(GpuChannels& channels) {
  const Agreed& rings = channels.job.agreed(Family::kRing);
  for (int c = 0; c < rings.channels; ++c)
    channels.rings.push_back({ring_order(channels.job, c, rank_at(channels.job, c, 0)),
                              rings.inter_gbps[static_cast<std::size_t>(c)]});
  const Agreed& trees = channels.job.agreed(Family::kTree);
  for (int c = 0; c < trees.channels; ++c) {
    GpuChannels::TreeChannel channel{{}, trees.inter_gbps[static_cast<std::size_t>(c)]};
    for (int rank = 0; rank < channels.ranks; ++rank) {
      const DoubleTree both = tree_of(channels.job, c, rank);
      for (std::size_t t = 0; t < channel.trees.size(); ++t) channel.trees[t].push_back(both.trees[t]);
    }
    channels.trees.push_back(std::move(channel));
  }
}

using Hosts = std::span<const GpuHost* const>;

/// Hosts that differ have rows along the rings on which they have agreed.
bool have_rows(Hosts hosts) {
  return !hosts.front()->rows.channels.empty() &&
         std::ranges::all_of(hosts, [&](const GpuHost* host) { return *host == *hosts.front(); });
}

void take_grids(GpuChannels& channels, Hosts hosts) {
  if (hosts.size() < 2 || !have_rows(hosts)) return;
  for (const ChannelSummary& row : hosts.front()->rows.channels) {
    GpuChannels::GridChannel grid{{}, row.intra_gbps};
    for (int node = 0; node < channels.job.nodes(); ++node) {
      const auto ranks = channels.job.placement().ranks_of(node);
      for (const std::uint16_t local : row.order) grid.ranks.push_back(ranks[local]);
    }
    channels.grids.push_back(std::move(grid));
  }
}

/// Of all hosts together: no more than the slowest may have.
ChannelTotal total_of(Hosts hosts, ChannelTotal GpuHost::*kind, const Agreed& agreed) {
  ChannelTotal total = hosts.front()->*kind;
  for (const GpuHost* const host : hosts)
    total.bound_gbps = std::min(total.bound_gbps, (host->*kind).bound_gbps);
  if (hosts.size() > 1) total.gbps = agreed.total_gbps();
  return total;
}

std::string joined_by(Hosts hosts) {
  PathType worst = PathType::kLoc;
  bool switches = true;
  for (const GpuHost* const host : hosts) {
    const PathType type = host->summary.family(Family::kRing).type_intra;
    worst = std::max(worst, type);
    switches = switches && (host->has_switch || type == PathType::kLoc);
  }
  return joined_by(worst, switches);
}

/// How many there are of what.
struct Counts {
  int ranks = 0, gpus = 0, hosts = 1, rings = 1, trees = 1;
};

/// The ranks of each host follow each other.
bool are_in_blocks(const Placement& placement) {
  for (int rank = 1; rank < placement.ranks(); ++rank)
    if (placement.node_of(rank) != placement.node_of(rank - 1) &&
        placement.ranks_of(placement.node_of(rank)).front() != rank)
      return false;
  return true;
}

/// Rings bring each rank all that the others have. Grids join equally many ranks of each host; of trees it is
/// known on one host, and between two with equally many.
AllGatherGbps all_gather_of(const Job& job, Hosts hosts) {
  if (job.ranks() == 1) return {};
  const double ranks = job.ranks();
  const ChannelTotal rings = total_of(hosts, &GpuHost::ring, job.agreed(Family::kRing));
  AllGatherGbps slowest{.rings = rings.gbps * ranks / (ranks - 1)};
  if (job.shape().ranks_per_host == 0) return slowest;
  slowest.trees = hosts.size() <= 2 ? hosts.front()->gather.trees : 0;
  // Else blocks of both hosts are in turn, and all channels cross the same way at once.
  const double in_turn = are_in_blocks(job.placement()) ? 1 : 0.5;
  const bool rows = have_rows(hosts);
  const auto grids_of = [&](const GpuHost& host) {
    return hosts.size() > 1 ? grids_gbps(rows ? host.gather.grids : host.gather.grids_by_rings, job.nodes())
                            : 0;
  };
  slowest.grids = grids_of(*hosts.front());
  for (const GpuHost* const host : hosts) {
    slowest.trees = std::min(slowest.trees, in_turn * host->gather.trees);
    slowest.grids = std::min(slowest.grids, grids_of(*host));
  }
  return slowest;
}

std::string summary_text(const Counts& counts, const std::string& joined, const ChannelTotal& ring = {},
                         const ChannelTotal& tree = {}, const AllGatherGbps& all_gather = {}) {
  std::string text = counts.ranks == counts.gpus ? "" : counted(counts.ranks, "rank") + " on ";
  text += counted(counts.gpus, "GPU");
  if (counts.hosts > 1) text += " on " + counted(counts.hosts, "host");
  text += joined;
  const auto add = [&](int count, const char* what, const ChannelTotal& total) {
    text += "; " + counted(count, what);
    if (total.gbps > 0) text += loom::format(", {:.5g} of at most {:.5g} GB/s", total.gbps, total.bound_gbps);
  };
  add(counts.rings, "ring", ring);
  add(counts.trees, "tree", tree);
  if (all_gather.rings > 0) text += loom::format("; rings all-gather {:.5g} GB/s", all_gather.rings);
  if (all_gather.grids > 0) text += loom::format(", grids {:.5g}", all_gather.grids);
  if (all_gather.trees > 0) text += loom::format(", trees {:.5g}", all_gather.trees);
  return text;
}

}  // namespace

PathType GpuChannels::between(int from, int to) const {
  if (types.empty()) return from == to ? PathType::kLoc : PathType::kDis;
  const auto in = [](const std::vector<PathType>& host, int mates, int a, int b) {
    return host[static_cast<std::size_t>(a) * static_cast<std::size_t>(mates) + static_cast<std::size_t>(b)];
  };
  if (types.size() == 1) return in(types.front(), ranks, from, to);
  const Placement& placement = job.placement();
  const int node = placement.node_of(from);
  if (node != placement.node_of(to)) return PathType::kNet;
  return in(types[static_cast<std::size_t>(node)], placement.ranks_on(node), placement.local_of(from),
            placement.local_of(to));
}

std::vector<ChannelPorts> ports_of(const GpuChannels& channels, int rank) {
  std::vector<ChannelPorts> ports(
      std::max({channels.rings.size(), channels.trees.size(), channels.grids.size()}));
  if (channels.hosts == 1 || channels.ports.empty()) return ports;
  const Placement& placement = channels.job.placement();
  const auto node = static_cast<std::size_t>(placement.node_of(rank));
  const std::vector<std::string>& names = channels.ports[node];
  const auto local = static_cast<std::size_t>(placement.local_of(rank));
  const auto port_of = [&](int port) {
    if (port == kNoPort) return ChannelPorts::Port{};
    const auto index = static_cast<std::size_t>(port);
    return ChannelPorts::Port{names[index], channels.direct[node][local][index]};
  };
  const std::vector<std::int16_t>& near = channels.near[node][local];
  for (std::size_t c = 0; c < channels.rings.size(); ++c) {
    const Ring ring = ring_of(channels.job, static_cast<int>(c), rank);
    ports[c].ring_in = port_of(ring.port_in);
    ports[c].ring_out = port_of(ring.port_out);
  }
  for (std::size_t c = 0; c < ports.size() && !near.empty(); ++c)
    ports[c].nearest = port_of(near[c % near.size()]);
  for (std::size_t c = 0; c < channels.trees.size(); ++c)
    ports[c].tree = port_of(tree_of(channels.job, static_cast<int>(c), rank).port);
  return ports;
}

GpuChannels gpu_channels_in_order(int ranks, int gpus, const std::string& why) {
  GpuChannels channels;
  channels.ranks = ranks, channels.gpus = gpus;
  NodeSummary summary;
  summary.ranks = ranks;
  for (const auto& [family, pattern] :
       {std::pair(Family::kRing, search::Pattern::kRing), std::pair(Family::kTree, search::Pattern::kTree)}) {
    ChannelSummary in_order;
    for (int rank = 0; rank < ranks; ++rank) in_order.order.push_back(static_cast<std::uint16_t>(rank));
    FamilySummary& mine = summary.families[static_cast<std::size_t>(family)];
    mine.pattern = pattern;
    mine.channels = {std::move(in_order)};
  }
  const std::vector<std::vector<int>> nodes = {numbers_up_to(ranks)};
  channels.job = job_of(nodes, std::span(&summary, 1), {1, 1});
  take_channels(channels);
  channels.summary = summary_text({.ranks = ranks, .gpus = gpus}, ", ranks in order");
  channels.notes = {why};
  return channels;
}

GpuChannels gpu_channels(const Placement& placement, std::span<const GpuHost> hosts, int max_channels) {
  GpuChannels channels;
  channels.ranks = placement.ranks(), channels.hosts = placement.nodes(), channels.gpus = 0;
  std::vector<std::vector<int>> nodes;
  std::vector<NodeSummary> summaries;
  std::string why_not;
  for (int node = 0; node < placement.nodes(); ++node) {
    const GpuHost& host = hosts[static_cast<std::size_t>(node)];
    const std::span<const std::int32_t> mates = placement.ranks_of(node);
    nodes.emplace_back(mates.begin(), mates.end());
    summaries.push_back(host.summary);
    channels.gpus += host.gpus;
    channels.types.push_back(host.types);
    channels.ports.push_back(host.ports);
    channels.near.push_back(host.near);
    channels.direct.push_back(host.direct);
    if (why_not.empty() && !host.why_not.empty())
      why_not = hosts.size() == 1 ? host.why_not
                                  : loom::format("On the host of rank {}: {}", mates.front(), host.why_not);
  }
  if (!why_not.empty()) {
    GpuChannels in_order = gpu_channels_in_order(channels.ranks, channels.gpus, why_not);
    in_order.hosts = channels.hosts;
    return in_order;
  }
  channels.job = job_of(nodes, summaries, {1, max_channels});
  take_channels(channels);
  std::vector<const GpuHost*> all;
  for (const GpuHost& host : hosts) all.push_back(&host);
  take_grids(channels, all);
  channels.ring = total_of(all, &GpuHost::ring, channels.job.agreed(Family::kRing));
  channels.tree = total_of(all, &GpuHost::tree, channels.job.agreed(Family::kTree));
  if (hosts.size() == 1) channels.exchange_gbps = hosts.front().exchange_gbps;
  channels.all_gather = all_gather_of(channels.job, all);
  channels.summary = summary_of(channels.job, all);
  return channels;
}

std::string summary_of(const Job& job, std::span<const GpuHost* const> hosts) {
  const Agreed &rings = job.agreed(Family::kRing), &trees = job.agreed(Family::kTree);
  Counts counts{.ranks = job.ranks(), .hosts = job.nodes(), .rings = rings.channels, .trees = trees.channels};
  for (const GpuHost* const host : hosts) counts.gpus += host->gpus;
  return summary_text(counts, joined_by(hosts), total_of(hosts, &GpuHost::ring, rings),
                      total_of(hosts, &GpuHost::tree, trees), all_gather_of(job, hosts));
}

GpuChannels gpu_channels(const topo::MachineOfRanks& machine, const GpuChannelRequest& request,
                         const GraphFile* graph) {
  GpuHostPlan planned = plan_gpu_host(machine, request, false, graph);
  const std::vector<std::int32_t> leaders(static_cast<std::size_t>(planned.host.summary.ranks), 0);
  GpuChannels channels = gpu_channels(Placement(leaders), std::span(&planned.host, 1), request.max_channels);
  channels.notes.insert(channels.notes.begin(), planned.notes.begin(), planned.notes.end());
  channels.plans = std::move(planned.plans);
  return channels;
}

std::string to_graph_xml(const topo::MachineOfRanks& machine, const GpuChannels& channels) {
  return to_graph_xml(machine, channels.plans);
}

}  // namespace loom::connect
