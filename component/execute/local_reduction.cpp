#include "component/execute/local_reduction.hpp"

#include <exception>
#include <optional>

namespace loom {

using device::cuda::Gpu;
using device::cuda::GpuStream;
using device::cuda::Owner;

bool LocalReduction::perform(const std::byte* in, std::byte* inout, std::size_t count, device::Op op,
                             device::Type type) {
  if (!Gpu::supports(op, type)) return false;
  const device::cuda::Driver& driver = process_.staging()->driver();
  const std::optional<Owner> owner = driver.owner_of(inout), other = driver.owner_of(in);
  if (!owner || !other || other->device != owner->device || other->context != owner->context) return false;
  const std::lock_guard lock(mutex_);
  if (!gpu_ || !gpu_->is_alive() || !gpu_->is_of(*owner)) {
    kernels_ = {};
    stream_.reset();
    gpu_.reset();
    try {
      gpu_ = process_.gpu(*owner);
      stream_ = std::make_unique<GpuStream>(*gpu_);
    } catch (const std::exception&) {  // no kernels in this build, or no memory: it is staged
      gpu_.reset();
      return false;
    }
  }
  if (!is_ready(op, type)) return false;
  stream_->follow_program();
  stream_->combine(op, type, {.operands = 2, .results = 1, .count = count, .in = {in, inout}, .out = {inout}});
  stream_->synchronize();
  return true;
}

bool LocalReduction::is_ready(device::Op op, device::Type type) {
  Kernel& kernel = kernels_[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
  if (kernel == Kernel::kNotLoaded) {
    try {
      stream_->prepare_combine(op, type);
      kernel = Kernel::kReady;
    } catch (const std::exception&) {
      kernel = Kernel::kRefused;
    }
  }
  return kernel == Kernel::kReady;
}

}  // namespace loom
