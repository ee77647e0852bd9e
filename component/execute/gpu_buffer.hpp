// gpu_buffer.hpp -- GPU memory for operands and results of a call that cannot be where the program has them.
#pragma once

#include <cstddef>
#include <memory>

#include "device/cuda/gpu.hpp"

namespace loom {

/// It grows, and stays: to free GPU memory may wait for the program's kernels.
class GpuBuffer {
 public:
  GpuBuffer() = default;
  ~GpuBuffer() { clear(); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  /// Throws what Gpu throws.
  void make_room(const std::shared_ptr<device::cuda::Gpu>& gpu, std::size_t bytes);
  std::byte* memory() const noexcept { return memory_; }
  std::size_t bytes() const noexcept { return bytes_; }
  void clear() noexcept;
  void clear(bool may_wait) noexcept;
  /// To the result's place, on the same GPU; complete on return.
  void copy_to(std::byte* place, std::size_t bytes) { gpu_->copy(place, memory_, bytes); }

 private:
  std::shared_ptr<device::cuda::Gpu> gpu_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace loom
