// result_elsewhere.hpp -- GPU memory for a result that must not be written to its place before the call has
// ended.
#pragma once

#include <cstddef>
#include <memory>

#include "device/cuda/gpu.hpp"

namespace loom {

/// It grows, and stays: to free GPU memory may wait for the program's kernels.
class ResultElsewhere {
 public:
  ResultElsewhere() = default;
  ~ResultElsewhere() { clear(); }
  ResultElsewhere(const ResultElsewhere&) = delete;
  ResultElsewhere& operator=(const ResultElsewhere&) = delete;

  /// Throws what Gpu throws.
  void make_room(const std::shared_ptr<device::cuda::Gpu>& gpu, std::size_t bytes);
  std::byte* memory() const noexcept { return memory_; }
  /// To the result's place, on the same GPU; complete on return.
  void copy_to(std::byte* place, std::size_t bytes) { gpu_->copy(place, memory_, bytes); }

 private:
  void clear() noexcept;

  std::shared_ptr<device::cuda::Gpu> gpu_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace loom
