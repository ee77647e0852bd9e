#include "tools/search_views.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <cmath>

#include "search/graph_xml.hpp"
#include "search/spanning_trees.hpp"
#include "search/validate.hpp"

namespace loom::tools {
namespace {

constexpr std::size_t kMostGpusForTrees = 32;

using search::Channel;
using search::ChannelPlan;

double percent_of(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 100;
}

std::string channel_line(const topo::System& system, const Channel& channel, bool network) {
  std::string text;
  if (network) text += topo::label(system, channel.nets[0]) + " > ";
  text += fmt::format("{}", fmt::join(channel.ranks, " "));
  if (network) text += " > " + topo::label(system, channel.nets[1]);
  text += fmt::format("  {:.5g} GB/s", channel.inter_gbps);
  if (network && std::abs(channel.intra_gbps - channel.inter_gbps) > 1e-6)
    text += fmt::format(", {:.5g} between GPUs", channel.intra_gbps);
  return text;
}

/// Whether chains or rings of a plan are worth comparing with trees of any shape.
bool has_trees_beside(const ChannelPlan& plan) {
  return !plan.network && !plan.channels.empty() && !plan.in_order && plan.channels[0].ranks.size() > 1 &&
         plan.channels[0].ranks.size() <= kMostGpusForTrees;
}

}  // namespace

SearchResult timed_search(const search::PathTables& tables, const search::Request& request) {
  const auto start = std::chrono::steady_clock::now();
  SearchResult result{request, search::find_plans(tables, request), 0};
  result.search_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::vector<std::string> violations_of(const search::PathTables& tables, const search::NodePlans& plans) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < plans.parts.size(); ++i)
    for (std::string& line : search::violations(search::part_of(tables, plans, i).paths, plans.parts[i]))
      found.push_back(std::move(line));
  return found;
}

std::string plan_text(const search::PathTables& tables, const SearchResult& result, const Colours& colours) {
  std::string text;
  const auto& plans = result.plans;
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    const ChannelPlan& plan = plans.parts[i];
    if (plans.parts.size() > 1)
      text += fmt::format("part {} of {} (through the network is faster), ranks {}\n", i + 1,
                          plans.parts.size(), fmt::join(plans.ranks[i], " "));
    if (plan.channels.empty()) {
      text += fmt::format("{}: not on this machine\n", search::name_of(plan.pattern));
      continue;
    }
    text += fmt::format("{}{}{}: {} channels, {:.5g} of at most {:.5g} GB/s, {:.1f} %; {}", colours.bold,
                        search::name_of(plan.pattern), colours.reset, plan.channels.size(), plan.total_gbps,
                        plan.bound_gbps, percent_of(plan.total_gbps, plan.bound_gbps),
                        topo::name_of(plan.type_intra));
    if (plan.network)
      text += fmt::format(", ports {}, cross-NIC {}", topo::name_of(plan.type_inter), plan.limits.cross_nic);
    text += fmt::format("; {} links", plan.hops);
    text += result.search_us > 0 ? fmt::format("; {:.0f} us\n", result.search_us) : "\n";
    if (plan.in_order) text += "  nothing fits: GPUs in the machine's order\n";
    for (const Channel& channel : plan.channels)
      text += "  " + channel_line(search::part_of(tables, plans, i).system, channel, plan.network) + "\n";
    if (!has_trees_beside(plan)) continue;
    const topo::Paths& paths = search::part_of(tables, plans, i).paths;
    const double own = search::all_reduce_gbps(paths, plan), trees = search::pack_spanning_trees(paths).gbps;
    if (trees > own * (1 + 1e-3))
      text += fmt::format("  packed spanning trees would all-reduce at {:.5g} GB/s, these at {:.5g}\n", trees, own);
  }
  return text;
}

std::string attempts_text(const SearchResult& result) {
  std::string text;
  for (const ChannelPlan& plan : result.plans.parts)
    for (const search::Attempt& attempt : plan.attempts)
      text += fmt::format("  {}: {}\n", search::to_string(attempt.limits), attempt.outcome);
  return text;
}

nlohmann::json to_json(const search::PathTables& tables, const SearchResult& result) {
  nlohmann::json parts = nlohmann::json::array();
  for (std::size_t i = 0; i < result.plans.parts.size(); ++i) {
    const ChannelPlan& plan = result.plans.parts[i];
    const search::PartOfMachine& part = search::part_of(tables, result.plans, i);
    nlohmann::json channels = nlohmann::json::array();
    double intra = 0;
    for (const Channel& channel : plan.channels) {
      nlohmann::json nets = nlohmann::json::array();
      for (const topo::NodeId net : channel.nets) nets.push_back(topo::label(part.system, net));
      channels.push_back({{"gpus", channel.ranks},
                          {"nets", std::move(nets)},
                          {"bandwidth_gbps", channel.inter_gbps},
                          {"bandwidth_intra_gbps", channel.intra_gbps}});
      intra += channel.intra_gbps;
    }
    parts.push_back({{"pattern", search::name_of(plan.pattern)},
                     {"ranks", result.plans.ranks[i]},
                     {"channels", std::move(channels)},
                     {"channel_count", plan.channels.size()},
                     {"bandwidth_intra_gbps", intra},
                     {"bandwidth_inter_gbps", plan.network ? plan.total_gbps : 0},
                     {"type_intra", topo::name_of(plan.type_intra)},
                     {"type_inter", topo::name_of(plan.type_inter)},
                     {"cross_nic", plan.limits.cross_nic},
                     {"same_channels", plan.same_channels},
                     {"hops", plan.hops},
                     {"total_bandwidth_gbps", plan.total_gbps},
                     {"bound_gbps", plan.bound_gbps},
                     {"in_order", plan.in_order},
                     {"steps", plan.steps},
                     {"search_us", result.search_us}});
    if (!has_trees_beside(plan)) continue;
    parts.back()["all_reduce_gbps"] = search::all_reduce_gbps(part.paths, plan);
    parts.back()["packed_trees_gbps"] = search::pack_spanning_trees(part.paths).gbps;
  }
  return parts;
}

std::string channels_svg(const topo::System& system, const SearchResult& result, const std::string& title) {
  constexpr double kCentre = 360, kRadius = 280;
  constexpr std::array<const char*, 10> kColours = {"#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951",
                                                    "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0"};
  const auto gpus = system.gpus();
  const auto nets = system.of_kind(topo::NodeKind::kNet);
  const auto place = [&](topo::NodeId id) {
    const bool is_gpu = system.node(id).kind() == topo::NodeKind::kGpu;
    const auto among = is_gpu ? gpus : nets;
    const auto index = std::find(among.begin(), among.end(), id) - among.begin();
    const double angle =
        6.283185307179586 * (static_cast<double>(index) + 0.5) / static_cast<double>(among.size());
    const double radius = is_gpu ? kRadius : kRadius + 55;
    return std::pair(kCentre + radius * std::sin(angle), kCentre - radius * std::cos(angle));
  };
  std::string lines, loads;
  std::size_t colour = 0;
  for (const ChannelPlan& plan : result.plans.parts)
    for (const Channel& channel : plan.channels) {
      std::vector<topo::NodeId> way;
      if (plan.network) way.push_back(channel.nets[0]);
      for (const int rank : channel.ranks) way.push_back(system.gpu_of_rank(rank));
      if (plan.network) way.push_back(channel.nets[1]);
      if (!plan.network && plan.pattern == search::Pattern::kRing) way.push_back(way.front());
      lines += fmt::format("<polyline fill='none' stroke='{}' stroke-width='2' stroke-opacity='0.7' points='",
                           kColours[colour++ % kColours.size()]);
      for (const topo::NodeId node : way) {
        const auto [x, y] = place(node);
        const double shift = static_cast<double>(colour % 7) - 3;  // beside each other
        lines += fmt::format("{:.1f},{:.1f} ", x + 2 * shift, y + 2 * shift);
      }
      lines += fmt::format("'><title>{:.5g} GB/s</title></polyline>\n", channel.inter_gbps);
    }
  for (std::size_t part = 0; part < result.plans.parts.size(); ++part) {
    topo::PathRules rules;
    rules.network_inside_host = false;
    const topo::System own = topo::trimmed_to(system, result.plans.ranks[part]);
    const std::vector<double> carried = search::link_loads(topo::Paths(own, rules), result.plans.parts[part]);
    for (std::size_t i = 0; i < carried.size(); ++i)
      if (const topo::Link& link = own.links()[i]; carried[i] > 1e-6)
        loads += fmt::format("<tspan x='760' dy='14'>{} -&gt; {} {}: {:.4g} of {:.4g} GB/s</tspan>\n",
                             topo::label(own, link.from), topo::label(own, link.to), topo::name_of(link.type),
                             carried[i], link.gbps);
  }
  std::string nodes;
  for (const auto& among : {gpus, nets})
    for (const topo::NodeId id : among) {
      const auto [x, y] = place(id);
      nodes += fmt::format(
          "<circle cx='{:.1f}' cy='{:.1f}' r='14' fill='#fff' stroke='#555'/><text x='{:.1f}' "
          "y='{:.1f}'>{}</text>\n",
          x, y, x, y + 4,
          system.node(id).kind() == topo::NodeKind::kGpu ? fmt::format("{}", system.node(id).gpu().rank)
                                                         : fmt::format("n{}", system.node(id).net().device));
    }
  const auto rows = std::count(loads.begin(), loads.end(), '\n');
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 1180 {}' font-family='sans-serif' "
      "font-size='11'>\n"
      "<text x='16' y='20' font-size='14'>{}</text>\n{}<g text-anchor='middle'>\n{}</g>\n<text x='760' "
      "y='30'>{}</text>\n</svg>\n",
      std::max(720L, 60 + 14 * static_cast<long>(rows)), title, lines, nodes, loads);
}

}  // namespace loom::tools
