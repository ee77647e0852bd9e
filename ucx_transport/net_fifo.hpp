// net_fifo.hpp -- the links of two ranks of different hosts: the sender sends slots, each with its step; the
// receiver puts them into its own slots, or consumes them as they come, and sends back how many it has
// released.
//
// Each end opens an inbox, learns the other end's id through the bootstrap, and connects.
//
// The slots may be memory of the caller's, which a GPU's kernel reaches, too (net_proxy.hpp). Messages share
// it while they are under way, so UCX's callback may be the last to let go of it: the deleter must not use
// the transport.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/link/link.hpp"
#include "device/link/step_flag.hpp"
#include "ucx_transport/transport.hpp"

namespace loom::ucx_transport {

/// What both ends are made of.
class NetEnd : protected Inbox {
 public:
  /// What the other end's connect() takes.
  InboxId inbox() const noexcept { return inbox_; }
  /// other_on_gpu: the slots of the other end are.
  void connect(const Bytes& worker_address, InboxId other_end, RailId rail = kAllRails,
               bool other_on_gpu = false);
  /// Neither UCX nor the other end has said that the connection has ended. From any thread.
  bool is_connected() const noexcept;
  /// Whether UCX holds back nothing that this end has sent, as far as UCX tells: it counts as sent what a
  /// socket's full buffer did not take. So ask only for messages that are sent eagerly and short against that
  /// buffer. Throws Error (kPeerFailed) where some of them never leave.
  bool is_flushed();
  /// The way to the other end and the last step, for messages: "over tcp/eth0: 9 slots sent, 8 of them
  /// taken".
  std::string standing() const;
  std::string way() const;
  /// The other end, as messages name it.
  const std::string& peer() const noexcept { return peer_; }
  const device::FifoShape& shape() const noexcept { return shape_; }
  /// See Endpoint. Only once connected.
  std::size_t rails() const noexcept { return endpoint_->rails(); }
  /// Memory for slots.
  std::size_t bytes() const noexcept { return shape_.slot_count * shape_.slot_bytes; }
  /// Slots published or released by this end.
  std::uint64_t steps() const noexcept { return step_; }
  /// Throws what a look in vain does, without progressing: Error (kPeerFailed; kGivenUp; kInternal when a
  /// message came that no correct peer sends).
  void check_other_end() const;
  /// Tells the other end that nothing further will come. What UCX holds back of it leaves when this process
  /// next progresses.
  void abandon_end() noexcept;
  /// As is_flushed(); also true where the connection is broken.
  bool has_flushed_or_failed() noexcept;
  /// See device::SendLink.
  void say_waiting_at_end() noexcept;
  bool other_end_waits() const noexcept { return other_waits_.load(std::memory_order_relaxed); }

 protected:
  /// `peer` names the other end in messages. The transport must outlive this.
  NetEnd(Transport& transport, const device::FifoShape& shape, std::string peer);
  ~NetEnd() override = default;

  std::size_t slot_offset(std::uint64_t step) const { return step % shape_.slot_count * shape_.slot_bytes; }
  void send(Word word, const std::byte* data, std::size_t bytes);
  /// What the other end no longer needs once the connection has broken. Throws Error where this process
  /// cannot send.
  void send_to_live_peer(Word word);
  /// After a look in vain: throws as check_other_end(), unless another thread has progressed meanwhile and
  /// brought what was looked for. Whether it has.
  template <class HasCome>
  bool check_in_vain(HasCome&& has_come) const {
    try {
      check_other_end();
    } catch (const Error&) {
      if (!has_come()) throw;
      return true;
    }
    return false;
  }
  /// For this end or none in particular.
  void progress(Inbox* waiting = nullptr);
  void check() const;
  ucs_status_t status() const noexcept;
  virtual std::string last_step() const = 0;

  // Called by the constructor and the destructor of the class whose take() takes the messages.
  void open_inbox() { inbox_ = transport_.open(*this); }
  void close_inbox() noexcept { transport_.close(inbox_); }
  /// Whether a message was a word about the other end, and not about a slot.
  bool note_word(std::uint64_t step) noexcept;
  /// A message came that no correct peer sends.
  void refuse() noexcept { nonsense_.store(true, std::memory_order_release); }
  void lose(ucs_status_t status) noexcept override {
    outbox_->error.store(status, std::memory_order_relaxed);
  }

  device::FifoShape shape_;
  std::uint64_t step_ = 0;  ///< slots published or released by this end
  std::shared_ptr<Outbox> outbox_;

 private:
  Transport& transport_;
  std::string peer_;
  InboxId inbox_ = 0, other_inbox_ = 0;
  std::shared_ptr<Endpoint> endpoint_;
  std::atomic<bool> abandoned_by_peer_{false}, other_waits_{false}, nonsense_{false};
};

class NetRecvLink;

class NetSendLink final : public device::SendLink, public NetEnd {
 public:
  /// `place`: of as many bytes as bytes() says, 64-byte aligned; empty: allocated here.
  NetSendLink(Transport& transport, const device::FifoShape& shape, std::string peer, Place place = {});
  ~NetSendLink() override { close_inbox(); }

  std::byte* try_acquire() override;
  void publish(std::size_t bytes) override;
  /// Counts slots as published that no call sends; the other end counts them as released. Which of the two
  /// does so first makes no difference.
  void pass_over(std::uint64_t up_to) noexcept;
  /// Pairs the two ends of this rank that lead to and from the same peer: what is sent on one also tells what
  /// has been released of the other. Both must live while messages come in.
  void pair_with(NetRecvLink& other_way) noexcept;
  /// From now on UCX is done with a slot once it has left (Transport): is_flushed() need not wait for the
  /// receiver.
  void send_along() noexcept { outbox_->is_sent_along = true; }
  /// Bytes published after so many slots, at most slot_count ago.
  std::uint64_t bytes_after(std::uint64_t steps) const noexcept {
    return steps == step_ ? 0 : bytes_ - bytes_before_[steps % shape_.slot_count];
  }
  /// Slots that the receiver is known to have released, without looking for news. Acquire: UCX has read them,
  /// perhaps in another thread, and they may be overwritten.
  std::uint64_t taken() const noexcept { return released_.load(std::memory_order_acquire); }
  /// The same, after progressing. Throws Error.
  std::uint64_t released();
  void abandon() noexcept override { abandon_end(); }
  void say_waiting() noexcept override { say_waiting_at_end(); }
  bool other_waits() const noexcept override { return other_end_waits(); }

 private:
  friend class NetRecvLink;
  void take(Word word, std::span<const std::byte>) noexcept override;
  Place place(Word, std::size_t) noexcept override {
    refuse();
    return {};
  }
  void arrive(Word) noexcept override {}
  void note_released(std::uint64_t step) noexcept;
  std::string last_step() const override;

  std::atomic<std::uint64_t> released_{0};   ///< by the receiver, as far as known
  std::uint64_t bytes_ = 0;                  ///< published
  std::vector<std::uint64_t> bytes_before_;  ///< by slot, what of them came before it
  NetRecvLink* other_way_ = nullptr;
};

class NetRecvLink final : public device::RecvLink, public NetEnd {
 public:
  /// `place`: as for NetSendLink.
  NetRecvLink(Transport& transport, const device::FifoShape& shape, std::string peer, Place place = {});
  ~NetRecvLink() override { close_inbox(); }

  const std::byte* try_receive() override;
  void release() override;
  bool try_consume(std::size_t bytes, const device::Consumer& consume) override;
  /// See NetSendLink. All that have arrived before are released.
  void pass_over(std::uint64_t up_to);
  /// Slots that have arrived one behind the other, released ones included, without looking for news. What
  /// lies in them is visible. Whichever call they are of: that is compared by try_receive() alone.
  std::uint64_t arrived() noexcept;
  /// Tells the sender of all releases: it may be waiting for the last ones.
  void settle();
  void abandon() noexcept override { abandon_end(); }
  void say_waiting() noexcept override { say_waiting_at_end(); }
  bool other_waits() const noexcept override { return other_end_waits(); }

 private:
  friend class NetSendLink;
  void take(Word word, std::span<const std::byte> data) noexcept override;
  Place place(Word word, std::size_t bytes) noexcept override;
  void arrive(Word word) noexcept override;
  /// The slot of the message with this step; nullptr, and refused, where no correct peer sends such a step.
  std::byte* slot_for(std::uint64_t step, std::size_t bytes) noexcept;
  /// The number of released slots, for a message that carries it.
  std::uint64_t tell_released() noexcept {
    untold_bytes_ = 0;
    return told_ = step_;
  }
  void tell_if_due();
  bool comes(Inbox* waiting = nullptr);
  bool is_here() const noexcept { return arrived_[step_ % shape_.slot_count].value() == step_ + 1; }
  bool consume_at_once(Word word, std::span<const std::byte> data) noexcept;
  std::string last_step() const override;

  Place place_;
  std::vector<std::size_t> lengths_;      ///< by slot, of the message in it; published by arrived_
  std::vector<std::uint64_t> notes_;      ///< by slot, as its sender has noted it; published by arrived_
  std::vector<std::uint64_t> taken_for_;  ///< by slot, the latest step for which it was given to a message
  /// By slot, the step that lies in it.  arrive(): release  -- pairs with --  try_receive(), arrived():
  /// acquire
  std::unique_ptr<device::StepFlag[]> arrived_;
  std::uint64_t seen_ = 0;                  ///< what arrived() has seen
  std::atomic<std::uint64_t> released_{0};  ///< step_ for slot_for(), which may run in another thread
  std::uint64_t told_ = 0;                  ///< of released_, to the other end
  std::size_t untold_bytes_ = 0;            ///< released since
  // Of try_consume(), in the thread that calls it: what the next slot's bytes go to, and whether they have.
  const device::Consumer* consumer_ = nullptr;
  std::size_t consumed_bytes_ = 0;
  bool consumed_ = false;
  NetSendLink* other_way_ = nullptr;
};

/// What has gone over links with one peer, for messages.
class Traffic {
 public:
  void add(const NetSendLink& link);
  void add(const NetRecvLink& link);
  /// "over tcp/eth0: 9 slots sent, 8 of them taken, 7 received"; empty of no link.
  std::string text() const;

 private:
  std::string way_;  ///< of one of them
  std::uint64_t sent_ = 0, taken_ = 0, received_ = 0;
};

/// After abandon_end(), for this process may not progress again soon: looks whether all has left, for so
/// long.
template <class HasLeft>
void give_last_words_time(HasLeft&& has_left) {
  constexpr std::chrono::milliseconds kMost{100};
  const auto until = std::chrono::steady_clock::now() + kMost;
  while (!has_left() && std::chrono::steady_clock::now() < until) {
  }
}

}  // namespace loom::ucx_transport
