// collective.hpp -- collectives of one host as a group of threads performs its share of them: rings and
// chains over the links of a ring, one-shot and two-shot all-reduces over links between every two ranks.
// The schedules say which chunk goes where in which step; move.hpp moves a message. In a kernel a block is
// the group of one channel, and processes its own part of every chunk.
#pragma once

#include "device/schedule/exchange_schedule.hpp"
#include "device/schedule/ring_schedule.hpp"
#include "device/steps/move.hpp"

namespace loom::device::steps {

inline constexpr int kMostRanks = 8;  ///< of the collectives over links between every two ranks

enum class Algorithm : int {
  kAllreduceRing,
  kReduceScatterRing,
  kAllGatherRing,
  kBroadcastChain,
  kReduceChain,
  kOneShot,  ///< all-reduce: each rank sends its operand to all. Reduces in order of rank
  kTwoShot   ///< all-reduce: each rank reduces a chunk and sends the result to all. In order of rank
};
enum class Protocol : int { kSimple, kLL, kLL128 };
inline constexpr int kProtocols = 3;

/// Messages received and sent so far.
struct Passed {
  Word received = 0, sent = 0;
};
/// A rank's two ends in a ring.
struct RingEnds {
  RecvEnd from;
  SendEnd to;
  Passed passed;
};
/// Links to and from every other rank, in order of rank. All have passed equally many messages.
struct PairwiseEnds {
  RecvEnd from[kMostRanks - 1];
  SendEnd to[kMostRanks - 1];
  Passed passed;
};
/// The links of one channel of one rank, by protocol.
struct Channel {
  RingEnds ring[kProtocols];
  PairwiseEnds pairwise[kProtocols];
};
struct ChannelForm {
  FifoForm ring[kProtocols], pairwise[kProtocols];
};

/// One rank's share of one call; equal on all ranks but for rank and buffers. Sizes in elements.
///
///   algorithm            in                    out                    message
///   kAllreduceRing       count                 count                  chunks of `chunk`; a shorter last one
///   kReduceScatterRing   size x chunk          chunk                  count = size x chunk
///   kAllGatherRing       chunk                 size x chunk           count = size x chunk
///   kBroadcastChain      count, at the root    count, elsewhere       one chunk
///   kReduceChain         count                 count, at the root     one chunk
///   kOneShot             count                 count                  one chunk
///   kTwoShot             count                 count                  as of kAllreduceRing
struct Task {
  Algorithm algorithm = Algorithm::kAllreduceRing;
  Protocol protocol = Protocol::kSimple;
  int rank = 0, size = 1, root = 0;
  const void* in = nullptr;
  void* out = nullptr;  ///< may be in; of an all-gather `in` may be its own block
  std::size_t count = 0;
  std::size_t chunk = 0;
  /// This channel's part of every chunk: [first, first + length).
  std::size_t window_first = 0, window_length = 0;
};

/// This channel's elements of a chunk, counted from the start of the message.
struct Part {
  std::size_t first = 0, length = 0;
};
LOOM_HOST_DEVICE inline Part part_of(const Task& task, int chunk) {
  const auto least = [](std::size_t a, std::size_t b) { return a < b ? a : b; };
  const std::size_t begin = least(task.count, static_cast<std::size_t>(chunk) * task.chunk),
                    length = least(task.count - begin, task.chunk), first = least(length, task.window_first);
  return {begin + first, least(length - first, task.window_length)};
}

namespace detail {

/// Elements [offset, offset + most) of a part.
LOOM_HOST_DEVICE inline Part slice_of(const Part& part, std::size_t offset, std::size_t most) {
  const std::size_t skipped = part.length < offset ? part.length : offset, left = part.length - skipped;
  return {part.first + skipped, left < most ? left : most};
}
template <class T>
LOOM_HOST_DEVICE T* at(T* base, std::size_t elem) {
  return base == nullptr ? nullptr : base + elem;
}

/// A ring rank's action on one slice.
template <class MoveBy, class Operation, class T, class Group>
LOOM_HOST_DEVICE bool act(Group& group, const RingEnds& ends, Passed& passed, const FifoForm& form,
                          const WayOut& way_out, RingAction action, const T* in, T* out, std::size_t count) {
  const bool reduces = action == RingAction::kRecvReduceSend || action == RingAction::kRecvReduceCopySend ||
                       action == RingAction::kRecvReduceCopy;
  Move<T> move;
  move.count = count;
  move.received = passed.received;
  move.sent = passed.sent;
  if (receives(action)) {
    move.from = &ends.from;
    move.froms = 1;
  }
  if (sends(action)) {
    move.to = &ends.to;
    move.tos = 1;
  }
  if (!receives(action) || reduces) {
    move.in = in;
    move.in_at = move.froms;  // received op mine
  }
  if (action != RingAction::kRecvReduceSend && (receives(action) || out != in)) move.out = out;
  const bool done = MoveBy::template perform<Operation>(group, move, form, way_out);
  passed.received += static_cast<Word>(move.froms);
  passed.sent += static_cast<Word>(move.tos);
  return done;
}

/// A round has fewer slices of a chunk than a FIFO has slots: see Slicing in host/ring_executor.hpp.
template <class MoveBy, class Operation, class T, class Group>
LOOM_HOST_DEVICE bool ring(Group& group, const Task& task, const RingEnds& ends, Passed& passed,
                           const FifoForm& form, const WayOut& way_out) {
  const RingCollective collective = task.algorithm == Algorithm::kAllreduceRing ? RingCollective::kAllreduce
                                    : task.algorithm == Algorithm::kReduceScatterRing
                                        ? RingCollective::kReduceScatter
                                        : RingCollective::kAllGather;
  const auto* const in = static_cast<const T*>(task.in);
  auto* const out = static_cast<T*>(task.out);
  const std::size_t slice = MoveBy::data_bytes(form) / sizeof(T), per_round = form.slot_count / 2;
  const std::size_t length = part_of(task, 0).length;  // the longest
  const int steps = ring_step_count(collective, task.size);
  for (std::size_t round = 0; round * per_round * slice < length; ++round)
    for (int k = 0; k < steps; ++k) {
      const RingStep step = ring_step(collective, task.rank, task.size, k);
      const Part part = part_of(task, step.chunk);
      const std::size_t before = static_cast<std::size_t>(step.chunk) * task.chunk;
      for (std::size_t s = 0; s < per_round; ++s) {
        const std::size_t offset = (round * per_round + s) * slice;
        if (offset >= length) break;
        const Part elems = slice_of(part, offset, slice);
        const T* from = at(in, elems.first);
        T* to = at(out, elems.first);
        if (collective == RingCollective::kAllGather) from = at(in, elems.first - before);
        if (collective == RingCollective::kReduceScatter) to = at(out, elems.first - before);
        // The chunk that is sent first is no result: it is not written to the output.
        if (step.action == RingAction::kSend && collective != RingCollective::kAllGather) to = nullptr;
        if (!act<MoveBy, Operation>(group, ends, passed, form, way_out, step.action, from, to, elems.length))
          return false;
      }
    }
  return true;
}

template <class MoveBy, class Operation, class T, class Group>
LOOM_HOST_DEVICE bool chain(Group& group, const Task& task, const RingEnds& ends, Passed& passed,
                            const FifoForm& form, const WayOut& way_out) {
  const ChainCollective collective =
      task.algorithm == Algorithm::kBroadcastChain ? ChainCollective::kBroadcast : ChainCollective::kReduce;
  const RingAction action = chain_action(collective, task.rank, task.size, task.root);
  const Part part = part_of(task, 0);
  const std::size_t slice = MoveBy::data_bytes(form) / sizeof(T);
  const bool has_result = receives(action) && action != RingAction::kRecvReduceSend;
  for (std::size_t offset = 0; offset < part.length; offset += slice) {
    const Part elems = slice_of(part, offset, slice);
    if (!act<MoveBy, Operation>(
            group, ends, passed, form, way_out, action, at(static_cast<const T*>(task.in), elems.first),
            has_result ? at(static_cast<T*>(task.out), elems.first) : nullptr, elems.length))
      return false;
  }
  return true;
}

/// Each rank sends its slice to all, and reduces all slices for itself.
template <class MoveBy, class Operation, class T, class Group>
LOOM_HOST_DEVICE bool one_shot(Group& group, const Task& task, const PairwiseEnds& ends, Passed& passed,
                               const FifoForm& form, const WayOut& way_out) {
  const Part part = part_of(task, 0);
  const std::size_t slice = MoveBy::data_bytes(form) / sizeof(T);
  for (std::size_t offset = 0; offset < part.length; offset += slice) {
    const Part elems = slice_of(part, offset, slice);
    const T* const in = static_cast<const T*>(task.in) + elems.first;
    Move<T> offer, reduce;
    offer.to = ends.to;
    offer.tos = task.size - 1;
    offer.sent = passed.sent++;
    offer.in = in;
    reduce.from = ends.from;
    reduce.froms = task.size - 1;
    reduce.received = passed.received++;
    reduce.in = in;
    reduce.in_at = task.rank;  // in order of rank
    reduce.out = static_cast<T*>(task.out) + elems.first;
    offer.count = reduce.count = elems.length;
    if (!MoveBy::template perform<Operation>(group, offer, form, way_out) ||
        !MoveBy::template perform<Operation>(group, reduce, form, way_out))
      return false;
  }
  return true;
}

/// For a slice of all chunks each link carries two messages: operands of the peer's chunk, results of mine.
template <class MoveBy, class Operation, class T, class Group>
LOOM_HOST_DEVICE bool two_shot(Group& group, const Task& task, const PairwiseEnds& ends, Passed& passed,
                               const FifoForm& form, const WayOut& way_out) {
  const auto* const in = static_cast<const T*>(task.in);
  auto* const out = static_cast<T*>(task.out);
  const std::size_t slice = MoveBy::data_bytes(form) / sizeof(T), length = part_of(task, 0).length;
  const int others = task.size - 1;
  const auto end_of = [&](int peer) { return peer < task.rank ? peer : peer - 1; };
  for (std::size_t offset = 0; offset < length; offset += slice) {
    const auto slice_of_chunk = [&](int chunk) { return slice_of(part_of(task, chunk), offset, slice); };
    for (int k = 0; k < others; ++k) {
      const Exchange step = exchange_step(Pattern::kTwoShotAllreduce, 0, task.rank, k);
      const Part elems = slice_of_chunk(step.sent);
      Move<T> offer;
      offer.to = &ends.to[end_of(step.to)];
      offer.tos = 1;
      offer.sent = passed.sent;
      offer.in = in + elems.first;
      offer.count = elems.length;
      if (!MoveBy::template perform<Operation>(group, offer, form, way_out)) return false;
    }
    const Part own = slice_of_chunk(task.rank);
    Move<T> reduce;
    reduce.from = ends.from;
    reduce.to = ends.to;
    reduce.froms = reduce.tos = others;
    reduce.received = passed.received;
    reduce.sent = passed.sent + 1;
    reduce.in = in + own.first;
    reduce.in_at = task.rank;
    reduce.out = out + own.first;
    reduce.count = own.length;
    if (!MoveBy::template perform<Operation>(group, reduce, form, way_out)) return false;
    for (int k = 0; k < others; ++k) {
      const Exchange step = exchange_step(Pattern::kTwoShotAllreduce, 1, task.rank, k);
      const Part elems = slice_of_chunk(step.received);
      Move<T> take;
      take.from = &ends.from[end_of(step.from)];
      take.froms = 1;
      take.received = passed.received + 1;
      take.out = out + elems.first;
      take.count = elems.length;
      if (!MoveBy::template perform<Operation>(group, take, form, way_out)) return false;
    }
    passed.sent += 2;
    passed.received += 2;
  }
  return true;
}

}  // namespace detail

/// The group's share of a call over a ring. Counters go on from call to call.
template <class MoveBy, class Operation, class T, class Group>
LOOM_HOST_DEVICE bool perform_ring(Group& group, const Task& task, RingEnds& ends, const FifoForm& form,
                                   const WayOut& way_out) {
  Passed passed = ends.passed;  // each thread counts for itself
  const bool chains =
      task.algorithm == Algorithm::kBroadcastChain || task.algorithm == Algorithm::kReduceChain;
  const bool done = chains ? detail::chain<MoveBy, Operation, T>(group, task, ends, passed, form, way_out)
                           : detail::ring<MoveBy, Operation, T>(group, task, ends, passed, form, way_out);
  group.any(false);  // a barrier: all threads have read the counters
  if (group.index() == 0) ends.passed = passed;
  return done;
}
template <class MoveBy, class Operation, class T, class Group>
LOOM_HOST_DEVICE bool perform_pairwise(Group& group, const Task& task, PairwiseEnds& ends,
                                       const FifoForm& form, const WayOut& way_out) {
  Passed passed = ends.passed;
  const bool done = task.algorithm == Algorithm::kOneShot
                        ? detail::one_shot<MoveBy, Operation, T>(group, task, ends, passed, form, way_out)
                        : detail::two_shot<MoveBy, Operation, T>(group, task, ends, passed, form, way_out);
  group.any(false);
  if (group.index() == 0) ends.passed = passed;
  return done;
}

/// Rings use Simple or LL128, pairwise links LL or LL128. Where LL128 cannot carry the elements, they use the
/// other one.
template <class T>
LOOM_HOST_DEVICE constexpr Protocol protocol_for(const Task& task) {
  const bool is_pairwise = task.algorithm == Algorithm::kOneShot || task.algorithm == Algorithm::kTwoShot;
  if (task.protocol == Protocol::kLL128 && LL128Move::carries<T>) return Protocol::kLL128;
  return is_pairwise ? Protocol::kLL : Protocol::kSimple;
}

/// `channel` is shared by the group. False, on all threads: the communicator was abandoned, and the links
/// must not be used any more.
template <class Operation, class T, class Group>
LOOM_HOST_DEVICE bool perform(Group& group, const Task& task, Channel& channel, const ChannelForm& forms,
                              const WayOut& way_out) {
  const bool is_pairwise = task.algorithm == Algorithm::kOneShot || task.algorithm == Algorithm::kTwoShot;
  const Protocol protocol = protocol_for<T>(task);
  const int p = static_cast<int>(protocol);
  RingEnds& ring = channel.ring[p];
  PairwiseEnds& pairwise = channel.pairwise[p];
  if constexpr (LL128Move::carries<T>)
    if (protocol == Protocol::kLL128)
      return is_pairwise ? perform_pairwise<LL128Move, Operation, T>(group, task, pairwise, forms.pairwise[p],
                                                                     way_out)
                         : perform_ring<LL128Move, Operation, T>(group, task, ring, forms.ring[p], way_out);
  return is_pairwise
             ? perform_pairwise<LLMove, Operation, T>(group, task, pairwise, forms.pairwise[p], way_out)
             : perform_ring<SimpleMove, Operation, T>(group, task, ring, forms.ring[p], way_out);
}

}  // namespace loom::device::steps
