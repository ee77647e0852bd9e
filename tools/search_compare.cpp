#include "tools/search_compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "search/beside_nccl.hpp"
#include "search/validate.hpp"
#include "tools/search_views.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/xml_file.hpp"

namespace loom::tools {
namespace {

using nlohmann::json;
using search::ChannelPlan;
using search::Pattern;

constexpr double kSame = 1e-6, kNearBound = 0.95;
constexpr int kRuns = 3;
constexpr double kLongUs = 10'000,
                 kShareOfTime = 0.1;  // NCCL's searches that take longer are to take a tenth

struct Setting {
  const char* label;
  int nodes, cross_nic;
};
constexpr std::array<Setting, 4> kSettings = {
    {{"n1", 1, 2}, {"n2", 2, 2}, {"n2_crossnic0", 2, 0}, {"n2_crossnic1", 2, 1}}};

Pattern pattern_of(const std::string& graph, const json& theirs) {
  static const std::map<std::string, Pattern> kNames = {{"RING", Pattern::kRing},
                                                        {"TREE", Pattern::kTree},
                                                        {"SPLIT_TREE", Pattern::kSplitTree},
                                                        {"BALANCED_TREE", Pattern::kBalancedTree},
                                                        {"NVLS", Pattern::kNvls},
                                                        {"COLLNET_DIRECT", Pattern::kCollnetDirect}};
  const auto name = kNames.find(theirs.at("patternName"));
  if (graph == "collnetChain") return Pattern::kCollnetChain;
  return name == kNames.end() ? Pattern::kRing : name->second;
}

topo::PathType type_named(const std::string& name) {
  for (int type = 0; type < static_cast<int>(topo::PathType::kDis); ++type)
    if (name == topo::name_of(static_cast<topo::PathType>(type))) return static_cast<topo::PathType>(type);
  return topo::PathType::kDis;
}

/// Links that one of loom's channels crosses, counted as NCCL counts: it has one more between a GPU and its
/// device.
double hops_of(const ChannelPlan& plan) {
  const auto gpus = static_cast<double>(plan.channels[0].ranks.size());
  const double inside = gpus - (plan.pattern == Pattern::kRing && !plan.network ? 0 : 1);
  const double ports = !plan.network ? 0 : plan.pattern == Pattern::kBalancedTree ? 3 : 2;
  return static_cast<double>(plan.hops) / static_cast<double>(plan.channels.size()) + 2 * inside + ports;
}

/// The same for NCCL's channels, on all GPUs of the node. Channels that NCCL copied are not in its sum.
double hops_of(const json& theirs, const ChannelPlan& ours, int gpus) {
  int channels = std::max(1, theirs.at("nChannels").get<int>());
  const double hops = theirs.at("nHops"), ports = ours.network ? 2 : 0;
  if (hops < channels * (3.0 * (gpus - 1) + 2 * ports)) channels = (channels + 1) / 2;
  return hops / channels * std::round(static_cast<double>(ours.channels[0].ranks.size()) / gpus);
}

/// What is worse in `ours`, which carries as much; empty: nothing.
std::string worse(const ChannelPlan& ours, const json& theirs, int gpus) {
  if (ours.channels.empty() || theirs.at("nChannels") == 0) return "";
  const topo::PathType intra = type_named(theirs.at("typeIntra")), inter = type_named(theirs.at("typeInter"));
  std::string text;
  if (ours.type_intra > intra) text += "  worse paths between GPUs";
  if (ours.network && ours.type_inter > inter) text += "  worse paths to ports";
  const bool chain = ours.pattern != Pattern::kNvls && ours.pattern != Pattern::kCollnetDirect;
  const bool closer = ours.type_intra < intra || (ours.network && ours.type_inter < inter);
  if (chain && hops_of(ours) > hops_of(theirs, ours, gpus) + 1e-9)
    text += closer ? "  more links, of closer paths" : "  more links";
  return text;
}

class Comparing {
 public:
  Comparing(const Comparison& comparison, const search::Request& request)
      : comparison_(comparison), request_(request) {}

  bool run();

 private:
  /// A search beside NCCL's.
  struct Outcome {
    double ours = 0, theirs = 0, bound = 0, us = 0, their_us = 0;
    double all_parts = 0, all_parts_bound = 0;  // GB/s at the same time
    bool less = false, more = false, slow_pairs = false, valid = true, slow = false;
    std::string worse;
  };
  Outcome judge(const Setting& setting, const std::string& graph, const json& entry,
                const search::PathTables& tables, const topo::Paths& default_paths) const;
  void count(const Outcome& outcome);
  static std::string remark_on(const Outcome& outcome);
  void tell(const std::string& name, const Setting& setting, const std::string& graph,
            const Outcome& outcome);
  Outcome one(const std::string& name, const Setting& setting, const std::string& graph, const json& entry,
              const search::PathTables& tables, const topo::Paths& default_paths);
  void row(const std::string& name, const json& entry, const search::PathTables& tables,
           const topo::Paths& default_paths);
  void print_heading() const;
  void print_sum() const;

  Comparison comparison_;
  search::Request request_;
  int all_ = 0, at_least_ = 0, more_ = 0, by_slow_pairs_ = 0, near_bound_ = 0, invalid_ = 0, worse_ = 0,
      long_ones_ = 0, slow_ = 0;
  double most_us_ = 0;
  json searches_ = json::array();
};

Comparing::Outcome Comparing::judge(const Setting& setting, const std::string& graph, const json& entry,
                                    const search::PathTables& tables,
                                    const topo::Paths& default_paths) const {
  const json& theirs = entry.at("graphs").at(graph);
  search::Request request = request_;
  request.nodes = setting.nodes;
  request.cross_nic = setting.cross_nic;
  request.pattern = pattern_of(graph, theirs);
  SearchResult result = timed_search(tables, request);
  for (int again = 1; again < kRuns; ++again)
    result.search_us = std::min(result.search_us, timed_search(tables, request).search_us);
  const search::NodePlans& plans = result.plans;
  Outcome outcome;
  outcome.ours = plans.alone_gbps;
  outcome.bound = plans.alone_bound_gbps;
  outcome.us = result.search_us;
  outcome.theirs = search::nccl_total(request.pattern, setting.nodes > 1, theirs.at("totalBw"),
                                      theirs.at("bwIntra"), theirs.at("nChannels"));
  outcome.their_us = theirs.value("search_us", 0.0);
  outcome.all_parts = plans.total_gbps;
  outcome.all_parts_bound = plans.alone_bound_gbps;
  for (const ChannelPlan& plan : plans.parts)
    outcome.all_parts_bound = std::min(outcome.all_parts_bound, plan.bound_gbps);
  outcome.less = outcome.ours < outcome.theirs * (1 - kSame);
  outcome.more = outcome.ours > outcome.theirs * (1 + kSame);
  outcome.valid = search::violations(tables, plans).empty();
  outcome.slow_pairs =
      outcome.more && plans.parts.size() == 1 && search::crosses_slow_pairs(default_paths, plans.parts[0]);
  outcome.slow = outcome.their_us > kLongUs && outcome.us > kShareOfTime * outcome.their_us;
  if (!outcome.less && !outcome.more) outcome.worse = worse(plans.parts[0], theirs, entry.at("nGpus"));
  return outcome;
}

void Comparing::count(const Outcome& outcome) {
  ++all_;
  at_least_ += outcome.less ? 0 : 1;
  more_ += outcome.more ? 1 : 0;
  by_slow_pairs_ += outcome.slow_pairs ? 1 : 0;
  near_bound_ += outcome.all_parts >= kNearBound * outcome.all_parts_bound || outcome.all_parts == 0 ? 1 : 0;
  invalid_ += outcome.valid ? 0 : 1;
  worse_ += outcome.worse.empty() ? 0 : 1;
  long_ones_ += outcome.their_us > kLongUs ? 1 : 0;
  slow_ += outcome.slow ? 1 : 0;
  most_us_ = std::max(most_us_, outcome.us);
}

std::string Comparing::remark_on(const Outcome& outcome) {
  std::string remark = outcome.worse;
  if (outcome.slow_pairs) remark += "  by paths that NCCL takes with NCCL_NET_DISABLE_INTRA=1";
  if (outcome.all_parts < outcome.ours * (1 - kSame))
    remark += loom::format("  {:.6g} of {:.6g} GB/s in all parts at the same time", outcome.all_parts,
                           outcome.all_parts_bound);
  if (outcome.all_parts > outcome.ours * (1 + kSame))
    remark += loom::format("  {:.6g} GB/s with all ports of each head", outcome.all_parts);
  if (outcome.less) remark += "  less";
  if (!outcome.valid) remark += "  INVALID";
  if (outcome.slow) remark += "  slow";
  return remark;
}

void Comparing::tell(const std::string& name, const Setting& setting, const std::string& graph,
                     const Outcome& outcome) {
  const std::string remark = remark_on(outcome);
  if (comparison_.json)
    searches_.push_back({{"file", name},
                         {"setting", setting.label},
                         {"graph", graph},
                         {"total_bandwidth_gbps", outcome.ours},
                         {"nccl_gbps", outcome.theirs},
                         {"bound_gbps", outcome.bound},
                         {"all_parts_gbps", outcome.all_parts},
                         {"all_parts_bound_gbps", outcome.all_parts_bound},
                         {"by_slow_pairs", outcome.slow_pairs},
                         {"search_us", outcome.us},
                         {"nccl_us", outcome.their_us},
                         {"less", outcome.less},
                         {"valid", outcome.valid},
                         {"remark", remark.substr(std::min(remark.size(), remark.find_first_not_of(' ')))}});
  else if (!comparison_.markdown)
    loom::print("{:36} {:12} {:13} {:9.2f} {:9.2f} {:9.2f} {:5.1f} {:9.0f} {:9.0f}{}\n", name, setting.label,
                graph, outcome.ours, outcome.theirs, outcome.bound,
                outcome.bound > 0 ? 100 * outcome.ours / outcome.bound : 100, outcome.us, outcome.their_us,
                remark);
}

Comparing::Outcome Comparing::one(const std::string& name, const Setting& setting, const std::string& graph,
                                  const json& entry, const search::PathTables& tables,
                                  const topo::Paths& default_paths) {
  Outcome outcome = judge(setting, graph, entry, tables, default_paths);
  count(outcome);
  tell(name, setting, graph, outcome);
  return outcome;
}

/// A machine's rings on one and on two nodes.
void Comparing::row(const std::string& name, const json& entry, const search::PathTables& tables,
                    const topo::Paths& default_paths) {
  std::string text = loom::format("| {} ", name.substr(0, name.find(".xml")));
  for (const Setting& setting : {kSettings[0], kSettings[1]}) {
    if (!entry.contains(setting.label) || !entry[setting.label].contains("graphs")) {
      text += "| - | - | - | - ";
      continue;
    }
    const Outcome ring = one(name, setting, "ring", entry[setting.label], tables, default_paths);
    const auto figure = [](double gbps) { return loom::format("{:g}", std::round(100 * gbps) / 100); };
    text += loom::format("| {} | {} | {} | {:.0f} ", figure(ring.theirs), figure(ring.ours),
                         figure(ring.bound), ring.us);
  }
  loom::print("{}|\n", text);
}

/// Without "[json.exception.out_of_range.403] ".
std::string reason_of(const json::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

void Comparing::print_heading() const {
  if (comparison_.json) return;
  if (comparison_.markdown)
    loom::print(
        "| file | one node: NCCL | loom | bound | us | two nodes: NCCL | loom | bound | us |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  else
    loom::print("{:36} {:12} {:13} {:>9} {:>9} {:>9} {:>5} {:>9} {:>9}\n", "file", "nodes", "pattern", "GB/s",
                "NCCL", "bound", "%", "us", "NCCL us");
}

void Comparing::print_sum() const {
  if (comparison_.json)
    loom::print("{}\n", json{{"searches", searches_},
                             {"sum",
                              {{"searches", all_},
                               {"at_least_nccl", at_least_},
                               {"more", more_},
                               {"more_by_slow_pairs", by_slow_pairs_},
                               {"equal_but_worse", worse_},
                               {"near_bound", near_bound_},
                               {"invalid", invalid_},
                               {"long", long_ones_},
                               {"slow", slow_},
                               {"longest_us", most_us_}}}}
                            .dump(2));
  else
    loom::print(
        "{}{}: {} at least NCCL's, {} more ({} of them by paths that NCCL takes with "
        "NCCL_NET_DISABLE_INTRA=1), {} with equal totals but worse paths or more links; {} within 95 "
        "% of the bound, {} invalid; {} of {} that take NCCL over 10 ms take over a tenth of that, the "
        "longest of all {:.1f} ms\n",
        comparison_.markdown ? "\n" : "", all_ == 1 ? "1 search" : loom::format("{} searches", all_),
        at_least_, more_, by_slow_pairs_, worse_, near_bound_, invalid_, slow_, long_ones_, most_us_ / 1000);
}

bool Comparing::run() {
  bool has_heading = false;
  for_machines(comparison_.folder, comparison_.reference,
               [&](const std::string& name, const json& entry, const topo::System& system) {
                 if (!std::exchange(has_heading, true)) print_heading();
                 const search::PathTables tables(system);
                 const topo::Paths default_paths(system);
                 if (comparison_.markdown) return row(name, entry, tables, default_paths);
                 for (const Setting& setting : kSettings)
                   if (entry.contains(setting.label) && entry[setting.label].contains("graphs"))
                     for (const auto& [graph, theirs] : entry[setting.label]["graphs"].items())
                       one(name, setting, graph, entry[setting.label], tables, default_paths);
               });
  print_sum();
  return invalid_ == 0 && at_least_ == all_;
}

}  // namespace

json read_reference(const std::string& path) {
  try {
    json reference = json::parse(topo::read_text_file(path, std::size_t{64} << 20));
    if (!reference.is_object() || !reference.contains("files") || !reference["files"].is_object())
      throw Error(ErrorCode::kBadInput, loom::format("{}: no object \"files\" in it.", path));
    return reference;
  } catch (const json::parse_error& error) {
    throw Error(ErrorCode::kBadInput, loom::format("{}: no JSON, from byte {} on.", path, error.byte));
  }
}

void for_machines(const std::string& folder, const std::string& reference,
                  const std::function<void(const std::string&, const json&, const topo::System&)>& body) {
  if (!std::filesystem::is_directory(folder))
    throw Error(ErrorCode::kBadInput,
                loom::format("\"{}\" is no folder of topology files, as --compare needs.", folder));
  const json figures = read_reference(reference);
  bool some = false;
  for (const auto& [name, entry] : figures.at("files").items()) {
    const std::filesystem::path file = std::filesystem::path(folder) / name;
    if (entry.value(json::json_pointer("/n1/graphs"), json{}).empty()) continue;
    if (!std::filesystem::exists(file)) {
      loom::print(stderr, "missing: {}\n", file.string());
      continue;
    }
    some = true;
    body(name, entry, topo::read_system(file.string(), topo::Model::kNccl).system);
  }
  if (!some)
    throw Error(ErrorCode::kBadInput, loom::format("{} has none of the machines of {}.", folder, reference));
}

bool compare(const Comparison& comparison, const search::Request& request) {
  try {
    return Comparing(comparison, request).run();
  } catch (const json::exception& error) {  // a figure that is missing, or of another type
    throw Error(ErrorCode::kBadInput, loom::format("{}: a figure is missing or no number: {}",
                                                   comparison.reference, reason_of(error)));
  }
}

}  // namespace loom::tools
