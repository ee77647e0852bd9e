// offline_job.hpp -- a whole job without its machines: they come from files, any number of them, with ranks
// placed on them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "component/select/gpu_plan.hpp"
#include "connect/node_plans.hpp"
#include "connect/simulate.hpp"
#include "connect/view.hpp"
#include "search/forest.hpp"

namespace loom::tools {

struct MachineFile {
  std::string path;  ///< "-": stdin
  int count = 1;
  int ranks = 0;  ///< on each, the first GPUs; 0: all
};

struct JobRequest {
  std::vector<MachineFile> machines;
  std::string placement = "block";  ///< or "round-robin", "random:SEED"
  connect::PlanRequest plans;       ///< its number of nodes is that of the machines
  connect::ChannelLimits channels;
  connect::GpuChannelRequest gpus;   ///< of hosts with GPUs by the plugin's model, where its limits count
  std::optional<topo::Model> model;  ///< not set: of one machine alone the plugin's, else kNccl
};

/// What the ranks would have sent each other.
struct ExchangeSize {
  std::uint64_t word_bytes = 0, slice_bytes = 0;  ///< of all ranks
  std::size_t summary_bytes = 0;                  ///< of the largest summary
  double setup_ms = 0;                            ///< of one rank, from what it received to its channels
};

struct OfflineJob {
  connect::Job job;
  std::vector<connect::Machine> machines;  ///< by kind of node
  std::vector<std::string> kind_names;     ///< "dgx.xml", or "16xPCIe.xml, part 2"
  ExchangeSize exchange;
  /// Of one host alone with GPUs: rings and trees are those of its channels. Of several, where kernels go
  /// between them and there are no more than kMostRanksOnGpus ranks, too: by what the kernels choose.
  std::optional<GpuPlan> on_gpus;
  /// Of several hosts with GPUs, by kind of node: rings and trees are those that their kernels run between
  /// them.
  std::vector<connect::GpuHost> gpu_hosts;
  bool is_offline = true;          ///< its rings and trees are not what the plugin's kernels run
  std::vector<std::string> notes;  ///< what reading the files assumed
  std::vector<std::unique_ptr<topo::System>> systems;  // what `machines` refers to
  std::vector<std::unique_ptr<topo::Paths>> paths;

  bool is_between_gpus() const { return !gpu_hosts.empty(); }
  bool has_gpu_channels() const { return on_gpus.has_value() || !gpu_hosts.empty(); }
  /// As coll_loom_verbose 1 says which channels they are; where has_gpu_channels().
  std::string gpu_summary() const;
  /// Whether the plugin's kernels run such channels.
  bool is_run(connect::Family family) const {
    return !is_offline && (family == connect::Family::kRing || family == connect::Family::kTree);
  }
};

/// What trees of any shape all-gather on such a job; nothing unless kernels run its channels and all nodes
/// are alike, where there are more GPUs than a forest takes, and where some do not reach each other. A large
/// machine without symmetries may end before the optimum.
std::optional<search::Forest> forest_of(const OfflineJob& offline, int cross_nic);

/// Of a collective, each algorithm's; the fastest first. With `on_gpus` they are those by which kernels
/// choose, unless the request names a latency; of an exchange between all ranks only where that is it.
std::vector<connect::Prediction> predictions_of(const OfflineJob& offline,
                                                const connect::SimulationRequest& request);

/// Throws Error (kBadInput) where it has more ranks than commands take.
void check_job_size(std::int64_t ranks);

/// A machine without GPUs gets a virtual one for each of its ranks. Throws Error (kBadInput: a file,
/// more ranks than GPUs, a placement that is none).
OfflineJob build_job(const JobRequest& request);

}  // namespace loom::tools
