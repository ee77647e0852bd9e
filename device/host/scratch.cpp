#include "device/host/scratch.hpp"

namespace loom::device {

std::pmr::memory_resource& scratch_memory() {
  // Never destroyed: a thread that progresses calls may still be there when the program exits.
  static auto* const pool = new std::pmr::synchronized_pool_resource(
      {.max_blocks_per_chunk = 1, .largest_required_pool_block = std::size_t{4} << 20});
  return *pool;
}

}  // namespace loom::device
