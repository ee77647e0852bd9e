// search_command.cpp -- `loom search`: the channels of a machine, their bound, and NCCL's beside them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "search/graph_xml.hpp"
#include "search/validate.hpp"
#include "tools/commands.hpp"
#include "tools/search_compare.hpp"
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
  std::string file, pattern = "ring", draw, compare, model = "nccl", graph_file, graph_dump, gpus;
  search::Request request;
  bool json = false, explain = false, check = false, markdown = false;
  int* exit_code = nullptr;
};

std::vector<Pattern> patterns_of(const std::string& name) {
  std::vector<Pattern> patterns;
  for (const Pattern pattern : kPatterns)
    if (name == "all" || name == search::name_of(pattern)) patterns.push_back(pattern);
  return patterns;
}

/// Channels from a file beside the bound that the search proves for its pattern.
void check_file(const Options& options, const search::PathTables& tables) {
  std::vector<search::NodePlans> read =
      search::read_graph_xml(options.graph_file, tables, options.request.nodes);
  for (search::NodePlans& plans : read) {
    search::prove_bounds(tables, options.request, plans);
    fmt::print("{}", plan_text(tables, {options.request, plans, 0}, {}));
  }
  if (!options.graph_dump.empty())
    topo::write_text_file(options.graph_dump, search::to_graph_xml(tables, read));
}

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::kBadInput, reason);
}

/// "0,1,2": the ranks. CLI11's own lists would take FILE behind them for one more.
std::vector<int> ranks_in(const std::string& list) {
  std::vector<int> ranks;
  const char* here = list.data();
  for (const char* const end = here + list.size();; ++here) {
    int rank = -1;
    const auto [behind, error] = std::from_chars(here, end, rank);
    if (error != std::errc{} || rank < 0 || (behind != end && *behind != ','))
      refuse(fmt::format("--gpus \"{}\" is no list of ranks like 0,1,2.", list));
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
      refuse(fmt::format("--gpus names rank {} twice.", rank));
    ranks.push_back(rank);
    here = behind;
    if (behind == end) return ranks;
  }
}

/// What does not go together would be passed over in silence.
void check_options(const Options& options, const CLI::App& command) {
  const auto refuse_with = [&](const char* option, std::initializer_list<const char*> others) {
    if (command.count(option) == 0) return;
    for (const char* other : others)
      if (command.count(other) > 0) refuse(fmt::format("{} does not go with {}.", option, other));
  };
  refuse_with("--graph-file", {"--json", "--explain", "--check", "--draw", "--pattern", "--compare"});
  refuse_with("--compare",
              {"--json", "--explain", "--check", "--draw", "--pattern", "--graph-dump", "--gpus"});
  if (options.markdown && options.compare.empty()) refuse("--markdown needs --compare.");
  if (options.request.min_channels > options.request.max_channels)
    refuse(fmt::format("--min-channels {} is more than --max-channels {}.", options.request.min_channels,
                       options.request.max_channels));
  if (!std::isfinite(options.request.most_gbps)) refuse("--channel-gbps is not a finite number.");
}

/// PICTURE.svg for one pattern; PICTURE-ring.svg where there are several.
std::string picture_file(const Options& options, Pattern pattern) {
  if (options.pattern != "all") return options.draw;
  const std::filesystem::path file(options.draw);
  return (file.parent_path() /
          fmt::format("{}-{}{}", file.stem().string(), search::name_of(pattern), file.extension().string()))
      .string();
}

/// Not for patterns that this machine does not have.
void draw(const Options& options, Pattern pattern, const search::PathTables& tables,
          const topo::System& system, const SearchResult& result) {
  if (options.draw.empty()) return;
  const std::vector<search::ChannelPlan>& parts = result.plans.parts;
  if (std::all_of(parts.begin(), parts.end(), [](const auto& plan) { return plan.channels.empty(); })) {
    fmt::print(stderr, "{}: no channels, no picture\n", search::name_of(pattern));
    return;
  }
  const std::string title =
      fmt::format("{}: {}", std::filesystem::path(options.file).stem().string(), search::name_of(pattern));
  topo::write_text_file(picture_file(options, pattern), channels_svg(tables, system, result, title));
}

void search_machine(const Options& options, const CLI::App& command) {
  check_options(options, command);
  if (!options.compare.empty()) {
    if (!compare({options.file, options.compare, options.markdown}, options.request))
      *options.exit_code = kFound;
    return;
  }
  const topo::Model model = options.model == "nccl" ? topo::Model::kNccl : topo::Model::kLoom;
  topo::System system = options.file.empty()
                            ? topo::discover({.ucx_ports = ucx_transport::ports()}, model).system
                            : topo::read_system(options.file, model).system;
  if (command.count("--gpus") > 0) system = topo::trimmed_to(system, ranks_in(options.gpus));
  if (system.gpus().empty())
    refuse(fmt::format("{} has no GPUs.", options.file.empty() ? "this machine" : options.file));
  const search::PathTables tables(system);
  if (!options.graph_file.empty()) return check_file(options, tables);
  nlohmann::json all = nlohmann::json::array();
  std::vector<search::NodePlans> plans;
  for (const Pattern pattern : patterns_of(options.pattern)) {
    search::Request request = options.request;
    request.pattern = pattern;
    const SearchResult result = timed_search(tables, request);
    plans.push_back(result.plans);
    if (options.json)
      for (nlohmann::json& part : to_json(tables, result)) all.push_back(std::move(part));
    else
      fmt::print("{}", plan_text(tables, result, {}));
    if (options.explain && !options.json)
      fmt::print("limits, in the order of trying:\n{}", attempts_text(result));
    draw(options, pattern, tables, system, result);
    if (!options.check) continue;
    const std::vector<std::string> found = violations_of(tables, result.plans);
    for (const std::string& line : found) fmt::print(stderr, "violation: {}\n", line);
    if (!found.empty()) *options.exit_code = kFound;
    if (found.empty() && !options.json) fmt::print("checked: every link carries what it can\n");
  }
  if (!options.graph_dump.empty())
    topo::write_text_file(options.graph_dump, search::to_graph_xml(tables, plans));
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
  command->add_option("--gpus", options->gpus, "only the GPUs of these ranks, e.g. 0,1,2");
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
  command
      ->add_option("--exact-gpus", options->request.exact_gpus,
                   "orders and bounds are exact up to so many GPUs, as far as the steps go")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command
      ->add_option("--max-steps", options->request.max_steps,
                   "work of a search, about nanoseconds; 0: 1.5 million for each GPU, at least 24 million")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--model", options->model, "rules for links and bandwidths")
      ->check(CLI::IsMember({"loom", "nccl"}))
      ->capture_default_str();
  command->add_flag("--explain", options->explain, "each limit tried, and what came of it");
  command->add_flag("--json", options->json, "as JSON");
  command->add_flag("--check", options->check,
                    "validate the result; exit code 1 if it does not fit the machine");
  command
      ->add_option(
          "--graph-file", options->graph_file,
          "instead of searching, check the channels of this file (NCCL's graph XML) against the machine")
      ->check(CLI::ExistingFile);
  command->add_option("--graph-dump", options->graph_dump,
                      "write the channels to this file, for NCCL_GRAPH_FILE");
  command->add_option("--draw", options->draw,
                      "write a picture (SVG) to this file; of several patterns, X-ring.svg and so on");
  command
      ->add_option("--compare", options->compare,
                   "a file of NCCL's figures; FILE is the folder of its machines")
      ->check(CLI::ExistingFile);
  command->add_flag("--markdown", options->markdown, "with --compare: rings alone, as a table");
  command->callback([options, command] { search_machine(*options, *command); });
}

}  // namespace loom::tools
