#include "device/host/direct_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "device/exchange_schedule.hpp"

namespace loom::device {
namespace {

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

constexpr std::size_t kPrefetchBytes = 1024;  // more would push out what the caller has in its L1 cache
// Lines are taken back so many exchanges before they are written: a loop of broadcasts writes one in less
// time than a line needs to come.
constexpr std::uint64_t kLinesAhead = 8;
constexpr std::uint64_t kOffersAhead = 2;
constexpr std::size_t kPlaceAlignment = 2 * kCacheLine;  // as CPUs fetch lines
// Of a sender that runs ahead, the line that is fetched while this one is read.
constexpr std::uint64_t kReadAhead = 2;
// Ranks in step publish at the same time. Who looks at the other's line before it is written takes it away
// from the writer, who has to fetch it back: a look that comes a moment later is answered sooner. In turns of
// an empty loop (8-byte allreduce and barrier of 2 ranks, 0 to 120 turns).
constexpr int kTurnsBeforeLook = 50;
inline void let_the_others_write() {
  for (int turn = 0; turn < kTurnsBeforeLook; ++turn) asm volatile("");
}

/// memcpy whose commonest lengths cost no call.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 8)
    std::memcpy(to, from, 8);
  else if (bytes == 4)
    std::memcpy(to, from, 4);
  else if (bytes > 0)
    std::memcpy(to, from, bytes);
}

// Not inlined into calls, with the formatting.
[[noreturn, gnu::noinline, gnu::cold]] void gave_up(int rank) {
  throw Error(ErrorCode::kGivenUp, fmt::format("Rank {} gave up on this communicator.", rank));
}

}  // namespace

DirectExchange::DirectExchange(std::vector<DirectArea*> areas, int self, OfferProtocol protocol)
    : areas_(std::move(areas)),
      own_(areas_[static_cast<std::size_t>(self)]),
      self_(self),
      protocol_(protocol),
      decoded_(protocol == OfferProtocol::kInline ? 0 : 2 * DirectArea::kMostOffered) {}

/// Waits until the rank has published the exchange.
inline void DirectExchange::await(int rank, std::uint64_t exchange, Waiter& waiter) {
  const StepFlag& published = line_of(rank, exchange).published;
  awaited_ = rank;
  std::uint64_t seen;
  while ((seen = published.value()) < exchange) waiter.pause();
  if (seen == StepFlag::kAbandoned) [[unlikely]]
    gave_up(rank);
}

void DirectExchange::await_all(std::uint64_t exchange, Waiter& waiter) {
  for (int k = 0; k < size() - 1; ++k) await(other_position(self_, k), exchange, waiter);
  entered_ = exchange;
}

/// Room in the ring for the exchange's longest offer, on all ranks at the same place. With a protocol that is
/// as much as for any: else flags could be where data was before.
void DirectExchange::reserve(std::size_t bytes, Waiter& waiter) {
  constexpr std::size_t kRing = DirectArea::kRingBytes;
  const auto round_up = [](std::uint64_t value, std::size_t unit) {
    return (value + unit - 1) / unit * unit;
  };
  // Where all are in step nobody runs ahead: places are few and far from each other, else who reads one would
  // fetch the next, which is about to be written, too.
  place_ = level_ + 1 == exchange_ ? round_up(end_, DirectArea::kMostOffered) : end_;
  if (place_ % kRing + bytes > kRing) place_ = round_up(place_, kRing);
  end_ = round_up(place_ + bytes, kPlaceAlignment);
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

/// To this exchange's place.
void DirectExchange::offer_in_ring(const std::byte* data, std::size_t bytes) {
  HostMemory memory;
  std::byte* const place = place_of(self_);
  Word* const words = reinterpret_cast<Word*>(place);
  switch (protocol_) {
    case OfferProtocol::kInline:
      std::memcpy(place, data, bytes);
      break;
    case OfferProtocol::kSimple:
      Simple::write(memory, words, data, bytes, exchange_);
      break;
    case OfferProtocol::kLL:
      LL::write(memory, words, data, bytes, exchange_);
      break;
    case OfferProtocol::kLL128:
      LL128::write(memory, words, data, bytes, exchange_);
      break;
  }
  const std::uint64_t ahead =
      place_ + kOffersAhead * (level_ + 1 == exchange_ ? DirectArea::kMostOffered : end_ - place_);
  if (ahead % DirectArea::kRingBytes + kPrefetchBytes <= DirectArea::kRingBytes)
    prefetch_for_writing(own_->ring + ahead % DirectArea::kRingBytes, std::min(bytes, kPrefetchBytes));
}

/// `bytes`: of the longest offer of any rank; what this one offers, if anything, is `data`.
template <DirectExchange::Where kWhere>
[[gnu::always_inline]] inline void DirectExchange::offer(const std::byte* data, std::size_t bytes,
                                                         Waiter& waiter) {
  ++exchange_;
  if (exchange_ - entered_ >= DirectArea::kLines) [[unlikely]]
    await_all(exchange_ - DirectArea::kLines / 2, waiter);
  if constexpr (kWhere == Where::kRing)
    reserve(protocol_ == OfferProtocol::kInline ? bytes : DirectArea::kMostOffered, waiter);
  end_of_[exchange_ % end_of_.size()] = end_;
  DirectLine& line = own_->line[exchange_ % DirectArea::kLines];
  if (data != nullptr) {
    if constexpr (kWhere == Where::kLine)
      copy_small(line.payload, data, bytes);
    else
      offer_in_ring(data, bytes);
  }
  line.published.publish(exchange_);
  const DirectLine& next = own_->line[(exchange_ + kLinesAhead) % DirectArea::kLines];
  prefetch_for_writing(&next, 1);
  if (kWhere == Where::kLine && sizeof(StepFlag) + bytes > kCacheLine)
    prefetch_for_writing(reinterpret_cast<const std::byte*>(&next) + kCacheLine, 1);
}

/// If the rank has run ahead, its next line comes while this one is read. Else it must not be taken away.
template <DirectExchange::Where kWhere>
inline void DirectExchange::expect_next(int rank) const {
  if (kWhere == Where::kLine && line_of(rank, exchange_).published.value() >= exchange_)
    __builtin_prefetch(&line_of(rank, exchange_ + kReadAhead));
}

/// What the rank offers in this exchange, valid until the next offer is taken; rank 0's until the exchange
/// ends.
template <DirectExchange::Where kWhere>
inline const std::byte* DirectExchange::take(int rank, std::size_t bytes, Waiter& waiter) {
  if constexpr (kWhere == Where::kLine) {
    await(rank, exchange_, waiter);
    return line_of(rank, exchange_).payload;
  }
  switch (protocol_) {
    case OfferProtocol::kInline:
      await(rank, exchange_, waiter);
      return place_of(rank);
    case OfferProtocol::kSimple:
      return decode<Simple>(rank, bytes, waiter);
    case OfferProtocol::kLL:
      return decode<LL>(rank, bytes, waiter);
    case OfferProtocol::kLL128:
      return decode<LL128>(rank, bytes, waiter);
  }
  return nullptr;
}

/// The words alone say whether the offer is there; the line's flag, whether there will be one.
template <class Protocol>
const std::byte* DirectExchange::decode(int rank, std::size_t bytes, Waiter& waiter) {
  HostMemory memory;
  awaited_ = rank;
  std::byte* const data = decoded_.data() + (rank == 0 ? 0 : DirectArea::kMostOffered);
  const Word* const words = reinterpret_cast<const Word*>(place_of(rank));
  while (!Protocol::try_read(memory, words, data, bytes, exchange_)) {
    if (line_of(rank, exchange_).published.value() == StepFlag::kAbandoned) [[unlikely]]
      gave_up(rank);
    waiter.pause();
  }
  return data;
}

/// My operand where the caller has it; nullptr where ranks before mine have overwritten it by the time of its
/// turn. (What others have read of my line is no longer in this core's cache.)
const std::byte* DirectExchange::own_operand(const HostJob& job, std::size_t offset) const {
  const std::byte* const own = job.in + offset;
  return self_ >= 2 && own == job.out ? nullptr : own;
}

/// out = what lies at `offset` of all operands, reduced in order of rank.
template <DirectExchange::Where kWhere>
[[gnu::always_inline]] inline void DirectExchange::reduce(const HostJob& job, std::size_t offset,
                                                          std::size_t offered, Waiter& waiter) {
  const std::byte* const own = own_operand(job, offset);
  const auto operand = [&](int rank) {
    return rank == self_ && own != nullptr ? own : take<kWhere>(rank, offered, waiter) + offset;
  };
  const std::byte* so_far = operand(0);
  for (int rank = 1; rank < size(); ++rank) {
    job.reduce(job.out, so_far, operand(rank), job.count);
    so_far = job.out;
    waiter.moved();
  }
}

/// out = what lies at `offset` of all offers, side by side. In place, my own is there.
template <DirectExchange::Where kWhere>
[[gnu::always_inline]] inline void DirectExchange::gather(const HostJob& job, std::size_t offset,
                                                          std::size_t offered, Waiter& waiter) {
  for (int rank = 0; rank < size(); ++rank) {
    std::byte* const to = job.out + static_cast<std::size_t>(rank) * job.bytes();
    const std::byte* const from =
        rank == self_ ? job.in + offset : take<kWhere>(rank, offered, waiter) + offset;
    if (from != to) copy_small(to, from, job.bytes());
    waiter.moved();
  }
}

/// What this rank lays out for others; nullptr: nothing.
inline const std::byte* DirectExchange::offer_of(const HostJob& job) const {
  switch (job.collective) {
    case Collective::kBarrier:
      return nullptr;
    case Collective::kBroadcast:
      return self_ == job.root ? job.in : nullptr;
    case Collective::kReduce:
      return self_ != job.root || own_operand(job, 0) == nullptr ? job.in : nullptr;
    default:
      return job.in;
  }
}

template <DirectExchange::Where kWhere>
[[gnu::always_inline]] inline void DirectExchange::exchange(const HostJob& job, std::size_t offered,
                                                            Waiter& waiter) {
  offer<kWhere>(offer_of(job), offered, waiter);
  if (job.collective == Collective::kReduce) {
    if (self_ != job.root) return;
    for (int rank = 0; rank < size(); ++rank)
      if (rank != self_) expect_next<kWhere>(rank);
    reduce<kWhere>(job, 0, offered, waiter);
    entered_ = exchange_;
    return;
  }
  if (job.collective == Collective::kBroadcast) {
    if (self_ == job.root) return;
    expect_next<kWhere>(job.root);
    copy_small(job.out, take<kWhere>(job.root, offered, waiter), job.bytes());
    return;
  }
  let_the_others_write();
  const std::size_t mine = static_cast<std::size_t>(self_) * job.bytes();
  switch (job.collective) {
    case Collective::kAllreduce:
      reduce<kWhere>(job, 0, offered, waiter);
      break;
    case Collective::kReduceScatter:
      reduce<kWhere>(job, mine, offered, waiter);
      break;
    case Collective::kAllGather:
      gather<kWhere>(job, 0, offered, waiter);
      break;
    case Collective::kAllToAll:
      gather<kWhere>(job, mine, offered, waiter);
      break;
    case Collective::kBarrier:
      for (int k = 0; k < size() - 1; ++k) await(other_position(self_, k), exchange_, waiter);
      break;
    default:
      throw Error(ErrorCode::kInternal, "A collective that is no direct exchange was performed as one.");
  }
  entered_ = level_ = exchange_;
}

void DirectExchange::perform(const HostJob& job, Waiter& waiter) {
  const std::size_t offered = offered_bytes(job.collective, job.bytes(), size());
  if (offered <= DirectLine::kPayloadBytes && protocol_ == OfferProtocol::kInline)
    exchange<Where::kLine>(job, offered, waiter);
  else
    perform_in_ring(job, offered, waiter);
}

/// A broadcast or reduce that is too long for one exchange takes several, of which who sends may be some
/// ahead.
void DirectExchange::perform_in_ring(const HostJob& job, std::size_t offered, Waiter& waiter) {
  if (offered <= most_offered(protocol_)) [[likely]]
    return exchange<Where::kRing>(job, offered, waiter);
  const std::size_t most = most_offered(protocol_) / job.elem_bytes;
  for (std::size_t first = 0; first < job.count; first += most) {
    HostJob piece = job;
    if (piece.in != nullptr) piece.in += first * job.elem_bytes;
    if (piece.out != nullptr) piece.out += first * job.elem_bytes;
    piece.count = std::min(most, job.count - first);
    perform(piece, waiter);
    waiter.moved();
  }
}

void DirectExchange::abandon() noexcept {
  for (DirectLine& line : areas_[static_cast<std::size_t>(self_)]->line)
    line.published.publish(StepFlag::kAbandoned);
}

}  // namespace loom::device
