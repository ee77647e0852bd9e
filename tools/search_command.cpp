// search_command.cpp -- `loom search`: the channels of a machine, their bound, and NCCL's beside them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "component/select/gpu_plan.hpp"
#include "connect/gpu_channels.hpp"
#include "search/graph_xml.hpp"
#include "search/validate.hpp"
#include "tools/commands.hpp"
#include "tools/forest_views.hpp"
#include "tools/options.hpp"
#include "tools/search_compare.hpp"
#include "tools/search_views.hpp"
#include "topo/bandwidth.hpp"
#include "topo/xml_file.hpp"

namespace loom::tools {
namespace {

using search::Pattern;

constexpr Pattern kPatterns[] = {Pattern::kRing,         Pattern::kTree, Pattern::kSplitTree,
                                 Pattern::kBalancedTree, Pattern::kNvls, Pattern::kCollnetChain,
                                 Pattern::kCollnetDirect};

struct Options {
  std::string file, pattern = "ring", draw, compare, model = "nccl", graph_file, graph_dump, gpus;
  ChannelOptions channels;
  search::Request request;  ///< without what `channels` says
  bool json = false, explain = false, check = false, markdown = false;
  int* exit_code = nullptr;
};

std::vector<Pattern> patterns_of(const std::string& name) {
  std::vector<Pattern> patterns;
  for (const Pattern pattern : kPatterns)
    if (name == "all" || name == search::name_of(pattern)) patterns.push_back(pattern);
  return patterns;
}

search::Request request_of(const Options& options) {
  search::Request request = options.request;
  request.nodes = options.channels.nodes;
  request.cross_nic = options.channels.cross_nic;
  request.min_channels = options.channels.min_channels;
  request.max_channels = options.channels.max_channels;
  request.most_gbps = options.channels.most_gbps;
  return request;
}

/// Channels from a file beside the bound that the search proves for their pattern.
std::vector<SearchResult> read_channels(const Options& options, const search::PathTables& tables) {
  std::vector<SearchResult> results;
  search::Request request = request_of(options);
  for (search::NodePlans& plans : search::read_graph_xml(options.graph_file, tables, request.nodes)) {
    search::prove_bounds(tables, request, plans);
    request.pattern = plans.parts[0].pattern;
    results.push_back({request, std::move(plans), 0});
  }
  return results;
}

std::vector<SearchResult> find_channels(const Options& options, const CLI::App& command,
                                        const search::PathTables& tables) {
  std::vector<SearchResult> results;
  bool with_ports = options.channels.nodes > 1;
  for (const Pattern pattern : patterns_of(options.pattern)) {
    search::Request request = request_of(options);
    request.pattern = pattern;
    results.push_back(timed_search(tables, request));
    with_ports = with_ports || results.back().plans.parts[0].network;
  }
  if (command.count("--cross-nic") > 0 && !with_ports)
    refuse("--cross-nic has no effect: the channels of one node do not use its ports.");
  return results;
}

/// Of several patterns X-ring.svg for X.svg.
std::string picture_of(const std::string& picture, Pattern pattern) {
  const std::filesystem::path file(picture);
  return (file.parent_path() /
          loom::format("{}-{}{}", file.stem().string(), search::name_of(pattern), file.extension().string()))
      .string();
}

constexpr const char* kForest = "forest";

/// Refuses options that do not go together, which would otherwise have no effect, and files that cannot be
/// written, before the work.
void check_options(Options& options, const CLI::App& command) {
  refuse_with(
      command, "--graph-file",
      {"--pattern", "--compare", "--cross-nic", "--min-channels", "--max-channels", "--channel-gbps"});
  refuse_with(
      command, "--compare",
      {"--explain", "--check", "--draw", "--graph-dump", "--gpus", "--nodes", "--cross-nic", "--model"});
  refuse_with(command, "--markdown", {"--json"});
  if (options.markdown && options.compare.empty()) refuse("--markdown needs --compare.");
  if (!options.compare.empty() && command.count("--pattern") > 0 &&
      (options.pattern != kForest || !options.markdown))
    refuse("--compare takes all patterns that NCCL has, or --pattern forest --markdown.");
  if (!options.compare.empty() && options.file.empty())
    refuse("--compare needs FILE: the folder of the machines.");
  settle(command, options.channels);
  std::vector<NamedFile> outputs = {{"--graph-dump", options.graph_dump}, {"--draw", options.draw}};
  if (!options.draw.empty() && (options.pattern == "all" || !options.graph_file.empty()))
    for (const Pattern pattern : kPatterns) outputs.push_back({"--draw", picture_of(options.draw, pattern)});
  for (const NamedFile& output : outputs)
    if (output.path == "-") refuse(loom::format("{} takes a file: stdout has the text.", output.option));
  check_outputs({{"FILE", options.file}, {"--graph-file", options.graph_file}}, outputs);
}

/// Not for patterns that this machine does not have.
void draw(const Options& options, const search::PathTables& tables, const topo::System& system,
          const SearchResult& result, bool one_of_several) {
  if (options.draw.empty()) return;
  const Pattern pattern = result.request.pattern;
  if (!has_channels(result.plans)) {
    loom::print(stderr, "{}: no channels, no picture\n", search::name_of(pattern));
    return;
  }
  const std::string title = loom::format("{}: {}", name_of_machine(options.file), search::name_of(pattern));
  topo::write_text_file(one_of_several ? picture_of(options.draw, pattern) : options.draw,
                        channels_svg(tables, system, result, title));
}

/// Tells what the validator says.
void check(const Options& options, const search::PathTables& tables, const SearchResult& result) {
  const std::vector<std::string> found = search::violations(tables, result.plans);
  for (const std::string& line : found) loom::print(stderr, "violation: {}\n", line);
  if (!found.empty()) *options.exit_code = kFound;
  if (found.empty() && !options.json && has_channels(result.plans))
    loom::print("checked: no link carries more than it can\n");
}

/// The channels of one host, or of two such hosts, in a line.
std::string channels_of(const topo::MachineOfRanks& machine, bool between_hosts) {
  if (!between_hosts) return connect::gpu_channels(machine).summary;
  const connect::GpuChannelRequest usual;
  const connect::GpuHost host = connect::plan_gpu_host(machine, usual, true).host;
  std::vector<std::int32_t> leaders(2 * static_cast<std::size_t>(host.summary.ranks), 0);
  std::fill(leaders.begin() + host.summary.ranks, leaders.end(), host.summary.ranks);
  return connect::gpu_channels(connect::Placement(leaders), std::vector{host, host}, usual.max_channels)
      .summary;
}

/// The rings and trees of a host as the plugin's kernels run them, and what it asks otherwise.
std::string plugin_text(const topo::System& system, bool between_hosts) {
  const topo::System as_it_sees =
      topo::build_system(topo::source_nodes(system), {system.hosts().begin(), system.hosts().end()},
                         topo::Model::kLoom)
          .system;
  const topo::MachineOfRanks machine = machine_of_ranks(as_it_sees, static_cast<int>(system.gpus().size()));
  const connect::GpuChannelRequest usual;
  return loom::format(
      "the plugin's kernels run{}: {}\n  (at most {} channels of up to {:g} GB/s, by --model loom, and none "
      "through another GPU)\n",
      between_hosts ? " between two such hosts" : "", channels_of(machine, between_hosts), usual.max_channels,
      usual.most_gbps);
}

/// Whether rings or trees of one host, or of several such hosts, were searched for.
bool is_for_the_plugin(const Options& options, const topo::System& system) {
  return options.graph_file.empty() && system.hosts().size() == 1 &&
         (options.pattern == "all" || options.pattern == "ring" || options.pattern == "tree");
}

/// Trees of any shape, in place of channels.
void print_forests(Options& options, const CLI::App& command, const topo::System& system) {
  for (const char* option :
       {"--min-channels", "--channel-gbps", "--exact-gpus", "--max-steps", "--check", "--graph-dump"})
    if (command.count(option) > 0) refuse(loom::format("{} has no effect with --pattern forest.", option));
  const search::PathTables tables(system);
  if (tables.whole() == nullptr) refuse("Some GPUs reach each other through the network alone.");
  search::ForestRequest request;
  request.nodes = options.channels.nodes;
  if (command.count("--cross-nic") > 0 && request.nodes == 1)
    refuse("--cross-nic has no effect: trees of one node do not use its ports.");
  request.cross_nic = options.channels.cross_nic;
  if (command.count("--max-channels") > 0) request.max_trees = options.channels.max_channels;
  if (request.nodes > 1 && !options.draw.empty()) refuse("--draw with --pattern forest takes one node.");
  const Forests forests = find_forests(tables.whole()->paths, request);
  if (!options.draw.empty() && !forests.all_gather.trees.empty())
    topo::write_text_file(options.draw, forest_svg(tables.whole()->paths, forests.all_gather,
                                                   name_of_machine(options.file) + ": forest"));
  if (options.json)
    loom::print("{}\n",
                nlohmann::json::array({to_json(tables.whole()->system, forests, options.explain)}).dump(2));
  else
    loom::print("{}", forest_text(tables.whole()->system, forests, options.explain));
  if (forests.all_gather.trees.empty()) *options.exit_code = kFound;
}

void search_machine(Options& options, const CLI::App& command) {
  check_options(options, command);
  if (!options.compare.empty() && options.pattern == kForest) {
    if (!compare_forests(options.file, options.compare)) *options.exit_code = kFound;
    return;
  }
  if (!options.compare.empty()) {
    if (!compare({options.file, options.compare, options.markdown, options.json}, request_of(options)))
      *options.exit_code = kFound;
    return;
  }
  auto [system, notes] = read_machine(options.file, model_of(options.model));
  if (command.count("--gpus") > 0) system = topo::trimmed_to(system, ranks_of(options.gpus, "--gpus"));
  if (system.gpus().empty())
    refuse(loom::format("{} has no GPUs. loom connect takes CPUs in their place.",
                        name_of_machine(options.file)));
  if (options.pattern == kForest) {
    tell(notes);
    print_forests(options, command, system);
    return;
  }
  const search::PathTables tables(system);
  const std::vector<SearchResult> results =
      options.graph_file.empty() ? find_channels(options, command, tables) : read_channels(options, tables);
  tell(notes);
  nlohmann::json all = nlohmann::json::array();
  std::vector<search::NodePlans> plans;
  for (const SearchResult& result : results) {
    if (has_channels(result.plans)) plans.push_back(result.plans);
    if (!options.json) loom::print("{}", plan_text(tables, result));
    if (options.explain && !options.json) loom::print("{}", explanation(tables, result));
    draw(options, tables, system, result, results.size() > 1);
    if (options.check) check(options, tables, result);
    if (options.json)
      for (nlohmann::json& part : to_json(tables, result, options.explain, options.check))
        all.push_back(std::move(part));
  }
  if (options.explain && !options.json && is_for_the_plugin(options, system))
    loom::print("{}", plugin_text(system, options.channels.nodes > 1));
  if (plans.empty()) *options.exit_code = kFound;
  if (plans.empty() && options.channels.nodes > 1 && system.of_kind(topo::NodeKind::kNet).empty())
    loom::print(stderr, "note: loom connect assumes a port of {:g} GB/s on such a machine\n",
                topo::net_gbps(topo::kUnknownNetMbps));
  if (!options.graph_dump.empty() && plans.empty())
    loom::print(stderr, "{}: no channels, not written\n", options.graph_dump);
  else if (!options.graph_dump.empty())
    topo::write_text_file(options.graph_dump, search::to_graph_xml(tables, plans));
  if (options.json) loom::print("{}\n", all.dump(2));
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
      "  loom search dgx.xml --pattern forest             trees of any shape, and the optimum\n"
      "  loom search dgx.xml --explain --check            the limits tried; is the result sound?\n"
      "  loom search FOLDER --compare reference.json      beside NCCL's figures, for all files of a "
      "folder\n\n"
      "Exit code 1: nothing found, or not sound, or less than NCCL's.");
  command
      ->add_option("FILE", options->file,
                   "topology file, NCCL's XML or hwloc's; -: stdin; without one: this machine")
      ->check(not_empty());
  std::vector<std::string> patterns = names_of(kPatterns);
  patterns.emplace_back("all");
  patterns.emplace_back(kForest);
  command
      ->add_option(
          "--pattern", options->pattern,
          "what data is to pass; forest: trees of any shape, of which --max-channels limits each root's")
      ->check(CLI::IsMember(patterns))
      ->capture_default_str();
  add_channel_options(*command, options->channels);
  command->add_option("--gpus", options->gpus, "only the GPUs of these ranks, e.g. 0,1,2 or 0-3");
  command
      ->add_option("--exact-gpus", options->request.exact_gpus,
                   "orders and bounds are exact up to so many GPUs, as far as the steps go")
      ->check(whole_number(1, 16))
      ->capture_default_str();
  command
      ->add_option("--max-steps", options->request.max_steps,
                   "work of a search, about nanoseconds; 0: 1.5 million for each GPU, at least 24 million")
      ->check(whole_number(0, 1'000'000'000'000));
  add_model(*command, options->model);
  command->add_flag(
      "--explain", options->explain,
      "each limit tried and what came of it, why no channels carry more, and what the plugin runs");
  command->add_flag("--json", options->json, "as JSON");
  command->add_flag("--check", options->check,
                    "validate the result; exit code 1 if it does not fit the machine");
  command
      ->add_option(
          "--graph-file", options->graph_file,
          "instead of searching, check the channels of this file (NCCL's graph XML) against the machine")
      ->check(not_empty());
  command
      ->add_option("--graph-dump", options->graph_dump,
                   "write the channels to this file, for NCCL_GRAPH_FILE")
      ->check(not_empty());
  command
      ->add_option("--draw", options->draw,
                   "write a picture (SVG) to this file; of several patterns, X-ring.svg and so on")
      ->check(not_empty());
  command
      ->add_option("--compare", options->compare,
                   "a file of NCCL's figures; FILE is the folder of its machines")
      ->check(not_empty());
  command->add_flag("--markdown", options->markdown, "with --compare: rings alone, as a table");
  command->callback([options, command] { search_machine(*options, *command); });
}

}  // namespace loom::tools
