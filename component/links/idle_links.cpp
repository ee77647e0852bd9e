#include "component/links/idle_links.hpp"

#include <iterator>
#include <new>
#include <utility>

namespace loom {

// A program that makes, uses and frees a communicator at a time needs one; some have two or three of a kind.
// Each holds the memory of a communicator (docs/architecture.md).
static constexpr std::size_t kIdleLinks = 2;
// Of the lanes of links that are kept. Whether there are more, all ranks know, unless making more has failed:
// then one rank may lack what others have, but all know that.
static constexpr std::size_t kMostLaneBytes = 1024 * 1024;

void IdleLinks::put(Links links) noexcept {
  if (links.number == 0) return;
  if (links.pairwise_state != LinkState::kFailed) links.drop_pairwise();  // all know that there can be none
  if (links.lanes.is_closed() || links.lanes.bytes() > kMostLaneBytes) links.lanes = {};
  links.lanes.leave_all();
  decltype(by_number_)::node_type last;  // goes after the lock
  try {
    const MutexLock lock(mutex_);
    const std::uint64_t number = links.number;
    by_number_.try_emplace(number, std::move(links));
    if (by_number_.size() > kIdleLinks) last = by_number_.extract(std::prev(by_number_.end()));
  } catch (const std::bad_alloc&) {
  }
}

std::optional<Links> IdleLinks::take() {
  const MutexLock lock(mutex_);
  if (by_number_.empty()) return {};
  return std::move(by_number_.extract(by_number_.begin()).mapped());
}

}  // namespace loom
