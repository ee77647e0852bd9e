// shared_fifo.hpp -- the links of two ranks of one host: a FIFO in memory that both have mapped.
#pragma once

#include "base/error.hpp"
#include "base/format.hpp"
#include "device/link/link.hpp"
#include "device/link/step_flag.hpp"

namespace loom::device {

/// The start of a FIFO in shared memory; the slots follow, and then the note of each. `filled` and `consumed`
/// have a cache line each, because each is spun on by one side.
struct SharedFifoHeader {
  alignas(kCacheLine) StepFlag filled;    ///< slots filled so far; written by the sender
  alignas(kCacheLine) StepFlag consumed;  ///< slots given back so far; written by the receiver
  /// Of an end that has been waiting for long: 1 + the slots that it has filled, or consumed.
  alignas(kCacheLine) StepFlag sender_waits;
  StepFlag receiver_waits;
};

constexpr std::size_t shared_fifo_bytes(const FifoShape& shape) {
  const std::size_t notes =
      (shape.slot_count * sizeof(std::uint64_t) + kCacheLine - 1) / kCacheLine * kCacheLine;
  return sizeof(SharedFifoHeader) + shape.slot_count * shape.slot_bytes + notes;
}

/// What both ends know: where the FIFO lies and how far this end has come. `memory` (64-byte aligned; zeroed
/// before either end is made, or with one number of slots filled and consumed) must outlive it.
class SharedFifoEnd {
 protected:
  SharedFifoEnd(std::byte* memory, const FifoShape& shape, int peer, std::uint64_t step)
      : header_(header_at(memory)),
        slots_(memory + sizeof(SharedFifoHeader)),
        notes_(reinterpret_cast<std::uint64_t*>(slots_ + shape.slot_count * shape.slot_bytes)),
        shape_(shape),
        peer_(peer),
        step_(step),
        seen_(step) {}

  static SharedFifoHeader* header_at(std::byte* memory) {
    return reinterpret_cast<SharedFifoHeader*>(memory);
  }
  std::byte* slot(std::uint64_t step) const {
    return slots_ + (step % shape_.slot_count) * shape_.slot_bytes;
  }
  std::uint64_t& note_of(std::uint64_t step) const { return notes_[step % shape_.slot_count]; }
  std::uint64_t checked(std::uint64_t flag) const {
    if (flag == StepFlag::kAbandoned)
      throw Error(ErrorCode::kGivenUp, loom::format("Rank {} gave up on this communicator.", peer_));
    return flag;
  }

  SharedFifoHeader* header_;
  std::byte* slots_;
  std::uint64_t* notes_;  ///< by slot; published with its bytes
  FifoShape shape_;
  int peer_;
  std::uint64_t step_;  ///< slots published or released by this end
  /// The other end's flag when last read; its cache line is not read again while this suffices.
  std::uint64_t seen_;
};

class SharedSendLink final : public SendLink, SharedFifoEnd {
 public:
  SharedSendLink(std::byte* memory, const FifoShape& shape, int peer)
      : SharedFifoEnd(memory, shape, peer, header_at(memory)->filled.value()) {}

  std::byte* try_acquire() override {
    if (step_ - seen_ == shape_.slot_count) {
      seen_ = checked(header_->consumed.value());
      if (step_ - seen_ == shape_.slot_count) return nullptr;
    }
    return slot(step_);
  }
  void publish(std::size_t) override {
    note_of(step_) = note().word();
    header_->filled.publish(++step_);
  }
  void abandon() noexcept override { header_->filled.publish(StepFlag::kAbandoned); }
  void say_waiting() noexcept override { header_->sender_waits.publish(step_ + 1); }
  bool other_waits() const noexcept override {
    return header_->receiver_waits.value() == header_->consumed.value() + 1;
  }
};

class SharedRecvLink final : public RecvLink, SharedFifoEnd {
 public:
  SharedRecvLink(std::byte* memory, const FifoShape& shape, int peer)
      : SharedFifoEnd(memory, shape, peer, header_at(memory)->consumed.value()) {}

  const std::byte* try_receive() override {
    if (step_ == seen_) {
      seen_ = checked(header_->filled.value());
      if (step_ == seen_) return nullptr;
    }
    if (const std::uint64_t its = note_of(step_); its != note().word()) [[unlikely]]
      compare(its, loom::format("Rank {}", peer_));
    return slot(step_);
  }
  void release() override { header_->consumed.publish(++step_); }
  void abandon() noexcept override { header_->consumed.publish(StepFlag::kAbandoned); }
  void say_waiting() noexcept override { header_->receiver_waits.publish(step_ + 1); }
  bool other_waits() const noexcept override {
    return header_->sender_waits.value() == header_->filled.value() + 1;
  }
};

}  // namespace loom::device
