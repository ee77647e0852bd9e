// ring_schedule.hpp -- which rank moves which chunk when, around a ring. Pure arithmetic, read by executors
// and by the simulator in the tests. Knows nothing of bytes, slots or memory.
#pragma once

#include <cstddef>

#include "device/reduce/operations.hpp"

namespace loom::device {

/// What a rank does in one step with one chunk; "send" is to the next rank, "receive" from the previous one.
enum class RingAction {
  kSend,                ///< send my chunk
  kRecvReduceSend,      ///< received op mine -> next
  kRecvReduceCopySend,  ///< received op mine -> my output and next: the chunk is complete here
  kRecvReduceCopy,      ///< received op mine -> my output
  kRecvCopySend,        ///< received -> my output and next
  kRecvCopy,            ///< received -> my output
};

LOOM_HOST_DEVICE constexpr bool receives(RingAction action) {
  return action != RingAction::kSend;
}
LOOM_HOST_DEVICE constexpr bool sends(RingAction action) {
  return action != RingAction::kRecvReduceCopy && action != RingAction::kRecvCopy;
}
LOOM_HOST_DEVICE constexpr bool reads_own(RingAction action) {
  return action != RingAction::kRecvCopySend && action != RingAction::kRecvCopy;
}
LOOM_HOST_DEVICE constexpr bool stores(RingAction action) {
  return action != RingAction::kSend && action != RingAction::kRecvReduceSend;
}

struct RingStep {
  RingAction action;
  int chunk;  ///< in [0, size): a rank's share of the message
};

enum class RingCollective { kAllreduce, kReduceScatter, kAllGather };

/// Steps of one rank. Each rank sends and receives 2(n-1) chunks for an allreduce and n-1 for the other two,
/// n = size: with S bytes in n chunks 2(n-1)/n S and (n-1)/n S, the least that any algorithm can do
/// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
LOOM_HOST_DEVICE constexpr int ring_step_count(RingCollective collective, int size) {
  return collective == RingCollective::kAllreduce ? 2 * size - 1 : size;
}

/// Step k, in [0, ring_step_count), of the rank at `position`, for size >= 2. The chunk walks backwards
/// around the ring; only the action changes. At the end the rank at position p has every chunk of an
/// allreduce or all-gather, and chunk p of a reduce-scatter. An all-gather starts from chunk p in the output
/// of position p.
LOOM_HOST_DEVICE constexpr RingStep ring_step(RingCollective collective, int position, int size, int k) {
  if (collective == RingCollective::kAllGather) {
    const int chunk = (position - k + size) % size;
    if (k == 0) return {RingAction::kSend, chunk};
    return {k < size - 1 ? RingAction::kRecvCopySend : RingAction::kRecvCopy, chunk};
  }
  const int chunk = (position - 1 - k + 2 * size) % size;
  if (k == 0) return {RingAction::kSend, chunk};
  if (k < size - 1) return {RingAction::kRecvReduceSend, chunk};
  if (k == size - 1) {  // chunk == position: it contains every rank's contribution
    return {collective == RingCollective::kAllreduce ? RingAction::kRecvReduceCopySend
                                                     : RingAction::kRecvReduceCopy,
            chunk};
  }
  return {k < 2 * size - 2 ? RingAction::kRecvCopySend : RingAction::kRecvCopy, chunk};
}

/// Broadcast and reduce along the ring, opened at the root: a chain in which the message stays whole and
/// flows in slices. Every rank but one sends the S bytes once, the least possible; the first slice takes n-1
/// steps, each further one a step more (van de Geijn, "On global combine operations", 1994, compares it with
/// others). Good for large messages.
enum class ChainCollective { kBroadcast, kReduce };

/// What the rank at `position` does with every slice, for size >= 2. A reduction starts behind the root and
/// ends at it.
LOOM_HOST_DEVICE constexpr RingAction chain_action(ChainCollective collective, int position, int size,
                                                   int root) {
  if (collective == ChainCollective::kBroadcast) {
    const int place = (position - root + size) % size;
    if (place == 0) return RingAction::kSend;
    return place < size - 1 ? RingAction::kRecvCopySend : RingAction::kRecvCopy;
  }
  const int place = (position - root - 1 + size) % size;
  if (place == 0) return RingAction::kSend;
  return place < size - 1 ? RingAction::kRecvReduceSend : RingAction::kRecvReduceCopy;
}

}  // namespace loom::device
