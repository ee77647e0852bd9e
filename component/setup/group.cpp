#include "component/setup/group.hpp"

#include <new>
#include <utility>

namespace loom {
namespace {

// A program that makes, uses and frees a communicator at a time needs one; some have two or three of a kind.
// Each holds the memory of a communicator (docs/architecture.md).
constexpr std::size_t kIdleLinks = 2;
constexpr std::size_t kIdleGroups = 4;

}  // namespace

void IdleLinks::put(Links links) noexcept {
  if (links.number == 0) return;
  if (links.pairwise_state != LinkState::kFailed) links.drop_pairwise();  // all know that there can be none
  decltype(by_number_)::node_type last;                                   // goes after the lock
  try {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = links.number;
    by_number_.try_emplace(number, std::move(links));
    if (by_number_.size() > kIdleLinks) last = by_number_.extract(std::prev(by_number_.end()));
  } catch (const std::bad_alloc&) {
  }
}

std::optional<Links> IdleLinks::take() {
  const std::lock_guard lock(mutex_);
  if (by_number_.empty()) return {};
  return std::move(by_number_.extract(by_number_.begin()).mapped());
}

std::shared_ptr<Group> Groups::find(const Members& members) {
  const std::lock_guard lock(mutex_);
  const auto entry = groups_.find(members);
  if (entry == groups_.end()) return nullptr;
  entry->second.used = ++uses_;
  return entry->second.group;
}

void Groups::keep(const Members& members, std::shared_ptr<Group> group) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    Entry& entry = groups_[members];
    entry.group.swap(group);  // another one goes after the lock
    entry.used = ++uses_;
  } catch (const std::bad_alloc&) {
  }
}

void Groups::trim() noexcept {
  for (;;) {
    decltype(groups_)::node_type oldest;  // goes after the lock
    const std::lock_guard lock(mutex_);
    std::size_t idle = 0;
    auto first = groups_.end();
    for (auto entry = groups_.begin(); entry != groups_.end(); ++entry) {
      if (entry->second.group.use_count() > 1) continue;
      ++idle;
      if (first == groups_.end() || entry->second.used < first->second.used) first = entry;
    }
    if (idle <= kIdleGroups) return;
    oldest = groups_.extract(first);
  }
}

std::uint64_t Groups::next_number() noexcept {
  const std::lock_guard lock(mutex_);
  return ++numbers_;
}

}  // namespace loom
