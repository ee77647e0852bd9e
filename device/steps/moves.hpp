// moves.hpp -- the moves that a group of threads makes in a call. The schedules (rings.hpp, trees.hpp,
// pairs.hpp) ask for them.
#pragma once

#include "device/steps/channel.hpp"
#include "device/steps/move.hpp"

namespace loom::device::steps {

/// The moves of a group in a call, one after the other. Schedules are pure: a kernel that is launched again
/// goes through all of them, and those that have been done are passed over.
template <class Operation, class T, class Group>
class Moves {
 public:
  /// `done` moves have been, and of the next one this thread's `turns`. slice_bytes: see Task.
  LOOM_HOST_DEVICE Moves(Group& group, Protocol protocol, const FifoForm& form, std::size_t slice_bytes,
                         const WayOut& way_out, Word done, std::uint32_t turns)
      : group_(group), protocol_(protocol), form_(form), way_out_(way_out), done_(done), turns_(turns) {
    const std::size_t bytes = protocol == Protocol::kSimple ? SimpleMove::data_bytes(form)
                              : protocol == Protocol::kLL   ? LLMove::data_bytes(form)
                                                            : LL128Move::data_bytes(form);
    const bool fits = protocol == Protocol::kSimple && slice_bytes >= sizeof(T) && slice_bytes < bytes;
    slot_ = bytes / sizeof(T);
    slice_ = fits ? slice_bytes / sizeof(T) : slot_;
  }

  /// Elements that go at once, and that would fit into a slot.
  LOOM_HOST_DEVICE std::size_t slice() const { return slice_; }
  LOOM_HOST_DEVICE std::size_t slot() const { return slot_; }
  LOOM_HOST_DEVICE std::size_t slots() const { return form_.slot_count; }

  /// False, on all threads: the group leaves, and makes no further move.
  LOOM_HOST_DEVICE bool perform(const Move<T>& move) {
    if (asked_++ < done_) return true;
    if (!perform_now(move)) return false;
    ++done_;
    turns_ = 0;
    return true;
  }

  /// Links that had no message in the move just performed, and count it all the same: their senders find room
  /// again. In a call that goes on nothing is written that later moves have gone beyond.
  LOOM_HOST_DEVICE void pass_over(const RecvEnd* from, int count, Word message) const {
    if (asked_ < done_) return;
    for (int i = group_.index(); i < count; i += group_.size()) store_release(from[i].consumed, message + 1);
  }

  LOOM_HOST_DEVICE Word done() const { return done_; }
  LOOM_HOST_DEVICE std::uint32_t turns() const { return turns_; }

 private:
  LOOM_HOST_DEVICE LOOM_NOINLINE bool perform_now(const Move<T>& move) {
    if constexpr (LL128Move::carries<T>)
      if (protocol_ == Protocol::kLL128)
        return LL128Move::perform<Operation>(group_, move, form_, way_out_, turns_);
    return protocol_ == Protocol::kLL ? LLMove::perform<Operation>(group_, move, form_, way_out_, turns_)
                                      : SimpleMove::perform<Operation>(group_, move, form_, way_out_, turns_);
  }

  Group& group_;
  Protocol protocol_;
  const FifoForm& form_;
  const WayOut& way_out_;
  std::size_t slot_ = 0, slice_ = 0;
  Word done_, asked_ = 0;
  std::uint32_t turns_;
};

template <class T>
LOOM_HOST_DEVICE T* at(T* base, std::size_t elem) {
  return base == nullptr ? nullptr : base + elem;
}

}  // namespace loom::device::steps
