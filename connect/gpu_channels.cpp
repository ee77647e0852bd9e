#include "connect/gpu_channels.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "connect/node_plans.hpp"
#include "search/graph_xml.hpp"
#include "search/path_tables.hpp"
#include "topo/bandwidth.hpp"

namespace loom::connect {
namespace {

using search::ChannelPlan;
using topo::PathType;

std::string counted(std::size_t count, const char* what) {
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

/// A host's ranks share its memory: data never leaves it through a port to come back. `through`: a GPU passes
/// on what goes from one to another.
search::PathTables tables_of(const topo::System& system, bool through) {
  topo::PathRules rules;
  rules.network_inside_host = false;
  rules.nvb = through;
  return search::PathTables(system, rules);
}

/// The pattern's channels in the file, with the bound of a search: that without slow pairs, unless they carry
/// more.
std::optional<ChannelPlan> plan_in(std::vector<search::NodePlans>& file, const std::string& name,
                                   Family family, const search::PathTables& through,
                                   const search::PathTables& direct, const GpuChannelRequest& request) {
  for (search::NodePlans& plans : file) {
    ChannelPlan& plan = plans.parts.front();
    if (family_of(plan.pattern) != family) continue;
    if (plan.network)
      throw Error(ErrorCode::kBadInput,
                  loom::format(
                      "{}: its channels leave the host through ports, but all ranks are on one host.", name));
    if (static_cast<int>(plan.channels.size()) > request.max_channels)
      throw Error(ErrorCode::kBadInput,
                  loom::format("{}: it has {}, of which GPUs run {} at the most.", name,
                               counted(plan.channels.size(), "channel"), request.max_channels));
    for (const search::PathTables* const tables : {&through, &direct}) {
      search::prove_bounds(*tables, {.max_channels = request.max_channels}, plans);
      if (plan.total_gbps <= plan.bound_gbps * (1 + 1e-6)) break;
    }
    return plan;
  }
  return {};
}

bool passes_through_gpus(const ChannelPlan& plan, const topo::Paths& paths) {
  const auto gpu = [&](int rank) { return paths.system().gpu_of_rank(rank); };
  for (const search::Channel& channel : plan.channels)
    for (std::size_t i = 0; i < channel.ranks.size(); ++i) {
      const int next = channel.ranks[(i + 1) % channel.ranks.size()];
      const bool ends = i + 1 == channel.ranks.size() && family_of(plan.pattern) != Family::kRing;
      if (!ends && paths.between(gpu(channel.ranks[i]), gpu(next)).type == PathType::kNvb) return true;
    }
  return false;
}

/// Kernels store right into a neighbour's memory. Where NVLinks through another GPU would pay, channels go
/// without; where not, these paths (`through`) keep the search off slower ones that would carry little more.
std::vector<ChannelPlan> plans_of(const search::PathTables& through, const search::PathTables& direct,
                                  const GpuChannelRequest& request, const GraphFile* graph) {
  std::vector<search::NodePlans> file;
  if (graph != nullptr) file = search::parse_graph_xml(graph->text, graph->name, direct);
  const PlanRequest inside{.max_channels = request.max_channels, .most_gbps = request.most_gbps};
  std::vector<ChannelPlan> plans;
  for (const Family family : {Family::kRing, Family::kTree}) {
    std::optional<ChannelPlan> plan;
    if (graph != nullptr) plan = plan_in(file, graph->name, family, through, direct, request);
    if (!plan) {
      plan = plan_inside(*through.whole(), family, inside);
      if (passes_through_gpus(*plan, through.whole()->paths))
        plan = plan_inside(*direct.whole(), family, inside);
    }
    plans.push_back(*std::move(plan));
  }
  return plans;
}

/// Each GPU becomes its ranks, one after the other. Between them data crosses the GPU's memory, which all of
/// them share.
void expand(ChannelPlan& plan, const std::vector<std::vector<int>>& sharers) {
  std::size_t most = 1;
  for (const std::vector<int>& ranks : sharers) most = std::max(most, ranks.size());
  const double memory_gbps = topo::kLocalGbps / static_cast<double>(most);
  const double kept = most > 1 ? std::min(1.0, memory_gbps / plan.total_gbps) : 1;
  plan.total_gbps *= kept;
  if (most > 1) plan.bound_gbps = std::min(plan.bound_gbps, memory_gbps);
  for (search::Channel& channel : plan.channels) {
    std::vector<int> ranks;
    for (const int lowest : channel.ranks) {
      const auto shared = std::ranges::find(sharers, lowest, [](const auto& some) { return some.front(); });
      ranks.insert(ranks.end(), shared->begin(), shared->end());
    }
    channel.ranks = std::move(ranks);
    channel.intra_gbps *= kept, channel.inter_gbps *= kept;
  }
}

/// What connect makes of one host's summary.
void take_channels(GpuChannels& channels, const NodeSummary& summary, int max_channels) {
  const std::vector<std::vector<int>> nodes = {numbers_up_to(channels.ranks)};
  channels.job = job_of(nodes, std::span(&summary, 1), {1, max_channels});
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

std::string summary_of(const GpuChannels& channels, const std::string& joined) {
  std::string text = channels.ranks == channels.gpus ? "" : counted(channels.ranks, "rank") + " on ";
  text += counted(channels.gpus, "GPU") + joined;
  const auto add = [&](std::size_t count, const char* what, const GpuChannels::Total& total) {
    text += "; " + counted(count, what);
    if (total.gbps > 0) text += loom::format(", {:.5g} of at most {:.5g} GB/s", total.gbps, total.bound_gbps);
  };
  add(channels.rings.size(), "ring", channels.ring);
  add(channels.trees.size(), "tree", channels.tree);
  return text;
}

std::vector<PathType> types_of(const topo::Paths& paths, const std::vector<std::vector<int>>& sharers,
                               int ranks) {
  std::vector<PathType> types(static_cast<std::size_t>(ranks * ranks), PathType::kLoc);
  for (const std::vector<int>& from : sharers)
    for (const std::vector<int>& to : sharers) {
      if (&from == &to) continue;
      const PathType type =
          paths.between(paths.system().gpu_of_rank(from.front()), paths.system().gpu_of_rank(to.front()))
              .type;
      for (const int a : from)
        for (const int b : to) types[static_cast<std::size_t>(a * ranks + b)] = type;
    }
  return types;
}

/// Ranks that share a GPU exchange in its memory.
double exchange_gbps_of(const topo::Paths& paths, const std::vector<std::vector<int>>& sharers, int ranks) {
  std::vector<double> flows(paths.system().links().size());
  double each = topo::kLocalGbps;
  std::vector<topo::LinkId> route;
  for (const std::vector<int>& from : sharers) {
    const auto inside = static_cast<double>(from.size() * (from.size() - 1));
    if (inside > 0) each = std::min(each, topo::kLocalGbps / inside);
    for (const std::vector<int>& to : sharers) {
      if (&from == &to) continue;
      route.clear();
      paths.append_route(paths.system().gpu_of_rank(from.front()), paths.system().gpu_of_rank(to.front()),
                         route);
      for (const topo::LinkId link : route)
        flows[static_cast<std::size_t>(link)] += static_cast<double>(from.size() * to.size());
    }
  }
  for (std::size_t link = 0; link < flows.size(); ++link)
    if (flows[link] > 0)
      each = std::min(each, static_cast<double>(paths.system().links()[link].gbps) / flows[link]);
  return each * (ranks - 1);
}

}  // namespace

GpuChannels gpu_channels_in_order(int ranks, int gpus, const std::string& why) {
  GpuChannels channels;
  channels.ranks = ranks, channels.gpus = gpus;
  channels.types.assign(static_cast<std::size_t>(ranks * ranks), PathType::kDis);
  for (int rank = 0; rank < ranks; ++rank)
    channels.types[static_cast<std::size_t>(rank * ranks + rank)] = PathType::kLoc;
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
  take_channels(channels, summary, 1);
  channels.summary = summary_of(channels, ", ranks in order");
  channels.notes = {why};
  return channels;
}

GpuChannels gpu_channels(const topo::MachineOfRanks& machine, const GpuChannelRequest& request,
                         const GraphFile* graph) {
  std::size_t ranks = 0;
  for (const std::vector<int>& some : machine.sharers) ranks += some.size();
  GpuChannels channels;
  channels.ranks = static_cast<int>(ranks), channels.gpus = static_cast<int>(machine.sharers.size());
  const auto in_order = [&](const std::string& why) {
    GpuChannels simple = gpu_channels_in_order(channels.ranks, channels.gpus, why);
    simple.notes.insert(simple.notes.begin(), machine.notes.begin(), machine.notes.end());
    return simple;
  };
  const search::PathTables tables = tables_of(machine.system, true),
                           direct = tables_of(machine.system, false);
  if (tables.whole() == nullptr || direct.whole() == nullptr)
    return in_order("Nothing but the network joins the GPUs of this host.");
  std::vector<ChannelPlan> plans = plans_of(tables, direct, request, graph);
  for (const ChannelPlan& plan : plans)
    if (plan.channels.empty() || plan.in_order || plan.total_gbps <= 0)
      return in_order("No channel fits the GPUs of this host.");
  for (ChannelPlan& plan : plans) {
    channels.plans.push_back({{plan}, {tables.whole()->ranks}, plan.total_gbps, plan.total_gbps});
    expand(plan, machine.sharers);
  }
  channels.ring = {plans[0].total_gbps, plans[0].bound_gbps};
  channels.tree = {plans[1].total_gbps, plans[1].bound_gbps};
  take_channels(channels, summarize(machine.system, numbers_up_to(channels.ranks), plans),
                request.max_channels);
  channels.types = types_of(direct.whole()->paths, machine.sharers, channels.ranks);
  channels.exchange_gbps = exchange_gbps_of(direct.whole()->paths, machine.sharers, channels.ranks);
  channels.notes = machine.notes;
  channels.summary = summary_of(
      channels, joined_by(plans[0].type_intra, !machine.system.of_kind(topo::NodeKind::kNvSwitch).empty()));
  return channels;
}

std::string to_graph_xml(const topo::MachineOfRanks& machine, const GpuChannels& channels) {
  return search::to_graph_xml(tables_of(machine.system, false), channels.plans);
}

}  // namespace loom::connect
