// connect_command.cpp -- `loom connect`: a job of many nodes, its channels as each rank sees them, and how
// long collectives would take.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "base/error.hpp"
#include "connect/checks.hpp"
#include "tools/commands.hpp"
#include "tools/connect_views.hpp"
#include "topo/xml_file.hpp"

namespace loom::tools {
namespace {

/// All orders of a job grow with the square of its ranks: some 10 MB for each channel of so many.
constexpr int kMostRanksWithOrders = 1024;

struct Options {
  std::string file, draw, model = "nccl", collective = "allreduce";
  std::vector<std::string> mix;
  std::vector<int> ranks_per_node;
  int nodes = 2, rank = -1, channel = 0;
  bool all = false, json = false, orders = false, no_check = false;
  std::vector<std::uint64_t> sizes;
  double net_us = -1;
  JobRequest job;
  int* exit_code = nullptr;
};

MachineFile mixed_in(const std::string& text) {
  const auto colon = text.rfind(':');
  MachineFile file{text.substr(0, colon), 0};
  const char* const end = text.data() + text.size();
  const char* read = nullptr;
  if (colon != std::string::npos) read = std::from_chars(text.data() + colon + 1, end, file.count).ptr;
  if (read != end || file.count < 1)
    throw Error(ErrorCode::kBadInput, fmt::format("\"{}\" is not FILE:COUNT with a count from 1 on.", text));
  return file;
}

/// CLI11 would take -5 for 2^64 - 5.
std::string check_size(const std::string& text) {
  std::uint64_t bytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  return bytes >= 1 ? "" : fmt::format("\"{}\" is no number of bytes from 1 on.", text);
}

void check(const Options& options, const connect::Job& job) {
  const auto refuse = [](const std::string& text) { throw Error(ErrorCode::kBadInput, text); };
  if (options.rank >= job.ranks())
    refuse(fmt::format("The job has {} ranks, none of them is {}.", job.ranks(), options.rank));
  if (options.all && options.orders && job.ranks() > kMostRanksWithOrders)
    refuse(fmt::format("The orders of {} ranks are too much to print: at most {}, or --rank.", job.ranks(),
                       kMostRanksWithOrders));
  const int channels =
      std::max(job.agreed(connect::Family::kRing).channels, job.agreed(connect::Family::kTree).channels);
  if (!options.draw.empty() && options.channel >= channels)
    refuse(fmt::format("The job has {} channels, none of them is {}.", channels, options.channel));
}

connect::Collective collective_of(const std::string& name) {
  using connect::Collective;
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast, Collective::kReduce})
    if (name == connect::name_of(collective)) return collective;
  return Collective::kAllreduce;
}

nlohmann::json simulated(const Options& options, const OfflineJob& offline) {
  nlohmann::json all = nlohmann::json::array();
  if (!options.json && !options.sizes.empty()) fmt::print("{}:\n{}", options.collective, prediction_head());
  for (const std::uint64_t bytes : options.sizes) {
    const connect::SimulationRequest request{collective_of(options.collective), static_cast<double>(bytes),
                                             options.net_us};
    nlohmann::json predictions = nlohmann::json::array();
    for (const connect::Prediction& prediction : connect::simulate(offline.job, offline.machines, request)) {
      if (!options.json) fmt::print("{}", prediction_text(request.bytes, prediction));
      predictions.push_back(to_json(prediction));
    }
    all.push_back(
        {{"bytes", bytes}, {"collective", options.collective}, {"predictions", std::move(predictions)}});
  }
  return all;
}

void connect_job(Options& options) {
  if (options.orders && !options.all && options.rank < 0)
    throw Error(ErrorCode::kBadInput, "--orders needs --rank or --all.");
  options.job.model = options.model == "nccl" ? topo::Model::kNccl : topo::Model::kLoom;
  options.job.plans.max_channels = options.job.channels.max_channels;
  options.job.machines = {{options.file, options.nodes}};
  for (const std::string& text : options.mix) options.job.machines.push_back(mixed_in(text));
  for (std::size_t i = 0; i < options.job.machines.size() && !options.ranks_per_node.empty(); ++i)
    options.job.machines[i].ranks = options.ranks_per_node[std::min(i, options.ranks_per_node.size() - 1)];
  const OfflineJob offline = build_job(options.job);
  const connect::Job& job = offline.job;
  check(options, job);
  nlohmann::json json = to_json(offline);
  if (!options.json) fmt::print("{}", job_text(offline));

  std::vector<std::string> found;
  if (!options.no_check) {
    found = connect::violations(job);
    for (const std::string& line : found) fmt::print(stderr, "violation: {}\n", line);
    if (!found.empty()) *options.exit_code = kFound;
    if (!options.json && found.empty()) fmt::print("checked: every ring and tree of every rank\n");
    json["violations"] = found;
  }
  for (int rank = 0; rank < job.ranks(); ++rank) {
    if (!options.all && rank != options.rank) continue;
    const connect::View view = connect::connect(job, rank);
    if (options.json)
      json["views"].push_back(to_json(job, view, options.orders));
    else
      fmt::print("{}", view_text(job, view));
  }
  nlohmann::json simulation = simulated(options, offline);
  if (!options.sizes.empty()) json["simulation"] = std::move(simulation);
  if (!options.draw.empty())
    topo::write_text_file(options.draw, channel_svg(job, options.channel,
                                                    fmt::format("{} ranks on {} nodes, channel {}",
                                                                job.ranks(), job.nodes(), options.channel)));
  if (options.json) fmt::print("{}\n", json.dump(2));
}

void add_job_options(CLI::App& command, Options& options) {
  command.add_option("FILE", options.file, "topology file of a node, NCCL's XML or hwloc's")->required();
  command.add_option("--nodes", options.nodes, "machines like this one")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command.add_option("--mix", options.mix, "FILE2:COUNT: and so many like that one; may be repeated");
  command
      .add_option(
          "--ranks-per-node", options.ranks_per_node,
          "only the first GPUs of each machine, CPUs where it has no GPU; a list: of FILE, and of each --mix")
      ->delimiter(',')
      ->check(CLI::Range(1, 65535));
  command.add_option("--placement", options.job.placement, "of ranks: block, round-robin or random:SEED")
      ->capture_default_str();
  command
      .add_option("--cross-nic", options.job.plans.cross_nic, "0 never, 1 always, 2 where it carries more")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  command
      .add_option("--min-channels", options.job.channels.min_channels,
                  "copy channels until there are so many")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--max-channels", options.job.channels.max_channels, "no more channels than these")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      .add_option("--channel-gbps", options.job.plans.most_gbps,
                  "split channels that carry more GB/s; 0: none")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--model", options.model, "rules for links and bandwidths")
      ->check(CLI::IsMember({"loom", "nccl"}))
      ->capture_default_str();
}

}  // namespace

void add_connect_command(CLI::App& loom, int& exit_code) {
  const auto options = std::make_shared<Options>();
  options->exit_code = &exit_code;
  CLI::App* command =
      loom.add_subcommand("connect", "The channels of a job of many nodes, and what collectives would take");
  command->footer(
      "Examples:\n"
      "  loom connect dgx.xml --nodes 4 --rank 6                    rank 6's rings and trees\n"
      "  loom connect dgx.xml --nodes 512 --simulate 1K,16M,1G      how long would an all-reduce take?\n"
      "  loom connect dgx.xml --nodes 3 --mix old.xml:2 --placement random:1 --all --json\n"
      "  loom connect dgx.xml --nodes 6 --draw job.svg              its rings and trees as a picture");
  add_job_options(*command, *options);
  auto* rank = command->add_option("--rank", options->rank, "print this rank's channels")
                   ->check(CLI::NonNegativeNumber);
  command->add_flag("--all", options->all, "print every rank's channels")->excludes(rank);
  auto* json = command->add_flag("--json", options->json, "as JSON");
  auto* shown = command->add_flag("--orders", options->orders,
                                  "with --json and --rank or --all: each ring's order as the rank sees it");
  shown->needs(json);
  command->add_flag("--no-check", options->no_check,
                    "do not check what always holds; exit code 1 if it does not");
  auto* draw =
      command->add_option("--draw", options->draw, "write a picture (SVG) of a channel to this file");
  command->add_option("--channel", options->channel, "the channel to draw")
      ->check(CLI::Range(0, 63))
      ->capture_default_str()
      ->needs(draw);
  auto* simulate =
      command->add_option("--simulate", options->sizes, "predict the time for so many bytes, e.g. 1K,16M")
          ->delimiter(',')
          ->transform(CLI::AsSizeValue(false))
          ->transform(CLI::Validator(check_size, ""));  // the last one comes first
  command->add_option("--collective", options->collective, "what to predict")
      ->check(CLI::IsMember({"allreduce", "reduce-scatter", "allgather", "broadcast", "reduce"}))
      ->capture_default_str()
      ->needs(simulate);
  command->add_option("--net-us", options->net_us, "latency between nodes, instead of the model's")
      ->check(CLI::NonNegativeNumber)
      ->needs(simulate);
  command->callback([options] { connect_job(*options); });
}

}  // namespace loom::tools
