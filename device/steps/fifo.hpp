// fifo.hpp -- the two ends of a FIFO between ranks whose memory both can reach, as plain pointers.
//
// The slots and `filled` lie in the receiver's memory, `consumed` in the sender's, so that each spins on its
// own memory. The user of an end counts the messages, from 1; both ends count alike.
//
// Where the ranks are on different hosts, each end lies in memory of its own host, with slots of its own, and
// somebody there carries the messages and moves the other end's words (device/link/carrier.hpp).
#pragma once

#include <cstddef>

#include "device/steps/memory.hpp"

namespace loom::device::steps {

struct FifoForm {
  std::size_t slot_bytes = 0;  ///< a multiple of 128
  std::size_t slot_count = 0;

  LOOM_HOST_DEVICE constexpr std::size_t bytes() const { return slot_bytes * slot_count; }
  /// Where a message's slot lies.
  LOOM_HOST_DEVICE constexpr std::size_t offset_of(Word message) const {
    return (message - 1) % slot_count * slot_bytes;
  }
};

/// What the carrier of a message has to know of it.
struct Sent {
  Word message = 0;  ///< its number. One that no call has sent, as a tree's links pass over, is never noted
  Word bytes = 0;
};

/// All zeros before the first message.
struct SendEnd {
  std::byte* slots = nullptr;
  Word* filled = nullptr;          ///< messages published; used by Simple alone
  const Word* consumed = nullptr;  ///< messages whose slots may be used again
  /// By slot, where a carrier reads them, written before `filled`; nullptr: the receiver itself does. Simple
  /// alone has such ends.
  Sent* sent = nullptr;
};
struct RecvEnd {
  const std::byte* slots = nullptr;
  const Word* filled = nullptr;
  Word* consumed = nullptr;
};

/// The slot that lies `offset` behind the first one.
LOOM_HOST_DEVICE inline Word* slot_of(const SendEnd& end, std::size_t offset) {
  return reinterpret_cast<Word*>(end.slots + offset);
}
LOOM_HOST_DEVICE inline const Word* slot_of(const RecvEnd& end, std::size_t offset) {
  return reinterpret_cast<const Word*>(end.slots + offset);
}

/// Ends every wait.
struct WayOut {
  const Word* abandoned = nullptr;  ///< no longer 0 when the communicator has been abandoned
  unsigned patience = 0;            ///< so many fruitless looks, and the kernel leaves. 0: 2^32

  LOOM_HOST_DEVICE bool taken() const { return load_acquire(abandoned) != 0; }
};

/// Waits until `ready()`. False: in vain. `agreed(condition)`: whether the condition holds for any of the
/// threads that wait for the same and must leave together; they look equally often.
template <class Group, class Ready, class Agreed>
LOOM_HOST_DEVICE bool wait_until(Group& group, const WayOut& way_out, Ready&& ready, Agreed&& agreed) {
  constexpr unsigned kLookEvery = 1024;  // the word may lie in host memory, far from a GPU
  for (unsigned looks = 0; !ready();) {
    if (++looks == way_out.patience || (looks % kLookEvery == 0 && agreed(way_out.taken()))) return false;
    group.pause();
  }
  return true;
}
template <class Group, class Ready>
LOOM_HOST_DEVICE bool wait_until(Group& group, const WayOut& way_out, Ready&& ready) {
  return wait_until(group, way_out, ready, [](bool taken) { return taken; });
}

}  // namespace loom::device::steps
