// peer_memory.hpp -- reading another process's memory with one copy (cross-memory attach), where the kernel
// permits it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.hpp"

namespace loom::device {

/// kPeerFailed. A caller that knows ranks and hosts tells the user more.
class ProcessEnded : public Error {
 public:
  explicit ProcessEnded(std::int64_t pid);
  std::int64_t pid() const noexcept { return pid_; }

 private:
  std::int64_t pid_;
};

/// Copies from the process's memory; it may be this process. Throws ProcessEnded, or Error (kSystem).
void read_peer_memory(std::int64_t pid, std::byte* to, const std::byte* from, std::size_t bytes);

/// Whether that is permitted (the kernel's ptrace rules and a container's filter decide), tried on 8 bytes
/// that must be `expected`. Never throws.
bool can_read_peer_memory(std::int64_t pid, const std::byte* from, std::uint64_t expected) noexcept;

}  // namespace loom::device
