#include "ucx_transport/net_proxy.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::ucx_transport {
namespace {

using device::steps::load_acquire;
using device::steps::store_release;

/// Where the kernel's words are, which is where the link is.
device::Word start_of(const NetEnd& link, const device::steps::FarEnd& kernel) {
  const device::Word at = load_acquire(kernel.filled);
  if (at != load_acquire(kernel.consumed) || at != link.steps())
    throw Error(ErrorCode::kInternal,
                loom::format("The kernel's words of the link with {} start where the link is not ({}).",
                             link.peer(), link.standing()));
  return at;
}

[[noreturn]] void throw_nonsense(const NetEnd& link, device::Word value, const char* what) {
  throw Error(ErrorCode::kInternal,
              loom::format("A kernel says of its link with {} what cannot be: {} {} ({}).", link.peer(),
                           value, what, link.standing()));
}

}  // namespace

NetProxy::Send::Send(const NetSendEnd& end) : NetSendEnd(end), told(start_of(*link, kernel)) {}

NetProxy::Receive::Receive(const NetRecvEnd& end) : NetRecvEnd(end), told(start_of(*link, kernel)) {}

NetProxy::NetProxy(Transport& transport, const std::vector<NetSendEnd>& send_ends,
                   const std::vector<NetRecvEnd>& recv_ends, Flush flush)
    : transport_(transport),
      sends_(send_ends.begin(), send_ends.end()),
      receives_(recv_ends.begin(), recv_ends.end()),
      flush_(std::move(flush)) {}

template <class Body>
void NetProxy::for_each_end(Body&& body) const {
  for (const Send& end : sends_) body(end);
  for (const Receive& end : receives_) body(end);
}

bool NetProxy::advance() {
  const std::uint64_t before = moves_;
  transport_.progress();
  // What came before a peer was lost still reaches the kernel, which may need no more.
  const auto check = [this](const auto& end, bool has_moved) {
    if (!has_moved && awaits(end)) end.link->check_other_end();
  };
  for (Send& end : sends_) check(end, advance(end));
  look_for_arrivals();
  for (Receive& end : receives_) {
    const bool released = release(end), announced = announce(end);
    check(end, released || announced);
  }
  return moves_ != before;
}

/// Many slots may be under way. The kernel has filled none that it was not told to be free.
bool NetProxy::advance(Send& end) {
  const std::uint64_t before = moves_;
  NetSendLink& link = *end.link;
  const std::size_t slots = link.shape().slot_count;
  const device::Word filled = load_acquire(end.kernel.filled), published = link.steps();
  if (filled < published || filled > end.told + slots) throw_nonsense(link, filled, "messages filled");
  const device::Word last_of_others = filled - std::min<device::Word>(filled, slots);
  for (device::Word message = std::max(published, last_of_others) + 1; message <= filled; ++message) {
    const device::steps::Sent& sent = end.kernel.sent[(message - 1) % slots];
    if (load_acquire(&sent.message) != message) continue;  // passed over
    // Loaded once: what is checked is what is sent.
    const device::Word bytes = load_acquire(&sent.bytes);
    if (bytes > link.shape().slot_bytes) throw_nonsense(link, bytes, "bytes in a slot");
    link.pass_over(message - 1);
    link.publish(bytes);
    ++moves_;
  }
  if (link.steps() != filled)
    throw_nonsense(link, filled, "messages filled, of which the slot of the last one notes another");

  if (const device::Word taken = link.taken(); taken > end.told) {
    moves_ += taken - end.told;
    end.told = taken;
    store_release(end.kernel.consumed, taken);
  }
  return moves_ != before;
}

/// One question to the GPU for all ends: whatever has come by then is visible afterwards.
void NetProxy::look_for_arrivals() {
  bool on_gpu = false;
  for (Receive& end : receives_) {
    end.come = end.link->arrived();
    on_gpu |= end.kernel.on_gpu && end.come > end.told;
  }
  if (on_gpu) flush_();
}

/// What the kernel has consumed beyond what has come is passed over.
bool NetProxy::release(Receive& end) {
  NetRecvLink& link = *end.link;
  const device::Word consumed = load_acquire(end.kernel.consumed);
  if (consumed < link.steps()) throw_nonsense(link, consumed, "messages consumed");
  if (consumed == link.steps()) return false;
  moves_ += consumed - link.steps();
  const device::Word arrived = link.arrived();
  while (link.steps() < std::min(consumed, arrived)) link.release();
  if (consumed > arrived) link.pass_over(consumed);
  end.come = std::max(end.come, consumed);  // there is nothing to see of what is passed over
  return true;
}

bool NetProxy::announce(Receive& end) {
  if (end.come <= end.told) return false;
  moves_ += end.come - end.told;
  end.told = end.come;
  store_release(end.kernel.filled, end.come);
  return true;
}

std::optional<int> NetProxy::not_quiet() {
  transport_.progress();
  std::optional<int> peer;
  for (Send& end : sends_) {
    if (!advance(end) && end.awaits()) end.link->check_other_end();
    if (end.awaits() && !peer) peer = end.kernel.peer;
  }
  // On all ends, quiet or not: a peer may wait for any word.
  look_for_arrivals();
  for (Receive& end : receives_) {
    release(end);
    announce(end);
    end.link->settle();
  }
  for (const Receive& end : receives_)
    if (!end.link->is_flushed() && !peer) peer = end.kernel.peer;
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

std::optional<bool> NetProxy::waits(int peer) const noexcept {
  std::optional<bool> on_all;
  for_each_end([&](const auto& end) {
    if (end.kernel.peer == peer) on_all = on_all.value_or(true) && end.link->other_waits();
  });
  return on_all;
}

std::optional<int> NetProxy::awaited() const {
  std::optional<int> found;
  bool found_waits = true;
  for_each_end([&](const auto& end) {
    if (!awaits(end) || !found_waits) return;
    const bool other_waits = *waits(end.kernel.peer);
    if (!found || !other_waits) found = end.kernel.peer;
    found_waits = other_waits;
  });
  return found;
}

std::string NetProxy::standing(int peer) const {
  Traffic traffic;
  for_each_end([&](const auto& end) {
    if (end.kernel.peer == peer) traffic.add(*end.link);
  });
  return traffic.text();
}

}  // namespace loom::ucx_transport
