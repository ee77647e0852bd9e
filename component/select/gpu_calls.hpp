// gpu_calls.hpp -- calls whose buffers lie on GPUs on all ranks of a host: which links they need, what
// carries them, and whether staging may be as fast. Pure functions of what all ranks share. device_calls.cpp
// asks them as it goes, gpu_plan.hpp for `loom plan`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "component/select/algorithms.hpp"
#include "component/select/tune.hpp"
#include "device/cuda/gpu_facts.hpp"
#include "device/cuda/gpu_links.hpp"
#include "device/cuda/kernel_way.hpp"

namespace loom {

/// The links that the algorithms named by `tune` need, as large as they may be; nothing where the ranks' GPUs
/// cannot have them. What is known of the ranks' GPUs goes into its speeds. hosts: by rank; empty: all are on
/// one.
std::optional<device::cuda::GpuLinks::Form> wanted_links(const Tune& tune, bool reproducible,
                                                         std::span<const device::cuda::GpuFacts> facts,
                                                         const std::vector<int>& hosts = {});

/// The largest form in half of `room`, for the rest is for later communicators, or else in all of it.
/// Nothing: there is none.
std::optional<device::cuda::GpuLinks::Form> form_in(const device::cuda::GpuLinks::Form& wanted, int ranks,
                                                    std::uint64_t room);

/// Whether the algorithm carries such a call over such links; nullptr: they are yet to be made.
bool can_on_gpus(Algorithm algorithm, const Conditions& conditions, device::Collective collective,
                 std::size_t bytes, bool reproducible, const device::cuda::GpuLinks::Form* links);

/// Which one carries a call where no rule says so and both can: kKernel, or kZeroCopy. `kernel` predicts what
/// a kernel over links takes, in microseconds.
template <class Kernel>
Algorithm faster_on_gpus(const device::cuda::GpuLinks::Form& links, int ranks, device::Collective collective,
                         std::size_t whole_bytes, Kernel&& kernel) {
  if (!links.zero_copy()) return Algorithm::kKernel;
  if (!links.has_kernels() || !device::cuda::kernels_carry(collective, device::cuda::KernelLinkage::kAny) ||
      device::cuda::exchanges(collective))
    return Algorithm::kZeroCopy;
  return kernel() <= device::cuda::zero_copy_us(links.kernels.speeds, collective, whole_bytes, ranks)
             ? Algorithm::kKernel
             : Algorithm::kZeroCopy;
}

/// What a kernel may go by.
device::cuda::KernelLinkage linkage_of(Algorithm algorithm);

/// Whether a call that `algorithm` carries, in `us` as predicted, may be as fast through the host, so that
/// only a probe tells.
bool probes_staging(Algorithm algorithm, const Conditions& conditions, device::Collective collective,
                    std::size_t bytes, double us, const Tune& tune);

inline constexpr std::string_view kBuffersAreOnGpus = "buffers are on GPUs";
/// Why an algorithm on GPUs carries a call: half a sentence for users. probes: of probes_staging(); calls
/// that do not wait go by what blocking ones have found.
std::string_view reason_on_gpus(Algorithm algorithm, device::Collective collective, std::size_t whole_bytes,
                                bool probes, bool may_wait, const Tune& tune);

/// For users: "rings", "trees", "exchange"; "LL128"; and "rings by LL128, 16 channels".
std::string_view links_name(const device::cuda::KernelWay& way);
std::string_view protocol_name(const device::cuda::KernelWay& way);
std::string text_of(const device::cuda::KernelWay& way);

}  // namespace loom
