#include "device/cuda/kernel_executor.hpp"

#include <optional>

#include "base/error.hpp"

namespace loom::device::cuda {

KernelExecutor::KernelExecutor(GpuLinks& links, const Call& call, int rank, int ranks)
    : links_(links), call_(call), rank_(rank), ranks_(ranks) {}

KernelExecutor::~KernelExecutor() {
  if (!runs_) return;
  links_.kernels().abandon();
  try {
    links_.kernels().finish();
  } catch (const Error&) {  // the GPU has failed: its kernels have ended, too
  }
}

KernelExecutor::State KernelExecutor::advance() {
  KernelLinks& kernels = links_.kernels();
  if (!runs_) {
    const auto way =
        kernel_way(call_.collective, call_.bytes(), ranks_, links_.form().may_ll128, links_.form().channels);
    steps::Task task = divide(*way, call_.count, call_.elem_bytes(), ranks_);
    task.root = call_.root;
    task.in = call_.in;
    task.out = call_.out;
    const bool reduces = is_reduction(call_.collective);
    links_.stream().follow_program();
    kernels.start(task, reduces ? std::optional(call_.op) : std::nullopt, reduces ? call_.type : Type::kUint8,
                  way->channels);
    runs_ = true;
    return State::kMoved;
  }
  if (!kernels.has_ended()) {
    links_.check_peers();
    return State::kBlocked;
  }
  runs_ = false;
  if (kernels.was_abandoned()) throw Error(ErrorCode::kGivenUp, "A kernel was told to give up.");
  return State::kDone;
}

}  // namespace loom::device::cuda
