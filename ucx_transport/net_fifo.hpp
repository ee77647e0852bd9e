// net_fifo.hpp -- the links of two ranks of different hosts: the sender writes slots and, when they have arrived, its step
// counter into the receiver's memory; the receiver writes its counter back.
//
// Each end makes an Offer, gets the other end's through the bootstrap, and connects.
#pragma once

#include <optional>
#include <string>

#include "device/host/shared_fifo.hpp"
#include "device/link.hpp"
#include "ucx_transport/transport.hpp"

namespace loom::ucx_transport {

/// What one end tells the other: where to write, and with which key.
struct Offer {
  std::uint64_t address = 0;
  Bytes key;
};

/// What both ends are made of: a region that begins with the other end's counter, followed by slots (the sender's
/// staging slots, the receiver's incoming ones), and the way to the other end's region, which looks the same.
///
/// Writes arrive in any order, so each counter is ordered after the data that it announces and the counter before it.
class NetEnd : public Retiring {
 public:
  Offer offer();
  /// Throws Error (kUnreachable).
  void connect(const Bytes& worker_address, const Offer& other_end);

  /// UCX reads nothing of this end any more, and nothing more comes in: a sender has all its slots back, and a receiver, having
  /// taken part in whole collectives, has been sent nothing else. Never, once abandoned.
  bool quiet() const override;
  void disconnect() noexcept override { remote_.reset(); }

 protected:
  /// `peer` names the other end in messages. The transport must outlive this.
  NetEnd(Transport& transport, const device::FifoShape& shape, std::string peer, bool is_sender);

  /// At the start of the region.
  struct Header {
    alignas(device::kCacheLine) device::StepFlag other_step;  ///< written by the other end
    /// This end's counters on their way. UCX may read one after the call; no end is more than its slots ahead of the other.
    static constexpr std::size_t kOutgoing = 64;
    alignas(device::kCacheLine) std::uint64_t outgoing[kOutgoing];
  };
  Header& header() const { return *reinterpret_cast<Header*>(region_.data()); }
  std::size_t slot_offset() const { return sizeof(Header) + step_ % shape_.slot_count * shape_.slot_bytes; }

  /// The other end's counter, never less than before. Looks after the connection when the counter
  /// has not moved. Throws Error (kPeerFailed).
  std::uint64_t look();
  /// Counts one step: writes the first `bytes` bytes of its slot, and lets the counter follow.
  void write_step(std::size_t bytes);
  /// All writes have been handed to the network. (To wait for their arrival could mean to wait for a peer that has seen the
  /// last counter and left MPI.) Throws Error (kPeerFailed).
  bool handed_over();
  void abandon_end() noexcept;

  device::FifoShape shape_;
  Region region_;
  std::uint64_t step_ = 0;  ///< slots published or released by this end
  std::uint64_t seen_ = 0;  ///< the other end's counter when last looked at

 private:
  void announce(std::uint64_t counter);
  void check_writes() const;

  Transport& transport_;
  std::string peer_;
  std::optional<RemoteRegion> remote_;
  bool offered_ = false;
  const bool is_sender_;
  // Below: under the transport's lock, for completions come in whichever thread progresses.
  PutTracker puts_;
  std::size_t next_outgoing_ = 0;
  bool abandoned_ = false;
};

class NetSendLink final : public device::SendLink, public NetEnd {
 public:
  NetSendLink(Transport& transport, const device::FifoShape& shape, std::string peer)
      : NetEnd(transport, shape, std::move(peer), true) {}

  std::byte* try_acquire() override;
  void publish(std::size_t bytes) override { write_step(bytes); }
  bool drained() override { return handed_over(); }
  void abandon() noexcept override { abandon_end(); }
};

class NetRecvLink final : public device::RecvLink, public NetEnd {
 public:
  NetRecvLink(Transport& transport, const device::FifoShape& shape, std::string peer)
      : NetEnd(transport, shape, std::move(peer), false) {}

  const std::byte* try_receive() override;
  void release() override { write_step(0); }
  void abandon() noexcept override { abandon_end(); }
};

}  // namespace loom::ucx_transport
