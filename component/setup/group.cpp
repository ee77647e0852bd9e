#include "component/setup/group.hpp"

#include <bit>
#include <new>
#include <utility>

#include "base/format.hpp"

namespace loom {
namespace {

constexpr std::size_t kIdleGroups = 4;  // each may hold the memory of its idle links

}  // namespace

std::string Group::name_of(int rank) const {
  const auto known = names.find(rank);
  return known == names.end() ? loom::format("rank {}", rank) : known->second;
}

/// Two hashes of 64 bits. What they mix is random: other members have another key.
Groups::Key Groups::key_of(const Members& members) noexcept {
  Key key{members.size(), ~members.size()};
  for (const std::uint64_t member : members) {
    key[0] = (std::rotl(key[0], 5) ^ member) * 0x9e37'79b9'7f4a'7c15;
    key[1] = (std::rotl(key[1], 29) ^ member) * 0xbf58'476d'1ce4'e5b9;
    for (std::uint64_t& half : key) half ^= half >> 32;
  }
  return key;
}

std::shared_ptr<Group> Groups::find(const Members& members) {
  const MutexLock lock(mutex_);
  const auto entry = groups_.find(key_of(members));
  if (entry == groups_.end()) return nullptr;
  entry->second.used = ++uses_;
  return entry->second.group;
}

void Groups::keep(const Members& members, std::shared_ptr<Group> group) noexcept {
  try {
    const MutexLock lock(mutex_);
    Entry& entry = groups_[key_of(members)];
    entry.group.swap(group);  // another one goes after the lock
    entry.used = ++uses_;
  } catch (const std::bad_alloc&) {
  }
}

void Groups::trim() noexcept {
  for (;;) {
    decltype(groups_)::node_type oldest;  // goes after the lock
    const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  return ++numbers_;
}

}  // namespace loom
