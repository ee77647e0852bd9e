#include "device/cuda/host_driven_executor.hpp"

#include <algorithm>

#include "device/schedule/exchange_schedule.hpp"

namespace loom::device::cuda {
namespace {

// A round costs some launches, so tiles are far larger than on the host (an estimate; not measured).
TileLimits limits(const GpuCicoBuffers& cico) {
  return {.bank_bytes = cico.bank_bytes(), .min_tile_bytes = 256 * 1024, .min_chunk_tile_bytes = 256 * 1024};
}

}  // namespace

HostDrivenExecutor::HostDrivenExecutor(GpuCicoBuffers& cico, const Call& call)
    : CicoWalk(cico, call, limits(cico)), cico_(cico), stream_(cico.stream()) {}

HostDrivenExecutor::~HostDrivenExecutor() {
  if (!works_) return;
  try {
    stream_.synchronize();
  } catch (const Error&) {  // the GPU has failed: its work has ended, too
  }
}

HostDrivenExecutor::State HostDrivenExecutor::advance() {
  if (done()) return State::kDone;
  if (!works_) {
    if (!ready()) return State::kBlocked;
    if (!follows_) stream_.follow_program();
    follows_ = works_ = true;
    perform([this](std::size_t tile) { take(tile); }, [this](std::size_t tile) { reduce_own(tile); },
            [this](std::size_t tile) { offer(tile); });
  }
  if (!stream_.is_idle()) return State::kBlocked;
  works_ = false;
  return end_round();
}

void HostDrivenExecutor::offer(std::size_t tile) {
  const int self = cico_.self();
  if (one_part_) {
    const Range range = tile_of(0, tile);
    const bool offers = call_.collective == Collective::kBroadcast ? self == call_.root
                        : call_.collective == Collective::kReduce  ? self != call_.root
                                                                   : true;
    if (offers) stream_.copy(piece(0), call_.in + range.first, range.bytes);
    if (call_.collective != Collective::kAllGather) return;
    std::byte* const own = call_.out + static_cast<std::size_t>(self) * call_.bytes() + range.first;
    if (call_.in + range.first != own) stream_.copy(own, call_.in + range.first, range.bytes);
    return;
  }
  for (int k = 0; k < cico_.size() - 1; ++k) {
    const int peer = other_position(self, k);
    const Range range = tile_of(peer, tile);
    stream_.copy(piece(peer), call_.in + range.first, range.bytes);
  }
  const Range own = tile_of(self, tile);
  if (call_.collective == Collective::kAllToAll && call_.in != call_.out)
    stream_.copy(call_.out + own.first, call_.in + own.first, own.bytes);
}

/// Reduces in order. Where one kernel cannot take all operands, the next goes on from the result so far.
template <class OperandOf>
void HostDrivenExecutor::reduce_all(std::byte* out, int operands, OperandOf&& operand_of, std::size_t bytes) {
  ReduceArgs args{.out = out, .count = bytes / call_.elem_bytes()};
  for (int rank = 0; rank < operands;) {
    args.operands = 0;
    if (rank > 0) args.in[args.operands++] = out;
    while (rank < operands && args.operands < ReduceArgs::kMostOperands)
      args.in[args.operands++] = operand_of(rank++);
    stream_.reduce(call_.op, call_.type, args);
  }
}

/// Reduces all ranks' operands of my part; the result goes to my output and, where others want it, to my CICO
/// buffer.
void HostDrivenExecutor::reduce_own(std::size_t tile) {
  const int self = cico_.self();
  const Range range = tile_of(self, tile);
  // In place, a scattered result overwrites operands that were offered in an earlier round. A whole result of
  // two ranks overwrites one of the operands, which the one kernel reads before it writes.
  std::byte* const result =
      chunked_ ? piece(self) : call_.out + (scatters() ? tile * tile_bytes_ : range.first);
  reduce_all(
      result, cico_.size(),
      [&](int rank) { return rank == self ? call_.in + range.first : piece_of(rank, self); }, range.bytes);
  const bool keeps = call_.collective != Collective::kReduce || self == call_.root;
  if (chunked_ && keeps) stream_.copy(call_.out + range.first, result, range.bytes);
}

/// Takes what others offered me, or reduced, in the round before.
void HostDrivenExecutor::take(std::size_t tile) {
  for_each_taken(tile, [&](int peer, const Taken& taken) {
    stream_.copy(call_.out + taken.first, piece_of(peer, taken.part), taken.bytes);
  });
}

}  // namespace loom::device::cuda
