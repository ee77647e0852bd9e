// chain_executor.hpp -- broadcast and reduce along a ring that is opened at the root, on host memory.
// Resumable: it never waits.
#pragma once

#include "device/host/ring_executor.hpp"

namespace loom::device {

/// All ranks of the ring give the same collective, count, elem_bytes, root and slicing.
struct ChainJob {
  ChainCollective collective = ChainCollective::kBroadcast;
  const std::byte* in = nullptr;  ///< count elements; of a broadcast only at the root; may be out
  std::byte* out =
      nullptr;  ///< count elements; of a reduction only at the root, of a broadcast everywhere else
  std::size_t count = 0;
  std::size_t elem_bytes = 1;
  ReduceFn reduce = nullptr;  ///< not used by a broadcast
  int root = 0;               ///< a position in the ring
};

/// A reduction takes the operands in order of position from the root's successor on, and the root's last.
class ChainExecutor {
 public:
  /// slice_elems: what travels in one slot.
  ChainExecutor(const RingLinks& links, const ChainJob& job, std::size_t slice_elems);

  using State = RingExecutor::State;
  /// Goes on until it must wait. Throws what the links throw.
  State advance();
  bool waits_for_previous() const noexcept { return waits_for_previous_; }

 private:
  bool perform_slice(std::size_t first, std::size_t count);

  RingLinks links_;
  ChainJob job_;
  std::size_t slice_elems_;
  RingAction action_;
  std::size_t done_ = 0;  ///< elements
  bool waits_for_previous_ = false;
};

}  // namespace loom::device
