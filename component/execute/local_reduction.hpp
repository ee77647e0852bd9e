// local_reduction.hpp -- MPI_Reduce_local of buffers on a GPU: one kernel, of no communicator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "component/setup/process.hpp"
#include "device/cuda/gpu_stream.hpp"
#include "device/reduce/operations.hpp"

namespace loom {

/// Of a process; any thread may call it.
class LocalReduction {
 public:
  /// process must outlive this.
  explicit LocalReduction(Process& process) : process_(process) {}
  LocalReduction(const LocalReduction&) = delete;
  LocalReduction& operator=(const LocalReduction&) = delete;

  /// inout = in op inout, of `count` contiguous elements, after what the program has put into the legacy
  /// default stream; done on return. False: not both buffers are on one GPU, or it has no such kernel. Throws
  /// Error.
  bool perform(const std::byte* in, std::byte* inout, std::size_t count, device::Op op, device::Type type);

 private:
  enum class Kernel : std::uint8_t { kNotLoaded, kReady, kRefused };
  bool is_ready(device::Op op, device::Type type);

  Process& process_;
  std::mutex mutex_;  ///< of what follows
  std::shared_ptr<device::cuda::Gpu> gpu_;
  std::unique_ptr<device::cuda::GpuStream> stream_;  ///< on it
  std::array<std::array<Kernel, device::kTypeCount>, device::kOpCount> kernels_{};
};

}  // namespace loom
