// virtual_memory.hpp -- memory of a GPU that its process shares as a file descriptor, for where CUDA's IPC
// does not work: CUDA's virtual memory management. Never run on a GPU so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/cuda/driver.hpp"
#include "device/link/passed_file.hpp"

namespace loom::device::cuda {

/// Where another process of the host finds such memory. Plain data: it travels as bytes.
struct MemoryFile {
  PassedFile file{};
  std::uint64_t bytes = 0;
};

/// A mapping of such memory in this process, its own or another process's. The memory belongs to a device and
/// to no context, and is there until nobody has it mapped and no descriptor of it is open. Movable.
class VirtualMemory {
 public:
  /// Of a device, by its ordinal: at least so many bytes, not cleared. Throws Error.
  static VirtualMemory create(const Driver& driver, int device, std::size_t bytes);
  /// Maps what a process has created, for work on a device. Throws Error (kUnreachable where its descriptor
  /// cannot be taken).
  static VirtualMemory attach(const Driver& driver, int device, std::int64_t pid, const MemoryFile& file);
  /// No work on it may be going on.
  ~VirtualMemory();
  VirtualMemory(VirtualMemory&&) noexcept;
  VirtualMemory& operator=(VirtualMemory&&) = delete;

  std::byte* data() const noexcept;
  /// Only of memory from create(), until close_file().
  MemoryFile file() const noexcept;
  /// After this no other process can attach.
  void close_file() noexcept;

 private:
  class Mapping;
  explicit VirtualMemory(std::unique_ptr<Mapping> mapping);
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace loom::device::cuda
