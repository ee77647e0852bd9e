// scratch.hpp -- memory that a call needs for itself: sums on their way, packed messages.
#pragma once

#include <cstddef>
#include <memory>

namespace loom::device {

struct ReturnScratch {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const noexcept;
};
/// A block that later calls of the process use again: its pages are there. malloc would give them back to the
/// system as soon as the program frees memory of its own.
using Scratch = std::unique_ptr<std::byte[], ReturnScratch>;

/// Uninitialized. Throws std::bad_alloc.
Scratch scratch(std::size_t bytes);

/// Of blocks that no call uses: what the process keeps, and what it keeps at most.
std::size_t scratch_kept() noexcept;
inline constexpr std::size_t kMostScratchKept = std::size_t{16} << 20;

}  // namespace loom::device
