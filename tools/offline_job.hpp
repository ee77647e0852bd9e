// offline_job.hpp -- a whole job without its machines: they come from files, any number of them, with ranks
// placed on them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "connect/node_plans.hpp"
#include "connect/simulate.hpp"
#include "connect/view.hpp"

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
  topo::Model model = topo::Model::kNccl;
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
  std::vector<std::string> notes;                      ///< what reading the files assumed
  std::vector<std::unique_ptr<topo::System>> systems;  // what `machines` refers to
  std::vector<std::unique_ptr<topo::Paths>> paths;
};

/// A machine without GPUs gets a virtual one for each of its ranks. Throws Error (kBadInput: a file,
/// more ranks than GPUs, a placement that is none).
OfflineJob build_job(const JobRequest& request);

}  // namespace loom::tools
