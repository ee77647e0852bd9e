#include "component/select/gpu_plan.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "component/select/kernel_channels.hpp"
#include "component/select/select.hpp"
#include "topo/paths.hpp"

namespace loom {
namespace {

using device::Collective;
using device::cuda::GpuFacts;
using device::cuda::GpuLinks;
using device::cuda::KernelLinkage;
using device::cuda::KernelWay;

/// What each rank would tell the others.
std::vector<GpuFacts> facts_of(const topo::MachineOfRanks& machine, std::uint64_t room) {
  std::size_t ranks = 0;
  for (const std::vector<int>& some : machine.sharers) ranks += some.size();
  std::vector<GpuFacts> facts(ranks);
  for (std::size_t g = 0; g < machine.sharers.size(); ++g) {
    const topo::Node& gpu = machine.system.node(machine.system.gpu_of_rank(machine.sharers[g].front()));
    GpuFacts mine{.room = room, .capability = gpu.gpu().compute_capability, .ipc = true};
    mine.uuid[0] = static_cast<std::byte>(g & 0xff), mine.uuid[1] = static_cast<std::byte>(g >> 8);
    const std::string bus_id = gpu.pci ? gpu.pci->bus_id.to_string() : "";
    bus_id.copy(mine.bus_id.data(), mine.bus_id.size() - 1);
    for (const int rank : machine.sharers[g]) facts[static_cast<std::size_t>(rank)] = mine;
  }
  return facts;
}

/// By rank, of all hosts. Their GPUs may be called alike.
std::vector<GpuFacts> facts_of(const connect::Placement& placement,
                               std::span<const topo::MachineOfRanks* const> hosts, std::uint64_t room) {
  std::vector<GpuFacts> facts(static_cast<std::size_t>(placement.ranks()));
  for (int node = 0; node < placement.nodes(); ++node) {
    const std::vector<GpuFacts> of_host = facts_of(*hosts[static_cast<std::size_t>(node)], room);
    const auto mates = placement.ranks_of(node);
    for (std::size_t local = 0; local < mates.size(); ++local)
      facts[static_cast<std::size_t>(mates[local])] = of_host[local];
  }
  return facts;
}

/// As the ranks of a job learn of them. Equal hosts may be one machine.
connect::GpuChannels channels_of(const connect::Placement& placement,
                                 std::span<const topo::MachineOfRanks* const> hosts,
                                 const connect::GpuChannelRequest& request) {
  if (hosts.size() == 1) return connect::gpu_channels(*hosts[0], request);
  std::map<const topo::MachineOfRanks*, connect::GpuHost> planned;
  std::vector<std::string> notes;
  std::vector<connect::GpuHost> told;
  for (const topo::MachineOfRanks* const host : hosts) {
    const auto [mine, is_new] = planned.try_emplace(host);
    if (is_new) {
      connect::GpuHostPlan plan = connect::plan_gpu_host(*host, request, true);
      mine->second = std::move(plan.host);
      notes.insert(notes.end(), plan.notes.begin(), plan.notes.end());
    }
    told.push_back(mine->second);
  }
  connect::GpuChannels channels = connect::gpu_channels(placement, told, request.max_channels);
  channels.notes.insert(channels.notes.begin(), notes.begin(), notes.end());
  return channels;
}

connect::Placement one_host(const topo::MachineOfRanks& machine) {
  std::size_t ranks = 0;
  for (const std::vector<int>& some : machine.sharers) ranks += some.size();
  return connect::Placement(std::vector<std::int32_t>(ranks, 0));
}

/// Whether NVLink joins the GPUs of any two ranks.
bool may_ll128_between(const topo::MachineOfRanks& machine, const std::vector<GpuFacts>& facts) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank)
    if (!device::cuda::nvlink_peers_for_ll128(facts, rank)) return false;
  const topo::Paths paths(machine.system);
  const auto gpu = [&](const std::vector<int>& ranks) { return machine.system.gpu_of_rank(ranks.front()); };
  return std::ranges::all_of(machine.sharers, [&](const std::vector<int>& from) {
    return std::ranges::all_of(machine.sharers, [&](const std::vector<int>& to) {
      return paths.physical(gpu(from), gpu(to)).type <= topo::PathType::kNvl;
    });
  });
}

}  // namespace

bool has_gpus(const topo::System& machine) {
  return std::ranges::any_of(machine.gpus(),
                             [&](topo::NodeId gpu) { return !machine.node(gpu).gpu().is_virtual; });
}

topo::MachineOfRanks machine_of_ranks(const topo::System& machine, int ranks) {
  std::vector<topo::NodeId> gpus(machine.gpus().begin(), machine.gpus().end());
  std::ranges::sort(gpus, {}, [&](topo::NodeId gpu) { return machine.node(gpu).gpu().rank; });
  std::vector<topo::RankGpu> of_ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t place = static_cast<std::size_t>(rank) % gpus.size();
    const topo::Node& gpu = machine.node(gpus[place]);
    topo::RankGpu mine{.rank = rank,
                       .bus_id = gpu.pci ? gpu.pci->bus_id : topo::BusId{},
                       .compute_capability = gpu.gpu().compute_capability};
    mine.uuid[0] = static_cast<std::byte>(place & 0xff), mine.uuid[1] = static_cast<std::byte>(place >> 8);
    of_ranks.push_back(std::move(mine));
  }
  return topo::with_rank_gpus(machine, of_ranks);
}

GpuPlan::GpuPlan(const topo::MachineOfRanks& machine, const Tune& tune,
                 const connect::GpuChannelRequest& request, std::uint64_t room)
    : GpuPlan(one_host(machine), std::array{&machine}, tune, request, room) {}

GpuPlan::GpuPlan(const connect::Placement& placement, std::span<const topo::MachineOfRanks* const> hosts,
                 const Tune& tune, const connect::GpuChannelRequest& request, std::uint64_t room)
    : tune_(tune), hosts_(placement.nodes()) {
  const std::vector<GpuFacts> facts = facts_of(placement, hosts, room);
  const int ranks = ranks_ = static_cast<int>(facts.size());
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks && hosts_ > 1; ++rank) host_of.push_back(placement.node_of(rank));
  std::optional<GpuLinks::Form> wanted = wanted_links(tune, false, facts, host_of);
  if (!wanted || !wanted->has_kernels())
    why_no_links_ = "ranks share a GPU, where kernels would wait for each other's turn for ever";
  if (!wanted) return;
  if (wanted->has_kernels()) {
    wanted->channels = request.max_channels;
    wanted->kernels.may_ll128 = hosts_ == 1 && may_ll128_between(*hosts[0], facts);
  }
  links_ = form_in(*wanted, ranks, room);
  if (links_ && links_->has_kernels()) {
    channels_ =
        channels_of(placement, hosts, {.max_channels = links_->channels, .most_gbps = request.most_gbps});
    run_channels(*links_, *channels_);
    links_->kernels.exchange = wanted->kernels.exchange;
    links_ = form_in(*links_, ranks, room);
  }
  if (links_ && links_->has_kernels()) {
    may_ll128_ = links_->kernels.may_ll128;
    ways_.emplace(ranks, links_->of_kernels(ranks));
    return;
  }
  if (!links_ || wanted->has_kernels()) why_no_links_ = "a GPU has no room left under coll_loom_memory_limit";
  channels_.reset();
}

std::optional<TimedWay> GpuPlan::by(KernelLinkage linkage, Collective collective,
                                    std::size_t whole_bytes) const {
  if (!ways_ || !device::cuda::kernels_carry(collective, linkage) || !links_->may_exchange(collective))
    return {};
  using device::steps::LinkKind;
  const KernelWay way = ways_->way(collective, whole_bytes, linkage);
  const LinkKind links = device::steps::links_of(way.algorithm);
  // Without such links it is by others.
  if ((linkage == KernelLinkage::kRings && links != LinkKind::kRing) ||
      (linkage == KernelLinkage::kTrees && links != LinkKind::kTree) ||
      (linkage == KernelLinkage::kGrids && links != LinkKind::kGrid))
    return {};
  return TimedWay{way, ways_->us(way, whole_bytes)};
}

std::optional<double> GpuPlan::zero_copy_us(Collective collective, std::size_t whole_bytes) const {
  if (!links_ || !links_->zero_copy() || !device::cuda::zero_copy_takes(collective)) return {};
  return device::cuda::zero_copy_us(links_->kernels.speeds, collective, whole_bytes, ranks_);
}

/// The fastest one by other links than the call's, or by none.
std::optional<RunnerUp> GpuPlan::besides(const GpuCall& call, Collective collective, std::size_t whole_bytes,
                                         std::optional<double> zero_copy_us) const {
  std::optional<RunnerUp> best;
  const auto consider = [&](std::string by, double us) {
    if (!best || us < best->us) best = {std::move(by), us};
  };
  const auto consider_way = [&](KernelLinkage linkage) {
    const std::optional<TimedWay> other = by(linkage, collective, whole_bytes);
    if (other && !(call.kernel && device::steps::links_of(other->way.algorithm) ==
                                      device::steps::links_of(call.kernel->way.algorithm)))
      consider(loom::format("{} by {}", links_name(other->way), protocol_name(other->way)), other->us);
  };
  if (!call.kernel) consider_way(KernelLinkage::kAny);
  consider_way(KernelLinkage::kRings);
  consider_way(KernelLinkage::kTrees);
  consider_way(KernelLinkage::kGrids);
  if (call.kernel && zero_copy_us) consider(std::string(name_of(Algorithm::kZeroCopy)), *zero_copy_us);
  return best;
}

std::string GpuPlan::why_staged(const Conditions& conditions, Collective collective, std::size_t bytes,
                                bool may_stay) const {
  const std::size_t all = whole_message(collective, conditions.shape.ranks, bytes);
  const Algorithm wanted = tune_.on_devices(collective, all, [](Algorithm) { return true; });
  if (wanted == Algorithm::kStaged) return "a rule of coll_loom_tune";
  const AlgorithmRow& row = row_of(wanted);
  if (!row.carries(collective)) return loom::format("{} does not carry {}", row.name, name_of(collective));
  if (const char* why = row.why_not(conditions, collective)) return why;
  if (!row.takes(conditions, collective, bytes)) return "it has no bytes";
  return may_stay ? why_no_links_
                  : "it does not wait, and the fallback component would carry it on host memory";
}

GpuCall GpuPlan::call(const Conditions& conditions, Collective collective, std::size_t bytes,
                      bool may_wait) const {
  if (!may_wait && may_make_an_id(collective, bytes, device::Op::kSum, device::Type::kFloat))
    return {.why = kWhyIdsFallBack};
  const std::size_t all = whole_message(collective, conditions.shape.ranks, bytes);
  const Algorithm on_host = choose(conditions, collective, bytes, may_wait, tune_).algorithm;
  const bool may_stay = conditions.shape.hosts == 1 || may_wait || on_host != Algorithm::kFallback ||
                        is_carried_beside_devices(conditions, collective);
  const auto carries = [&](Algorithm algorithm) {
    if (!links_ || conditions.shape.hosts != hosts_ || !may_stay) return false;
    return can_on_gpus(algorithm, conditions, collective, bytes, false, &*links_);
  };
  const int ranks = conditions.shape.ranks;
  const Algorithm faster = links_
                               ? faster_on_gpus(*links_, ranks, collective, all,
                                                [&] { return by(KernelLinkage::kAny, collective, all)->us; })
                               : Algorithm::kKernel;
  GpuCall call{.algorithm = tune_.on_devices(collective, all, carries, faster),
               .on_host = on_host,
               .staged_us = staged_us(conditions, collective, bytes, may_wait, tune_)};
  if (call.algorithm == Algorithm::kStaged) {
    call.why = why_staged(conditions, collective, bytes, may_stay);
    return call;
  }
  const std::optional<double> zero_copy_us =
      carries(Algorithm::kZeroCopy) ? this->zero_copy_us(collective, all) : std::nullopt;
  if (is_by_kernel(call.algorithm)) call.kernel = by(linkage_of(call.algorithm), collective, all);
  call.us = call.kernel ? call.kernel->us : zero_copy_us.value();
  call.runner_up = besides(call, collective, all, zero_copy_us);
  call.probes = probes_staging(call.algorithm, conditions, collective, bytes, call.us, tune_);
  call.why = reason_on_gpus(call.algorithm, collective, all, call.probes, may_wait, tune_);
  return call;
}

}  // namespace loom
