#include "device/host/direct_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "device/exchange_schedule.hpp"

namespace loom::device {
namespace {

/// Brings lines into this core's cache, ready to be written.
void prefetch_for_writing(const void* address, std::size_t bytes) {
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

/// memcpy whose commonest lengths cost no call.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 8)
    std::memcpy(to, from, 8);
  else if (bytes == 4)
    std::memcpy(to, from, 4);
  else if (bytes > 0)
    std::memcpy(to, from, bytes);
}

}  // namespace

/// Waits until the rank has published the exchange; returns what it offers.
const std::byte* DirectExchange::await(int rank, std::uint64_t exchange, Waiter& waiter) {
  const DirectSlot& slot = slot_of(rank, exchange);
  awaited_ = rank;
  while (true) {
    const std::uint64_t published = slot.published.value();
    if (published == StepFlag::kAbandoned) [[unlikely]]
      throw Error(ErrorCode::kGivenUp, fmt::format("Rank {} gave up on this communicator.", rank));
    if (published >= exchange) return slot.payload;
    waiter.pause();
  }
}

void DirectExchange::await_bank(Waiter& waiter) {
  const std::uint64_t recent = exchange_ - DirectArea::kBanks / 2;
  for (int k = 0; k < size() - 1; ++k) await(other_position(self_, k), recent, waiter);
  entered_ = recent;
}

void DirectExchange::offer(const std::byte* data, std::size_t bytes, Waiter& waiter) {
  ++exchange_;
  if (exchange_ >= entered_ + DirectArea::kBanks) [[unlikely]]
    await_bank(waiter);
  DirectSlot& mine = slot_of(self_, exchange_);
  copy_small(mine.payload, data, bytes);
  mine.published.publish(exchange_);
}

/// Nobody reads earlier exchanges any more: take back the lines of the next but one, which may be as long as
/// this one.
void DirectExchange::everybody_has_published(std::size_t bytes) noexcept {
  entered_ = exchange_;
  prefetch_for_writing(&slot_of(self_, exchange_ + 2), std::min(sizeof(StepFlag) + bytes, kPrefetchBytes));
}

/// out = what lies at `offset` of all offers, reduced in order of rank.
void DirectExchange::reduce(const HostJob& job, std::size_t offset, Waiter& waiter) {
  const std::byte* so_far = await(0, exchange_, waiter) + offset;
  for (int rank = 1; rank < size(); ++rank) {
    job.reduce(job.out, so_far, await(rank, exchange_, waiter) + offset, job.count);
    so_far = job.out;
    waiter.moved();
  }
}

/// out = what lies at `offset` of all offers, side by side.
void DirectExchange::gather(const HostJob& job, std::size_t offset, Waiter& waiter) {
  for (int rank = 0; rank < size(); ++rank) {
    const std::byte* const offered = await(rank, exchange_, waiter) + offset;
    copy_small(job.out + static_cast<std::size_t>(rank) * job.bytes(), offered, job.bytes());
    waiter.moved();
  }
}

void DirectExchange::perform(const HostJob& job, Waiter& waiter) {
  const std::size_t offered = offered_bytes(job.collective, job.bytes(), size());
  const std::size_t mine = static_cast<std::size_t>(self_) * job.bytes();
  switch (job.collective) {
    case Collective::kAllreduce:
      offer(job.in, offered, waiter);
      reduce(job, 0, waiter);
      break;
    case Collective::kReduceScatter:
      offer(job.in, offered, waiter);
      reduce(job, mine, waiter);
      break;
    case Collective::kAllGather:
      offer(job.in, offered, waiter);
      gather(job, 0, waiter);
      break;
    case Collective::kAllToAll:
      offer(job.in, offered, waiter);
      gather(job, mine, waiter);
      break;
    case Collective::kBarrier:
      offer(nullptr, 0, waiter);
      for (int k = 0; k < size() - 1; ++k) await(other_position(self_, k), exchange_, waiter);
      break;
    case Collective::kReduce:
      offer(job.in, offered, waiter);
      if (self_ != job.root) return;
      reduce(job, 0, waiter);
      break;
    case Collective::kBroadcast:
      offer(job.in, self_ == job.root ? offered : 0, waiter);
      if (self_ != job.root) copy_small(job.out, await(job.root, exchange_, waiter), job.bytes());
      return;
    default:
      throw Error(ErrorCode::kInternal, "A collective that is no direct exchange was performed as one.");
  }
  everybody_has_published(offered);
}

void DirectExchange::abandon() noexcept {
  for (DirectSlot& slot : areas_[static_cast<std::size_t>(self_)]->bank)
    slot.published.publish(StepFlag::kAbandoned);
}

}  // namespace loom::device
