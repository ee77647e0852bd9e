#include "component/setup/group.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <utility>

namespace loom {
namespace {

// A program that makes, uses and frees a communicator at a time needs one; some have two or three of a kind.
// Each holds the memory of a communicator (docs/architecture.md).
constexpr std::size_t kIdleLinks = 2;
constexpr std::size_t kIdleGroups = 4;
// For the words of all ends that are abandoned together.
constexpr std::chrono::milliseconds kMostForLastWords{100};

using ucx_transport::NetEnd;

/// Calls body with each end.
template <class Body>
void for_ends(std::span<const Links::HostLinks> links, Body&& body) {
  for (const Links::HostLinks& ends : links) {
    if (ends.send) body(*ends.send);
    if (ends.receive) body(*ends.receive);
  }
}

/// The same with all that lead to other hosts.
template <class Body>
void for_net_ends(const Links& links, Body&& body) {
  for_ends(links.host_links, body);
  for_ends(links.pairwise_ends, body);
  for (const auto& ends : links.tree_ends) for_ends(ends, body);
  if (links.net_next) body(*links.net_next);
  if (links.net_previous) body(*links.net_previous);
}

/// `for_each` calls its argument with each end.
template <class ForEach>
void abandon_ends(ForEach&& for_each) {
  for_each([](NetEnd& end) { end.abandon_end(); });
  // This process may not progress again soon.
  const auto until = std::chrono::steady_clock::now() + kMostForLastWords;
  for_each([&](NetEnd& end) {
    while (!end.holds_nothing_back() && std::chrono::steady_clock::now() < until) {
    }
  });
}

}  // namespace

Links::HostLinks Links::HostLinks::make(ucx_transport::Transport& transport, const device::FifoShape& fifo,
                                        const std::string& peer) {
  HostLinks ends{std::make_unique<ucx_transport::NetSendLink>(transport, fifo, peer),
                 std::make_unique<ucx_transport::NetRecvLink>(transport, fifo, peer)};
  ends.send->pair_with(*ends.receive);
  return ends;
}

void Links::abandon() noexcept {
  number = 0;
  if (immediate) immediate->abandon();
  if (cico) cico->abandon();
  if (gpus && gpu_state == LinkState::kReady) gpus->abandon();
  if (local_next) local_next->abandon();
  if (local_previous) local_previous->abandon();
  abandon_ends([&](auto&& body) { for_net_ends(*this, body); });
}

void Links::abandon_pairwise() noexcept {
  abandon_ends([&](auto&& body) { for_ends(pairwise_ends, body); });
}

bool Links::are_connected() const noexcept {
  bool connected = true;
  for_net_ends(*this, [&](const NetEnd& end) { connected &= end.is_connected(); });
  return connected;
}

void Links::drop_pairwise() noexcept {
  pairwise_state = LinkState::kNotMade;
  pairwise = decltype(pairwise)();
  pairwise_ends = decltype(pairwise_ends)();
}

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
