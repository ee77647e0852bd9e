// memory_near.hpp -- which NUMA node gives the memory that a thread is the first to touch.
#pragma once

#include <array>
#include <climits>
#include <optional>

namespace loom::device {

/// While this lives, memory that the calling thread touches first comes from the NUMA node (by operating
/// system index) as long as the node has memory; afterwards the thread's policy is as before. Nothing changes
/// without a node, or where the system does not let the thread choose, as in some containers. The thread that
/// made it must destroy it.
class MemoryNear {
 public:
  explicit MemoryNear(std::optional<int> numa_node) noexcept;
  ~MemoryNear();
  MemoryNear(const MemoryNear&) = delete;
  MemoryNear& operator=(const MemoryNear&) = delete;

 private:
  static constexpr int kMostNodes = 1024;  // what Linux can be built for
  static constexpr int kWordBits = static_cast<int>(sizeof(unsigned long) * CHAR_BIT);
  using NodeMask = std::array<unsigned long, kMostNodes / kWordBits>;

  bool changed_ = false;
  int mode_before_ = 0;
  NodeMask nodes_before_{};
};

}  // namespace loom::device
