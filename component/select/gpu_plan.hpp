// gpu_plan.hpp -- what the plugin does with buffers on the GPUs of hosts that files describe, for the tools:
// by the functions that it asks itself (gpu_calls.hpp, connect/gpu_channels.hpp, device/cuda/kernel_way.hpp).
//
// What only a running program finds out is taken to be well: NVML confirms the NVLinks of the file, no other
// communicator has memory of the GPUs, no MPS lets ranks share one, and links pass their test. Multicast is
// never predicted: no kernel uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "component/core.h"
#include "component/select/gpu_calls.hpp"
#include "connect/gpu_channels.hpp"

namespace loom {

/// Real ones: no ranks' shares of CPUs.
bool has_gpus(const topo::System& machine);
/// Rank r on the r-th GPU of the machine in order of its own ranks; those beyond its GPUs on the first ones
/// again. `machine` is one host, and has a GPU at least.
topo::MachineOfRanks machine_of_ranks(const topo::System& machine, int ranks);

struct TimedWay {
  device::cuda::KernelWay way;
  double us;  ///< predicted
};

struct RunnerUp {
  std::string by;  ///< "trees by LL128", "zero_copy"
  double us;       ///< predicted
};

/// What carries a call.
struct GpuCall {
  Algorithm algorithm = Algorithm::kStaged;
  std::optional<TimedWay> kernel = {};       ///< where kernels over links carry it
  double us = 0;                             ///< predicted, where it stays on GPUs
  std::optional<RunnerUp> runner_up = {};    ///< of what stays there, too
  Algorithm on_host = Algorithm::kFallback;  ///< what carries staged copies
  std::optional<double> staged_us = {};      ///< predicted; nothing: of the fallback component
  bool probes = false;                       ///< the tuner compares it with staging
  std::string why = {};                      ///< half a sentence
};

/// Between hosts: beyond, the channels of all ranks take the tools seconds.
inline constexpr int kMostRanksOnGpus = 4096;

class GpuPlan {
 public:
  /// room: bytes of each GPU that links may take. Throws what gpu_channels() throws.
  GpuPlan(const topo::MachineOfRanks& machine, const Tune& tune,
          const connect::GpuChannelRequest& request = {}, std::uint64_t room = LOOM_STAGING_BYTES);

  /// Of several hosts: *hosts[n] is node n, whose machine counts its ranks from 0. Throws what
  /// plan_gpu_host() throws.
  GpuPlan(const connect::Placement& placement, std::span<const topo::MachineOfRanks* const> hosts,
          const Tune& tune, const connect::GpuChannelRequest& request = {},
          std::uint64_t room = LOOM_STAGING_BYTES);

  /// Those of the kernels; nullptr where no call can go by one.
  const connect::GpuChannels* channels() const { return channels_ ? &*channels_ : nullptr; }
  /// Lines of 128 bytes stay whole between all ranks.
  bool may_ll128() const { return may_ll128_; }

  /// bytes: device::shared_bytes(), of a call on a communicator of these ranks; or, of a plan for one host,
  /// of such ranks on each of several.
  GpuCall call(const Conditions& conditions, device::Collective collective, std::size_t bytes,
               bool may_wait) const;
  /// How a kernel carries a call over such links; nothing where it cannot.
  std::optional<TimedWay> by(device::cuda::KernelLinkage linkage, device::Collective collective,
                             std::size_t whole_bytes) const;
  /// What zero copy is predicted to take for such a call; nothing where it cannot carry it.
  std::optional<double> zero_copy_us(device::Collective collective, std::size_t whole_bytes) const;

 private:
  std::optional<RunnerUp> besides(const GpuCall& call, device::Collective collective, std::size_t whole_bytes,
                                  std::optional<double> zero_copy_us) const;
  std::string why_staged(const Conditions& conditions, device::Collective collective, std::size_t bytes,
                         bool may_stay) const;

  Tune tune_;
  int ranks_ = 0, hosts_ = 1;
  std::optional<device::cuda::GpuLinks::Form> links_;  ///< that the ranks make
  const char* why_no_links_ = "";                      ///< that rules would use
  bool may_ll128_ = false;
  std::optional<connect::GpuChannels> channels_;
  std::optional<device::cuda::KernelWays> ways_;
};

}  // namespace loom
