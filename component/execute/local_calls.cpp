#include "component/execute/local_calls.hpp"

#include <exception>
#include <iterator>
#include <optional>

#include "component/execute/device_pieces.hpp"
#include "device/reduce/reduce.hpp"

namespace loom {

using device::cuda::Gpu;
using device::cuda::GpuStream;
using device::cuda::Owner;
using device::cuda::take_owner;

bool LocalCalls::OnGpu::is_of(const Owner& other) const {
  return gpu ? gpu->is_of(other) && gpu->is_alive() : owner == other;
}

template <class Body>
void LocalCalls::OnGpu::in_stream(Body&& body) {
  std::unique_ptr<GpuStream> stream;
  {
    const MutexLock lock(mutex);
    if (!idle.empty()) {
      stream = std::move(idle.back());
      idle.pop_back();
    }
  }
  if (!stream) stream = std::make_unique<GpuStream>(*gpu);
  stream->follow_program();
  body(*stream);
  stream->synchronize();
  const MutexLock lock(mutex);
  idle.push_back(std::move(stream));
}

/// nullptr: it has no kernels in this build, or no memory. Found out once.
std::shared_ptr<LocalCalls::OnGpu> LocalCalls::on_gpu_of(const Owner& owner) {
  std::list<std::shared_ptr<OnGpu>> gone;  // outlives the lock
  const MutexLock lock(mutex_);
  for (auto known = on_gpus_.begin(); known != on_gpus_.end();) {
    const auto next = std::next(known);
    if ((*known)->is_of(owner)) return (*known)->gpu ? *known : nullptr;
    if ((*known)->gpu && !(*known)->gpu->is_alive()) gone.splice(gone.end(), on_gpus_, known);
    known = next;
  }
  const auto made = std::make_shared<OnGpu>();
  made->owner = owner;
  try {
    made->gpu = process_.gpu(owner);
    const MutexLock unshared(made->mutex);
    made->idle.push_back(std::make_unique<GpuStream>(*made->gpu));
  } catch (const std::exception&) {
    made->gpu.reset();
  }
  on_gpus_.push_back(made);
  return made->gpu ? made : nullptr;
}

bool LocalCalls::reduce(const std::byte* in, std::byte* inout, std::size_t count, device::Op op,
                        device::Type type) {
  if (!Gpu::supports(op, type) || !device::is_aligned(type, in) || !device::is_aligned(type, inout))
    return false;
  const device::cuda::Driver& driver = process_.staging()->driver();
  std::optional<Owner> owner = driver.owner_of(inout);
  const std::optional<Owner> other = driver.owner_of(in);
  if (!owner || !other || !take_owner(owner, *other)) return false;
  const std::shared_ptr<OnGpu> on_gpu = on_gpu_of(*owner);
  if (!on_gpu || !on_gpu->is_ready(op, type)) return false;
  on_gpu->in_stream([&](GpuStream& stream) {
    stream.combine(op, type,
                   {.operands = 2, .results = 1, .count = count, .in = {in, inout}, .out = {inout}});
  });
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
      if (found && !take_owner(owner, *found)) return false;
    }
  } catch (const Error&) {  // who stages the buffer finds out again, and says so
    return false;
  }
  if (!owner) return false;
  const bool copies = call.collective != device::Collective::kExscan && !call.owns_its_block &&
                      result.bytes > 0 && operand.bytes > 0 && operand.data != result.data;
  if (!copies) return true;
  if (operand.bytes > result.bytes) return false;
  const std::shared_ptr<OnGpu> on_gpu = on_gpu_of(*owner);
  if (!on_gpu) return false;
  on_gpu->in_stream([&](GpuStream& stream) {
    stream.copy(const_cast<std::byte*>(result.data), operand.data, operand.bytes);
  });
  return true;
}

bool LocalCalls::OnGpu::is_ready(device::Op op, device::Type type) {
  const MutexLock lock(loading);
  Kernel& kernel = kernels[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
  if (kernel == Kernel::kNotLoaded) {
    try {
      GpuStream(*gpu).prepare_combine(op, type);
      kernel = Kernel::kReady;
    } catch (const std::exception&) {
      kernel = Kernel::kRefused;
    }
  }
  return kernel == Kernel::kReady;
}

}  // namespace loom
