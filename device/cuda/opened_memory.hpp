// opened_memory.hpp -- memory of other processes that this one has open by CUDA's IPC: each once, whoever
// uses it. Drivers refuse to open memory at addresses that are open already for what lay there before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "device/cuda/gpu.hpp"

namespace loom::device::cuda {

class OpenedMemory {
 public:
  /// gpu must outlive this.
  explicit OpenedMemory(Gpu& gpu) : gpu_(gpu) {}
  ~OpenedMemory() { close_unused(); }
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;

  /// id: its owner's driver's number for it. Returns where this process reaches it. Throws Error, maybe
  /// because of what lay there before, until somebody closes that.
  std::byte* open(std::uint64_t id, const MemoryHandle& handle);
  /// Once for each open(). It stays open until somebody closes what is not used.
  void let_go(const std::byte* memory) noexcept;
  /// CUDA may wait for all work of the context: for calls that may wait.
  void close_unused() noexcept;
  /// Since the last time memory could not be opened.
  bool wants_close() const noexcept { return wants_close_; }

 private:
  struct Opened {
    std::uint64_t id;
    MemoryHandle handle;
    std::byte* memory;
    int users;
  };

  Gpu& gpu_;
  std::atomic<bool> wants_close_ = false;
  std::mutex mutex_;
  std::vector<Opened> opened_;  ///< guarded by mutex_
};

}  // namespace loom::device::cuda
