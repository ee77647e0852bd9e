#include "tests/virtual_gpu/driver/multiprocessors.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace virtual_gpu {
namespace {

using machine::MutexLock;
using machine::Residents;

unsigned threads_in_warps(const BlockNeeds& needs) {
  return (needs.threads + kWarp - 1) / kWarp * kWarp;
}
Residents::Use of_block(const BlockNeeds& needs) {
  const unsigned threads = threads_in_warps(needs);
  return {1, threads, threads * needs.registers, static_cast<std::uint32_t>(needs.shared + kReservedShared)};
}
void add(Residents::Use& to, const Residents::Use& use) {
  to = {to.blocks + use.blocks, to.threads + use.threads, to.registers + use.registers,
        to.shared + use.shared};
}
bool fits(const Residents::Use& use, const Residents::Use& more) {
  return use.blocks + more.blocks <= kMostBlocks && use.threads + more.threads <= kMostThreads &&
         use.registers + more.registers <= kRegisters && use.shared + more.shared <= kShared;
}

bool is_alive(const Residents::Process& row) {
  return row.process != 0 && (::kill(row.process, 0) == 0 || errno != ESRCH);
}

}  // namespace

unsigned blocks_of_multiprocessor(const BlockNeeds& needs) {
  const unsigned threads = threads_in_warps(needs);
  return std::min({kMostBlocks, kMostThreads / threads, kRegisters / (threads * needs.registers),
                   static_cast<unsigned>(kShared / (needs.shared + kReservedShared))});
}

Multiprocessors::Multiprocessors(int count, Residents& residents, bool together)
    : count_(static_cast<std::size_t>(count)), residents_(residents) {
  if (count_ > Residents::kMultiprocessors) throw machine::Error("no GPU has so many multiprocessors");
  const MutexLock lock(residents.mutex);
  const auto row = std::ranges::find_if_not(residents.processes, is_alive);
  if (row == std::end(residents.processes)) throw machine::Error("too many processes share a GPU");
  *row = {};
  row->process = ::getpid();
  row->together = together;
  mine_ = row;
}

Multiprocessors::~Multiprocessors() {
  const MutexLock lock(residents_.mutex);
  mine_->process = 0;
}

/// Whether kernels of this process may be there beside those of others, or it is this process's turn.
bool Multiprocessors::may_run() {
  const auto is_before = [&](const Process& other) {
    if (&other == mine_ || !is_alive(other)) return false;
    const bool goes_together = mine_->together != 0 && other.together != 0;
    const bool asked_before = other.waits != 0 && (mine_->waits == 0 || other.waits < mine_->waits);
    return !goes_together && (other.grids > 0 || asked_before);
  };
  const bool may = mine_->grids > 0 || std::ranges::none_of(residents_.processes, is_before);
  if (may) mine_->waits = 0;
  if (!may && mine_->waits == 0) mine_->waits = ++residents_.next_wait;
  return may;
}

std::vector<Residents::Use> Multiprocessors::use_of_all() const {
  std::vector<Use> use(count_);
  for (const Process& row : residents_.processes) {
    if (row.grids == 0 || !is_alive(row)) continue;
    for (std::size_t i = 0; i < count_; ++i) add(use[i], row.use[i]);
  }
  return use;
}

/// Round after round, as a GPU spreads blocks.
void Multiprocessors::grant(Room& room, std::vector<Use>& use) {
  const Use block = of_block(room.needs_);
  for (bool found = true; found && room.granted_ < room.wanted_;) {
    found = false;
    for (std::size_t i = 0; i < count_ && room.granted_ < room.wanted_; ++i) {
      if (!fits(use[i], block)) continue;
      add(use[i], block);
      add(mine_->use[i], block);
      if (room.taken_.empty()) ++mine_->grids;
      room.taken_.push_back(i);
      ++room.granted_;
      found = true;
    }
  }
}

/// All that wait here. With the lock of this process.
void Multiprocessors::serve() {
  const MutexLock lock(residents_.mutex);
  if (waiting_.empty()) {
    mine_->waits = 0;
    return;
  }
  if (!may_run()) return;
  std::vector<Use> use = use_of_all();
  for (Room* const room : waiting_) grant(*room, use);
  changed_.notify_all();
}

void Multiprocessors::release(Room& room, std::size_t multiprocessor) {
  const MutexLock lock(residents_.mutex);
  const Use block = of_block(room.needs_);
  Use& use = mine_->use[multiprocessor];
  use = {use.blocks - 1, use.threads - block.threads, use.registers - block.registers,
         use.shared - block.shared};
  if (room.taken_.empty()) --mine_->grids;
}

std::size_t Multiprocessors::Room::take(std::size_t most, const std::function<bool()>& given_up) {
  std::unique_lock lock(of_.mutex_);
  wanted_ = most;
  granted_ = 0;
  const auto place = of_.waiting_.insert(of_.waiting_.end(), this);
  for (;;) {
    of_.serve();
    if (granted_ > 0 || given_up()) break;
    of_.changed_.wait_for(lock, std::chrono::milliseconds(1));  // other processes do not tell
    if (granted_ > 0) break;
  }
  of_.waiting_.erase(place);
  if (of_.waiting_.empty()) of_.serve();  // it does not ask for a turn any more
  return granted_;
}

void Multiprocessors::Room::give_back() {
  const std::lock_guard lock(of_.mutex_);
  const std::size_t multiprocessor = taken_.back();
  taken_.pop_back();
  of_.release(*this, multiprocessor);
  of_.serve();
}

Multiprocessors::Room::~Room() {
  while (!taken_.empty()) give_back();
}

}  // namespace virtual_gpu
