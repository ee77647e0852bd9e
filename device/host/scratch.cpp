#include "device/host/scratch.hpp"

#include <algorithm>
#include <array>

#include "base/mutex.hpp"

namespace loom::device {

namespace {

constexpr std::size_t kLeastKept = 64 * 1024;  // malloc keeps shorter ones itself

/// Blocks that no call uses, the one that was given back first in front.
class KeptBlocks {
 public:
  /// The last one that is long enough, and not more than twice as long; null where there is none.
  Scratch take(std::size_t bytes) {
    const MutexLock lock(mutex_);
    for (std::size_t i = number_; i-- > 0;)
      if (bytes <= blocks_[i].bytes && blocks_[i].bytes / 2 <= bytes) return take_out(i);
    return {};
  }

  std::size_t bytes() noexcept {
    const MutexLock lock(mutex_);
    return kept_;
  }

  void give(std::byte* memory, std::size_t bytes) noexcept {
    const MutexLock lock(mutex_);
    while (number_ == blocks_.size() || kept_ + bytes > kMostScratchKept) delete[] take_out(0).release();
    blocks_[number_++] = {memory, bytes};
    kept_ += bytes;
  }

 private:
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };

  Scratch take_out(std::size_t i) LOOM_REQUIRES(mutex_) {
    const Block block = blocks_[i];
    std::shift_left(blocks_.begin() + static_cast<std::ptrdiff_t>(i),
                    blocks_.begin() + static_cast<std::ptrdiff_t>(number_--), 1);
    kept_ -= block.bytes;
    return {block.memory, {block.bytes}};
  }

  Mutex mutex_;
  std::array<Block, 32> blocks_ LOOM_GUARDED_BY(mutex_);
  std::size_t number_ LOOM_GUARDED_BY(mutex_) = 0, kept_ LOOM_GUARDED_BY(mutex_) = 0;
};

// Nothing is freed at exit: another thread may still be in a call.
constinit KeptBlocks the_kept_blocks;

}  // namespace

void ReturnScratch::operator()(std::byte* memory) const noexcept {
  if (bytes < kLeastKept || bytes > kMostScratchKept)
    delete[] memory;
  else
    the_kept_blocks.give(memory, bytes);
}

std::size_t scratch_kept() noexcept {
  return the_kept_blocks.bytes();
}

Scratch scratch(std::size_t bytes) {
  if (bytes >= kLeastKept)
    if (Scratch kept = the_kept_blocks.take(bytes)) return kept;
  return {new std::byte[bytes], {bytes}};
}

}  // namespace loom::device
