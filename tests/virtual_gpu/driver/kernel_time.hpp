// kernel_time.hpp -- the virtual time of kernels.
//
// Each block of a grid has a clock. What it loads and stores waits until it releases something, or is much;
// then these bytes take what is free of their links, from the block's time on, and the block goes on when
// they have passed. One latency comes on top for all the loads, and for a release one for the stores: warps
// do these side by side.
//
// A strong store leaves the time at which it arrives beside its line, in memory that processes share
// (memory/arrivals.hpp); a strong load that finds a later time than the block's takes it on. So no block goes
// on before what it waits for has come, and looks in vain take no time: how many there are is this machine's
// affair. An acquiring load of a word that others release gives what the word had at the block's time, or, to
// a block that has stored nothing since it looked last, what comes next.
#pragma once

#include <atomic>
#include <memory>

#include "tests/virtual_gpu/machine/clock.hpp"
#include "tests/virtual_gpu/memory/space.hpp"

namespace virtual_gpu {

using machine::Ns;

/// Of one grid: when it begins, and when the last of its blocks has ended.
struct GridTime {
  GridTime(machine::VirtualClock& of_host, std::size_t of_gpu, Ns begins)
      : clock(of_host), gpu(of_gpu), begin(begins), end(begins) {}

  machine::VirtualClock& clock;
  std::size_t gpu;  ///< the place of its multiprocessors
  Ns begin;
  std::atomic<Ns> end;
};
/// A block of it, which sees its memory by `view`. `space` and `time` must outlive the result.
std::unique_ptr<memory::View> timed_view(GridTime& time, const memory::Space& space,
                                         std::unique_ptr<memory::View> view);

}  // namespace virtual_gpu
