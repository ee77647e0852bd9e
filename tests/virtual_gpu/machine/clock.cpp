#include "tests/virtual_gpu/machine/clock.hpp"

#include <algorithm>

namespace virtual_gpu::machine {

/// Between `earliest` and the end nothing is free afterwards, so all of it becomes one span.
Ns Calendar::take(Ns earliest, Ns needed) {
  if (needed <= 0) return earliest;
  Ns begin = earliest, at = earliest;
  std::uint32_t first = 0;
  while (first < count && spans[first].end < earliest) ++first;
  std::uint32_t last = first;  // behind those that join the new one
  for (; last < count && spans[last].begin < at + needed; ++last) {
    begin = std::min(begin, spans[last].begin);
    needed -= std::max(spans[last].begin - at, 0.);
    at = std::max(at, spans[last].end);
  }
  const Span joined{begin, at + needed};
  if (first == last) {
    if (count == kSpans) {  // the gap that is longest ago counts as taken
      if (first <= 1) {
        spans[0].begin = std::min(spans[0].begin, joined.begin);
        spans[0].end = std::max(spans[0].end, joined.end);
        return joined.end;
      }
      spans[1].begin = spans[0].begin;
      std::copy(spans + 1, spans + count, spans);
      --count, --first;
    }
    std::copy_backward(spans + first, spans + count, spans + count + 1);
    ++count;
  } else {
    std::copy(spans + last, spans + count, spans + first + 1);
    count -= last - first - 1;
  }
  spans[first] = joined;
  return joined.end;
}

bool keeps_time() {
  return variable("VIRTUAL_GPU_TIME") == "1";
}

void raise(std::atomic<Ns>& at, Ns ns) noexcept {
  Ns now = at.load(std::memory_order_relaxed);
  while (now < ns && !at.compare_exchange_weak(now, ns, std::memory_order_release)) {
  }
}

void VirtualClock::spend(Ns ns) noexcept {
  Ns now = now_.load(std::memory_order_relaxed);
  while (!now_.compare_exchange_weak(now, now + std::max(ns, 0.), std::memory_order_relaxed)) {
  }
}
void VirtualClock::wait_until(Ns ns) noexcept {
  raise(now_, ns);
}

Ns VirtualClock::carry(std::size_t from, std::size_t to, std::uint64_t bytes, Ns earliest) const {
  Ns end = earliest;
  const SharedState::Lock lock(state_);
  Ns behind = earliest;
  std::size_t memory = static_cast<std::size_t>(-1);
  for (const std::size_t index : machine_.route(from, to).links) {
    const Link& link = machine_.links()[index];
    // The second way over one link comes behind the first.
    const Ns begin = link.capacity == memory ? behind : earliest;
    const Ns passed = state_.calendar(link.capacity).take(begin, static_cast<double>(bytes) / link.gbps);
    if (link.kind == Link::Kind::kMemory) memory = link.capacity, behind = passed;
    end = std::max(end, passed);
  }
  return end;
}

}  // namespace virtual_gpu::machine
