// search_command.cpp -- `loom search`: the channels of a machine, their bound, and NCCL's beside them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "base/error.hpp"
#include "search/validate.hpp"
#include "tools/commands.hpp"
#include "tools/search_views.hpp"
#include "topo/discover.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/xml_file.hpp"
#include "ucx_transport/ports.hpp"

namespace loom::tools {
namespace {

using search::Pattern;

constexpr Pattern kPatterns[] = {Pattern::kRing,         Pattern::kTree, Pattern::kSplitTree,
                                 Pattern::kBalancedTree, Pattern::kNvls, Pattern::kCollnetChain,
                                 Pattern::kCollnetDirect};

struct Options {
  std::string file, pattern = "ring", draw, compare, model = "nccl";
  std::vector<int> gpus;
  search::Request request;
  bool json = false, explain = false, check = false;
  int* exit_code = nullptr;
};

SearchResult timed(const topo::System& system, const search::Request& request) {
  const auto start = std::chrono::steady_clock::now();
  SearchResult result{request, search::find_plans(system, request), 0};
  result.search_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::vector<std::string> violations_of(const topo::System& system, const search::NodePlans& plans) {
  topo::PathRules rules;
  rules.network_inside_host = false;
  std::vector<std::string> found;
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    const topo::System part = topo::trimmed_to(system, plans.ranks[i]);
    for (std::string& line : search::violations(topo::Paths(part, rules), plans.parts[i]))
      found.push_back(std::move(line));
  }
  return found;
}

std::vector<Pattern> patterns_of(const std::string& name) {
  std::vector<Pattern> patterns;
  for (const Pattern pattern : kPatterns)
    if (name == "all" || name == search::name_of(pattern)) patterns.push_back(pattern);
  return patterns;
}

// ---- beside NCCL

struct Tally {
  int all = 0, at_least = 0, more = 0, near_bound = 0, invalid = 0;
};

Pattern pattern_of(const std::string& graph, const nlohmann::json& theirs) {
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

void compare_one(const std::string& name, const std::string& label, const std::string& graph,
                 const nlohmann::json& theirs, const topo::System& system, search::Request request,
                 Tally& tally) {
  request.pattern = pattern_of(graph, theirs);
  SearchResult result = timed(system, request);
  for (int again = 0; again < 2; ++again)
    result.search_us = std::min(result.search_us, timed(system, request).search_us);
  double bound = 0;
  for (const search::ChannelPlan& plan : result.plans.parts) bound = std::max(bound, plan.bound_gbps);
  const double ours = result.plans.total_gbps, reference = theirs.at("totalBw");
  const bool valid = violations_of(system, result.plans).empty();
  ++tally.all;
  tally.at_least += ours >= reference * (1 - 1e-6) ? 1 : 0;
  tally.more += ours > reference * (1 + 1e-6) ? 1 : 0;
  tally.near_bound += ours >= 0.95 * bound || ours == 0 ? 1 : 0;
  tally.invalid += valid ? 0 : 1;
  fmt::print("{:38} {:12} {:14} {:9.2f} {:9.2f} {:9.2f} {:5.1f} {:9.0f} {:9.0f}{}\n", name, label, graph,
             ours, reference, bound, bound > 0 ? 100 * ours / bound : 100, result.search_us,
             theirs.value("search_us", 0.0),
             !valid                          ? "  INVALID"
             : ours < reference * (1 - 1e-6) ? "  less"
                                             : "");
}

void compare(const Options& options) {
  const auto reference = nlohmann::json::parse(topo::read_text_file(options.compare, std::size_t{64} << 20));
  fmt::print("{:38} {:12} {:14} {:>9} {:>9} {:>9} {:>5} {:>9} {:>9}\n", "file", "nodes", "pattern", "GB/s",
             "NCCL", "bound", "%", "us", "NCCL us");
  Tally tally;
  for (const auto& [name, entry] : reference.at("files").items()) {
    const std::filesystem::path file = std::filesystem::path(options.file) / name;
    if (!std::filesystem::exists(file) ||
        entry.value(nlohmann::json::json_pointer("/n1/graphs"), nlohmann::json{}).empty())
      continue;
    const topo::System system = topo::read_system(file.string(), topo::Model::kNccl).system;
    for (const auto& [label, nodes, cross] :
         {std::tuple("n1", 1, 2), {"n2", 2, 2}, {"n2_crossnic0", 2, 0}, {"n2_crossnic1", 2, 1}}) {
      if (!entry.contains(label) || !entry[label].contains("graphs")) continue;
      search::Request request = options.request;
      request.nodes = nodes;
      request.cross_nic = cross;
      for (const auto& [graph, theirs] : entry[label]["graphs"].items())
        compare_one(name, label, graph, theirs, system, request, tally);
    }
  }
  fmt::print("{} searches: {} at least NCCL's, {} more, {} within 95 % of the bound, {} invalid\n", tally.all,
             tally.at_least, tally.more, tally.near_bound, tally.invalid);
  if (tally.invalid > 0 || tally.at_least < tally.all) *options.exit_code = kFound;
}

// ---- one machine

void search_machine(const Options& options) {
  if (!options.compare.empty()) return compare(options);
  const topo::Model model = options.model == "nccl" ? topo::Model::kNccl : topo::Model::kLoom;
  topo::System system =
      options.file.empty() ? topo::discover({.ucx_ports = ucx_transport::ports()}, model).system : topo::read_system(options.file, model).system;
  if (!options.gpus.empty()) system = topo::trimmed_to(system, options.gpus);
  nlohmann::json all = nlohmann::json::array();
  for (const Pattern pattern : patterns_of(options.pattern)) {
    search::Request request = options.request;
    request.pattern = pattern;
    const SearchResult result = timed(system, request);
    if (options.json)
      for (nlohmann::json& part : to_json(system, result)) all.push_back(std::move(part));
    else
      fmt::print("{}", plan_text(system, result, {}));
    if (options.explain && !options.json)
      fmt::print("limits, in the order of trying:\n{}", attempts_text(result));
    if (!options.draw.empty())
      topo::write_text_file(
          options.draw,
          channels_svg(system, result, fmt::format("{}: {}", options.file, search::name_of(pattern))));
    if (!options.check) continue;
    const std::vector<std::string> found = violations_of(system, result.plans);
    for (const std::string& line : found) fmt::print(stderr, "violation: {}\n", line);
    if (!found.empty()) *options.exit_code = kFound;
    if (found.empty() && !options.json) fmt::print("checked: every link carries what it can\n");
  }
  if (options.json) fmt::print("{}\n", all.dump(2));
}

}  // namespace

void add_search_command(CLI::App& loom, int& exit_code) {
  const auto options = std::make_shared<Options>();
  options->exit_code = &exit_code;
  CLI::App* command =
      loom.add_subcommand("search", "The channels that fit a machine, and how close to the bound they are");
  command->footer(
      "Examples:\n"
      "  loom search dgx.xml                              its rings\n"
      "  loom search dgx.xml --pattern all --nodes 2      every pattern, with the network\n"
      "  loom search dgx.xml --explain --check            the limits tried; is the result sound?\n"
      "  loom search FOLDER --compare reference.json      beside NCCL's figures, for all files of a folder");
  command->add_option("FILE", options->file,
                      "topology file, NCCL's XML or hwloc's; without one: this machine");
  command->add_option("--pattern", options->pattern, "what data is to pass")
      ->check(CLI::IsMember(
          {"ring", "tree", "split-tree", "balanced-tree", "nvls", "collnet-chain", "collnet-direct", "all"}))
      ->capture_default_str();
  command->add_option("--nodes", options->request.nodes, "nodes like this one")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--cross-nic", options->request.cross_nic, "0 never, 1 always, 2 where it carries more")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  command->add_option("--gpus", options->gpus, "only the GPUs of these ranks, e.g. 0,1,2")->delimiter(',');
  command
      ->add_option("--min-channels", options->request.min_channels, "split channels until there are so many")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--max-channels", options->request.max_channels, "no more channels than these")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--channel-gbps", options->request.most_gbps,
                   "split channels that carry more GB/s; 0: none")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--model", options->model, "rules for links and bandwidths")
      ->check(CLI::IsMember({"loom", "nccl"}))
      ->capture_default_str();
  command->add_flag("--explain", options->explain, "each limit tried, and what came of it");
  command->add_flag("--json", options->json, "as JSON");
  command->add_flag("--check", options->check,
                    "validate the result; exit code 1 if it does not fit the machine");
  command->add_option("--draw", options->draw, "write a picture (SVG) to this file");
  command
      ->add_option("--compare", options->compare,
                   "a file of NCCL's figures; FILE is the folder of its machines")
      ->check(CLI::ExistingFile);
  command->callback([options] { search_machine(*options); });
}

}  // namespace loom::tools
