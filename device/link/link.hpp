// link.hpp -- one connection from a rank to a neighbour, as an executor sees it: a FIFO of equal slots.
// The receiver owns the memory; the implementation decides whether it is shared or reached over a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/link/call_note.hpp"

namespace loom::device {

/// The form of a FIFO, equal at both ends.
struct FifoShape {
  std::size_t slot_bytes = 0;  ///< a multiple of 64
  std::size_t slot_count = 0;
  /// On a network, where every message costs: the receiver tells the sender of its releases after this many
  /// slots, or this many bytes. Until then released slots still look occupied to the sender.
  std::size_t releases_per_credit = 1;
  std::size_t bytes_per_credit = SIZE_MAX;
};

/// What both ends know of the call that uses them. Every slot says which call it is part of: if one end's
/// call was longer, its last slots would else be taken for the first slots of the next call.
class LinkInCall {
 public:
  /// Begins a call. Equal at both ends in a correct program.
  void enter(const CallNote& note) noexcept { note_ = note; }

 protected:
  ~LinkInCall() = default;
  const CallNote& note() const noexcept { return note_; }
  /// Throws Error unless the slot is part of this end's call: kTruncated where it has more bytes, else
  /// kMismatch.
  void compare(std::uint64_t slots_note, const std::string& peer) const {
    if (slots_note != note_.word()) [[unlikely]]
      throw_different(CallNote::from_word(slots_note), peer);
  }

 private:
  [[noreturn]] void throw_different(const CallNote& its, const std::string& peer) const;
  CallNote note_;
};

/// The sending end. publish(), and a function that finds nothing of what it looks for, throw Error when the
/// connection is known to be broken (kPeerFailed), or the other end has abandoned it (kGivenUp).
class SendLink : public LinkInCall {
 public:
  virtual ~SendLink() = default;

  /// The next slot to fill, 64-byte aligned, or nullptr while the receiver has not given one back. The same
  /// slot until publish().
  virtual std::byte* try_acquire() = 0;
  /// Hands the acquired slot, with its first `bytes` bytes, to the receiver.
  virtual void publish(std::size_t bytes) = 0;
  /// Tells the receiver that nothing further will come. Never throws; for a communicator that cannot go on.
  virtual void abandon() noexcept = 0;
  /// Tells the receiver that this end has been waiting for long. Never throws.
  virtual void say_waiting() noexcept = 0;
  /// The receiver has said that it waits, and has not moved since: it answers, but waits itself.
  virtual bool other_waits() const noexcept = 0;
};

/// Refers to a function that takes what has been received. It must not throw, nor use a link.
class Consumer {
 public:
  template <class Function>
  explicit Consumer(const Function& function)
      : call_([](const void* context, const std::byte* received) {
          (*static_cast<const Function*>(context))(received);
        }),
        context_(&function) {}
  void operator()(const std::byte* received) const { call_(context_, received); }

 private:
  void (*call_)(const void* context, const std::byte* received);
  const void* context_;
};

/// The receiving end. A function that finds nothing throws as SendLink's do; so does one that finds a slot of
/// another call.
class RecvLink : public LinkInCall {
 public:
  virtual ~RecvLink() = default;

  /// The next filled slot, or nullptr while there is none. The same slot until release().
  virtual const std::byte* try_receive() = 0;
  /// Gives the received slot back to the sender.
  virtual void release() = 0;
  /// The next slot's `bytes` bytes are consumed, and the slot is given back. false while there is none. What
  /// comes while this looks need not go through a slot: it is consumed where it lies. Links between hosts
  /// throw Error (kMismatch) where it has other bytes than these.
  virtual bool try_consume(std::size_t bytes, const Consumer& consume) {
    static_cast<void>(bytes);
    const std::byte* const received = try_receive();
    if (received == nullptr) return false;
    consume(received);
    release();
    return true;
  }
  /// Tells the sender that nothing further will be taken. Never throws.
  virtual void abandon() noexcept = 0;
  /// As SendLink's.
  virtual void say_waiting() noexcept = 0;
  virtual bool other_waits() const noexcept = 0;
};

}  // namespace loom::device
