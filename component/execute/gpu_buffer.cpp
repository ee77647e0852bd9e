#include "component/execute/gpu_buffer.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "component/setup/process.hpp"

namespace loom {

void GpuBuffer::clear(bool may_wait) noexcept {
  if (memory_ != nullptr) may_wait ? gpu_->release(memory_) : gpu_->release_later(memory_, {});
  memory_ = nullptr;
  bytes_ = 0;
}

void GpuBuffer::clear() noexcept {
  clear(Process::may_wait_for_gpus);
}

void GpuBuffer::make_room(const std::shared_ptr<device::cuda::Gpu>& gpu, std::size_t bytes) {
  if (gpu_ == gpu && gpu_->is_alive() && bytes <= bytes_) return;
  const std::size_t ample = std::max(bytes, gpu_ == gpu ? bytes_ + bytes_ / 2 : 0);
  clear(false);  // a call may not wait for kernels of the program
  gpu_ = gpu;
  const auto take = [&](std::size_t some) {
    memory_ = gpu_->allocate(some);
    bytes_ = some;
  };
  try {
    take(ample);
  } catch (const Error&) {
    if (ample == bytes) throw;
    take(bytes);
  }
}

}  // namespace loom
