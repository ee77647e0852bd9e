// zero_copy_cost.hpp -- what calls whose kernels read and write the buffers of all ranks are predicted to
// take. Pure arithmetic on what all ranks share. It compares ways; no call has been measured.
#pragma once

#include <cstddef>
#include <span>

#include "device/call.h"
#include "device/cuda/gpu_facts.hpp"

namespace loom::device::cuda {

/// What bounds ranks that reach each other's buffers.
struct GpuSpeeds {
  double exchange_gbps = 0;  ///< what each rank sends while all send as much to all others; 0: not known
  double memory_gbps = 0;    ///< of the slowest GPU; 0: not known
  int sharers = 1;           ///< the most ranks that share a GPU
  bool over_nvlink = false;  ///< nothing slower lies between any two ranks
  bool bounces = false;      ///< no rank reaches the others' buffers, but what they copy from and to these
};

/// Of `known`, with what the facts of all ranks say of memory and of who shares a GPU.
/// hosts: as for sharers_of().
GpuSpeeds with_facts(GpuSpeeds known, std::span<const GpuFacts> facts, std::span<const int> hosts = {});

/// bytes: of the message, all blocks together, where all ranks know it.
double zero_copy_us(const GpuSpeeds& speeds, Collective collective, std::size_t bytes, int ranks);

/// What ranks that share a GPU have to wait for at least in its memory, if each moves so many bytes there for
/// each byte of its message.
double memory_us(const GpuSpeeds& speeds, double times, std::size_t bytes);

}  // namespace loom::device::cuda
