#include "device/cuda/opened_memory.hpp"

#include <algorithm>
#include <exception>
#include <iterator>

#include "base/quiet_thread.hpp"

namespace loom::device::cuda {
namespace {

bool is(const OpenedMemory::Place& a, const OpenedMemory::Place& b) {
  return a.id == b.id && a.handle.pid == b.handle.pid && a.handle.address == b.handle.address;
}

bool overlap(const OpenedMemory::Place& a, const OpenedMemory::Place& b) {
  return a.handle.pid == b.handle.pid && a.handle.address < b.handle.address + b.bytes &&
         b.handle.address < a.handle.address + a.bytes;
}

}  // namespace

OpenedMemory::~OpenedMemory() {
  {
    const MutexLock lock(mutex_);
    closing_.splice(closing_.end(), opened_);
    ends_ = true;
  }
  wanted_.notify_one();
  if (closer_.joinable()) closer_.join();
  close_all();
}

std::byte* OpenedMemory::open(const Place& place) {
  {
    const MutexLock lock(mutex_);
    const auto is_it = [&](const Opened& each) { return is(each.place, place); };
    if (const auto found = std::ranges::find_if(opened_, is_it); found != opened_.end()) {
      ++found->users;
      return found->memory;
    }
    // Not the first one, which is being closed. What has been superseded is never asked for again.
    if (!closing_.empty()) {
      const auto kept = std::find_if(std::next(closing_.begin()), closing_.end(), is_it);
      if (kept != closing_.end()) {
        kept->users = 1;
        opened_.splice(opened_.end(), closing_, kept);
        return opened_.back().memory;
      }
    }
  }
  List made;
  made.push_back({place, nullptr, 1});
  std::byte* const memory = made.front().memory = gpu_.attach(place.handle);
  const MutexLock lock(mutex_);
  opened_.splice(opened_.end(), made);
  return memory;
}

void OpenedMemory::let_go(const Place& place) noexcept {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(opened_, [&](const Opened& each) { return is(each.place, place); });
  if (found != opened_.end() && --found->users == 0) close(found);
}

void OpenedMemory::supersede(const Place& place) noexcept {
  const MutexLock lock(mutex_);
  for (auto opened = opened_.begin(); opened != opened_.end();) {
    const auto next = std::next(opened);
    if (overlap(opened->place, place) && !is(opened->place, place)) close(opened);
    opened = next;
  }
}

bool OpenedMemory::is_closing_at(const Place& place) const noexcept {
  return std::ranges::any_of(
      closing_, [&](const Opened& each) { return overlap(each.place, place) && !is(each.place, place); });
}

bool OpenedMemory::is_in_the_way(const Place& place) noexcept {
  const MutexLock lock(mutex_);
  start_closer();
  return is_closing_at(place);
}

void OpenedMemory::wait_for_room(const Place& place, std::chrono::milliseconds moment) const noexcept {
  const MutexLock lock(mutex_);
  while (is_closing_at(place)) {
    const std::uint64_t before = closings_;
    const auto until = std::chrono::steady_clock::now() + moment;
    while (closings_ == before)
      if (closed_.wait_until(mutex_, until) == std::cv_status::timeout && closings_ == before) return;
  }
}

void OpenedMemory::close(List::iterator opened) noexcept {
  closing_.splice(closing_.end(), opened_, opened);
  start_closer();
  wanted_.notify_one();
}

/// Without a thread to be had all stays open until there is one.
void OpenedMemory::start_closer() noexcept {
  try {
    if (!closing_.empty() && !closer_.joinable())
      closer_ = quiet_thread([this] {
        leave_cores_to_program();
        close_all();
      });
  } catch (const std::exception&) {
  }
}

/// Until this ends.
void OpenedMemory::close_all() noexcept {
  const MutexLock lock(mutex_);
  for (;;) {
    while (!ends_ && closing_.empty()) wanted_.wait(mutex_);
    if (closing_.empty()) return;
    const Opened& next = closing_.front();  // stays where it is
    mutex_.unlock();
    gpu_.detach(next.place.handle, next.memory);
    mutex_.lock();
    closing_.pop_front();
    ++closings_;
    closed_.notify_all();
  }
}

}  // namespace loom::device::cuda
