#include "tools/search_views.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "search/graph_xml.hpp"
#include "search/resources.hpp"
#include "search/spanning_trees.hpp"
#include "search/validate.hpp"
#include "tools/words.hpp"

namespace loom::tools {

std::string label(const topo::System& system, const search::Proof::Price& entry) {
  return entry.number >= 0 ? search::Resources(system).label(entry.number) : topo::label(system, entry.node);
}

nlohmann::json to_json(const topo::System& system, const search::Proof& proof) {
  nlohmann::json prices = nlohmann::json::array();
  for (const search::Proof::Price& entry : proof.prices)
    prices.push_back({{"of", label(system, entry)}, {"gbps", entry.gbps}, {"price", entry.price}});
  nlohmann::json result = {{"prices", std::move(prices)}};
  if (!proof.side.empty()) result["side"] = proof.side;
  if (!proof.because.empty()) result["because"] = proof.because;
  if (proof.together) result["all_parts"] = true;
  return result;
}
namespace {

constexpr std::size_t kMostGpusForTrees = 32;
constexpr std::size_t kMostPrices = 12;  // in text

using search::Channel;
using search::ChannelPlan;

double percent_of(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 100;
}

std::string channel_line(const topo::System& system, const Channel& channel, bool network) {
  std::string text;
  if (network) text += topo::label(system, channel.nets[0]) + " > ";
  text += loom::join(channel.ranks, " ");
  if (network) text += " > " + topo::label(system, channel.nets[1]);
  text += loom::format("  {:.5g} GB/s", channel.inter_gbps);
  if (network && std::abs(channel.intra_gbps - channel.inter_gbps) > 1e-6)
    text += loom::format(", {:.5g} between GPUs", channel.intra_gbps);
  return text;
}

/// Whether chains or rings of a plan are worth comparing with trees of any shape.
bool has_trees_beside(const ChannelPlan& plan) {
  return !plan.network && !plan.channels.empty() && !plan.in_order && plan.channels[0].ranks.size() > 1 &&
         plan.channels[0].ranks.size() <= kMostGpusForTrees;
}

nlohmann::json to_json(const search::Attempt& attempt) {
  return {{"cross_nic", attempt.limits.cross_nic},
          {"type_inter", topo::name_of(attempt.limits.type_inter)},
          {"type_intra", topo::name_of(attempt.limits.type_intra)},
          {"total_bandwidth_gbps", attempt.total_gbps},
          {"outcome", attempt.outcome}};
}

/// What `prices` of the proof say, without them.
std::string priced_text(const search::Proof& proof, bool equal) {
  if (!proof.side.empty())
    return loom::format("every channel{} crosses the cut with ranks {} on one side, over",
                        proof.together ? " of their part" : "", loom::join(proof.side, " "));
  if (!equal)
    return loom::format(
        "at these prices a GB/s of any channel{} costs at least 1, and all there is costs that much:",
        proof.together ? " in every part" : "");
  return proof.together ? "a GB/s in every part takes at least one of these together:"
                        : "every channel takes its GB/s of these together:";
}

/// Why no channels of the pattern carry more than the bound, as sentences.
std::string proof_text(const topo::System& system, const ChannelPlan& plan) {
  const search::Proof& proof = plan.proof;
  std::string text;
  if (proof.together)
    text = "  planned together: the parts share links, and what one carries all carry at the same time\n";
  if (!proof.because.empty())
    return text + loom::format("  no more than {:.6g} GB/s: {}\n", plan.bound_gbps, proof.because);
  if (proof.prices.empty()) return text;
  const bool equal = std::all_of(proof.prices.begin(), proof.prices.end(),
                                 [](const search::Proof::Price& entry) { return entry.price == 1; });
  text += loom::format("  no more than {:.6g} GB/s: {}", plan.bound_gbps, priced_text(proof, equal));
  for (std::size_t i = 0; i < std::min(proof.prices.size(), kMostPrices); ++i) {
    const search::Proof::Price& entry = proof.prices[i];
    text += loom::format("\n    {}, {:.6g} GB/s", label(system, entry), entry.gbps);
    if (!equal) text += loom::format(" at {:.4g}", entry.price);
  }
  if (proof.prices.size() > kMostPrices)
    text += loom::format("\n    and {} more (--json has all)", proof.prices.size() - kMostPrices);
  return text + "\n";
}

}  // namespace

SearchResult timed_search(const search::PathTables& tables, const search::Request& request) {
  const auto start = std::chrono::steady_clock::now();
  SearchResult result{request, search::find_plans(tables, request), 0};
  result.search_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  return result;
}

bool has_channels(const search::NodePlans& plans) {
  return std::any_of(plans.parts.begin(), plans.parts.end(),
                     [](const ChannelPlan& plan) { return !plan.channels.empty(); });
}

std::string plan_text(const search::PathTables& tables, const SearchResult& result) {
  const auto& plans = result.plans;
  if (!has_channels(plans))
    return loom::format("{}: not on this machine: {}\n", search::name_of(plans.parts[0].pattern),
                        plans.parts[0].absent);
  std::string text;
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    const ChannelPlan& plan = plans.parts[i];
    if (plans.parts.size() > 1)
      text += loom::format("part {} of {} (through the network is faster), ranks {}\n", i + 1,
                           plans.parts.size(), loom::join(plans.ranks[i], " "));
    text += loom::format("{}: {}, {:.5g} of at most {:.5g} GB/s, {:.1f} %; {}", search::name_of(plan.pattern),
                         counted(plan.channels.size(), "channel"), plan.total_gbps, plan.bound_gbps,
                         percent_of(plan.total_gbps, plan.bound_gbps), topo::name_of(plan.type_intra));
    if (plan.network)
      text += loom::format(", ports {}, cross-NIC {}", topo::name_of(plan.type_inter), plan.limits.cross_nic);
    text += "; " + counted(plan.hops, "link");
    text += result.search_us > 0 ? loom::format("; {:.0f} us\n", result.search_us) : "\n";
    if (plan.in_order) text += "  nothing fits: GPUs in the machine's order\n";
    for (const Channel& channel : plan.channels)
      text += "  " + channel_line(search::part_of(tables, plans, i).system, channel, plan.network) + "\n";
    if (!has_trees_beside(plan)) continue;
    const topo::Paths& paths = search::part_of(tables, plans, i).paths;
    const double own = search::all_reduce_gbps(paths, plan), trees = search::pack_spanning_trees(paths).gbps;
    if (trees > own * (1 + 1e-3))
      text += loom::format("  packed spanning trees would all-reduce at {:.5g} GB/s, these at {:.5g}\n",
                           trees, own);
  }
  return text;
}

std::string explanation(const search::PathTables& tables, const SearchResult& result) {
  std::string text;
  for (std::size_t i = 0; i < result.plans.parts.size(); ++i) {
    const ChannelPlan& plan = result.plans.parts[i];
    if (!plan.attempts.empty()) text += "limits, in the order of trying:\n";  // of a file's channels none
    for (const search::Attempt& attempt : plan.attempts)
      text += loom::format("  {}: {}\n", search::to_string(attempt.limits), attempt.outcome);
    if (!plan.channels.empty() && !plan.in_order)
      text += loom::format("  chosen: {}: {:.6g} GB/s\n", search::to_string(plan.limits), plan.total_gbps);
    text += proof_text(search::part_of(tables, result.plans, i).system, plan);
  }
  return text;
}

nlohmann::json to_json(const search::PathTables& tables, const SearchResult& result, bool explain,
                       bool check) {
  nlohmann::json parts = nlohmann::json::array();
  std::vector<std::string> violations;
  if (check) violations = search::violations(tables, result.plans);
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
    if (explain) {
      nlohmann::json& attempts = parts.back()["attempts"] = nlohmann::json::array();
      for (const search::Attempt& attempt : plan.attempts) attempts.push_back(to_json(attempt));
      parts.back()["proof"] = to_json(part.system, plan.proof);
    }
    if (check) parts.back()["violations"] = violations;
    if (!plan.absent.empty()) parts.back()["absent"] = plan.absent;
    if (!has_trees_beside(plan)) continue;
    parts.back()["all_reduce_gbps"] = search::all_reduce_gbps(part.paths, plan);
    parts.back()["packed_trees_gbps"] = search::pack_spanning_trees(part.paths).gbps;
  }
  return parts;
}

}  // namespace loom::tools
