// kernel_channels.hpp -- the channels that search and connect find, as kernels run them. Pure functions.
#pragma once

#include "connect/gpu_channels.hpp"
#include "device/cuda/gpu_links.hpp"
#include "device/cuda/kernel_way.hpp"

namespace loom {

/// Channel c has the c-th ring and the c-th pair of trees, each with a share of its kind by its speed; a pair
/// of equal trees is one. So has it the c-th grid; where there are none, each
/// ring between hosts with equally many ranks makes one. What the channels do
/// not say stays as in `known`.
device::cuda::KernelChannels kernel_channels_of(const connect::GpuChannels& found,
                                                device::cuda::KernelChannels known = {});
/// The form's kernels run them from now on.
void run_channels(device::cuda::GpuLinks::Form& form, const connect::GpuChannels& found);

}  // namespace loom
