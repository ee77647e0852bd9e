// kernel_executor.hpp -- a collective by one kernel on each rank's GPU: the kernels exchange data through
// links (kernel_links.hpp), and the host waits for its own kernel and carries what leads to other hosts.
// Never run on a GPU so far.
#pragma once

#include <cstddef>
#include <string>

#include "device/call.h"
#include "device/cuda/gpu_links.hpp"
#include "device/cuda/program_mark.hpp"
#include "device/host/ring_executor.hpp"

namespace loom::device::cuda {

/// Of the result that must go elsewhere first; 0: it may lie in its place at once. A reduce-scatter into the
/// place of its operand, whose blocks differ in length, would cover blocks that are yet to be sent.
std::size_t bytes_elsewhere(const Call& call, int rank, int ranks);

class KernelExecutor {
 public:
  /// A call of `ranks` ranks whose buffers are contiguous on the GPU of `links`, and that kernels_carry() by
  /// such links. It begins after a mark in the program's work; nullptr: after all that is there when the
  /// kernel is started. What is referred to must outlive this.
  KernelExecutor(GpuLinks& links, const Call& call, int rank, int ranks,
                 KernelLinkage linkage = KernelLinkage::kAny, const ProgramMark* after = nullptr);
  /// Tells a kernel that has not ended to give up, and waits for it: until then nobody may use the buffers.
  ~KernelExecutor();
  KernelExecutor(const KernelExecutor&) = delete;
  KernelExecutor& operator=(const KernelExecutor&) = delete;

  using State = RingExecutor::State;
  /// Starts the kernel, and then looks whether it has ended. That the program's own work on the GPU, which
  /// comes first, has not ended counts as a move. Throws what Gpu throws, and Error (kGivenUp).
  State advance();
  /// Whom its kernel waits for; this rank where the host does not know.
  int awaited() const noexcept;
  /// How far that rank has come: half a sentence for messages.
  std::string standing() const;

 private:
  void start();
  bool waits_for_program();

  GpuLinks& links_;
  Call call_;
  int rank_, ranks_;
  KernelLinkage linkage_;
  const ProgramMark* after_;
  bool runs_ = false;
  bool follows_program_ = true;  ///< as far as the driver was asked
  ProgramWait program_wait_;
};

}  // namespace loom::device::cuda
