#include "connect/gpu_host.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "connect/node_plans.hpp"
#include "connect/path_type.hpp"
#include "search/graph_xml.hpp"
#include "search/path_tables.hpp"
#include "topo/bandwidth.hpp"

namespace loom::connect {
namespace {

using search::ChannelPlan;
using topo::PathType;

constexpr std::uint8_t kFormat = 6;
constexpr std::uint8_t kReads = 1, kWrites = 2;  // of GpuHost::Direct

/// A host's ranks share its memory: data never leaves it through a port to come back, and no GPU passes on
/// what another one sends to a port. `through`: a GPU passes on what goes from one to another.
search::PathTables tables_of(const topo::System& system, bool through) {
  topo::PathRules rules;
  rules.network_inside_host = false;
  rules.nvb = through;
  rules.pxn = false;
  return search::PathTables(system, rules);
}

/// The pattern's channels in the file, with the bound of a search: that without slow pairs, unless they carry
/// more.
std::optional<ChannelPlan> plan_in(std::vector<search::NodePlans>& file, const std::string& name,
                                   Family family, const search::PathTables& through,
                                   const search::PathTables& direct, const PlanRequest& request) {
  for (search::NodePlans& plans : file) {
    ChannelPlan& plan = plans.parts.front();
    if (family_of(plan.pattern) != family) continue;
    if (plan.network && request.nodes == 1)
      throw Error(ErrorCode::kBadInput,
                  loom::format(
                      "{}: its channels leave the host through ports, but all ranks are on one host.", name));
    if (static_cast<int>(plan.channels.size()) > request.max_channels)
      throw Error(ErrorCode::kBadInput,
                  loom::format("{}: it has {} channels, of which GPUs run {} at the most.", name,
                               plan.channels.size(), request.max_channels));
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
      const bool ends =
          i + 1 == channel.ranks.size() && (plan.network || family_of(plan.pattern) != Family::kRing);
      if (!ends && paths.between(gpu(channel.ranks[i]), gpu(next)).type == PathType::kNvb) return true;
    }
  return false;
}

/// Kernels store right into a neighbour's memory. Where NVLinks through another GPU would pay, channels go
/// without; where not, these paths (`through`) keep the search off slower ones that would carry little more.
std::vector<ChannelPlan> plans_of(const search::PathTables& through, const search::PathTables& direct,
                                  const PlanRequest& request, const GraphFile* graph) {
  std::vector<search::NodePlans> file;
  if (graph != nullptr) file = search::parse_graph_xml(graph->text, graph->name, direct, request.nodes);
  std::vector<ChannelPlan> plans;
  for (const Family family : {Family::kRing, Family::kTree}) {
    std::optional<ChannelPlan> plan;
    if (graph != nullptr) plan = plan_in(file, graph->name, family, through, direct, request);
    if (!plan) {
      plan = plan_whole(*through.whole(), family, request);
      if (passes_through_gpus(*plan, through.whole()->paths))
        plan = plan_whole(*direct.whole(), family, request);
    }
    plans.push_back(*std::move(plan));
  }
  return plans;
}

/// Rings as if all ranks were on this host; where nothing fits, without channels.
ChannelPlan rows_of(const search::PathTables& through, const search::PathTables& direct,
                    const GpuChannelRequest& request) {
  const PlanRequest inside{.nodes = 1, .max_channels = request.max_channels, .most_gbps = request.most_gbps};
  ChannelPlan rows = plan_whole(*through.whole(), Family::kRing, inside);
  if (passes_through_gpus(rows, through.whole()->paths))
    rows = plan_whole(*direct.whole(), Family::kRing, inside);
  if (rows.in_order || rows.total_gbps <= 0) rows.channels.clear();
  return rows;
}

/// Of a machine without a port: it has one somewhere, of the speed that is assumed of such, which so many
/// channels fill.
void reach_unknown_port(ChannelPlan& plan, double most_gbps) {
  const double port_gbps = topo::net_gbps(topo::kUnknownNetMbps);
  const double enough = most_gbps > 0 ? std::max(1.0, std::ceil(port_gbps / most_gbps)) : 1;
  plan.channels.resize(std::min(plan.channels.size(), static_cast<std::size_t>(enough)));
  plan.total_gbps = 0;
  for (search::Channel& channel : plan.channels) {
    channel.inter_gbps = std::min(channel.intra_gbps, port_gbps / static_cast<double>(plan.channels.size()));
    plan.total_gbps += channel.inter_gbps;
  }
  plan.bound_gbps = std::min(plan.bound_gbps, port_gbps);
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

/// Of ranks, ascending: all of the host, as everywhere below.
std::size_t local_index(const std::vector<int>& ranks, int rank) {
  return static_cast<std::size_t>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
}

std::vector<PathType> types_of(const topo::Paths& paths, const std::vector<std::vector<int>>& sharers,
                               const std::vector<int>& ranks) {
  std::vector<PathType> types(ranks.size() * ranks.size(), PathType::kLoc);
  for (const std::vector<int>& from : sharers)
    for (const std::vector<int>& to : sharers) {
      if (&from == &to) continue;
      const PathType type =
          paths.between(paths.system().gpu_of_rank(from.front()), paths.system().gpu_of_rank(to.front()))
              .type;
      for (const int a : from)
        for (const int b : to) types[local_index(ranks, a) * ranks.size() + local_index(ranks, b)] = type;
    }
  return types;
}

std::vector<std::vector<std::int16_t>> ports_near(const topo::Paths& paths,
                                                  const std::vector<std::vector<int>>& sharers,
                                                  const std::vector<int>& ranks) {
  const std::span<const topo::NodeId> ports = paths.system().of_kind(topo::NodeKind::kNet);
  std::vector<std::vector<std::int16_t>> near(ranks.size());
  for (const std::vector<int>& some : sharers) {
    std::vector<std::int16_t> indices;
    for (const topo::NodeId net : paths.local_nets(paths.system().gpu_of_rank(some.front())))
      indices.push_back(static_cast<std::int16_t>(std::ranges::find(ports, net) - ports.begin()));
    for (const int rank : some) near[local_index(ranks, rank)] = indices;
  }
  return near;
}

/// By the rules that search plans with. But beside a coherent link to the CPU (C2C) no port writes: a kernel
/// reads over that link, from the CPU's memory, that a slot is full, while the slot may still be on its way
/// over PCIe; neither the order that the GPU keeps nor its flush on the host's demand is known to cover both.
std::vector<std::vector<GpuHost::Direct>> direct_of(const topo::Paths& paths,
                                                    const std::vector<std::vector<int>>& sharers,
                                                    const std::vector<int>& ranks) {
  using Way = topo::Paths::Direction;
  std::vector<std::vector<GpuHost::Direct>> direct(ranks.size());
  for (const std::vector<int>& some : sharers) {
    const topo::NodeId gpu = paths.system().gpu_of_rank(some.front());
    const bool may_see_words_first = !paths.system().node(gpu).gpu().c2c.empty();
    std::vector<GpuHost::Direct> by_port;
    for (const topo::NodeId net : paths.system().of_kind(topo::NodeKind::kNet)) {
      by_port.push_back({.reads = paths.gpu_direct(gpu, net, Way::kRead),
                         .writes = !may_see_words_first && paths.gpu_direct(gpu, net, Way::kWrite)});
    }
    for (const int rank : some) direct[local_index(ranks, rank)] = by_port;
  }
  return direct;
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

/// By local index, of each rank the lowest one on its GPU.
std::vector<int> lowest_sharers(const std::vector<std::vector<int>>& sharers, const std::vector<int>& ranks) {
  std::vector<int> lowest(ranks.size());
  for (const std::vector<int>& some : sharers)
    for (const int rank : some) lowest[local_index(ranks, rank)] = some.front();
  return lowest;
}

/// As few of these rows, the fastest first, as all-gather about as much as any number of them; none where the
/// rings that cross hosts do.
void take_rows(GpuHost& host, const Machine& machine, const GpuChannelRequest& request, FamilySummary rows) {
  constexpr double kAboutAsMuch = 0.98;
  std::ranges::stable_sort(rows.channels, std::ranges::greater(), &ChannelSummary::intra_gbps);
  const std::span<const ChannelSummary> all = rows.channels;
  const auto gather_by = [&](std::span<const ChannelSummary> some) {
    return grids_gbps(machine, some, host.near, request.most_gbps);
  };
  GatherGbps::Grids best{};
  for (std::size_t count = 1; count <= all.size(); ++count)
    if (const GatherGbps::Grids by = gather_by(all.first(count)); by.front() > best.front()) best = by;
  const auto reaches_best = [&](std::span<const ChannelSummary> some) {
    const GatherGbps::Grids by = gather_by(some);
    return by.front() >= kAboutAsMuch * best.front() && by.back() >= kAboutAsMuch * best.back();
  };
  if (reaches_best(host.summary.family(Family::kRing).channels)) return;
  std::size_t count = 1;
  while (count < all.size() && !reaches_best(all.first(count))) ++count;
  host.gather.grids = gather_by(all.first(count));
  rows.channels.resize(count);
  host.rows = std::move(rows);
}

}  // namespace

GpuHost unknown_gpu_host(int ranks, int gpus, std::string why_not) {
  GpuHost host;
  host.summary.ranks = ranks;
  host.gpus = gpus;
  host.why_not = std::move(why_not);
  return host;
}

GpuHostPlan plan_gpu_host(const topo::MachineOfRanks& machine, const GpuChannelRequest& request,
                          bool between_hosts, const GraphFile* graph) {
  std::vector<int> ranks;
  for (const std::vector<int>& some : machine.sharers) ranks.insert(ranks.end(), some.begin(), some.end());
  std::ranges::sort(ranks);
  const int count = static_cast<int>(ranks.size()), gpus = static_cast<int>(machine.sharers.size());
  const auto unknown = [&](const char* why) {
    return GpuHostPlan{unknown_gpu_host(count, gpus, why), machine.notes, {}};
  };
  const search::PathTables tables = tables_of(machine.system, true),
                           direct = tables_of(machine.system, false);
  if (tables.whole() == nullptr || direct.whole() == nullptr)
    return unknown("Nothing but the network joins the GPUs of this host.");
  std::vector<ChannelPlan> plans = plans_of(
      tables, direct,
      {.nodes = between_hosts ? 2 : 1, .max_channels = request.max_channels, .most_gbps = request.most_gbps},
      graph);
  for (ChannelPlan& plan : plans) {
    if (between_hosts && !plan.network) reach_unknown_port(plan, request.most_gbps);
    if (plan.channels.empty() || plan.in_order || plan.total_gbps <= 0)
      return unknown("No channel fits the GPUs of this host.");
  }
  GpuHostPlan planned;
  planned.notes = machine.notes;
  GpuHost& host = planned.host;
  host.gpus = gpus;
  for (ChannelPlan& plan : plans) {
    planned.plans.push_back({{plan}, {tables.whole()->ranks}, plan.total_gbps, plan.total_gbps});
    expand(plan, machine.sharers);
  }
  host.summary = summarize(machine.system, ranks, plans);
  host.ring = {plans[0].total_gbps, plans[0].bound_gbps};
  host.tree = {plans[1].total_gbps, plans[1].bound_gbps};
  for (const topo::NodeId net : machine.system.of_kind(topo::NodeKind::kNet))
    host.ports.push_back(topo::ucx_name(machine.system.node(net).net()));
  host.near = ports_near(direct.whole()->paths, machine.sharers, ranks);
  host.direct = direct_of(direct.whole()->paths, machine.sharers, ranks);
  host.types = types_of(direct.whole()->paths, machine.sharers, ranks);
  host.exchange_gbps = exchange_gbps_of(direct.whole()->paths, machine.sharers, count);
  const Machine same{&direct.whole()->paths, lowest_sharers(machine.sharers, ranks)};
  host.gather = gather_gbps(same, host.summary, host.near, between_hosts);
  if (between_hosts && count > 1 && graph == nullptr) {
    ChannelPlan inside = rows_of(tables, direct, request);
    expand(inside, machine.sharers);
    take_rows(host, same, request,
              summarize(machine.system, ranks, std::span(&inside, 1)).family(Family::kRing));
  }
  host.has_switch = !machine.system.of_kind(topo::NodeKind::kNvSwitch).empty();
  return planned;
}

std::string to_graph_xml(const topo::MachineOfRanks& machine, std::span<const search::NodePlans> plans) {
  return search::to_graph_xml(tables_of(machine.system, false), plans);
}

std::vector<std::byte> encode(const GpuHost& host) {
  ByteWriter writer;
  writer.put(kFormat);
  writer.put_all(encode(host.summary));
  writer.put(static_cast<std::uint16_t>(host.gpus));
  writer.put_all(std::as_bytes(std::span(host.why_not)));
  if (!host.why_not.empty()) return writer.take();
  NodeSummary rows;
  rows.ranks = host.summary.ranks;
  rows.families[static_cast<std::size_t>(Family::kRing)] = host.rows;
  writer.put_all(encode(rows));
  for (const ChannelTotal& total : {host.ring, host.tree}) {
    writer.put(total.gbps);
    writer.put(total.bound_gbps);
  }
  writer.put(host.exchange_gbps);
  writer.put(host.gather.trees);
  for (const auto& grids : {host.gather.grids_by_rings, host.gather.grids})
    for (const double gbps : grids) writer.put(gbps);
  writer.put(static_cast<std::uint8_t>(host.has_switch));
  for (const PathType type : host.types) writer.put(type);
  for (const std::string& port : host.ports) writer.put_all(std::as_bytes(std::span(port)));
  for (const std::vector<std::int16_t>& ports : host.near) writer.put_all(std::as_bytes(std::span(ports)));
  for (const std::vector<GpuHost::Direct>& ports : host.direct)
    for (const GpuHost::Direct& port : ports)
      writer.put(static_cast<std::uint8_t>((port.reads ? kReads : 0) | (port.writes ? kWrites : 0)));
  return writer.take();
}

namespace {

std::string get_text(ByteReader& reader) {
  const std::span<const std::byte> bytes = reader.get_all();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::int16_t> get_ports(ByteReader& reader, std::size_t count) {
  const std::span<const std::byte> bytes = reader.get_all();
  if (bytes.size() % sizeof(std::int16_t) != 0) reader.fail("a port is cut off");
  std::vector<std::int16_t> ports(bytes.size() / sizeof(std::int16_t));
  if (!ports.empty()) std::memcpy(ports.data(), bytes.data(), bytes.size());
  for (const std::int16_t port : ports)
    if (port < 0 || static_cast<std::size_t>(port) >= count) reader.fail("a port is not there");
  return ports;
}

}  // namespace

GpuHost decode_gpu_host(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "What a host tells of its GPUs");
  if (reader.get<std::uint8_t>() != kFormat) reader.fail("another build of loom wrote it");
  GpuHost host;
  host.summary = decode(reader.get_all());
  host.gpus = reader.get<std::uint16_t>();
  if (host.gpus < 1 || host.gpus > host.summary.ranks) reader.fail("its ranks have not so many GPUs");
  host.why_not = get_text(reader);
  if (host.why_not.empty()) {
    for (const Family family : {Family::kRing, Family::kTree})
      if (host.summary.family(family).channels.empty()) reader.fail("it does not say why it has no channels");
    const NodeSummary rows = decode(reader.get_all());
    if (rows.ranks != host.summary.ranks) reader.fail("its rows are not of its ranks");
    host.rows = rows.family(Family::kRing);
    for (ChannelTotal* const total : {&host.ring, &host.tree}) {
      total->gbps = reader.get_gbps<double>();
      total->bound_gbps = reader.get_gbps<double>();
    }
    host.exchange_gbps = reader.get_gbps<double>();
    host.gather.trees = reader.get_gbps<double>();
    for (auto* const grids : {&host.gather.grids_by_rings, &host.gather.grids})
      for (double& gbps : *grids) gbps = reader.get_gbps<double>();
    host.has_switch = reader.get_below<std::uint8_t>(2, "a switch is there or not") != 0;
    const auto ranks = static_cast<std::size_t>(host.summary.ranks);
    for (std::size_t pair = 0; pair < ranks * ranks; ++pair) host.types.push_back(get_path_type(reader));
    const std::size_t ports = host.summary.port_gbps.size();
    for (std::size_t port = 0; port < ports; ++port) host.ports.push_back(get_text(reader));
    for (std::size_t rank = 0; rank < ranks; ++rank) host.near.push_back(get_ports(reader, ports));
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (auto& direct = host.direct.emplace_back(); direct.size() < ports;) {
        const auto bits = reader.get_below<std::uint8_t>(kReads + kWrites + 1, "a port reads or writes");
        direct.push_back({.reads = (bits & kReads) != 0, .writes = (bits & kWrites) != 0});
      }
  }
  if (!reader.done()) reader.fail("there is more of it");
  return host;
}

}  // namespace loom::connect
