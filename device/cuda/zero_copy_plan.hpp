// zero_copy_plan.hpp -- what each rank's kernel does in a call whose buffers all ranks reach: which part of
// whose operands it reads, and where the result goes. Every byte is read once and written once. Pure
// arithmetic on what all ranks know.
//
//   collective               a rank reads                    and writes
//
//   allreduce, scan, exscan  its share of all operands       of all results
//   reduce                   its share of all operands       of the root's result
//   bcast                    its share of the root's operand of all results
//   reduce_scatter(_block)   its block of all operands       its result
//   allgather(v), gather(v)  its operand                     its block of all results, or the root's
//   scatter(v)               its block of the root's operand its result
//   alltoall(v, w)           its block of each operand       a block of its result
#pragma once

#include <algorithm>
#include <cstddef>

#include "device/call.h"
#include "device/cuda/kernel_args.hpp"
#include "device/schedule/share.hpp"
#include "device/significance.h"

namespace loom::device::cuda {

using Side = ::loom_side;
inline constexpr int kSides = LOOM_SIDE_COUNT;

constexpr bool zero_copy_takes(Collective collective) {
  return collective != Collective::kBarrier;
}

/// Whether the rank has such a buffer.
constexpr bool has_side(Collective collective, Side side, int rank, int root) {
  return loom_is_significant(loom_significance_of(static_cast<int>(collective)), side,
                             loom_role_of(rank, root));
}
/// How many blocks lie on that side of a call, where there is one.
constexpr int blocks_of(Collective collective, Side side, int ranks) {
  const loom_significance& row = *loom_significance_of(static_cast<int>(collective));
  return row.sides[side].blocks == LOOM_BLOCK_EACH ? ranks : 1;
}

/// Whether other ranks reach that buffer of a rank.
constexpr bool is_reached(Collective collective, Side side, int rank, int root) {
  if (!has_side(collective, side, rank, root)) return false;
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kScatter:
    case Collective::kScatterV:
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
    case Collective::kAllToAllW:
      return side == LOOM_IN;
    case Collective::kAllGather:
    case Collective::kAllGatherV:
    case Collective::kGather:
    case Collective::kGatherV:
      return side == LOOM_OUT;
    default:
      return true;
  }
}

/// Elements [first, first + most) of each block, or of the message: a round of the call.
struct RoundWindow {
  std::size_t first = 0, most = ~std::size_t{0};

  std::size_t of(std::size_t length) const { return length <= first ? 0 : std::min(length - first, most); }
};

/// A rank's work in a round. length(side, rank, block): elements of that block; as far as it is asked, all
/// ranks know it. at(side, rank, block): where this process reaches its element window.first.
template <class Length, class At>
CombineArgs zero_copy_work(const Call& call, int rank, int ranks, const RoundWindow& window, Length&& length,
                           At&& at) {
  using How = CombineArgs::How;
  const std::size_t elem = call.elem_bytes();
  CombineArgs args;
  const auto add_operand = [&](int of, int block, std::size_t first = 0) {
    args.in[args.operands++] = at(LOOM_IN, of, block) + first * elem;
  };
  const auto add_result = [&](int of, int block, std::size_t first = 0) {
    if (!has_side(call.collective, LOOM_OUT, of, call.root)) {  // the first one's of an exscan
      args.out[args.results++] = nullptr;
      return;
    }
    std::byte* const out = at(LOOM_OUT, of, block) + first * elem;
    if (args.how == How::kFold && args.operands == 1 && out == args.in[0]) return;  // it is there already
    args.out[args.results++] = out;
  };
  const auto common = [&](int from, int of_from, int to, int of_to) {
    return window.of(std::min(length(LOOM_IN, from, of_from), length(LOOM_OUT, to, of_to)));
  };
  switch (call.collective) {
    case Collective::kAllreduce:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExscan:
    case Collective::kBroadcast: {
      const bool moves = call.collective == Collective::kBroadcast;
      const std::size_t line = std::max<std::size_t>(1, 128 / elem);
      const Part share = device::window(window.of(call.count), line,
                                        {static_cast<unsigned>(rank), 1, static_cast<unsigned>(ranks)});
      args.count = share.length;
      if (call.collective == Collective::kScan) args.how = How::kScan;
      if (call.collective == Collective::kExscan) args.how = How::kExscan;
      for (int r = 0; r < ranks; ++r)
        if (!moves || r == call.root) add_operand(r, 0, share.first);
      for (int r = 0; r < ranks; ++r)
        if (moves ? r != call.root : call.collective != Collective::kReduce || r == call.root)
          add_result(r, 0, share.first);
      break;
    }
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      args.count = window.of(length(LOOM_IN, rank, rank));
      for (int r = 0; r < ranks; ++r) add_operand(r, rank);
      add_result(rank, 0);
      break;
    case Collective::kAllGather:
    case Collective::kAllGatherV:
      args.count = window.of(length(LOOM_IN, rank, 0));
      add_operand(rank, 0);
      for (int r = 0; r < ranks; ++r) add_result(r, rank);
      break;
    case Collective::kGather:
    case Collective::kGatherV:
      args.count = rank == call.root && call.owns_its_block ? 0 : common(rank, 0, call.root, rank);
      if (args.count == 0) break;  // a side without bytes lies nowhere
      add_operand(rank, 0);
      add_result(call.root, rank);
      break;
    case Collective::kScatter:
    case Collective::kScatterV:
      args.count = rank == call.root && call.owns_its_block ? 0 : common(call.root, rank, rank, 0);
      if (args.count == 0) break;
      add_operand(call.root, rank);
      add_result(rank, 0);
      break;
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
    case Collective::kAllToAllW:
      args.how = How::kCopies;
      for (int r = 0; r < ranks; ++r) {
        const std::size_t count = r == rank && call.owns_its_block ? 0 : common(r, rank, rank, r);
        if (count == 0) continue;
        args.counts[args.operands] = count;
        add_operand(r, rank);
        add_result(rank, r);
      }
      break;
    case Collective::kBarrier:
      break;
  }
  if (args.results == 0) args.count = 0;
  return args;
}

}  // namespace loom::device::cuda
