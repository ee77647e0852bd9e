// ring_executor.hpp -- performs the ring schedule on host memory over two links. Resumable: it never waits.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "device/link/link.hpp"
#include "device/reduce/reduce.hpp"
#include "device/schedule/ring_schedule.hpp"
#include "device/streaming.hpp"

namespace loom::device {

/// A ring's form and the two links that a rank has in it.
struct RingLinks {
  int position = 0;
  int size = 1;
  SendLink* next = nullptr;
  RecvLink* previous = nullptr;
};

/// Elements of a chunk: [first, first + count).
struct ChunkRange {
  std::size_t first = 0, count = 0;
};
/// Chunks are equal and begin on cache lines, relative to the message, as long as there is enough for that;
/// the last ones may be shorter or empty.
ChunkRange chunk_range(std::size_t count, std::size_t elem_bytes, int size, int chunk);

/// One collective over one ring. All ranks of the ring give the same collective, count, elem_bytes and
/// slicing.
struct RingStage {
  RingCollective collective = RingCollective::kAllreduce;
  const std::byte* in = nullptr;  ///< count elements; not read by an all-gather; may be out
  std::byte* out = nullptr;       ///< count elements; a reduce-scatter writes only chunk `position` of them
  std::size_t count = 0;
  std::size_t elem_bytes = 1;
  ReduceFn reduce = nullptr;  ///< not used by an all-gather
  /// By position, where chunks are the ranks' blocks rather than equal shares: they may lie in any order and
  /// be of any length. Must outlive the executor; the same on all ranks.
  std::span<const ChunkRange> chunks = {};
  /// Only this window of each of these chunks is processed.
  ChunkRange window = {0, std::numeric_limits<std::size_t>::max()};
  /// The element of the message that lies at in[0] and at out[0]; 0 except in a reduce-scatter.
  std::size_t in_first = 0, out_first = 0;
  /// Told what is read of `in`, except in an all-gather, and what has been written to `out`, if that is the
  /// call's result (writes_result).
  Streaming* streaming = nullptr;
  bool writes_result = true;
};

/// How a message is cut. The message has `size` chunks, one per rank; a chunk is processed in rounds of
/// slices_per_round slices, each of which travels in one slot.
///
/// No deadlock while slices_per_round < slot_count, without the slots whose release a receiver has yet to
/// tell (FifoShape::releases_per_credit): a rank is never more than slices_per_round slots ahead of what its
/// successor has consumed, so the FIFOs of a ring are never all full, and a rank whose FIFO has room can go
/// on.
struct Slicing {
  std::size_t slice_elems = 1;
  std::size_t slices_per_round = 1;
};

/// Slices as large as the slots allow for a large message, and smaller ones for a shorter message, so that
/// the ring is still a pipeline: not below `worthwhile` bytes if a chunk has two of these. Needs slot_count
/// >= 2 and slot_bytes >= elem_bytes.
Slicing slice_ring(std::size_t count, std::size_t elem_bytes, int size, std::size_t slot_bytes,
                   std::size_t slot_count, std::size_t worthwhile = 0);

class RingExecutor {
 public:
  RingExecutor(const RingLinks& links, const RingStage& stage, const Slicing& slicing);

  enum class State {
    kMoved,    ///< came at least one slice further
    kBlocked,  ///< waits for a neighbour
    kDone,     ///< the result is in place; what was sent may not have left this process
  };
  /// Goes on until it must wait. Throws what the links throw.
  State advance();

  /// The neighbour that a blocked executor waits for is the previous one (true) or the next.
  bool waits_for_previous() const noexcept { return waits_for_previous_; }

 private:
  bool perform_slice(const RingStep& step);
  void move(RingAction action, std::size_t first, std::size_t elems, std::byte* sent,
            const std::byte* received) const;
  ChunkRange chunk(int position) const;
  void next_slice();

  RingLinks links_;
  RingStage stage_;
  Slicing slicing_;
  std::size_t chunk_elems_;  ///< of the longest chunk: all ranks take the same steps
  std::size_t round_ = 0;    ///< slices_per_round slices of each chunk, through all steps
  int step_ = 0;
  std::size_t slice_ = 0;
  bool waits_for_previous_ = false;
};

}  // namespace loom::device
