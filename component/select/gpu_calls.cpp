#include "component/select/gpu_calls.hpp"

#include "base/format.hpp"
#include "component/select/select.hpp"
#include "device/schedule/kernel_costs.hpp"

namespace loom {

using device::Collective;
using device::cuda::GpuLinks;
using device::cuda::KernelLinkage;
using device::cuda::KernelWay;
using device::cuda::KernelWays;
using device::cuda::Sharing;

std::optional<GpuLinks::Form> wanted_links(const Tune& tune, bool reproducible,
                                           std::span<const device::cuda::GpuFacts> facts,
                                           const std::vector<int>& hosts) {
  GpuLinks::Form form;
  form.kernels.hosts = hosts;
  const bool may_kernels = !reproducible && device::cuda::sharing_of(facts, device::cuda::kMostChannels,
                                                                     hosts) != Sharing::kTakingTurns,
             may_zero_copy =
                 facts.size() <= device::cuda::ZeroCopyLinks::kMostRanks && !form.kernels.between_hosts(),
             kernels = may_kernels && tune.may_use_kernels(may_zero_copy),
             zero_copy = may_zero_copy && tune.may_use_on_devices(Algorithm::kZeroCopy, may_kernels);
  if (!kernels && !zero_copy) return {};
  if (!kernels) form.channels = 0;
  if (!zero_copy) form.bounce_bytes = 0;
  form.kernels.speeds = device::cuda::with_facts({}, facts, hosts);
  form.kernels.exchange = kernels && form.kernels.between_hosts() &&
                          facts.size() <= static_cast<std::size_t>(device::cuda::kMostExchanging);
  return form;
}

std::optional<GpuLinks::Form> form_in(const GpuLinks::Form& wanted, int ranks, std::uint64_t room) {
  const auto in_half = GpuLinks::fitting(wanted, ranks, room / 2);
  return in_half ? in_half : GpuLinks::fitting(wanted, ranks, room);
}

bool can_on_gpus(Algorithm algorithm, const Conditions& conditions, Collective collective, std::size_t bytes,
                 bool reproducible, const GpuLinks::Form* links) {
  const bool by_kernel = is_by_kernel(algorithm);
  if (links != nullptr && !(by_kernel ? links->has_kernels() : links->zero_copy())) return false;
  if (by_kernel && (reproducible || (links != nullptr && !links->may_exchange(collective)))) return false;
  return row_of(algorithm).can(conditions, collective, bytes);
}

KernelLinkage linkage_of(Algorithm algorithm) {
  return algorithm == Algorithm::kKernelRing   ? KernelLinkage::kRings
         : algorithm == Algorithm::kKernelTree ? KernelLinkage::kTrees
         : algorithm == Algorithm::kKernelHier ? KernelLinkage::kGrids
                                               : KernelLinkage::kAny;
}

bool probes_staging(Algorithm algorithm, const Conditions& conditions, Collective collective,
                    std::size_t bytes, double us, const Tune& tune) {
  // A rule asks for other kernels.
  const bool knows_size = !device::lists_blocks(collective) || collective == Collective::kAllGatherV;
  return knows_size && (algorithm == Algorithm::kKernel || algorithm == Algorithm::kZeroCopy) &&
         may_pay_to_stage(conditions, collective, bytes, us, tune, algorithm);
}

std::string_view reason_on_gpus(Algorithm algorithm, Collective collective, std::size_t whole_bytes,
                                bool probes, bool may_wait, const Tune& tune) {
  if (tune.has_rule_on_devices(collective, whole_bytes, algorithm)) return "a rule of coll_loom_tune";
  if (!probes) return kBuffersAreOnGpus;
  return may_wait ? "probes compare it with staging"
                  : "probes of blocking calls, where there are any, compare it with staging";
}

std::string_view links_name(const KernelWay& way) {
  switch (device::steps::links_of(way.algorithm)) {
    case device::steps::LinkKind::kRing:
      return "rings";
    case device::steps::LinkKind::kTree:
      return "trees";
    case device::steps::LinkKind::kGrid:
      return "grids";
    case device::steps::LinkKind::kPairwise:
    case device::steps::LinkKind::kExchange:
      break;
  }
  return "exchange";
}

std::string_view protocol_name(const KernelWay& way) {
  switch (way.protocol) {
    case device::steps::Protocol::kLL:
      return device::kCostsOfLL.name;
    case device::steps::Protocol::kLL128:
      return device::kCostsOfLL128.name;
    case device::steps::Protocol::kSimple:
      break;
  }
  return device::kCostsOfSimple.name;
}

std::string text_of(const KernelWay& way) {
  return loom::format("{} by {}, {} channel{}", links_name(way), protocol_name(way), way.channels,
                      way.channels == 1 ? "" : "s");
}

}  // namespace loom
