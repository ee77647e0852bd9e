// plan_command.cpp -- `loom plan`: which algorithm the plugin takes for a call, and why. It asks the
// functions that the plugin asks (component/select/).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"
#include "component/select/select.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/tiers.hpp"
#include "tools/commands.hpp"
#include "tools/offline_job.hpp"
#include "tools/options.hpp"
#include "tools/plan_on_gpus.hpp"
#include "tools/words.hpp"
#include "topo/xml_file.hpp"

namespace loom::tools {
namespace {

using device::Collective;

struct Options {
  std::string file, ranks_per_host, collectives = "all", bytes = "8..1G", tune, tune_file, model = "loom",
                                    memory = "host";
  int hosts = 1, ranks_per_cache = 0;
  bool no_single_copy = false, oversubscribed = false, nonblocking = false, json = false;
  int* exit_code = nullptr;

  bool on_gpus() const { return memory == "device"; }
};

/// Where it counts. Of calls on GPUs it is one host that has some.
std::optional<topo::System> machine_of(const Options& options) {
  if (!options.on_gpus() && (options.file.empty() || !options.ranks_per_host.empty())) return {};
  topo::SystemWithNotes machine = read_machine(options.file, model_of(options.model));
  if (!options.on_gpus()) return std::move(machine.system);
  tell(machine.notes);
  const std::string name = name_of_machine(options.file);
  if (!has_gpus(machine.system))
    refuse(name + ": it has no GPUs. --memory device is for machines that have some.");
  if (const std::size_t hosts = machine.system.hosts().size(); hosts > 1)
    refuse(loom::format("{}: it has {} hosts. --memory device takes a file of one.", name, hosts));
  return std::move(machine.system);
}

/// Ranks of each host: one for each GPU of the machine; else as --ranks-per-host says.
std::vector<int> ranks_of_hosts(const Options& options, const topo::System* machine) {
  std::vector<int> counts = {2};
  if (!options.ranks_per_host.empty()) {
    counts = counts_of(options.ranks_per_host, "--ranks-per-host");
  } else if (machine != nullptr) {
    counts = {static_cast<int>(machine->gpus().size())};
    if (counts[0] == 0) refuse(options.file + ": it has no GPUs: give --ranks-per-host");
  }
  if (counts.size() == 1) counts.resize(static_cast<std::size_t>(options.hosts), counts[0]);
  if (counts.size() != static_cast<std::size_t>(options.hosts))
    refuse(loom::format("--ranks-per-host has {} numbers, for {} hosts", counts.size(), options.hosts));
  if (std::ranges::max(counts) > device::CicoBuffer::kMostRanks)
    refuse(loom::format("--ranks-per-host {}: where a host has more than {} ranks, all calls fall back",
                        std::ranges::max(counts), device::CicoBuffer::kMostRanks));
  return counts;
}

connect::Shape shape_of(const std::vector<int>& counts) {
  const std::int64_t ranks = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  check_job_size(ranks);
  connect::Shape shape{.ranks = static_cast<int>(ranks),
                       .hosts = static_cast<int>(counts.size()),
                       .ranks_per_host = counts[0]};
  for (const int count : counts)
    if (count != counts[0]) shape.ranks_per_host = 0;
  return shape;
}

/// "8..1G": powers of two; "8,100,1M": these.
std::vector<std::size_t> sizes_of(const std::string& text) {
  std::vector<std::size_t> sizes;
  if (const auto dots = text.find(".."); dots != std::string::npos) {
    const std::uint64_t least = bytes_of(text.substr(0, dots), "--bytes"),
                        most = bytes_of(text.substr(dots + 2), "--bytes");
    if (least > most) refuse("--bytes: the first size is larger than the last");
    for (std::uint64_t size = least; size < most; size *= 2) sizes.push_back(size);
    sizes.push_back(most);
    return sizes;
  }
  for (const std::string& item : items_of(text, "--bytes")) sizes.push_back(bytes_of(item, "--bytes"));
  return sizes;
}

std::vector<Collective> collectives_of(const Options& options) {
  std::vector<Collective> all;
  if (options.collectives == "all") {
    for (std::size_t i = 0; i < device::kCollectiveCount; ++i)
      if (const auto each = static_cast<Collective>(i); !options.on_gpus() || may_carry_on_devices(each))
        all.push_back(each);
    return all;
  }
  for (const std::string& name : items_of(options.collectives, "--collective")) {
    const auto collective = collective_named(name);
    if (!collective) refuse(loom::format("there is no collective \"{}\"", name));
    all.push_back(*collective);
  }
  return all;
}

Tune tune_of(const Options& options) {
  Tune tune;
  if (!options.tune_file.empty())
    tune = Tune::parse(topo::read_text_file(options.tune_file.c_str()), options.tune_file);
  tune.append(Tune::parse(options.tune, "--tune"));
  return tune;
}

/// A row of the answer.
struct Row {
  Collective collective;
  std::size_t whole;  ///< bytes of the message, all blocks together
  Choice choice;
  double us;  ///< predicted; 0 of the fallback component
  /// Of those whose predictions compare with this one's: others may be predicted to be faster, and measured
  /// to be slower.
  std::optional<Alternative> runner_up;
  std::string why;
};

Row row_for(const Conditions& conditions, Collective collective, std::size_t bytes, bool may_wait,
            const Tune& tune) {
  if (!may_wait && may_make_an_id(collective, bytes, device::Op::kSum, device::Type::kFloat))
    return {collective, whole_message(collective, conditions.shape.ranks, bytes), {}, 0, {}, kWhyIdsFallBack};
  Row row{collective,
          whole_message(collective, conditions.shape.ranks, bytes),
          choose(conditions, collective, bytes, may_wait, tune),
          0,
          {},
          {}};
  for (const Alternative& one : alternatives(conditions, collective, bytes, may_wait)) {
    if (one.algorithm == row.choice.algorithm)
      row.us = one.us;
    else if (!row.runner_up && (one.suits || one.algorithm == row.choice.candidate))
      row.runner_up = one;
  }
  row.why = reason_of(conditions, collective, bytes, may_wait, tune);
  return row;
}

void print(const Conditions& conditions, bool has_gpus, const std::vector<Row>& rows) {
  loom::print("{} on {}, buffers on the host{}\n", counted(conditions.shape.ranks, "rank"),
              counted(conditions.shape.hosts, "host"),
              has_gpus ? " (--memory device: on the GPUs of the machine)" : "");
  loom::print("{:<21}{:>8}  {:<12}{:>12}  {:<24}{}\n", "collective", "bytes", "algorithm", "predicted us",
              "runner-up", "why");
  for (const Row& row : rows) {
    const bool by_loom = row.choice.algorithm != Algorithm::kFallback;
    const std::string runner_up =
        row.runner_up ? loom::format("{} {:.1f} us", name_of(row.runner_up->algorithm), row.runner_up->us)
                      : "-";
    loom::print("{:<21}{:>8}  {:<12}{:>12}  {:<24}{}\n", name_of(row.collective),
                size_text(row.collective, row.whole), name_of(row.choice.algorithm),
                by_loom ? loom::format("{:.1f}", row.us) : "-", runner_up, row.why);
  }
}

void print_json(const Conditions& conditions, const std::vector<Row>& rows) {
  nlohmann::json all = {{"ranks", conditions.shape.ranks},
                        {"hosts", conditions.shape.hosts},
                        {"ranks_per_host", conditions.shape.ranks_per_host},
                        {"decisions", nlohmann::json::array()}};
  for (const Row& row : rows) {
    nlohmann::json one = {{"collective", name_of(row.collective)},
                          {"bytes", row.whole},
                          {"algorithm", name_of(row.choice.algorithm)},
                          {"why", row.why}};
    if (row.choice.algorithm != Algorithm::kFallback) one["predicted_us"] = row.us;
    if (row.choice.candidate) one["candidate"] = name_of(*row.choice.candidate);
    if (row.runner_up)
      one["runner_up"] = {{"algorithm", name_of(row.runner_up->algorithm)},
                          {"predicted_us", row.runner_up->us}};
    all["decisions"].push_back(one);
  }
  loom::print("{}\n", all.dump(2));
}

struct Call {
  Collective collective;
  std::size_t bytes;  ///< device::shared_bytes()
  friend bool operator==(const Call&, const Call&) = default;
};

std::vector<Call> calls_of(const Options& options, int ranks) {
  std::vector<Call> calls;
  for (const Collective collective : collectives_of(options)) {
    const bool sized = collective != Collective::kBarrier && is_known_to_all(collective);
    // The whole message has equal blocks: at least this many bytes of each.
    const std::size_t blocks = whole_message(collective, ranks, 1);
    for (const std::size_t size : sized ? sizes_of(options.bytes) : std::vector<std::size_t>{0}) {
      const Call call{collective, (size + blocks - 1) / blocks};
      if (calls.empty() || calls.back() != call) calls.push_back(call);
    }
  }
  return calls;
}

/// Hosts like the machine, with so many ranks each.
GpuPlan plan_on_gpus(const topo::System& machine, const std::vector<int>& counts, const Tune& tune) {
  if (counts.size() == 1) return {machine_of_ranks(machine, counts[0]), tune};
  std::map<int, topo::MachineOfRanks> machines;
  std::vector<const topo::MachineOfRanks*> hosts;
  std::vector<std::int32_t> leaders;
  for (const int count : counts) {
    leaders.insert(leaders.end(), static_cast<std::size_t>(count), static_cast<std::int32_t>(leaders.size()));
    if (leaders.size() > std::size_t{kMostRanksOnGpus})
      refuse(loom::format("--memory device between hosts is for {} ranks at the most.", kMostRanksOnGpus));
    if (!machines.contains(count)) machines.emplace(count, machine_of_ranks(machine, count));
    hosts.push_back(&machines.at(count));
  }
  return {connect::Placement(leaders), hosts, tune};
}

int tiers_of(int ranks, int in_cache) {
  std::vector<device::TierPlace> places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back({.cache = rank / in_cache});
  return device::Tiers(places, device::Tiers::most_in_group(ranks)).tiers();
}

void run(const Options& options) {
  const std::optional<topo::System> machine = machine_of(options);
  const std::vector<int> counts = ranks_of_hosts(options, machine ? &*machine : nullptr);
  const connect::Shape shape = shape_of(counts);
  const Tune tune = tune_of(options);
  const int in_cache =
      options.ranks_per_cache > 0 ? std::min(options.ranks_per_cache, shape.ranks) : shape.ranks;
  const Conditions conditions{
      .shape = shape,
      .single_copy = shape.hosts == 1 && !options.no_single_copy,
      .hier = may_use_hier(shape),
      .oversubscribed = options.oversubscribed,
      .tiers = shape.hosts == 1 ? tiers_of(shape.ranks, in_cache) : 1,
      .in_cache = shape.hosts == 1 ? in_cache : 1,
      .groups = shape.hosts == 1 && may_have_groups(shape.ranks, tune.names(Algorithm::kTieredCico))};
  for (const std::string& line : tune.without_effect(conditions)) loom::print(stderr, "loom: {}\n", line);
  const std::vector<Call> calls = calls_of(options, shape.ranks);
  *options.exit_code = kOk;
  if (options.on_gpus()) {
    const GpuPlan plan = plan_on_gpus(*machine, counts, tune);
    std::vector<GpuRow> rows;
    for (const auto& [collective, bytes] : calls)
      rows.push_back({collective, whole_message(collective, shape.ranks, bytes),
                      plan.call(conditions, collective, bytes, !options.nonblocking)});
    if (options.json)
      print_json(plan, conditions, rows);
    else
      print(plan, conditions, rows);
    return;
  }
  std::vector<Row> rows;
  for (const auto& [collective, bytes] : calls)
    rows.push_back(row_for(conditions, collective, bytes, !options.nonblocking, tune));
  if (options.json)
    print_json(conditions, rows);
  else
    print(conditions, machine && has_gpus(*machine), rows);
}

}  // namespace

void add_plan_command(CLI::App& loom, int& exit_code) {
  auto options = std::make_shared<Options>();
  options->exit_code = &exit_code;
  CLI::App& plan = *loom.add_subcommand(
      "plan", "Which algorithm carries a call on a communicator of some form, its predicted time, and why");
  plan.add_option(
      "FILE", options->file,
      "topology file of each host, NCCL's XML or hwloc's, as loom topo convert writes it: one rank for each "
      "of its GPUs. Without one: no machine, or with --memory device this one");
  plan.add_option("--memory", options->memory,
                  "where the buffers of all ranks lie: host, or device: on the machine's GPUs (host)")
      ->check(CLI::IsMember({"host", "device"}));
  plan.add_option("--hosts,--nodes", options->hosts, "number of hosts (1)")->check(whole_number(1, 1 << 20));
  plan.add_option("--ranks-per-host,--ranks-per-node", options->ranks_per_host,
                  "ranks on each host (2), or a number for each: 8,8,4");
  plan.add_option("--ranks-per-cache", options->ranks_per_cache,
                  "ranks that share a last-level cache (all of a host)")
      ->check(whole_number(1, 1 << 20));
  plan.add_option("--collective", options->collectives,
                  "some, separated by commas, or all; on GPUs all that may stay there (all)");
  plan.add_option("--bytes", options->bytes,
                  "sizes of the whole message, all blocks together: 8,64K or powers of two, 8..1G (8..1G)");
  plan.add_option("--tune", options->tune, "rules as in coll_loom_tune");
  plan.add_option("--tune-file", options->tune_file, "file with such rules");
  plan.add_flag("--nonblocking", options->nonblocking, "a call that does not wait");
  plan.add_flag("--no-single-copy", options->no_single_copy, "ranks may not read each other's memory");
  plan.add_flag("--oversubscribed", options->oversubscribed, "ranks outnumber the CPUs that they may use");
  plan.add_flag("--json", options->json, "as JSON");
  add_model(plan, options->model);
  plan.footer(
      "Examples:\n"
      "  loom plan --hosts 2 --ranks-per-host 16\n"
      "  loom topo convert --to nccl -o here.xml && loom plan here.xml --memory device --hosts 4\n\n"
      "Between hosts it takes links between node leaders for granted: the plugin makes them at the 64th "
      "small "
      "call, or with the first large one. Times are predicted for 100 Gbit/s and 1.3 us between hosts, of "
      "kernels for the ports of FILE; the plugin compares times, so only their order counts. With --memory "
      "device it says by which links and protocol kernels carry a call, over the channels that the plugin "
      "finds there, and what staging would take. Operations and types are such as GPUs have. Multicast "
      "(NVLS) "
      "and NVLink between hosts are offline: no prediction has them.");
  plan.callback([options] { run(*options); });
}

}  // namespace loom::tools
