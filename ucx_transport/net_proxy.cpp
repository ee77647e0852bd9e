#include "ucx_transport/net_proxy.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::ucx_transport {
namespace {

using device::steps::load_acquire;
using device::steps::store_release;

/// The number by which words that start at `first` are ahead of the link's steps.
device::Word lead_of(const NetEnd& link, device::Word first, bool fits) {
  const std::size_t slots = link.shape().slot_count;
  if (!fits || first % slots != link.steps() % slots)
    throw Error(ErrorCode::kInternal,
                loom::format("The kernel's words of the link with {} start where the link is not ({}).",
                             link.peer(), link.standing()));
  return first - link.steps();
}

[[noreturn]] void throw_nonsense(const NetEnd& link, device::Word value, const char* what) {
  throw Error(ErrorCode::kInternal,
              loom::format("A kernel says of its link with {} what cannot be: {} {} ({}).", link.peer(),
                           value, what, link.standing()));
}

}  // namespace

NetProxy::Send::Send(const NetSendEnd& end)
    : NetSendEnd(end),
      lead(lead_of(*link, load_acquire(filled),
                   load_acquire(filled) == load_acquire(consumed) && link->taken() == link->steps())),
      told(published()) {}

NetProxy::Receive::Receive(const NetRecvEnd& end)
    : NetRecvEnd(end),
      lead(lead_of(*link, load_acquire(filled), load_acquire(filled) == load_acquire(consumed))),
      told(released()) {}

NetProxy::NetProxy(Transport& transport, const std::vector<NetSendEnd>& send_ends,
                   const std::vector<NetRecvEnd>& recv_ends)
    : transport_(transport),
      sends_(send_ends.begin(), send_ends.end()),
      receives_(recv_ends.begin(), recv_ends.end()) {}

template <class Body>
void NetProxy::for_each_end(Body&& body) const {
  for (const Send& end : sends_) body(end);
  for (const Receive& end : receives_) body(end);
}

bool NetProxy::advance() {
  const std::uint64_t before = moves_;
  transport_.progress();
  // What came before a peer was lost still reaches the kernel, which may need no more.
  for (Send& end : sends_)
    if (!advance(end) && end.awaits()) end.link->check_other_end();
  for (Receive& end : receives_)
    if (!advance(end) && end.awaits()) end.link->check_other_end();
  return moves_ != before;
}

/// Many slots may be under way. The kernel has filled none that it was not told to be free.
bool NetProxy::advance(Send& end) {
  const std::uint64_t before = moves_;
  const device::FifoShape& shape = end.link->shape();
  const device::Word filled = load_acquire(end.filled);
  if (filled - end.published() > end.told + shape.slot_count - end.published())
    throw_nonsense(*end.link, filled, "messages filled");
  for (; end.published() != filled; ++moves_) {
    // Loaded once: what is checked is what is sent.
    const device::Word bytes = load_acquire(end.bytes + end.link->steps() % shape.slot_count);
    if (bytes > shape.slot_bytes) throw_nonsense(*end.link, bytes, "bytes in a slot");
    end.link->publish(bytes);
    bytes_sent_ += bytes;
  }

  const std::uint64_t taken = end.link->taken();
  if (taken > end.link->steps()) end.link->released();  // refuses it
  if (const device::Word consumed = taken + end.lead; consumed != end.told) {
    moves_ += consumed - end.told;
    end.told = consumed;
    store_release(end.consumed, consumed);
  }
  return moves_ != before;
}

bool NetProxy::advance(Receive& end) {
  const std::uint64_t before = moves_;
  if (const device::Word filled = end.link->arrived() + end.lead; filled != end.told) {
    moves_ += filled - end.told;
    end.told = filled;
    store_release(end.filled, filled);
  }

  const device::Word consumed = load_acquire(end.consumed);
  if (consumed - end.released() > end.told - end.released())
    throw_nonsense(*end.link, consumed, "messages consumed");
  for (; end.released() != consumed; ++moves_) end.link->release();
  return moves_ != before;
}

std::optional<int> NetProxy::not_quiet() {
  transport_.progress();
  std::optional<int> peer;
  for (Send& end : sends_) {
    if (!advance(end) && end.awaits()) end.link->check_other_end();
    if (end.awaits() && !peer) peer = end.peer;
  }
  // On all ends, quiet or not: a peer may wait for any word.
  for (Receive& end : receives_) {
    advance(end);
    end.link->settle();
  }
  for (const Receive& end : receives_)
    if (!end.link->is_flushed() && !peer) peer = end.peer;
  return peer;
}

void NetProxy::abandon() noexcept {
  for_each_end([](const auto& end) { end.link->abandon(); });
}

bool NetProxy::has_flushed_or_failed() noexcept {
  bool all = true;
  for_each_end([&](const auto& end) { all &= end.link->has_flushed_or_failed(); });
  return all;
}

void NetProxy::say_waiting() noexcept {
  for_each_end([](const auto& end) { end.link->say_waiting(); });
}

bool NetProxy::other_waits(int peer) const noexcept {
  bool on_any = false, on_all = true;
  for_each_end([&](const auto& end) {
    if (end.peer == peer) end.link->other_waits() ? on_any = true : on_all = false;
  });
  return on_any && on_all;
}

std::optional<int> NetProxy::awaited() const {
  std::optional<int> found;
  bool found_waits = true;
  for_each_end([&](const auto& end) {
    if (!end.awaits() || !found_waits) return;
    const bool waits = other_waits(end.peer);
    if (!found || !waits) found = end.peer;
    found_waits = waits;
  });
  return found;
}

std::string NetProxy::standing(int peer) const {
  std::string way;
  std::uint64_t sent = 0, taken = 0, received = 0;
  for (const Send& end : sends_)
    if (end.peer == peer) way = end.link->way(), sent += end.link->steps(), taken += end.link->taken();
  for (const Receive& end : receives_)
    if (end.peer == peer) way = end.link->way(), received += end.link->steps();
  if (way.empty()) return way;
  return loom::format("over {}: {} slots sent, {} of them taken, {} received", way, sent, taken, received);
}

}  // namespace loom::ucx_transport
