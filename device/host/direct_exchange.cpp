#include "device/host/direct_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace loom::device {
namespace {

/// Brings lines into this core's cache, ready to be written.
void prefetch_for_writing(const void* address, std::size_t bytes) {
  const auto* const first = static_cast<const char*>(address);
  for (std::size_t offset = 0; offset < bytes; offset += kCacheLine) {
#if defined(__x86_64__)
    // __builtin_prefetch would fetch for reading: compilers do not assume PREFETCHW, which older CPUs take as a no-op.
    asm volatile("prefetchw %0" : : "m"(first[offset]));
#else
    __builtin_prefetch(first + offset, 1);
#endif
  }
}

constexpr std::size_t kPrefetchBytes = 1024;  // more would push out what the caller has in its L1 cache

}  // namespace

const std::byte* DirectExchange::operand_of(int rank, Waiter& waiter) {
  const DirectSlot& slot = slot_of(rank, exchange_);
  awaited_ = rank;
  while (true) {
    const std::uint64_t published = slot.published.value();
    if (published == exchange_) return slot.payload;
    if (published == StepFlag::kAbandoned)
      throw Error(ErrorCode::kPeerFailed, fmt::format("Rank {} gave up on this communicator.", rank));
    waiter.pause();
  }
}

void DirectExchange::allreduce(const std::byte* in, std::byte* out, std::size_t count, std::size_t elem_bytes,
                               ReduceFn reduce, Waiter& waiter) {
  ++exchange_;
  DirectSlot& mine = slot_of(self_, exchange_);
  std::memcpy(mine.payload, in, count * elem_bytes);
  mine.published.publish(exchange_);

  const std::byte* so_far = operand_of(0, waiter);
  for (int rank = 1; rank < static_cast<int>(areas_.size()); ++rank) {
    reduce(out, so_far, operand_of(rank, waiter), count);
    so_far = out;
    waiter.moved();
  }
  // All have published this exchange, so they have read all that came before: take back the lines of the next but one, which
  // may be as long as this one.
  prefetch_for_writing(&slot_of(self_, exchange_ + 2), std::min(sizeof(StepFlag) + count * elem_bytes, kPrefetchBytes));
}

void DirectExchange::abandon() noexcept {
  for (DirectSlot& slot : areas_[static_cast<std::size_t>(self_)]->bank) slot.published.publish(StepFlag::kAbandoned);
}

}  // namespace loom::device
