// connect_command.cpp -- `loom connect`: a job of many nodes, its channels as each rank sees them, and how
// long collectives would take.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "connect/checks.hpp"
#include "tools/commands.hpp"
#include "tools/connect_views.hpp"
#include "tools/options.hpp"
#include "tools/words.hpp"
#include "topo/xml_file.hpp"

namespace loom::tools {
namespace {

/// All orders of a job grow with the square of its ranks: some 10 MB for each channel of so many.
constexpr int kMostRanksWithOrders = 1024;

constexpr connect::Collective kCollectives[] = {
    connect::Collective::kAllreduce, connect::Collective::kReduceScatter, connect::Collective::kAllGather,
    connect::Collective::kBroadcast, connect::Collective::kReduce};

struct Options {
  std::string file, ranks_per_node, draw, sizes, model = "nccl", collective = "allreduce";
  std::vector<std::string> mix;
  ChannelOptions channels{.nodes = 2};
  int rank = -1, channel = 0;
  bool all = false, json = false, orders = false, no_check = false;
  double net_us = -1;
  JobRequest job;
  int* exit_code = nullptr;
};

MachineFile mixed_in(const std::string& text) {
  const std::size_t colon = std::min(text.rfind(':'), text.size());
  const int count = parsed<int>(std::string_view(text).substr(std::min(colon + 1, text.size()))).value_or(0);
  if (colon == 0 || count < 1)
    refuse(loom::format("--mix \"{}\" is not FILE:COUNT with a count from 1 on.", text));
  return {text.substr(0, colon), count};
}

/// FILE and each --mix, with the number of ranks that each is to have.
std::vector<MachineFile> machines_of(const Options& options) {
  std::vector<MachineFile> machines = {{options.file, options.channels.nodes}};
  for (const std::string& text : options.mix) machines.push_back(mixed_in(text));
  if (options.ranks_per_node.empty()) return machines;
  const std::vector<int> ranks = counts_of(options.ranks_per_node, "--ranks-per-node");
  if (ranks.size() != 1 && ranks.size() != machines.size())
    refuse(
        loom::format("--ranks-per-node has {} numbers: one is for all machines, else FILE and each --mix "
                     "have their own, {} here.",
                     ranks.size(), machines.size()));
  for (std::size_t i = 0; i < machines.size(); ++i) machines[i].ranks = ranks[ranks.size() == 1 ? 0 : i];
  return machines;
}

/// As the plugin asks, but for what was said.
connect::GpuChannelRequest gpu_request(const ChannelOptions& channels, const CLI::App& command) {
  connect::GpuChannelRequest request;
  request.max_channels = command.count("--max-channels") > 0
                             ? channels.max_channels
                             : std::max(request.max_channels, channels.min_channels);
  if (command.count("--channel-gbps") > 0) request.most_gbps = channels.most_gbps;
  request.cross_nic = channels.cross_nic;
  return request;
}

/// What can be known before the work.
void check_options(Options& options, const CLI::App& command) {
  if (options.orders && !options.all && options.rank < 0) refuse("--orders needs --rank or --all.");
  settle(command, options.channels);
  if (options.draw == "-") refuse("--draw takes a file: stdout has the text.");
  std::vector<NamedFile> inputs;
  for (std::size_t i = 0; i < options.job.machines.size(); ++i)
    inputs.push_back({i == 0 ? "FILE" : "--mix", options.job.machines[i].path});
  check_outputs(inputs, {{"--draw", options.draw}});
  if (command.count("--placement") > 0 && options.job.machines.size() == 1 && options.channels.nodes == 1)
    refuse("--placement has no effect on one machine.");
}

/// What can be known of the job alone.
void check_job(const Options& options, const CLI::App& command, const connect::Job& job) {
  for (const char* option : {"--net-us", "--cross-nic"})
    if (job.nodes() == 1 && command.count(option) > 0)
      refuse(loom::format("{} has no effect on one node.", option));
  if (job.ranks() == 1 && command.count("--simulate") > 0)
    refuse("--simulate has no effect on one rank: it sends nothing.");
  if (options.rank >= job.ranks())
    refuse(loom::format("The job has {}, none of them is {}.", counted(job.ranks(), "rank"), options.rank));
  if (options.all && options.orders && job.ranks() > kMostRanksWithOrders)
    refuse(loom::format("The orders of {} ranks are too much to print: at most {}, or --rank.", job.ranks(),
                        kMostRanksWithOrders));
  if (!options.draw.empty()) check_picture(job, options.channel);
}

connect::Collective collective_of(const std::string& name) {
  return *std::find_if(std::begin(kCollectives), std::end(kCollectives),
                       [&](connect::Collective one) { return name == connect::name_of(one); });
}

nlohmann::json simulated(const Options& options, const OfflineJob& offline,
                         const std::vector<std::uint64_t>& sizes) {
  nlohmann::json all = nlohmann::json::array();
  if (!options.json) loom::print("{}:\n{}", options.collective, prediction_head());
  for (const std::uint64_t bytes : sizes) {
    const connect::SimulationRequest request{collective_of(options.collective), static_cast<double>(bytes),
                                             options.net_us};
    nlohmann::json predictions = nlohmann::json::array();
    for (const connect::Prediction& prediction : predictions_of(offline, request)) {
      if (!options.json) loom::print("{}", prediction_text(request.bytes, prediction));
      predictions.push_back(to_json(prediction));
    }
    all.push_back(
        {{"bytes", bytes}, {"collective", options.collective}, {"predictions", std::move(predictions)}});
  }
  return all;
}

void draw(const Options& options, const OfflineJob& offline) {
  for (const connect::Family family : {connect::Family::kRing, connect::Family::kTree})
    if (const int channels = offline.job.agreed(family).channels; options.channel >= channels)
      loom::print(stderr, "channel {}: no {} in the picture, there are {}\n", options.channel,
                  connect::name_of(family), channels);
  topo::write_text_file(options.draw, channel_svg(offline, options.channel));
}

void connect_job(Options& options, const CLI::App& command) {
  options.job.machines = machines_of(options);
  check_options(options, command);
  std::vector<std::uint64_t> sizes;
  if (!options.sizes.empty())
    for (const std::string& size : items_of(options.sizes, "--simulate"))
      sizes.push_back(bytes_of(size, "--simulate"));
  if (command.count("--model") > 0) options.job.model = model_of(options.model);
  options.job.gpus = gpu_request(options.channels, command);
  options.job.channels = {options.channels.min_channels, options.channels.max_channels};
  options.job.plans.cross_nic = options.channels.cross_nic;
  options.job.plans.max_channels = options.channels.max_channels;
  options.job.plans.most_gbps = options.channels.most_gbps;
  const OfflineJob offline = build_job(options.job);
  const connect::Job& job = offline.job;
  check_job(options, command, job);
  tell(offline.notes);
  nlohmann::json json = to_json(offline);
  if (!options.json) loom::print("{}", job_text(offline));
  if (const auto forest = forest_of(offline, options.channels.cross_nic)) {
    json["forest"] = {{"all_gather_gbps", forest->gbps}, {"bound_gbps", forest->at_most()}};
    if (!options.json) loom::print("{}", forest_text(offline, *forest));
  }

  if (!options.no_check) {
    const std::vector<std::string> found = connect::violations(job);
    for (const std::string& line : found) loom::print(stderr, "violation: {}\n", line);
    if (!found.empty()) *options.exit_code = kFound;
    if (!options.json && found.empty()) loom::print("checked: every ring and tree of every rank\n");
    json["violations"] = found;
  }
  for (int rank = 0; rank < job.ranks(); ++rank) {
    if (!options.all && rank != options.rank) continue;
    const connect::View view = connect::connect(job, rank);
    if (options.json)
      json["views"].push_back(to_json(job, view, options.orders));
    else
      loom::print("{}", view_text(job, view));
  }
  if (!sizes.empty()) json["simulation"] = simulated(options, offline, sizes);
  if (!options.draw.empty()) draw(options, offline);
  if (options.json) loom::print("{}\n", json.dump(2));
}

void add_job_options(CLI::App& command, Options& options) {
  command.add_option("FILE", options.file, "topology file of a node, NCCL's XML or hwloc's; -: stdin")
      ->check(not_empty())
      ->required();
  add_channel_options(command, options.channels);
  command.add_option("--mix", options.mix, "FILE2:COUNT: and so many like that one; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option(
          "--ranks-per-node,--ranks-per-host", options.ranks_per_node,
          "only the first GPUs of each machine, CPUs where it has no GPU; a list: of FILE, and of each --mix")
      ->check(not_empty());
  command.add_option("--placement", options.job.placement, "of ranks: block, round-robin or random:SEED")
      ->capture_default_str();
  add_model(command, options.model);
}

}  // namespace

void add_connect_command(CLI::App& loom, int& exit_code) {
  const auto options = std::make_shared<Options>();
  options->exit_code = &exit_code;
  CLI::App* command =
      loom.add_subcommand("connect", "The channels of a job of many nodes, and what collectives would take");
  command->footer(
      "With --nodes 1 or --model loom, of hosts with GPUs, rings and trees are those that the plugin's "
      "kernels "
      "run there, at most 16 of up to 12 GB/s by the rules of loom unless options say other; of one host "
      "--simulate predicts what they choose by. All else is offline: the plugin does not run it.\n"
      "Examples:\n"
      "  loom connect dgx.xml --nodes 1 --simulate 16M              what do the GPUs of one host run?\n"
      "  loom connect dgx.xml --nodes 4 --rank 6                    rank 6's rings and trees\n"
      "  loom connect dgx.xml --nodes 4 --model loom                those that the plugin's kernels run\n"
      "  loom connect dgx.xml --nodes 512 --simulate 1K,16M,1G      how long would an all-reduce take?\n"
      "  loom connect dgx.xml --nodes 3 --mix old.xml:2 --placement random:1 --all --json\n"
      "  loom connect dgx.xml --nodes 6 --draw job.svg              its rings and trees as a picture");
  add_job_options(*command, *options);
  auto* rank = command->add_option("--rank", options->rank, "print this rank's channels")
                   ->check(whole_number(0, 10'000'000));
  command->add_flag("--all", options->all, "print every rank's channels")->excludes(rank);
  auto* json = command->add_flag("--json", options->json, "as JSON");
  auto* shown = command->add_flag("--orders", options->orders,
                                  "with --json and --rank or --all: each ring's order as the rank sees it");
  shown->needs(json);
  command->add_flag("--no-check", options->no_check,
                    "do not check what always holds; exit code 1 if it does not");
  auto* draw = command
                   ->add_option("--draw", options->draw,
                                "write a picture (SVG) of a channel's ring and trees to this file")
                   ->check(not_empty());
  command->add_option("--channel", options->channel, "the channel to draw")
      ->check(whole_number(0, 63))
      ->capture_default_str()
      ->needs(draw);
  auto* simulate =
      command->add_option("--simulate", options->sizes, "predict the time for so many bytes, e.g. 1K,16M")
          ->check(not_empty());
  command->add_option("--collective", options->collective, "what to predict")
      ->check(CLI::IsMember(names_of(kCollectives)))
      ->capture_default_str()
      ->needs(simulate);
  command->add_option("--net-us", options->net_us, "latency between nodes, instead of the model's")
      ->check(number(0, 1'000'000))
      ->needs(simulate);
  command->callback([options, command] { connect_job(*options, *command); });
}

}  // namespace loom::tools
