#include "device/cuda/handed_over_executor.hpp"

#include <algorithm>

#include "device/schedule/exchange_schedule.hpp"

namespace loom::device::cuda {
namespace {

// A round costs some launches, so tiles are far larger than on the host (an estimate; not measured).
TileLimits limits(const GpuBoards& boards) {
  return {
      .bank_bytes = boards.bank_bytes(), .min_tile_bytes = 256 * 1024, .min_chunk_tile_bytes = 256 * 1024};
}

}  // namespace

HandedOverExecutor::HandedOverExecutor(GpuBoards& boards, const HostJob& job, Op op, Type type)
    : BoardWalk(boards, job, limits(boards)), boards_(boards), gpu_(boards.gpu()), op_(op), type_(type) {}

HandedOverExecutor::State HandedOverExecutor::advance() {
  if (done()) return State::kDone;
  if (!ready()) return State::kBlocked;
  perform([this](std::size_t tile) { take(tile); }, [this](std::size_t tile) { reduce_own(tile); },
          [this](std::size_t tile) { offer(tile); });
  gpu_.synchronize();
  return end_round();
}

void HandedOverExecutor::offer(std::size_t tile) {
  const int self = boards_.self();
  if (one_part_) {
    const Range range = tile_of(0, tile);
    const bool offers = job_.collective == Collective::kBroadcast ? self == job_.root
                        : job_.collective == Collective::kReduce  ? self != job_.root
                                                                  : true;
    if (offers) gpu_.copy(piece(0), job_.in + range.first, range.bytes);
    if (job_.collective != Collective::kAllGather) return;
    std::byte* const own = job_.out + static_cast<std::size_t>(self) * job_.bytes() + range.first;
    if (job_.in + range.first != own) gpu_.copy(own, job_.in + range.first, range.bytes);
    return;
  }
  for (int k = 0; k < boards_.size() - 1; ++k) {
    const int peer = other_position(self, k);
    const Range range = tile_of(peer, tile);
    gpu_.copy(piece(peer), job_.in + range.first, range.bytes);
  }
  const Range own = tile_of(self, tile);
  if (job_.collective == Collective::kAllToAll && job_.in != job_.out)
    gpu_.copy(job_.out + own.first, job_.in + own.first, own.bytes);
}

/// In order; what does not fit in one kernel goes on from the result so far.
template <class OperandOf>
void HandedOverExecutor::reduce_all(std::byte* out, int operands, OperandOf&& operand_of, std::size_t bytes) {
  ReduceArgs args{.out = out, .count = bytes / job_.elem_bytes};
  for (int rank = 0; rank < operands;) {
    args.operands = 0;
    if (rank > 0) args.in[args.operands++] = out;
    while (rank < operands && args.operands < ReduceArgs::kMostOperands)
      args.in[args.operands++] = operand_of(rank++);
    gpu_.reduce(op_, type_, args);
  }
}

/// All ranks' operands of my part; the result goes to my output and, where others want it, to my board.
void HandedOverExecutor::reduce_own(std::size_t tile) {
  const int self = boards_.self();
  const Range range = tile_of(self, tile);
  // In place, a scattered result lies where operands have been offered from in an earlier round. A whole one
  // of two ranks' lies where one of them does, which one kernel reads before it writes.
  std::byte* const result =
      chunked_ ? piece(self) : job_.out + (scatters() ? tile * tile_bytes_ : range.first);
  reduce_all(
      result, boards_.size(),
      [&](int rank) { return rank == self ? job_.in + range.first : piece_of(rank, self); }, range.bytes);
  const bool keeps = job_.collective != Collective::kReduce || self == job_.root;
  if (chunked_ && keeps) gpu_.copy(job_.out + range.first, result, range.bytes);
}

/// What others have offered for me, or made, in the round before.
void HandedOverExecutor::take(std::size_t tile) {
  const int self = boards_.self();
  if (job_.collective == Collective::kBroadcast) {
    const Range range = tile_of(0, tile);
    if (self != job_.root) gpu_.copy(job_.out + range.first, piece_of(job_.root, 0), range.bytes);
    return;
  }
  if (job_.collective == Collective::kReduce && self != job_.root) return;
  for (int k = 0; k < boards_.size() - 1; ++k) {
    const int peer = other_position(self, k);
    const Range range = tile_of(peer, tile);
    const std::size_t block =
        job_.collective == Collective::kAllGather ? static_cast<std::size_t>(peer) * job_.bytes() : 0;
    const int part = job_.collective == Collective::kAllToAll ? self : peer;
    gpu_.copy(job_.out + block + range.first, piece_of(peer, part), range.bytes);
  }
}

}  // namespace loom::device::cuda
