// scratch.hpp -- memory that a call needs for itself: sums on their way, packed messages.
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>

namespace loom::device {

/// Where scratch() comes from. Up to 4 MiB a block is used again by later calls: its pages are there. malloc
/// would give them back to the system, as soon as the program frees memory of its own.
std::pmr::memory_resource& scratch_memory();

struct ReturnScratch {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const noexcept {
    scratch_memory().deallocate(memory, bytes, alignof(std::max_align_t));
  }
};
using Scratch = std::unique_ptr<std::byte[], ReturnScratch>;

/// Uninitialized.
inline Scratch scratch(std::size_t bytes) {
  return {static_cast<std::byte*>(scratch_memory().allocate(bytes, alignof(std::max_align_t))), {bytes}};
}

}  // namespace loom::device
