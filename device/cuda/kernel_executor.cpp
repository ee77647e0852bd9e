#include "device/cuda/kernel_executor.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"

namespace loom::device::cuda {
namespace {

bool has_equal_parts(const Call& call, int ranks) {
  for (int r = 1; r < ranks; ++r)
    if (call.bounds[r + 1] - call.bounds[r] != call.bounds[1] - call.bounds[0]) return false;
  return true;
}

/// What a kernel gets of a call beside the sizes of divide().
struct Operands {
  const std::byte* in;
  std::byte* out;
  std::vector<Part> blocks = {};  ///< as Task::blocks, where there are any
};

/// Blocks lie anywhere: they are counted from the first one, which is returned.
std::byte* list(const Block* blocks, int ranks, std::vector<Part>& to) {
  const std::span all(blocks, static_cast<std::size_t>(ranks));
  std::byte* first = nullptr;
  for (const Block& block : all)
    if (block.bytes > 0 && (first == nullptr || std::less<>()(block.data, first))) first = block.data;
  for (const Block& block : all)
    to.push_back({block.bytes > 0 ? static_cast<std::size_t>(block.data - first) : 0, block.bytes});
  return first;
}

Operands operands_of(const Call& call, int ranks) {
  if (call.collective == Collective::kAllGatherV) {
    Operands gathered{call.in_blocks[0].data, nullptr};
    gathered.out = list(call.out_blocks, ranks, gathered.blocks);
    return gathered;
  }
  if (exchanges(call.collective) && lists_blocks(call.collective)) {
    Operands exchanged{};
    exchanged.in = list(call.in_blocks, ranks, exchanged.blocks);
    exchanged.out = list(call.out_blocks, ranks, exchanged.blocks);
    return exchanged;
  }
  Operands operands{call.in, call.out};
  if (call.collective == Collective::kAllToAll)
    for (int b = 0; b < 2 * ranks; ++b)
      operands.blocks.push_back({static_cast<std::size_t>(b % ranks) * call.bytes(), call.bytes()});
  if (call.collective == Collective::kReduceScatterV && !has_equal_parts(call, ranks))
    for (int r = 0; r < ranks; ++r)
      operands.blocks.push_back({call.bounds[r], call.bounds[r + 1] - call.bounds[r]});
  return operands;
}

}  // namespace

std::size_t bytes_elsewhere(const Call& call, int rank, int ranks) {
  const bool covers =
      call.collective == Collective::kReduceScatterV && call.in == call.out && !has_equal_parts(call, ranks);
  return covers ? (call.bounds[rank + 1] - call.bounds[rank]) * call.elem_bytes() : 0;
}

KernelExecutor::KernelExecutor(GpuLinks& links, const Call& call, int rank, int ranks, KernelLinkage linkage,
                               const ProgramMark* after)
    : links_(links), call_(call), rank_(rank), ranks_(ranks), linkage_(linkage), after_(after) {}

KernelExecutor::~KernelExecutor() {
  if (!runs_) return;
  links_.kernels().abandon();
  try {
    links_.kernels().finish();
  } catch (const Error&) {  // the GPU has failed: its kernels have ended, too
  }
}

void KernelExecutor::start() {
  const auto size = static_cast<std::size_t>(ranks_);
  const bool has_blocks = call_.collective == Collective::kReduceScatter ||
                          call_.collective == Collective::kAllGather ||
                          call_.collective == Collective::kAllToAll,
             reduces = is_reduction(call_.collective);
  const std::size_t whole = shared_bytes(call_, ranks_) * (has_blocks ? size : 1);
  const KernelWay way = links_.kernels().choose(call_.collective, whole, linkage_).way;
  const Operands operands = operands_of(call_, ranks_);
  const bool in_parts = call_.collective == Collective::kReduceScatterV;
  steps::Task task = operands.blocks.empty() ? divide(way, in_parts ? call_.count / size : call_.count,
                                                      call_.elem_bytes(), ranks_)
                                             : divide(way, operands.blocks);
  task.root = call_.root;
  task.in = operands.in;
  task.out = operands.out;
  const Driver::CurrentContext context(links_.gpu().driver(), links_.gpu().owner());  // once for both
  after_ != nullptr ? links_.stream().follow(*after_) : links_.stream().follow_program();
  links_.kernels().start(task, reduces ? std::optional(call_.op) : std::nullopt,
                         reduces ? call_.type : Type::kUint8, way.channels, operands.blocks);
  links_.call_has_begun();
}

int KernelExecutor::awaited() const noexcept {
  if (const auto by = links_.held_up_by()) return by->rank;
  return links_.kernels().awaited_far().value_or(rank_);
}

std::string KernelExecutor::standing() const {
  const auto by = links_.held_up_by();
  if (const auto far = links_.kernels().awaited_far(); !by && far) return links_.kernels().standing_of(*far);
  if (!by) return "whose kernel has not ended, though those of all ranks may run";
  return by->has_begun ? "whose program has work on its GPU ahead of this call, which has not ended"
                       : "which has not begun this call";
}

/// Asked seldom: a question takes as long as many looks, short calls have ended by then, and whoever moves
/// does not yield, nor let the MPI library progress.
bool KernelExecutor::waits_for_program() {
  if (!follows_program_ || !program_wait_.is_due()) return false;
  follows_program_ = !(after_ != nullptr ? after_->has_passed() : links_.stream().program_has_ended());
  if (!follows_program_) links_.call_is_free_to_run();
  return follows_program_;
}

KernelExecutor::State KernelExecutor::advance() {
  KernelLinks& kernels = links_.kernels();
  if (!runs_) {
    start();
    runs_ = true;
    program_wait_ = {};
    return State::kMoved;
  }
  const std::uint64_t moves = kernels.moves_between_hosts();
  if (!kernels.has_ended()) {
    links_.check_peers();
    return waits_for_program() || kernels.moves_between_hosts() != moves ? State::kMoved : State::kBlocked;
  }
  // A kernel that ends has the program's work behind it: ranks that this one leaves behind see who holds them up.
  if (follows_program_) links_.call_is_free_to_run();
  runs_ = false;
  if (kernels.was_abandoned()) throw Error(ErrorCode::kGivenUp, "A kernel was told to give up.");
  return State::kDone;
}

}  // namespace loom::device::cuda
