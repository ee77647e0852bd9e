#include "device/link/memory_near.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace loom::device {

MemoryNear::MemoryNear(std::optional<int> numa_node) noexcept {
  // The kernel reads one bit less of a mask than it is told.
  if (!numa_node || *numa_node < 0 || *numa_node >= kMostNodes - 1) return;
  if (::syscall(SYS_get_mempolicy, &mode_before_, nodes_before_.data(), kMostNodes, nullptr, 0) != 0) return;
  NodeMask near{};
  near[static_cast<std::size_t>(*numa_node / kWordBits)] = 1UL << (*numa_node % kWordBits);
  changed_ = ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, near.data(), kMostNodes) == 0;
}

MemoryNear::~MemoryNear() {
  if (changed_) ::syscall(SYS_set_mempolicy, mode_before_, nodes_before_.data(), kMostNodes);
}

}  // namespace loom::device
