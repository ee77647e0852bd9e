#include "tools/offline_job.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <unordered_map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "connect/exchange.hpp"
#include "tools/machine_file.hpp"
#include "tools/words.hpp"
#include "topo/place.hpp"

namespace loom::tools {
namespace {

constexpr double kLittle = 0.02;  // of the bandwidth: for less no channel is added

[[noreturn]] void refuse_ranks(const std::string& path, int gpus, int ranks) {
  throw Error(ErrorCode::kBadInput,
              loom::format("{} has {} for {}.", path, counted(gpus, "GPU"), counted(ranks, "rank")));
}

/// The ranks of one machine: its first GPUs, or CPUs where it has none.
topo::System with_ranks(topo::System system, int wanted, const std::string& path) {
  std::vector<int> ranks;
  for (const topo::NodeId gpu : system.gpus()) ranks.push_back(system.node(gpu).gpu().rank);
  std::sort(ranks.begin(), ranks.end());
  if (ranks.empty()) {
    std::vector<topo::Place> places(static_cast<std::size_t>(std::max(1, wanted)));
    const auto cpus = system.of_kind(topo::NodeKind::kCpu);
    for (std::size_t i = 0; i < places.size(); ++i) {
      ranks.push_back(static_cast<int>(i));
      places[i].first_cpu = static_cast<std::int32_t>(i);
      places[i].numa_node = system.node(cpus[i * cpus.size() / places.size()]).cpu().numa_id;
    }
    return topo::with_virtual_gpus(system, places, ranks);
  }
  if (wanted == 0) return system;
  if (wanted > static_cast<int>(ranks.size())) refuse_ranks(path, static_cast<int>(ranks.size()), wanted);
  ranks.resize(static_cast<std::size_t>(wanted));
  return topo::trimmed_to(system, ranks);
}

/// Which ranks each machine has, ascending; sizes[m] of them.
std::vector<std::vector<int>> placed(const std::vector<int>& sizes, const std::string& placement) {
  std::vector<std::vector<int>> machines(sizes.size());
  const int count = std::accumulate(sizes.begin(), sizes.end(), 0);
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (placement == "round-robin") {
    int rank = 0;
    for (std::size_t machine = 0; rank < count; machine = (machine + 1) % machines.size())
      if (static_cast<int>(machines[machine].size()) < sizes[machine]) machines[machine].push_back(rank++);
    return machines;
  }
  if (placement.starts_with("random:")) {
    const std::optional<unsigned> seed = parsed<unsigned>(std::string_view(placement).substr(7));
    if (!seed)
      throw Error(ErrorCode::kBadInput, loom::format("\"{}\" has no number from 0 to {} as its seed.",
                                                     placement, std::numeric_limits<unsigned>::max()));
    std::mt19937 random(*seed);
    for (std::size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[random() % i]);
  } else if (placement != "block") {
    throw Error(ErrorCode::kBadInput,
                loom::format("\"{}\" is no placement: block, round-robin or random:SEED.", placement));
  }
  std::size_t next = 0;
  for (std::size_t machine = 0; machine < machines.size(); ++machine) {
    const auto first = ranks.begin() + static_cast<std::ptrdiff_t>(next);
    machines[machine].assign(first, first + sizes[machine]);
    std::sort(machines[machine].begin(), machines[machine].end());
    next += static_cast<std::size_t>(sizes[machine]);
  }
  return machines;
}

/// A machine's part that is a node: its ranks are positions among the machine's.
struct Part {
  std::vector<std::size_t> positions;
  connect::NodeSummary summary;
  connect::Machine machine;
  std::string name;
  std::optional<connect::GpuHost> gpu_host = {};  ///< whose rings and trees these are, between hosts
  std::shared_ptr<const topo::MachineOfRanks> gpu_machine = {};  ///< that it is
};

/// A machine that has nobody to talk to.
bool is_alone(const JobRequest& request) {
  return request.machines.size() == 1 && request.machines[0].count == 1;
}

topo::Model model_of(const JobRequest& request) {
  return request.model.value_or(is_alone(request) ? topo::Model::kLoom : topo::Model::kNccl);
}

bool asks_as_the_plugin(const JobRequest& request) {
  const connect::GpuChannelRequest usual;
  return request.gpus.max_channels == usual.max_channels && request.gpus.most_gbps == usual.most_gbps &&
         request.gpus.cross_nic == usual.cross_nic && request.channels.min_channels <= 1 &&
         model_of(request) == topo::Model::kLoom;
}

topo::MachineOfRanks ranks_on_gpus(const MachineFile& file, const topo::System& whole) {
  const int gpus = static_cast<int>(whole.gpus().size());
  if (file.ranks > gpus) refuse_ranks(file_name(file.path), gpus, file.ranks);
  return machine_of_ranks(whole, file.ranks == 0 ? gpus : file.ranks);
}

/// A host with GPUs: rings and trees that its kernels run, and, if it has any (`searched`), the families that
/// they do not.
Part part_of_host(const MachineFile& file, topo::MachineOfRanks machine, const connect::NodeSummary& run,
                  bool searched, const JobRequest& request, OfflineJob& offline) {
  Part part;
  part.summary = run;
  const std::vector<connect::NodePlan> plans =
      searched ? connect::plan_nodes(machine.system, request.plans) : std::vector<connect::NodePlan>{};
  if (plans.size() == 1) {
    const connect::NodeSummary others =
        connect::summarize(machine.system, plans.front().ranks, plans.front().plans);
    for (const connect::Family family :
         {connect::Family::kNvls, connect::Family::kCollnetChain, connect::Family::kCollnetDirect})
      part.summary.families[static_cast<std::size_t>(family)] = others.family(family);
  }
  for (int rank = 0; rank < run.ranks; ++rank) {
    part.positions.push_back(static_cast<std::size_t>(rank));
    part.machine.ranks.push_back(rank);
  }
  part.name = file_name(file.path);
  topo::PathRules rules;
  rules.network_inside_host = false;
  rules.nvb = rules.pxn = false;
  offline.systems.push_back(std::make_unique<topo::System>(std::move(machine.system)));
  offline.paths.push_back(std::make_unique<topo::Paths>(*offline.systems.back(), rules));
  part.machine.paths = offline.paths.back().get();
  return part;
}

/// One host alone. Nothing where it runs no kernels, as for ranks that share a GPU.
std::optional<Part> part_on_gpus(const MachineFile& file, const topo::System& whole,
                                 const JobRequest& request, OfflineJob& offline) {
  topo::MachineOfRanks machine = ranks_on_gpus(file, whole);
  offline.is_offline = !asks_as_the_plugin(request);
  const std::uint64_t room =
      offline.is_offline ? std::numeric_limits<std::uint64_t>::max() : std::uint64_t{LOOM_STAGING_BYTES};
  const connect::GpuChannels* const found =
      offline.on_gpus.emplace(machine, Tune(), request.gpus, room).channels();
  if (found == nullptr) {
    offline.on_gpus.reset();
    offline.is_offline = true;
    return {};
  }
  offline.notes.insert(offline.notes.end(), found->notes.begin(), found->notes.end());
  return part_of_host(file, std::move(machine), found->job.summary(0), !found->plans.empty(), request,
                      offline);
}

/// One of several hosts. Nothing where it has no channels between hosts.
std::optional<Part> part_of_gpu_host(const MachineFile& file, const topo::System& whole,
                                     const JobRequest& request, OfflineJob& offline) {
  topo::MachineOfRanks machine = ranks_on_gpus(file, whole);
  connect::GpuHostPlan planned = connect::plan_gpu_host(machine, request.gpus, true);
  offline.notes.insert(offline.notes.end(), planned.notes.begin(), planned.notes.end());
  if (!planned.host.why_not.empty()) {
    offline.notes.push_back(loom::format("{}: the plugin's kernels go in order of rank: {}",
                                         file_name(file.path), planned.host.why_not));
    return {};
  }
  const auto kept = std::make_shared<const topo::MachineOfRanks>(machine);
  Part part = part_of_host(file, std::move(machine), planned.host.summary, true, request, offline);
  part.gpu_host = std::move(planned.host);
  part.gpu_machine = kept;
  return part;
}

/// The plugin's kernels run such a job's channels between hosts.
bool is_between_gpus(const JobRequest& request, const std::map<std::string, topo::System>& systems) {
  return !is_alone(request) && model_of(request) == topo::Model::kLoom &&
         std::ranges::all_of(systems, [](const auto& system) {
           return system.second.hosts().size() == 1 && has_gpus(system.second);
         });
}

std::vector<Part> parts_of(const MachineFile& file, const topo::System& whole, const JobRequest& request,
                           bool between_gpus, OfflineJob& offline) {
  if (between_gpus)
    if (auto part = part_of_gpu_host(file, whole, request, offline)) return {*std::move(part)};
  if (is_alone(request) && whole.hosts().size() == 1 && has_gpus(whole))
    if (auto part = part_on_gpus(file, whole, request, offline)) return {*std::move(part)};
  const topo::System system = with_ranks(whole, file.ranks, file_name(file.path));
  std::vector<int> all;
  for (const topo::NodeId gpu : system.gpus()) all.push_back(system.node(gpu).gpu().rank);
  std::sort(all.begin(), all.end());
  topo::PathRules rules;
  rules.network_inside_host = false;
  std::vector<Part> parts;
  const std::vector<connect::NodePlan> plans = connect::plan_nodes(system, request.plans);
  for (const connect::NodePlan& plan : plans) {
    Part part;
    part.summary = connect::summarize(system, plan.ranks, plan.plans);
    offline.systems.push_back(std::make_unique<topo::System>(topo::trimmed_to(system, plan.ranks)));
    offline.paths.push_back(std::make_unique<topo::Paths>(*offline.systems.back(), rules));
    part.machine = {offline.paths.back().get(), plan.ranks};
    std::sort(part.machine.ranks.begin(), part.machine.ranks.end());
    for (const int rank : part.machine.ranks)
      part.positions.push_back(
          static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), rank) - all.begin()));
    part.name = file_name(file.path);
    if (plans.size() > 1) part.name += loom::format(", part {}", parts.size() + 1);
    parts.push_back(std::move(part));
  }
  return parts;
}

/// Each file is read once: stdin could not be read again.
std::map<std::string, topo::System> read_files(const JobRequest& request, std::vector<std::string>& notes) {
  std::map<std::string, topo::System> systems;
  for (const MachineFile& file : request.machines) {
    if (systems.contains(file.path)) continue;
    topo::SystemWithNotes read = read_machine_file(file.path, model_of(request));
    systems.emplace(file.path, std::move(read.system));
    for (const std::string& note : read.notes)
      notes.push_back(note.starts_with(file.path) ? note
                                                  : loom::format("{}: {}", file_name(file.path), note));
  }
  return systems;
}

struct Machines {
  std::vector<std::vector<Part>> kinds;
  std::vector<std::size_t> kind_of;  ///< of each of request.machines
};

Machines plan_machines(const JobRequest& request, const std::map<std::string, topo::System>& systems,
                       OfflineJob& offline) {
  Machines machines;
  const bool between_gpus = is_between_gpus(request, systems);
  for (std::size_t m = 0; m < request.machines.size(); ++m) {
    const MachineFile& mine = request.machines[m];
    const auto same = std::find_if(
        request.machines.begin(), request.machines.end(),
        [&](const MachineFile& other) { return other.path == mine.path && other.ranks == mine.ranks; });
    const auto first = static_cast<std::size_t>(same - request.machines.begin());
    machines.kind_of.push_back(first < m ? machines.kind_of[first] : machines.kinds.size());
    if (first == m)
      machines.kinds.push_back(parts_of(mine, systems.at(mine.path), request, between_gpus, offline));
  }
  return machines;
}

/// The limit on channels for each node's search. Where machines differ it may be less than the user's: for a
/// node with four rings of 12 GB/s, four suit better than five of 12, 12, 12, 8 and 4. Not where the user
/// wants channels cut: fewer would carry more each.
int best_limit(const JobRequest& asked, const std::map<std::string, topo::System>& systems) {
  const bool alike = std::all_of(asked.machines.begin(), asked.machines.end(), [&](const MachineFile& file) {
    return file.path == asked.machines[0].path && file.ranks == asked.machines[0].ranks;
  });
  if (alike || asked.plans.most_gbps > 0) return asked.plans.max_channels;
  using connect::Family;
  struct Result {
    int limit = 0, channels = 0;  // agreed on, of rings and trees
    double gbps = 0;
  };
  JobRequest request = asked;
  std::size_t most = 0;  // channels of any node
  const auto result_with = [&](int limit) {
    request.plans.max_channels = limit;
    OfflineJob unused;
    std::vector<connect::NodeSummary> kinds;
    for (const std::vector<Part>& parts : plan_machines(request, systems, unused).kinds)
      for (const Part& part : parts) kinds.push_back(part.summary);
    Result result{limit};
    for (const Family family : {Family::kRing, Family::kTree}) {
      for (const connect::NodeSummary& kind : kinds)
        most = std::max(most, kind.family(family).channels.size());
      const connect::Agreed agreed = connect::agree(family, kinds, request.channels);
      result.channels += agreed.channels;
      result.gbps += agreed.total_gbps();
    }
    return result;
  };
  std::vector<Result> results = {result_with(asked.plans.max_channels)};
  for (int limit = std::min(static_cast<int>(most), asked.plans.max_channels - 1); limit > 0; --limit)
    results.push_back(result_with(limit));
  double best_gbps = 0;
  for (const Result& result : results) best_gbps = std::max(best_gbps, result.gbps);
  const Result* best = nullptr;
  for (const Result& result : results)
    if (result.gbps >= best_gbps * (1 - kLittle) && (best == nullptr || result.channels < best->channels))
      best = &result;
  return best->limit;
}

/// As over MPI, but without it: every rank's word and slice, and then one rank's set-up.
ExchangeSize exchange(const connect::Job& job, const connect::ChannelLimits& limits) {
  std::vector<std::vector<std::byte>> kinds;
  for (const connect::NodeSummary& kind : job.kinds()) kinds.push_back(connect::encode(kind));
  const connect::Placement& placement = job.placement();
  const auto bytes_of = [&](int rank) -> const std::vector<std::byte>& {
    return kinds[static_cast<std::size_t>(job.kind_of(placement.node_of(rank)))];
  };
  std::vector<std::uint64_t> words;
  for (int rank = 0; rank < job.ranks(); ++rank)
    words.push_back(
        connect::word_of(rank, placement.ranks_of(placement.node_of(rank)).front(), bytes_of(rank)));
  const connect::Announced announced(words);
  std::vector<std::vector<std::byte>> different;
  for (const std::vector<std::byte>& kind : kinds)
    if (std::find(different.begin(), different.end(), kind) == different.end()) different.push_back(kind);
  const std::vector<std::byte> slices = announced.all_slices(different);
  ExchangeSize size{words.size() * sizeof(words[0]), slices.size(), 0, 0};
  for (const auto& kind : kinds) size.summary_bytes = std::max(size.summary_bytes, kind.size());
  const auto began = std::chrono::steady_clock::now();
  const int rank = job.ranks() / 2;
  const connect::Announced mine(words);
  mine.slice(rank, bytes_of(rank));
  connect::connect(mine.join(slices, rank, bytes_of(rank), limits), rank);
  size.setup_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
  return size;
}

}  // namespace

void check_job_size(std::int64_t ranks) {
  constexpr std::int64_t kMostRanks = 10'000'000;
  if (ranks > kMostRanks) throw Error(ErrorCode::kBadInput, "The job has more than 10 million ranks.");
}

std::string OfflineJob::gpu_summary() const {
  if (on_gpus && !is_between_gpus()) return on_gpus->channels()->summary;
  std::vector<const connect::GpuHost*> hosts;
  for (int node = 0; node < job.nodes(); ++node)
    hosts.push_back(&gpu_hosts[static_cast<std::size_t>(job.kind_of(node))]);
  return connect::summary_of(job, hosts);
}

OfflineJob build_job(const JobRequest& asked) {
  OfflineJob offline;
  JobRequest request = asked;
  std::int64_t machine_count = 0;
  for (const MachineFile& file : request.machines) machine_count += file.count;
  check_job_size(machine_count);
  request.plans.nodes = static_cast<int>(machine_count);
  const std::map<std::string, topo::System> systems = read_files(request, offline.notes);
  const bool between_gpus = is_between_gpus(request, systems);
  if (!between_gpus) request.plans.max_channels = best_limit(request, systems);
  const auto [kinds_of_machine, kind_of_machine] = plan_machines(request, systems, offline);
  std::vector<int> sizes;
  std::vector<const std::vector<Part>*> machines;
  std::size_t ranks = 0;
  for (std::size_t m = 0; m < request.machines.size(); ++m) {
    const std::vector<Part>& machine = kinds_of_machine[kind_of_machine[m]];
    std::size_t size = 0;
    for (const Part& part : machine) size += part.positions.size();
    ranks += size * static_cast<std::size_t>(request.machines[m].count);
    check_job_size(static_cast<std::int64_t>(ranks));
    for (int copy = 0; copy < request.machines[m].count; ++copy) {
      sizes.push_back(static_cast<int>(size));
      machines.push_back(&machine);
    }
  }
  const connect::ChannelLimits limits =
      offline.on_gpus || between_gpus
          ? connect::ChannelLimits{request.channels.min_channels, request.gpus.max_channels}
          : request.channels;
  const std::vector<std::vector<int>> on_machine = placed(sizes, request.placement);
  std::vector<std::vector<int>> nodes;
  std::vector<const Part*> parts;
  for (std::size_t m = 0; m < machines.size(); ++m)
    for (const Part& part : *machines[m]) {
      nodes.emplace_back();
      for (const std::size_t position : part.positions) nodes.back().push_back(on_machine[m][position]);
      parts.push_back(&part);
    }
  // Machines may have equal summaries and still differ in what the simulator sees: each part is a kind.
  connect::Placement placement = connect::Placement::of_nodes(nodes);
  std::vector<const Part*> part_of(nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n)
    part_of[static_cast<std::size_t>(placement.node_of(nodes[n].front()))] = parts[n];
  std::unordered_map<const Part*, std::int32_t> kind_of;
  std::vector<connect::NodeSummary> kinds;
  std::vector<std::int32_t> kind_of_node;
  for (const Part* part : part_of) {
    const auto [kind, is_new] = kind_of.try_emplace(part, static_cast<std::int32_t>(kinds.size()));
    if (is_new) {
      kinds.push_back(part->summary);
      offline.machines.push_back(part->machine);
      offline.kind_names.push_back(part->name);
      if (part->gpu_host) offline.gpu_hosts.push_back(*part->gpu_host);
    }
    kind_of_node.push_back(kind->second);
  }
  offline.job = connect::Job(std::move(placement), std::move(kinds), std::move(kind_of_node), limits);
  if (offline.gpu_hosts.size() != offline.machines.size()) offline.gpu_hosts.clear();
  if (offline.is_between_gpus()) {
    offline.is_offline = !asks_as_the_plugin(request);
    std::vector<const topo::MachineOfRanks*> hosts;
    for (const Part* part : part_of) hosts.push_back(part->gpu_machine.get());
    if (!offline.is_offline && offline.job.ranks() <= kMostRanksOnGpus)
      offline.on_gpus.emplace(offline.job.placement(), hosts, Tune());
    if (offline.on_gpus && offline.on_gpus->channels() == nullptr) offline.on_gpus.reset();
  }
  offline.exchange = exchange(offline.job, limits);
  return offline;
}

}  // namespace loom::tools
