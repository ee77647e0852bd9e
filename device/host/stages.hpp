// stages.hpp -- a call over a grid as two concurrent sequences of stages, inside the host and across the
// hosts: parts of the message overlap, so that the network is busy while hosts prepare the next part and
// spread the last one.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "device/host/ring_executor.hpp"

namespace loom::device {

/// Stages that use the same links, in an order that is the same on all ranks.
template <class Executor>
class StageSequence {
 public:
  /// after: stages of the other sequence that must be done before this one starts.
  void add(Executor executor, std::size_t after) { stages_.push_back({std::move(executor), after}); }

  std::size_t size() const noexcept { return stages_.size(); }
  bool done() const noexcept { return done_ == stages_.size(); }
  /// The current stage; nullptr if all are done, or if it must wait for a stage of `other`.
  template <class Other>
  const Executor* head(const StageSequence<Other>& other) const {
    return done() || other.count_done() < stages_[done_].after ? nullptr : &stages_[done_].executor;
  }
  /// Advances the current stage as far as possible without waiting. Returns whether it moved.
  template <class Other>
  bool advance(const StageSequence<Other>& other) {
    if (head(other) == nullptr) return false;
    const RingExecutor::State state = stages_[done_].executor.advance();
    if (state == RingExecutor::State::kDone) ++done_;
    return state != RingExecutor::State::kBlocked;
  }
  std::size_t count_done() const noexcept { return done_; }

 private:
  struct Stage {
    Executor executor;
    std::size_t after;
  };
  std::vector<Stage> stages_;
  std::size_t done_ = 0;
};

/// One step of both. The network goes first: everybody waits for what it brings.
template <class Across, class Inside>
RingExecutor::State advance_both(StageSequence<Across>& across, StageSequence<Inside>& inside) {
  bool moved = across.advance(inside);
  moved |= inside.advance(across);
  if (across.done() && inside.done()) return RingExecutor::State::kDone;
  return moved ? RingExecutor::State::kMoved : RingExecutor::State::kBlocked;
}

}  // namespace loom::device
