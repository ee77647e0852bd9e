#include <algorithm>

#include "tools/offline_job.hpp"

namespace loom::tools {
namespace {

device::Collective collective_of(connect::Collective collective) {
  switch (collective) {
    case connect::Collective::kAllreduce:
      return device::Collective::kAllreduce;
    case connect::Collective::kReduceScatter:
      return device::Collective::kReduceScatter;
    case connect::Collective::kAllGather:
      return device::Collective::kAllGather;
    case connect::Collective::kBroadcast:
      return device::Collective::kBroadcast;
    case connect::Collective::kReduce:
      break;
  }
  return device::Collective::kReduce;
}

/// What kernels of GPUs call what the simulation does between equal hosts.
std::string name_by_kernels(const std::string& algorithm) {
  return algorithm == "rails" ? "grid" : algorithm;
}
constexpr std::string_view kProtocolBetweenHosts = "Simple";

/// How often the whole passes.
int passes_of(connect::Collective collective) {
  return collective == connect::Collective::kAllreduce ? 2 : 1;
}

}  // namespace

std::vector<connect::Prediction> predictions_of(const OfflineJob& offline,
                                                const connect::SimulationRequest& request) {
  if (offline.is_between_gpus() && (!offline.on_gpus || request.net_us >= 0)) {
    connect::SimulationRequest by_kernels = request;  // which go by one protocol between hosts
    by_kernels.protocol = kProtocolBetweenHosts;
    std::vector<connect::Prediction> all = connect::simulate(offline.job, offline.machines, by_kernels);
    for (connect::Prediction& one : all) one.algorithm = name_by_kernels(one.algorithm);
    return all;
  }
  if (!offline.on_gpus) return connect::simulate(offline.job, offline.machines, request);
  using device::cuda::KernelLinkage;
  const auto by = [&](KernelLinkage linkage) {
    return offline.on_gpus->by(linkage, collective_of(request.collective),
                               static_cast<std::size_t>(request.bytes));
  };
  std::vector<connect::Prediction> predictions;
  const auto set_speeds = [&](connect::Prediction& of) {
    of.algorithm_gbps = request.bytes / (1000 * of.us);
    of.bus_gbps = of.algorithm_gbps * connect::bus_factor(request.collective, offline.job.ranks());
  };
  const auto add = [&](const TimedWay& way, const char* name) {
    connect::Prediction mine{
        .algorithm = name, .protocol = std::string(protocol_name(way.way)), .us = way.us};
    set_speeds(mine);
    // What its bytes take of the links is a matter of the channels. In order of rank they are none of
    // search's.
    connect::SimulationRequest same = request;
    same.protocol = mine.protocol;
    if (offline.is_between_gpus() || !offline.on_gpus->channels()->plans.empty())
      for (const connect::Prediction& one : connect::simulate(offline.job, offline.machines, same))
        if (name_by_kernels(one.algorithm) == mine.algorithm)
          mine.transfer_us = one.transfer_us, mine.bottleneck = one.bottleneck;
    // The simulation's rows go along the rings that cross hosts.
    const double grids_gbps = offline.is_between_gpus() ? offline.on_gpus->channels()->all_gather.grids : 0;
    if (mine.algorithm == "grid" && grids_gbps > 0)
      mine.transfer_us = passes_of(request.collective) * request.bytes / (1000 * grids_gbps),
      mine.bottleneck = "";
    predictions.push_back(std::move(mine));
  };
  if (const auto chosen = by(KernelLinkage::kAny); chosen && links_name(chosen->way) == "exchange")
    add(*chosen, "exchange");
  if (const auto rings = by(KernelLinkage::kRings)) add(*rings, "ring");
  if (const auto trees = by(KernelLinkage::kTrees)) add(*trees, "tree");
  if (offline.is_between_gpus() && offline.job.shape().ranks_per_host > 1)
    if (const auto grids = by(KernelLinkage::kGrids)) add(*grids, "grid");
  const auto bytes = static_cast<std::size_t>(request.bytes);
  if (const auto us = offline.on_gpus->zero_copy_us(collective_of(request.collective), bytes)) {
    connect::Prediction zero_copy{
        .algorithm = std::string(name_of(Algorithm::kZeroCopy)), .protocol = "-", .us = *us};
    set_speeds(zero_copy);
    predictions.push_back(std::move(zero_copy));
  }
  std::ranges::stable_sort(predictions, {}, &connect::Prediction::us);
  return predictions;
}

std::optional<search::Forest> forest_of(const OfflineJob& offline, int cross_nic) {
  constexpr std::int64_t kMostSteps = 400'000'000;  // half a second
  if (!offline.has_gpu_channels() || offline.machines.size() != 1) return {};
  const topo::Paths& paths = *offline.machines.front().paths;
  const search::ForestRequest request{
      .nodes = offline.job.nodes(), .cross_nic = cross_nic, .most_steps = kMostSteps};
  const auto gpus = static_cast<int>(paths.system().gpus().size());
  if (gpus * std::min(request.nodes, search::kMostNodesTold) > search::kMostPlaces) return {};
  search::Forest forest = search::plan_forest(paths, request);
  return forest.absent.empty() ? std::optional(std::move(forest)) : std::nullopt;
}

}  // namespace loom::tools
