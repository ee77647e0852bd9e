#include "tests/virtual_gpu/driver/multiprocessors.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace virtual_gpu {
namespace {

unsigned threads_in_warps(const BlockNeeds& needs) {
  return (needs.threads + kWarp - 1) / kWarp * kWarp;
}

}  // namespace

unsigned blocks_of_multiprocessor(const BlockNeeds& needs) {
  const unsigned threads = threads_in_warps(needs);
  return std::min({kMostBlocks, kMostThreads / threads, kRegisters / (threads * needs.registers),
                   static_cast<unsigned>(kShared / (needs.shared + kReservedShared))});
}

Multiprocessors::Multiprocessors(int count, std::string turns) : use_(static_cast<std::size_t>(count)) {
  if (!turns.empty()) file_ = ::open(turns.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

Multiprocessors::~Multiprocessors() {
  if (file_ >= 0) ::close(file_);
}

bool Multiprocessors::fits(const Use& use, const BlockNeeds& needs) const {
  const unsigned threads = threads_in_warps(needs);
  return use.blocks < kMostBlocks && use.threads + threads <= kMostThreads &&
         use.registers + threads * needs.registers <= kRegisters &&
         use.shared + needs.shared + kReservedShared <= kShared;
}

bool Multiprocessors::take_turn() {
  return file_ < 0 || kernels_ > 0 || ::flock(file_, LOCK_EX | LOCK_NB) == 0;
}

Multiprocessors::Room::Room(Multiprocessors& of, std::size_t blocks, const BlockNeeds& needs,
                            const std::atomic<bool>& stop)
    : of_(of), needs_(needs) {
  std::unique_lock lock(of.mutex_);
  while (!stop) {
    if (of.take_turn()) {
      // Round after round, as a GPU spreads blocks.
      for (bool found = true; found && taken_.size() < blocks;) {
        found = false;
        for (std::size_t i = 0; i < of.use_.size() && taken_.size() < blocks; ++i) {
          Use& use = of.use_[i];
          if (!of.fits(use, needs)) continue;
          ++use.blocks;
          use.threads += threads_in_warps(needs);
          use.registers += threads_in_warps(needs) * needs.registers;
          use.shared += needs.shared + kReservedShared;
          taken_.push_back(i);
          found = true;
        }
      }
      if (!taken_.empty()) {
        ++of.kernels_;
        return;
      }
    }
    of.changed_.wait_for(lock, std::chrono::milliseconds(1));  // other processes do not tell, nor does `stop`
  }
}

Multiprocessors::Room::~Room() {
  if (taken_.empty()) return;
  const std::lock_guard lock(of_.mutex_);
  for (const std::size_t i : taken_) {
    Use& use = of_.use_[i];
    --use.blocks;
    use.threads -= threads_in_warps(needs_);
    use.registers -= threads_in_warps(needs_) * needs_.registers;
    use.shared -= needs_.shared + kReservedShared;
  }
  if (--of_.kernels_ == 0 && of_.file_ >= 0) ::flock(of_.file_, LOCK_UN);
  of_.changed_.notify_all();
}

}  // namespace virtual_gpu
