// mapped_memory.hpp -- host memory that a GPU reaches, too, and that others of this process may keep when the
// GPU has done with it: a network sends from it. It stays valid when the GPU's context ends.
#pragma once

#include <cstddef>
#include <memory>

#include "device/cuda/gpu.hpp"

namespace loom::device::cuda {

class MappedMemory {
 public:
  /// Zeroed, at the begin of a page. `gpu` must outlive this. Throws Error (kDevice, kOutOfMemory).
  MappedMemory(Gpu& gpu, std::size_t bytes);
  /// Nothing on the GPU may use it any more.
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  /// As the CPU reaches it; whoever has it keeps the memory.
  std::shared_ptr<std::byte> on_host() const noexcept;
  std::byte* on_gpu() const noexcept { return on_gpu_; }

 private:
  struct Pages;
  Gpu& gpu_;
  std::shared_ptr<Pages> pages_;
  std::byte* on_gpu_ = nullptr;
};

}  // namespace loom::device::cuda
