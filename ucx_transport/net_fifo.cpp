#include "ucx_transport/net_fifo.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::ucx_transport {

using device::StepFlag;

NetEnd::NetEnd(Transport& transport, const device::FifoShape& shape, std::string peer)
    : shape_(shape), outbox_(std::make_shared<Outbox>()), transport_(transport), peer_(std::move(peer)) {}

void NetEnd::connect(const Bytes& worker_address, InboxId other_end, RailId rail, bool other_on_gpu) {
  outbox_->is_fetched = outbox_->on_gpu || other_on_gpu;
  endpoint_ = transport_.connect(worker_address, peer_, rail);
  other_inbox_ = other_end;
}

void NetEnd::send(Word word, const std::byte* data, std::size_t bytes) {
  const ucs_status_t status = transport_.send(*endpoint_, other_inbox_, word, data, bytes, outbox_);
  if (status != UCS_OK) outbox_->error.store(status, std::memory_order_relaxed);
  check();
}

void NetEnd::send_to_live_peer(Word word) {
  const ucs_status_t status = transport_.send(*endpoint_, other_inbox_, word, nullptr, 0, outbox_, true);
  if (status == UCS_OK || !is_of_this_process(status)) return;
  outbox_->error.store(status, std::memory_order_relaxed);
  check();
}

ucs_status_t NetEnd::status() const noexcept {
  const ucs_status_t status = endpoint_->status();
  return status != UCS_OK ? status : outbox_->error.load(std::memory_order_relaxed);
}

bool NetEnd::is_connected() const noexcept {
  return endpoint_ && status() == UCS_OK && !abandoned_by_peer_.load(std::memory_order_acquire);
}

void NetEnd::check() const {
  const ucs_status_t status = this->status();
  if (status != UCS_OK)
    throw Error(ErrorCode::kPeerFailed, loom::format("The connection to {} is broken ({}); {}.", peer_,
                                                     ucs_status_string(status), standing()));
}

std::string NetEnd::standing() const {
  return loom::format("over {}: {}", way(), last_step());
}

std::string NetEnd::way() const {
  return endpoint_ ? endpoint_->way() : "no connection";
}

void NetEnd::progress(Inbox* waiting) {
  transport_.progress(waiting);
}

void NetEnd::check_other_end() const {
  if (abandoned_by_peer_.load(std::memory_order_acquire))
    throw Error(ErrorCode::kGivenUp,
                loom::format("The other end ({}) gave up on this communicator; {}.", peer_, standing()));
  if (nonsense_.load(std::memory_order_acquire))
    throw Error(ErrorCode::kInternal, loom::format("A message from {} fits no slot.", peer_));
  check();
}

bool NetEnd::is_flushed() {
  if (outbox_->pending.load(std::memory_order_relaxed) > 0) transport_.progress();
  // The other end may have ended its part, and its process: that is no error once nothing is left to send.
  const bool is_lost = outbox_->error.load(std::memory_order_relaxed) != UCS_OK;
  if (!is_lost && outbox_->pending.load(std::memory_order_relaxed) == 0) return true;
  check();
  return false;
}

bool NetEnd::has_flushed_or_failed() noexcept {
  if (!endpoint_ || status() != UCS_OK) return true;
  if (outbox_->pending.load(std::memory_order_relaxed) > 0) transport_.progress();
  return outbox_->pending.load(std::memory_order_relaxed) == 0;
}

void NetEnd::abandon_end() noexcept {
  if (!endpoint_) return;
  try {
    send_to_live_peer({StepFlag::kAbandoned});
  } catch (const std::exception&) {
    // There is no memory. The other end has not long to wait: this one's process ends, or its links do.
  }
}

void NetEnd::say_waiting_at_end() noexcept {
  if (!endpoint_) return;
  try {
    send_to_live_peer({StepFlag::kWaiting});
  } catch (const std::exception&) {
    // There is no memory; the wait that this is about goes on.
  }
}

bool NetEnd::note_word(std::uint64_t step) noexcept {
  other_waits_.store(step == StepFlag::kWaiting, std::memory_order_relaxed);
  if (step == StepFlag::kAbandoned) abandoned_by_peer_.store(true, std::memory_order_release);
  return step >= StepFlag::kWaiting;
}

NetSendLink::NetSendLink(Transport& transport, const device::FifoShape& shape, std::string peer, Place place)
    : NetEnd(transport, shape, std::move(peer)), bytes_before_(shape.slot_count) {
  outbox_->slots = place.slots ? std::move(place.slots) : allocate_slots(bytes());
  outbox_->on_gpu = place.on_gpu;
  open_inbox();
}

std::byte* NetSendLink::try_acquire() {
  // UCX has read every slot that the receiver has released, even where UCX has not said so yet.
  const auto free = [&](std::uint64_t released) { return step_ - released < shape_.slot_count; };
  if (!free(released_.load(std::memory_order_acquire)) && !free(released())) return nullptr;
  return outbox_->slots.get() + slot_offset(step_);
}

void NetSendLink::publish(std::size_t bytes) {
  send({step_ + 1, other_way_ != nullptr ? other_way_->tell_released() : 0, note().word()},
       outbox_->slots.get() + slot_offset(step_), bytes);
  bytes_before_[step_ % shape_.slot_count] = bytes_;
  bytes_ += bytes;
  ++step_;
}

void NetSendLink::pass_over(std::uint64_t up_to) noexcept {
  const std::uint64_t slots = shape_.slot_count;
  for (step_ = std::max(step_, up_to - std::min(up_to, slots)); step_ < up_to; ++step_)
    bytes_before_[step_ % slots] = bytes_;
}

std::uint64_t NetSendLink::released() {
  const std::uint64_t before = released_.load(std::memory_order_acquire);
  if (before == step_) return before;
  progress();
  const std::uint64_t released = released_.load(std::memory_order_acquire);
  if (released > step_) refuse();
  if (released != before && released <= step_) return released;
  const auto is_news = [&] {
    const std::uint64_t now = released_.load(std::memory_order_acquire);
    return now != before && now <= step_;
  };
  return check_in_vain(is_news) ? released_.load(std::memory_order_acquire) : released;
}

void NetSendLink::pair_with(NetRecvLink& other_way) noexcept {
  other_way_ = &other_way;
  other_way.other_way_ = this;
}

void NetSendLink::take(Word word, std::span<const std::byte>) noexcept {
  if (!note_word(word.step)) note_released(word.step);
}

void NetSendLink::note_released(std::uint64_t step) noexcept {
  // Runs under the transport's lock: one at a time. Messages may overtake each other.
  if (step > released_.load(std::memory_order_relaxed)) released_.store(step, std::memory_order_release);
}

std::string NetSendLink::last_step() const {
  return loom::format("{} slots sent, {} of them taken", step_, taken());
}

NetRecvLink::NetRecvLink(Transport& transport, const device::FifoShape& shape, std::string peer, Place place)
    : NetEnd(transport, shape, std::move(peer)),
      place_(std::move(place)),
      lengths_(shape.slot_count),
      notes_(shape.slot_count),
      taken_for_(shape.slot_count),
      arrived_(std::make_unique<StepFlag[]>(shape.slot_count)) {
  if (!place_.slots) {
    place_.slots = allocate_slots(bytes());
    // They get their memory now, from this thread's NUMA node; later any thread may be the first to write.
    std::memset(place_.slots.get(), 0, bytes());
  }
  open_inbox();
}

/// What has come before the other end was lost, in the same progress at the latest, is received.
bool NetRecvLink::comes(Inbox* waiting) {
  progress(waiting);
  return is_here() || check_in_vain([this] { return is_here(); });
}

const std::byte* NetRecvLink::try_receive() {
  if (!is_here() && !comes()) return nullptr;
  compare(notes_[step_ % shape_.slot_count], peer());
  return place_.slots.get() + slot_offset(step_);
}

bool NetRecvLink::try_consume(std::size_t bytes, const device::Consumer& consume) {
  if (!is_here()) {
    consumer_ = &consume, consumed_bytes_ = bytes;
    const auto ends = [this] {
      consumer_ = nullptr;
      return std::exchange(consumed_, false);
    };
    bool has_come = false;
    try {
      has_come = comes(this);
    } catch (...) {
      ends();
      throw;
    }
    if (ends()) {
      release();
      return true;
    }
    if (!has_come) return false;
  }
  const std::byte* const received = try_receive();
  const std::size_t sent = lengths_[step_ % shape_.slot_count];
  if (sent != bytes) [[unlikely]]  // the rest would be of an earlier call
    throw Error(ErrorCode::kMismatch,
                loom::format("{} sent {} bytes where this rank expects {}.", peer(), sent, bytes));
  consume(received);
  release();
  return true;
}

/// What try_consume() waits for has come, while it looked. Otherwise false: it goes to its slot.
bool NetRecvLink::consume_at_once(Word word, std::span<const std::byte> data) noexcept {
  if (!is_waited_for() || consumer_ == nullptr || word.step != step_ + 1 || word.note != note().word() ||
      data.size() != consumed_bytes_)
    return false;
  (*consumer_)(data.data());
  consumer_ = nullptr;
  consumed_ = true;
  return true;
}

void NetRecvLink::release() {
  untold_bytes_ += lengths_[step_ % shape_.slot_count];
  released_.store(++step_, std::memory_order_release);
  tell_if_due();
}

void NetRecvLink::pass_over(std::uint64_t up_to) {
  released_.store(step_ = std::max(step_, up_to), std::memory_order_release);
  tell_if_due();
}

void NetRecvLink::tell_if_due() {
  if (step_ - told_ >= shape_.releases_per_credit || untold_bytes_ >= shape_.bytes_per_credit)
    send_to_live_peer({tell_released()});
}

std::uint64_t NetRecvLink::arrived() noexcept {
  // Ends by itself: a slot that is not released holds an older step than that which comes there next.
  for (seen_ = std::max(seen_, step_); arrived_[seen_ % shape_.slot_count].value() == seen_ + 1;) ++seen_;
  return seen_;
}

void NetRecvLink::settle() {
  if (told_ != step_) send_to_live_peer({tell_released()});
}

std::string NetRecvLink::last_step() const {
  return loom::format("{} slots received", step_);
}

void NetRecvLink::take(Word word, std::span<const std::byte> data) noexcept {
  if (note_word(word.step)) return;
  std::byte* const slot = slot_for(word.step, data.size());
  if (slot == nullptr) return;
  if (place_.on_gpu && !data.empty()) return refuse();  // such data are to be fetched
  if (!consume_at_once(word, data)) std::memcpy(slot, data.data(), data.size());
  arrive(word);
}

Place NetRecvLink::place(Word word, std::size_t bytes) noexcept {
  note_word(word.step);  // not once it has arrived: later words may have come before
  std::byte* const slot = slot_for(word.step, bytes);
  return slot == nullptr ? Place() : Place{Slots(place_.slots, slot), place_.on_gpu};
}

void NetRecvLink::arrive(Word word) noexcept {
  if (other_way_ != nullptr) other_way_->take({word.released}, {});
  const std::size_t slot = (word.step - 1) % shape_.slot_count;
  notes_[slot] = word.note;
  arrived_[slot].publish(word.step);
}

std::byte* NetRecvLink::slot_for(std::uint64_t step, std::size_t bytes) noexcept {
  const std::uint64_t released = released_.load(std::memory_order_acquire);
  const std::size_t slot = (step - 1) % shape_.slot_count;
  // The sender was given the slot by release(), and has sent nothing else for it: nobody reads it now.
  if (step > released && step <= released + shape_.slot_count && bytes <= shape_.slot_bytes &&
      taken_for_[slot] != step) {
    taken_for_[slot] = step;
    lengths_[slot] = bytes;
    return place_.slots.get() + slot_offset(step - 1);
  }
  refuse();
  return nullptr;
}

void Traffic::add(const NetSendLink& link) {
  way_ = link.way();
  sent_ += link.steps();
  taken_ += link.taken();
}

void Traffic::add(const NetRecvLink& link) {
  way_ = link.way();
  received_ += link.steps();
}

std::string Traffic::text() const {
  if (way_.empty()) return {};
  return loom::format("over {}: {} slots sent, {} of them taken, {} received", way_, sent_, taken_,
                      received_);
}

}  // namespace loom::ucx_transport
