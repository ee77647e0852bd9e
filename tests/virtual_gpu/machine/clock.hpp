// clock.hpp -- the time that the machine would take. Each process has its own, from 0 when the run begins; in
// what it enqueues, links are shared with all that other processes of the run have enqueued.
//
// Transfers are a fluid. While n transfers pass a link of bandwidth B, each may use B / n of it, and a
// transfer over several links goes at the least that one of them leaves it. So a link never carries more than
// n * (B / n) = B. (What a transfer leaves unused, since another link holds it up, the others do not get:
// times err on the long side.) Rates change only as a transfer begins or ends. Memory is one link for both
// directions: a copy within it passes it twice, and goes at half its bandwidth.
//
// A driver does so, with the ticket of what the stream did last (a kernel likewise, with all that it moves):
//
//   clock.spend(kCopyCallNs);
//   last = clock.enqueue({{{from, to, bytes}}}, clock.now() + kCopyStartNs, last);
//   ...
//   clock.wait_until(clock.end_of(last) + kSynchronizeNs);  // when the program waits for the stream
//
// Limits: what is enqueued later does not change an end that a process was already told. A kernel that waits
// for a flag in memory waits in real time alone; what it waited for is at least arrived() there.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/virtual_gpu/machine/machine.hpp"
#include "tests/virtual_gpu/machine/shared_state.hpp"

namespace virtual_gpu::machine {

/// Nanoseconds. 1 GB/s is 1 byte in each.
using Ns = double;

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
inline constexpr Ns kEventQueryNs = 400;
inline constexpr Ns kStreamQueryNs = 600;

/// What instructions of warps take if all multiprocessors have work: each issues four in a cycle.
inline Ns instructions_ns(const Gpu& gpu, std::uint64_t warp_instructions) {
  return static_cast<double>(warp_instructions) / (4. * gpu.multiprocessors * gpu.ghz);
}

struct Move {
  Place from, to;
  std::uint64_t bytes;
};

/// Something in a stream: it ends when all its bytes have arrived, and not before `work_ns` have passed.
struct Operation {
  std::vector<Move> moves;
  Ns work_ns = 0;
};

/// When transfers end, by their place in the span; they carry numbers from `first` on. What is not among them
/// any more ended at before_ns.
std::vector<Ns> ends_of(const Machine& machine, std::span<const Transfer> transfers, std::uint64_t first,
                        Ns before_ns);

/// Any thread may call it.
class VirtualClock {
 public:
  using Ticket = Transfer::Range;

  VirtualClock(const Machine& machine, const SharedState& state) : machine_(machine), state_(state) {}

  /// Of the host's program in this process. Never goes back.
  Ns now() const noexcept { return now_.load(std::memory_order_relaxed); }
  void spend(Ns ns) noexcept;
  void wait_until(Ns ns) noexcept;

  /// Begins after others have ended, and not before `earliest`. Throws std::invalid_argument for a ticket
  /// that was never given, std::length_error for more than SharedState::kTransfers / 2 moves.
  Ticket enqueue(const Operation& operation, Ns earliest, Ticket after = {}, Ticket and_after = {});
  /// As far as is known now. A ticket of nothing: 0.
  Ns end_of(Ticket ticket) const;
  /// Of what is on its way to a memory: when the last of it arrives.
  Ns arrived(Place memory) const;

 private:
  std::vector<Transfer> kept() const;
  void forget_half();

  const Machine& machine_;
  const SharedState& state_;
  std::atomic<Ns> now_{0};
};

}  // namespace virtual_gpu::machine
