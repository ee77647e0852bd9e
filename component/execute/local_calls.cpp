#include "component/execute/local_calls.hpp"

#include <exception>
#include <optional>

#include "component/execute/device_pieces.hpp"

namespace loom {

using device::cuda::Gpu;
using device::cuda::GpuStream;
using device::cuda::Owner;

/// False: it has no kernels in this build, or no memory. Found out once.
bool LocalCalls::use_gpu_of(const Owner& owner) {
  if (refused_ == owner) return false;
  if (gpu_ && gpu_->is_alive() && gpu_->is_of(owner)) return true;
  kernels_ = {};
  stream_.reset();
  gpu_.reset();
  try {
    gpu_ = process_.gpu(owner);
    stream_ = std::make_unique<GpuStream>(*gpu_);
  } catch (const std::exception&) {
    gpu_.reset();
    refused_ = owner;
    return false;
  }
  return true;
}

bool LocalCalls::reduce(const std::byte* in, std::byte* inout, std::size_t count, device::Op op,
                        device::Type type) {
  if (!Gpu::supports(op, type)) return false;
  const device::cuda::Driver& driver = process_.staging()->driver();
  const std::optional<Owner> owner = driver.owner_of(inout), other = driver.owner_of(in);
  if (!owner || !other || *other != *owner) return false;
  const std::lock_guard lock(mutex_);
  if (!use_gpu_of(*owner) || !is_ready(op, type)) return false;
  stream_->follow_program();
  stream_->combine(op, type,
                   {.operands = 2, .results = 1, .count = count, .in = {in, inout}, .out = {inout}});
  stream_->synchronize();
  return true;
}

bool LocalCalls::copy(const device::Call& call) {
  Piece operand{}, result{};
  const auto take = [&](const Piece& piece) {
    (piece.side == LOOM_IN ? operand : result) = piece;
    return true;
  };
  if (!for_all_pieces(call, 0, 1, take)) return false;
  const device::cuda::Driver& driver = process_.staging()->driver();
  std::optional<Owner> owner;
  try {
    for (const Piece& piece : {operand, result}) {
      const std::optional<Owner> found = piece.bytes > 0 ? driver.owner_of(piece.data) : std::nullopt;
      if (found && owner && *found != *owner) return false;
      if (found) owner = found;
    }
  } catch (const Error&) {  // who stages the buffer finds out again, and says so
    return false;
  }
  if (!owner) return false;
  const bool copies = call.collective != device::Collective::kExscan && !call.owns_its_block &&
                      result.bytes > 0 && operand.bytes > 0 && operand.data != result.data;
  if (!copies) return true;
  if (operand.bytes > result.bytes) return false;
  const std::lock_guard lock(mutex_);
  if (!use_gpu_of(*owner)) return false;
  stream_->follow_program();
  stream_->copy(const_cast<std::byte*>(result.data), operand.data, operand.bytes);
  stream_->synchronize();
  return true;
}

bool LocalCalls::is_ready(device::Op op, device::Type type) {
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
