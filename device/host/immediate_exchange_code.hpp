// immediate_exchange_code.hpp -- the code of ImmediateExchangeOf, for those who instantiate it:
// immediate_exchange.cpp for the product, and tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"
#include "device/host/immediate_exchange.hpp"
#include "device/schedule/exchange_schedule.hpp"

namespace loom::device {
namespace immediate {

/// Brings lines into this core's cache, ready to be written.
inline void prefetch_for_writing(const void* address, std::size_t bytes) {
  const auto* const first = static_cast<const char*>(address);
  for (std::size_t offset = 0; offset < bytes; offset += kCacheLine) {
#if defined(__x86_64__)
    // __builtin_prefetch would fetch for reading: compilers do not assume PREFETCHW, which older CPUs take as
    // a no-op.
    asm volatile("prefetchw %0" : : "m"(first[offset]));
#else
    __builtin_prefetch(first + offset, 1);
#endif
  }
}

// More would evict what the caller has in its L1 cache.
inline constexpr std::size_t kPrefetchBytes = 1024;
// Lines are prefetched so many exchanges before they are written: a loop of broadcasts writes one in less
// time than a line takes to arrive.
inline constexpr std::uint64_t kLinesAhead = 8;
inline constexpr std::uint64_t kOffersAhead = 2;
// How far ahead of the line that is read a sender's next line is prefetched, if the sender runs ahead. (At 4
// and more a loop of broadcasts takes twice as long.)
inline constexpr std::uint64_t kReadAhead = 2;
// Ranks in step publish at the same time. A look at the other's line before it is written takes the line away
// from the writer, which has to fetch it back: a look a moment later is answered sooner. In turns of an empty
// loop (measured with 8-byte allreduce and barrier of 2 ranks, 0 to 120 turns).
inline constexpr int kTurnsBeforeLook = 50;
inline void let_the_others_write() {
  for (int turn = 0; turn < kTurnsBeforeLook; ++turn) asm volatile("");
}

/// Copies kBytes at each of these places: all are read before any is written.
template <std::size_t kBytes, class... Places>
inline void copy_parts(std::byte* to, const std::byte* from, Places... places) {
  struct Part {
    std::byte bytes[kBytes];
  };
  const auto part_at = [&](std::size_t place) {
    Part part;
    std::memcpy(&part, from + place, kBytes);
    return part;
  };
  const std::array<Part, sizeof...(places)> parts = {part_at(places)...};
  auto part = parts.begin();
  (std::memcpy(to + places, part++, kBytes), ...);
}

/// memcpy whose most common lengths need no function call. Parts may overlap.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 8)
    std::memcpy(to, from, 8);
  else if (bytes == 4)
    std::memcpy(to, from, 4);
  else if (bytes > 8 && bytes <= 16)
    copy_parts<8>(to, from, std::size_t{0}, bytes - 8);
  else if (bytes > 16 && bytes <= 32)
    copy_parts<16>(to, from, std::size_t{0}, bytes - 16);
  else if (bytes > 32 && bytes <= 64)
    copy_parts<16>(to, from, std::size_t{0}, std::size_t{16}, bytes - 32, bytes - 16);
  else if (bytes > 0)
    std::memcpy(to, from, bytes);
}

/// Throws Error (kGivenUp). Out of line, because it formats.
[[noreturn, gnu::noinline, gnu::cold]] void gave_up(int rank);

}  // namespace immediate

template <class Area>
ImmediateExchangeOf<Area>::ImmediateExchangeOf(std::vector<Area*> areas, int self, bool runs_far,
                                               std::uint64_t before)
    : areas_(std::move(areas)),
      own_(areas_[static_cast<std::size_t>(self)]),
      self_(self),
      runs_far_(runs_far),
      stride_(runs_far ? 1 : line_stride(Area::kLines)),
      exchange_(before),
      entered_(exchange_),
      level_(exchange_) {}

/// Waits until the rank has published this exchange, as this one has. It cannot have published a later one in
/// the same line: for that this rank must have left this exchange.
template <class Area>
[[gnu::always_inline]] inline void ImmediateExchangeOf<Area>::await(int rank, std::uint64_t flag,
                                                                    Waiter& waiter) {
  const typename Area::Flag& published = line_of(rank, exchange_).published;
  awaited_ = rank;
  std::uint64_t seen;
  while ((seen = published.value()) != flag) {
    if (seen == StepFlag::kAbandoned || ExchangeTag::has_come(seen, exchange_)) [[unlikely]]
      throw_different(rank, seen);
    waiter.pause();
  }
}

/// The rank is in another call, or has given up. This exchange counts as not performed; its line stays for
/// others to see, even if this rank gives up in turn.
template <class Area>
[[gnu::cold, gnu::noinline]] void ImmediateExchangeOf<Area>::throw_different(int rank, std::uint64_t seen) {
  if (seen == StepFlag::kAbandoned) immediate::gave_up(rank);
  const CallNote mine = note_in(self_, exchange_, line_of(self_, exchange_).published.value());
  const CallNote its = note_in(rank, exchange_, seen);
  parted_ = exchange_--;
  end_ = end_of_[exchange_ % end_of_.size()];
  throw DifferentCall(rank, its, mine, CallProgress::kNone);
}

/// The call that the rank's line of the exchange tells of; `flag` was seen there.
template <class Area>
CallNote ImmediateExchangeOf<Area>::note_in(int rank, std::uint64_t exchange, std::uint64_t flag) const {
  if (!ExchangeTag::is_other(flag)) return ExchangeTag::note(flag);
  std::uint64_t word;
  std::memcpy(&word, line_of(rank, exchange).payload, sizeof(word));
  return CallNote::from_word(word);
}

template <class Area>
void ImmediateExchangeOf<Area>::await_all(std::uint64_t exchange, Waiter& waiter) {
  for (int k = 0; k < size() - 1; ++k) {
    const int rank = awaited_ = other_position(self_, k);
    const typename Area::Flag& published = line_of(rank, exchange).published;
    for (std::uint64_t seen; !ExchangeTag::has_come(seen = published.value(), exchange); waiter.pause())
      if (seen == StepFlag::kAbandoned) immediate::gave_up(rank);
    if (published.value() == StepFlag::kAbandoned) immediate::gave_up(rank);
  }
  entered_ = exchange;
}

/// Reserves room in the ring for the exchange's longest offer, at the same place on all ranks.
template <class Area>
void ImmediateExchangeOf<Area>::reserve(std::size_t bytes, Waiter& waiter) {
  constexpr std::size_t kRing = Area::kRingBytes;
  const auto round_up = [](std::uint64_t value, std::size_t unit) {
    return (value + unit - 1) / unit * unit;
  };
  place_ = round_up(end_, place_unit(bytes));
  if (place_ % kRing + bytes > kRing) place_ = round_up(place_, kRing);
  end_ = round_up(place_ + bytes, place_unit(bytes));
  // All have left the exchange before one that all have entered.
  const auto in_use = [&](std::uint64_t entered) {
    return end_ - (entered == 0 ? 0 : end_of_[(entered - 1) % end_of_.size()]);
  };
  if (in_use(entered_) <= kRing) [[likely]]
    return;
  std::uint64_t entered = entered_;
  while (entered + 1 < exchange_ && in_use(entered) > kRing / 2) ++entered;
  await_all(entered, waiter);
}

/// Writes `data` to this exchange's place in the ring.
template <class Area>
void ImmediateExchangeOf<Area>::offer_in_ring(const std::byte* data, std::size_t bytes) {
  std::memcpy(place_of(self_), data, bytes);
  const std::uint64_t ahead = place_ + immediate::kOffersAhead * (end_ - place_);
  if (ahead % Area::kRingBytes + immediate::kPrefetchBytes <= Area::kRingBytes)
    immediate::prefetch_for_writing(own_->ring + ahead % Area::kRingBytes,
                                    std::min(bytes, immediate::kPrefetchBytes));
}

/// Offers `bytes` of data, or nothing if that is nullptr. longest: offer of any rank. Returns the published
/// flag.
template <class Area>
template <typename ImmediateExchangeOf<Area>::Where kWhere>
[[gnu::always_inline]] inline std::uint64_t ImmediateExchangeOf<Area>::offer(
    const std::byte* data, std::size_t bytes, std::size_t longest, std::uint64_t tag, Waiter& waiter) {
  ++exchange_;
  if (exchange_ - entered_ >= Area::kLines) [[unlikely]]
    await_all(exchange_ - Area::kLines / 2, waiter);
  if constexpr (kWhere == Where::kRing) reserve(longest, waiter);
  end_of_[exchange_ % end_of_.size()] = end_;
  typename Area::Line& line = line_in(*own_, exchange_);
  if (data != nullptr) {
    if constexpr (kWhere == Where::kLine)
      immediate::copy_small(line.payload, data, bytes);
    else
      offer_in_ring(data, bytes);
  }
  const std::uint64_t flag = (exchange_ << ExchangeTag::kBits) + tag;
  line.published.publish(flag);
  const typename Area::Line& next = line_in(*own_, exchange_ + immediate::kLinesAhead);
  immediate::prefetch_for_writing(&next, 1);
  if (kWhere == Where::kLine && sizeof(typename Area::Flag) + longest > kCacheLine)
    immediate::prefetch_for_writing(reinterpret_cast<const std::byte*>(&next) + kCacheLine, 1);
  return flag;
}

/// If the rank has run ahead, prefetches its next line while this one is read. Else that line must not be
/// taken away from it.
template <class Area>
template <typename ImmediateExchangeOf<Area>::Where kWhere>
inline void ImmediateExchangeOf<Area>::expect_next(int rank, std::uint64_t flag) const {
  if (kWhere == Where::kLine && line_of(rank, exchange_).published.value() == flag)
    __builtin_prefetch(&line_of(rank, exchange_ + immediate::kReadAhead));
}

/// What the rank offers in this exchange, valid until the exchange ends.
template <class Area>
template <typename ImmediateExchangeOf<Area>::Where kWhere>
[[gnu::always_inline]] inline const std::byte* ImmediateExchangeOf<Area>::take(int rank, std::uint64_t flag,
                                                                               Waiter& waiter) {
  await(rank, flag, waiter);
  if constexpr (kWhere == Where::kLine) return line_of(rank, exchange_).payload;
  return place_of(rank);
}

/// My operand in the caller's buffer; nullptr where the partial result overwrites it before its turn. (My
/// line is no longer in this core's cache once others have read it.)
template <class Area>
const std::byte* ImmediateExchangeOf<Area>::own_operand(const Call& call, std::size_t offset) const {
  const std::byte* const own = call.in + offset;
  return self_ >= 2 && own == call.out ? nullptr : own;
}

/// out = what lies at `offset` of all operands, reduced in order of rank.
template <class Area>
template <typename ImmediateExchangeOf<Area>::Where kWhere>
[[gnu::always_inline]] inline void ImmediateExchangeOf<Area>::reduce(const Call& call, std::size_t offset,
                                                                     std::uint64_t flag, Waiter& waiter) {
  const ReduceFn apply = call.reduce();  // looked up before there is anything to wait for
  const std::byte* const own = own_operand(call, offset);
  const auto operand = [&](int rank) __attribute__((always_inline)) {
    return rank == self_ && own != nullptr ? own : take<kWhere>(rank, flag, waiter) + offset;
  };
  const std::byte* so_far = operand(0);
  for (int rank = 1; rank < size(); ++rank) {
    apply(call.out, so_far, operand(rank), call.count);
    so_far = call.out;
    waiter.moved();
  }
}

/// out = what lies at `offset` of all offers, side by side. In place, my own is there.
template <class Area>
template <typename ImmediateExchangeOf<Area>::Where kWhere>
[[gnu::always_inline]] inline void ImmediateExchangeOf<Area>::gather(const Call& call, std::size_t offset,
                                                                     std::uint64_t flag, Waiter& waiter) {
  for (int rank = 0; rank < size(); ++rank) {
    std::byte* const to = call.out + static_cast<std::size_t>(rank) * call.bytes();
    const std::byte* const from =
        rank == self_ ? call.in + offset : take<kWhere>(rank, flag, waiter) + offset;
    if (from != to) immediate::copy_small(to, from, call.bytes());
    waiter.moved();
  }
}

/// What this rank offers the others; nullptr: nothing.
template <class Area>
inline const std::byte* ImmediateExchangeOf<Area>::offer_of(const Call& call) const {
  if (call.collective == Collective::kBroadcast) return self_ == call.root ? call.in : nullptr;
  if (call.collective == Collective::kReduce)
    return self_ != call.root || own_operand(call, 0) == nullptr ? call.in : nullptr;
  return call.collective == Collective::kBarrier ? nullptr : call.in;
}

template <class Area>
template <typename ImmediateExchangeOf<Area>::Where kWhere>
[[gnu::always_inline]] inline void ImmediateExchangeOf<Area>::exchange(const Call& call, std::size_t offered,
                                                                       std::uint64_t tag, Waiter& waiter) {
  const std::uint64_t flag = offer<kWhere>(offer_of(call), offered, offered, tag, waiter);
  if (call.collective == Collective::kReduce) {
    if (self_ != call.root) return;
    for (int rank = 0; rank < size(); ++rank)
      if (rank != self_) expect_next<kWhere>(rank, flag);
    reduce<kWhere>(call, 0, flag, waiter);
    entered_ = exchange_;
    return;
  }
  if (call.collective == Collective::kBroadcast) {
    if (self_ == call.root) return;
    expect_next<kWhere>(call.root, flag);
    immediate::copy_small(call.out, take<kWhere>(call.root, flag, waiter), call.bytes());
    return;
  }
  immediate::let_the_others_write();
  const std::size_t mine = static_cast<std::size_t>(self_) * call.bytes();
  switch (call.collective) {
    case Collective::kAllreduce:
      reduce<kWhere>(call, 0, flag, waiter);
      break;
    case Collective::kReduceScatter:
      reduce<kWhere>(call, mine, flag, waiter);
      break;
    case Collective::kAllGather:
      gather<kWhere>(call, 0, flag, waiter);
      break;
    case Collective::kAllToAll:
      gather<kWhere>(call, mine, flag, waiter);
      break;
    case Collective::kBarrier:
      for (int k = 0; k < size() - 1; ++k) await(other_position(self_, k), flag, waiter);
      break;
    default:
      throw Error(ErrorCode::kInternal, "A collective that is no immediate exchange was performed as one.");
  }
  entered_ = level_ = exchange_;
}

template <class Area>
void ImmediateExchangeOf<Area>::perform(const Call& call, Waiter& waiter) {
  perform_tagged(call, call.bytes(), waiter);
}

template <class Area>
void ImmediateExchangeOf<Area>::perform_part(const Call& call, std::size_t call_bytes, Waiter& waiter) {
  perform_tagged(call, call_bytes, waiter);
}

template <class Area>
[[gnu::always_inline]] inline void ImmediateExchangeOf<Area>::perform_tagged(const Call& call,
                                                                             std::size_t call_bytes,
                                                                             Waiter& waiter) {
  const std::uint64_t tag = ExchangeTag::of(call.collective, call_bytes);
  const std::size_t offered = offered_bytes(call.collective, call.bytes(), size());
  if (offered <= Area::Line::kPayloadBytes)
    exchange<Where::kLine>(call, offered, tag, waiter);
  else
    perform_in_ring(call, offered, call_bytes, waiter);
}

template <class Area>
void ImmediateExchangeOf<Area>::announce(const Call& call, CallFamily family, Waiter& waiter) {
  const CallNote note(call, family);
  const std::uint64_t word = note.word();
  const std::uint64_t flag = offer<Where::kLine>(reinterpret_cast<const std::byte*>(&word), sizeof(word),
                                                 sizeof(word), ExchangeTag::of(note), waiter);
  if (call.collective != Collective::kBroadcast || call.root == self_) return;
  await(call.root, flag, waiter);
  if (note_in(call.root, exchange_, flag) != note) throw_different(call.root, flag);
}

template <class Area>
void ImmediateExchangeOf<Area>::check_calls() const {
  const auto is_broadcast = [](std::uint64_t tag) {
    const unsigned kind = ExchangeTag::is_other(tag) ? (tag & ExchangeTag::kMask) >> 3 & 31 : tag & 7;
    return kind == static_cast<unsigned>(Collective::kBroadcast);
  };
  for (int k = 0; k < size() - 1 && exchange_ > 0; ++k) {
    const int rank = other_position(self_, k);
    // In a call of several, this rank looks at few of the others.
    for (std::uint64_t exchange = began_ != 0 ? began_ : exchange_; exchange <= exchange_; ++exchange) {
      // Either line may still hold, or hold already, an exchange of another turn: this rank may be waiting
      // for room for what it has not published yet, while a sender that has room is ahead.
      const std::uint64_t seen = line_of(rank, exchange).published.value();
      const std::uint64_t flag = line_of(self_, exchange).published.value();
      if (!ExchangeTag::is_of(seen, exchange) || !ExchangeTag::is_of(flag, exchange)) continue;
      if (is_broadcast(seen) && is_broadcast(flag)) continue;
      const CallNote its = note_in(rank, exchange, seen), mine = note_in(self_, exchange, flag);
      if (its != mine) throw DifferentCall(rank, its, mine, CallProgress::kMore);
    }
  }
  // Afterwards: whoever has given up may have found what this rank finds now.
  for (int k = 0; k < size() - 1 && exchange_ > 0; ++k) {
    const int rank = other_position(self_, k);
    for (std::uint64_t later = 0; later < 3; ++later)  // abandon() may leave two of them
      if (line_of(rank, exchange_ + later).published.value() == StepFlag::kAbandoned)
        immediate::gave_up(rank);
  }
}

/// A broadcast or reduce that is too long for one exchange takes several; a sender may be some of them ahead.
template <class Area>
void ImmediateExchangeOf<Area>::perform_in_ring(const Call& call, std::size_t offered, std::size_t call_bytes,
                                                Waiter& waiter) {
  if (offered <= Area::kMostOffered) [[likely]]
    return exchange<Where::kRing>(call, offered,
                                  ExchangeTag::of(call.collective, call_bytes) & ExchangeTag::kMask, waiter);
  const std::size_t most = Area::kMostOffered / call.elem_bytes();
  Call piece = call;
  for (std::size_t first = 0; first < call.count; first += most) {
    if (piece.in != nullptr) piece.in = call.in + first * call.elem_bytes();
    if (piece.out != nullptr) piece.out = call.out + first * call.elem_bytes();
    piece.count = std::min(most, call.count - first);
    perform_part(piece, call_bytes, waiter);
    waiter.moved();
  }
}

template <class Area>
void ImmediateExchangeOf<Area>::abandon() noexcept {
  // A rank that is not as far as this one is to find out the same, not that this rank has given up.
  const bool parted = parted_ == exchange_ + 1;
  for (typename Area::Line& line : own_->line) {
    const bool stays =
        (parted && (&line == &line_in(*own_, parted_) || &line == &line_in(*own_, exchange_))) ||
        (left_ != 0 && &line == &line_in(*own_, left_));
    if (!stays) line.published.publish(StepFlag::kAbandoned);
  }
}

}  // namespace loom::device
