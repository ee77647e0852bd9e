// warp_actions.cpp -- what lanes do together: votes, bar.warp.sync; and the barriers of a block.
#include <algorithm>

#include "base/format.hpp"
#include "tests/virtual_gpu/run/block.hpp"

namespace virtual_gpu::run::detail {

/// The set waits until all lanes of its mask have come, which may be now. Its lanes may have different masks.
bool Block::warp_action(Warp& warp, Set& set, const Op& op) {
  const Mask lanes = set.lanes;
  for_lanes(lanes, [&](unsigned lane) {
    const auto named = static_cast<Mask>(value(warp, set, op, 0, lane));
    if ((named >> lane & 1) == 0)
      fail(Fault::Kind::kVote, warp, lane, op,
           loom::format("lane {} is not in its own mask {:#x}", lane, named));
    if ((named & ~warp.alive()) != 0)
      fail(Fault::Kind::kVote, warp, lane, op,
           loom::format("the mask {:#x} names the lanes {:#x}, which have exited or never were", named,
                        named & ~warp.alive()));
  });
  set.state = State::kWarp;
  Mask released = 0;
  for_lanes(lanes, [&](unsigned lane) {
    if ((released >> lane & 1) != 0 || !is_complete(warp, lane)) return;
    const auto group = static_cast<Mask>(value(warp, set_of(warp, lane), op, 0, lane));
    perform(warp, group);
    released |= group;
  });
  join(warp, released);
  return false;
}

/// Whether all that the lane waits for wait for it.
bool Block::is_complete(Warp& warp, unsigned lane) {
  const Set& set = set_of(warp, lane);
  const Op& op = code_.ops[set.pc];
  const auto named = static_cast<Mask>(value(warp, set, op, 0, lane));
  bool complete = true;
  for_lanes(named, [&](unsigned other) {
    const Set& its = set_of(warp, other);
    const Op& its_op = code_.ops[its.pc];
    if (its.state != State::kWarp) {
      complete = false;
      return;
    }
    const auto its_named = static_cast<Mask>(value(warp, its, its_op, 0, other));
    const bool agrees = its_named == named && its_op.lanes == op.lanes;
    if (!agrees && (its_named >> lane & 1) != 0)
      fail(Fault::Kind::kVote, warp, lane, op,
           loom::format("mask {:#x}, but lane {} came with mask {:#x} to line {}: {}", named, other,
                        its_named, its_op.line, its_op.text));
    complete &= agrees;
  });
  return complete;
}

/// All lanes of the group wait for each other.
void Block::perform(Warp& warp, Mask group) {
  const LaneAction action = code_.ops[set_of(warp, static_cast<unsigned>(std::countr_zero(group))).pc].lanes;
  if (action == LaneAction::kJoin) {
    std::vector<unsigned> threads;
    for_lanes(group, [&](unsigned lane) { threads.push_back(thread(warp, lane)); });
    view_->meet(threads);
  } else {
    Mask ballot = 0;
    for_lanes(group, [&](unsigned lane) {
      const Set& set = set_of(warp, lane);
      const Op& op = code_.ops[set.pc];
      ballot |= static_cast<Mask>((value(warp, set, op, 1, lane) != 0) != op.negated) << lane;
    });
    const Slot result = action == LaneAction::kAll   ? ballot == group
                        : action == LaneAction::kAny ? ballot != 0
                        : action == LaneAction::kUni ? ballot == group || ballot == 0
                                                     : ballot;
    for_lanes(group, [&](unsigned lane) {
      const Set& set = set_of(warp, lane);
      const Op& op = code_.ops[set.pc];
      if (op.to[0] != kNoSlot) frame(warp, set).out(op, 0)[lane] = result;
    });
  }
  for (Set& set : warp.sets) {
    if ((set.lanes & group) == 0) continue;
    Set& released = (set.lanes & ~group) == 0 ? set : split(warp, set, set.lanes & group, kNowhere);
    if (released.state != State::kWarp) continue;  // split off a moment ago
    released.state = State::kReady;
    ++released.pc;
  }
}

// ------------------------------------------------------------------------------------------------ barriers

unsigned Block::barrier_number(Warp& warp, const Set& set) {
  return static_cast<unsigned>(
      value(warp, set, code_.ops[set.pc], 0, static_cast<unsigned>(std::countr_zero(set.lanes))));
}

void Block::barrier(Warp& warp, Set& set, const Op& op) {
  const auto first = static_cast<unsigned>(std::countr_zero(set.lanes));
  const unsigned number = barrier_number(warp, set);
  const auto threads = static_cast<unsigned>(op.elems == 0 ? 0 : value(warp, set, op, 1, first));
  for_lanes(set.lanes, [&](unsigned lane) {
    if (value(warp, set, op, 0, lane) != number ||
        (op.elems != 0 && value(warp, set, op, 1, lane) != threads))
      fail(Fault::Kind::kBarrier, warp, lane, op, "lanes of a warp name different barriers");
  });
  if (number >= 16) fail(Fault::Kind::kBarrier, warp, first, op, "a block has the barriers 0 to 15");
  if (threads % kLanes != 0 || (op.elems != 0 && threads == 0))
    fail(Fault::Kind::kBarrier, warp, first, op, loom::format("{} threads are no whole warps", threads));
  Barrier& barrier = barriers_[number];
  if (barrier.op == nullptr) {
    barrier.op = &op;
    barrier.threads = threads;
  }
  if (barrier.threads != threads || barrier.op->reduction != op.reduction)
    fail(Fault::Kind::kBarrier, warp, first, op,
         loom::format("others came to barrier {} with line {}: {}", number, barrier.op->line,
                      barrier.op->text));
  set.state = State::kBarrier;
  barrier.arrived[warp.index] |= set.lanes;
  check_barriers();
}

/// Those that are complete let all go on.
void Block::check_barriers() {
  std::vector<unsigned> complete;
  for (const auto& [number, barrier] : barriers_)
    if (is_complete(barrier)) complete.push_back(number);
  for (const unsigned number : complete) release(number);
}

/// Where a barrier does not say how many threads it takes, all take part that have not exited.
bool Block::is_complete(const Barrier& barrier) const {
  unsigned threads = 0;
  bool all = true;
  for (const Warp& warp : warps_) {
    const Mask arrived = barrier.arrived[warp.index];
    all &= arrived == warp.alive();
    if (arrived == 0) continue;
    if (arrived != warp.alive()) return false;
    threads += kLanes;
  }
  return barrier.threads == 0 ? all : threads >= barrier.threads;
}

void Block::release(unsigned number) {
  const Barrier barrier = barriers_.at(number);
  barriers_.erase(number);
  ++progress_;
  std::vector<unsigned> threads;
  unsigned holding = 0;
  const auto for_sets = [&](auto&& body) {
    for (Warp& warp : warps_)
      for (Set& set : warp.sets)
        if (set.lanes != 0 && set.state == State::kBarrier && barrier_number(warp, set) == number)
          body(warp, set);
  };
  for_sets([&](Warp& warp, Set& set) {
    const Op& op = code_.ops[set.pc];
    for_lanes(set.lanes, [&](unsigned lane) {
      threads.push_back(thread(warp, lane));
      if (op.reduction != Reduction::kNone) holding += (value(warp, set, op, 2, lane) != 0) != op.negated;
    });
  });
  view_->meet(threads);
  const Slot result = barrier.op->reduction == Reduction::kAnd  ? holding == threads.size()
                      : barrier.op->reduction == Reduction::kOr ? holding != 0
                                                                : holding;
  for_sets([&](Warp& warp, Set& set) {
    const Op& op = code_.ops[set.pc];
    if (op.to[0] != kNoSlot)
      for_lanes(set.lanes, [&](unsigned lane) { frame(warp, set).out(op, 0)[lane] = result; });
    set.state = State::kReady;
    ++set.pc;
  });
  for (Warp& warp : warps_) join(warp, barrier.arrived[warp.index]);
}

}  // namespace virtual_gpu::run::detail
