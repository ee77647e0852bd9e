// clock.hpp -- virtual time, that the machine would take. Each process has its own, from 0 when it begins;
// links are shared with all processes of the run.
//
// A link keeps a calendar. Whatever moves over it takes the time that its bytes need there, from its
// beginning on, where the link is still free; it has passed when the last link of its route has carried it.
// So a link never carries more than its bandwidth, in whatever order processes come to reserve it, and an end
// that was told once stays. (Of two transfers that begin together, one is done in half the time, and not both
// at the end: who comes first has the link.) Memory is one link for both directions: a copy within it passes
// it twice, and goes at half its bandwidth.
#pragma once

#include <atomic>
#include <cstdint>

#include "tests/virtual_gpu/machine/machine.hpp"
#include "tests/virtual_gpu/machine/shared_state.hpp"

namespace virtual_gpu::machine {

/// What calls take of the host's time. NVIDIA, "Getting Started with CUDA Graphs": 3.8 us from one launch to
/// the next where each kernel runs 2.9 us, 9.6 us where the program waits for each.
inline constexpr Ns kLaunchCallNs = 2200;   ///< until the call returns: an estimate, at most 3.8
inline constexpr Ns kKernelStartNs = 1600;  ///< from there until its blocks run: 3.8 in all
inline constexpr Ns kKernelGapNs = 900;     ///< from one kernel of a stream to the next: 3.8 - 2.9
inline constexpr Ns kSynchronizeNs = 2900;  ///< from its end until the program goes on: 9.6 - 3.8 - 2.9
/// 5 to 7 us in all for a small copy (Wu et al., "DualPath", 2026, section 5.2).
inline constexpr Ns kCopyCallNs = 2200;
inline constexpr Ns kCopyStartNs = 3300;
/// Nobody publishes these: estimates, of calls that at most look at a word or write a command.
inline constexpr Ns kEventRecordNs = 1000;
inline constexpr Ns kQueryNs = 500;  ///< of an event or a stream
/// Copies of pageable memory: 2.3 GB/s where page-locked memory has 5.8 (Harris, "How to Optimize Data
/// Transfers in CUDA C/C++", 2012).
inline constexpr double kPageableShare = 0.4;

/// Any thread may call it.
class VirtualClock {
 public:
  VirtualClock(const Machine& machine, const SharedState& state) : machine_(machine), state_(state) {}

  /// Of the host's program in this process. Never goes back.
  Ns now() const noexcept { return now_.load(std::memory_order_relaxed); }
  void spend(Ns ns) noexcept;
  void wait_until(Ns ns) noexcept;

  /// Reserves the links between two places (by index) for bytes that move from `earliest` on. When the last
  /// link has carried them; latency comes on top of that.
  Ns carry(std::size_t from, std::size_t to, std::uint64_t bytes, Ns earliest) const;
  Ns latency(std::size_t from, std::size_t to) const { return machine_.route(from, to).latency_ns; }

 private:
  const Machine& machine_;
  const SharedState& state_;
  std::atomic<Ns> now_{0};
};

/// What VIRTUAL_GPU_TIME says.
bool keeps_time();

/// The larger one stays.
void raise(std::atomic<Ns>& at, Ns ns) noexcept;

}  // namespace virtual_gpu::machine
