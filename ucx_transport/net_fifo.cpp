#include "ucx_transport/net_fifo.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/error.hpp"

namespace loom::ucx_transport {

using device::StepFlag;

NetEnd::NetEnd(Transport& transport, const device::FifoShape& shape, std::string peer, bool is_sender)
    : shape_(shape),
      region_(transport, sizeof(Header) + shape.slot_count * shape.slot_bytes),
      transport_(transport),
      peer_(std::move(peer)),
      is_sender_(is_sender) {}

Offer NetEnd::offer() {
  offered_ = true;
  return {reinterpret_cast<std::uint64_t>(region_.data()), region_.packed_key()};
}

void NetEnd::connect(const Bytes& worker_address, const Offer& other_end) {
  remote_.emplace(transport_, transport_.connect(worker_address, peer_), other_end.address, other_end.key);
}

void NetEnd::check_writes() const {
  remote_->endpoint().check();
  if (puts_.error != UCS_OK)
    throw Error(ErrorCode::kPeerFailed,
                fmt::format("Writing to {} failed: {}.", peer_, ucs_status_string(puts_.error)));
}

std::uint64_t NetEnd::look() {
  if (header().other_step.value() == seen_) transport_.progress();
  // The lock pairs with that of the thread that progressed: UCX may have written the slots, and then the counter, with
  // ordinary stores there.
  const auto lock = transport_.lock();
  const std::uint64_t value = header().other_step.value();
  if (value == StepFlag::kAbandoned)
    throw Error(ErrorCode::kPeerFailed, fmt::format("The other end ({}) gave up on this communicator.", peer_));
  if (value <= seen_) check_writes();
  return seen_ = std::max(seen_, value);
}

void NetEnd::write_step(std::size_t bytes) {
  const auto lock = transport_.lock();
  const std::size_t offset = slot_offset();
  if (bytes > 0) transport_.put(*remote_, region_.data() + offset, bytes, offset, puts_);
  transport_.order();
  announce(++step_);
}

void NetEnd::announce(std::uint64_t counter) {
  // A place is used again when so many counters later the other end must have answered to it.
  std::uint64_t& outgoing = header().outgoing[next_outgoing_++ % Header::kOutgoing];
  outgoing = counter;
  transport_.put(*remote_, &outgoing, sizeof(counter), offsetof(Header, other_step), puts_);
}

bool NetEnd::handed_over() {
  transport_.progress();
  const auto lock = transport_.lock();
  check_writes();
  return puts_.outstanding == 0;
}

void NetEnd::abandon_end() noexcept {
  const auto lock = transport_.lock();
  if (abandoned_ || !remote_) return;
  abandoned_ = true;
  try {
    announce(device::StepFlag::kAbandoned);
    transport_.progress();
  } catch (const Error&) {
    // The connection is broken: the other end sees that by itself.
  }
}

bool NetEnd::quiet() const {
  if (!remote_) return !offered_;  // the other end may have connected to what was offered
  if (abandoned_ || puts_.outstanding > 0) return false;
  return !is_sender_ || header().other_step.value() == step_;
}

std::byte* NetSendLink::try_acquire() {
  const auto full = [&] { return step_ - seen_ >= shape_.slot_count; };
  if (full()) look();
  return full() ? nullptr : region_.data() + slot_offset();
}

const std::byte* NetRecvLink::try_receive() {
  if (step_ >= seen_ && look() <= step_) return nullptr;
  return region_.data() + slot_offset();
}

}  // namespace loom::ucx_transport
