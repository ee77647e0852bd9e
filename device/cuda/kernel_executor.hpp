// kernel_executor.hpp -- a collective of one host by one kernel on each rank's GPU: the kernels meet in
// memory of the GPUs (kernel_links.hpp), and the host waits for its own. Never run on a GPU so far.
#pragma once

#include "device/call.h"
#include "device/cuda/gpu_links.hpp"
#include "device/host/ring_executor.hpp"

namespace loom::device::cuda {

class KernelExecutor {
 public:
  /// A call whose buffers lie on the GPU of `links`, contiguous, of `ranks` ranks; kernel_way() has a way for
  /// it. What `links` refers to must outlive this.
  KernelExecutor(GpuLinks& links, const Call& call, int rank, int ranks);
  /// Nobody may use the buffers while a kernel does: one that has not ended is told to give up, and waited
  /// for.
  ~KernelExecutor();
  KernelExecutor(const KernelExecutor&) = delete;
  KernelExecutor& operator=(const KernelExecutor&) = delete;

  using State = RingExecutor::State;
  /// Starts the kernel, and then looks whether it has ended. Throws what Gpu throws, and Error (kGivenUp).
  State advance();
  /// This rank: the host does not know whom its kernel waits for.
  int awaited() const noexcept { return rank_; }

 private:
  GpuLinks& links_;
  Call call_;
  int rank_, ranks_;
  bool runs_ = false;
};

}  // namespace loom::device::cuda
