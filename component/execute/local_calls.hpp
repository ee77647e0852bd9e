// local_calls.hpp -- calls with buffers on a GPU that need no other rank: MPI_Reduce_local, and the calls of
// a communicator of one rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "component/setup/process.hpp"
#include "device/call.h"
#include "device/cuda/gpu_stream.hpp"
#include "device/reduce/operations.hpp"

namespace loom {

/// Of a process; any thread may call it, and none waits for another one's GPU. Calls begin after what the
/// program has put into the legacy default stream, and are done on return. All throw Error.
class LocalCalls {
 public:
  /// process must outlive this.
  explicit LocalCalls(Process& process) : process_(process) {}
  LocalCalls(const LocalCalls&) = delete;
  LocalCalls& operator=(const LocalCalls&) = delete;

  /// inout = in op inout, of `count` contiguous elements. False: not both buffers are on one GPU, or it has
  /// no such kernel.
  bool reduce(const std::byte* in, std::byte* inout, std::size_t count, device::Op op, device::Type type);
  /// A single rank's call: the operand becomes the result. False: no buffer is on a GPU, they are on two, one
  /// has gaps, or the operand is longer than the result.
  bool copy(const device::Call& call);

 private:
  enum class Kernel : std::uint8_t { kNotLoaded, kReady, kRefused };
  struct OnGpu {
    bool is_of(const device::cuda::Owner& owner) const;
    bool is_ready(device::Op op, device::Type type);
    /// body(stream) in a stream of this call's own, so that it waits for no other call. Throws Error.
    template <class Body>
    void in_stream(Body&& body);

    device::cuda::Owner owner = {};               ///< that it was made for
    std::shared_ptr<device::cuda::Gpu> gpu = {};  ///< nullptr: it has no kernels in this build, or no memory
    Mutex mutex = {};
    std::vector<std::unique_ptr<device::cuda::GpuStream>> idle LOOM_GUARDED_BY(mutex) = {};
    Mutex loading = {};
    std::array<std::array<Kernel, device::kTypeCount>, device::kOpCount> kernels
        LOOM_GUARDED_BY(loading) = {};
  };
  std::shared_ptr<OnGpu> on_gpu_of(const device::cuda::Owner& owner);

  Process& process_;
  Mutex mutex_;
  std::list<std::shared_ptr<OnGpu>> on_gpus_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom
