#include "device/host/rails_executor.hpp"

#include <algorithm>

#include "device/step_flag.hpp"

namespace loom::device {
namespace {

// A block is long enough that its rail is a pipeline of several slices, and a message has enough blocks to
// overlap (three virtual hosts of two ranks at 1 Gbit/s, loom_bench allreduce at 16 MiB).
constexpr std::size_t kBlockBytes = 2 * 1024 * 1024;
constexpr std::size_t kBlocksAhead =
    2;  // blocks reduced inside before the first one has to be back from the rail

}  // namespace

RailsExecutor::RailsExecutor(const RingLinks& local, const FifoShape& local_fifo, const RingLinks& rail,
                             const FifoShape& rail_fifo, const RingJob& job) {
  const std::size_t elems_per_line = std::max<std::size_t>(1, kCacheLine / job.elem_bytes);
  const std::size_t block_elems =
      std::max<std::size_t>(1, kBlockBytes / job.elem_bytes / elems_per_line) * elems_per_line;
  const std::size_t blocks = (job.count + block_elems - 1) / block_elems;
  const auto block_job = [&](std::size_t block, RingCollective collective) {
    RingJob part = job;
    const std::size_t first = block * block_elems;
    part.collective = collective;
    part.in += first * job.elem_bytes;
    part.out += first * job.elem_bytes;
    part.count = std::min(block_elems, job.count - first);
    return part;
  };
  const auto inside = [&](const RingJob& part, std::size_t after) {
    const Slicing slicing =
        slice_ring(part.count, part.elem_bytes, local.size, local_fifo.slot_bytes, local_fifo.slot_count);
    inside_.stages.push_back({RingExecutor(local, part, slicing), after});
    return inside_.stages.size();
  };

  // inside: RS 0, RS 1, RS 2, AG 0, RS 3, AG 1, ...   across: AR 0, AR 1, AR 2, ...
  for (std::size_t i = 0; i < blocks + kBlocksAhead; ++i) {
    if (i < blocks) {
      const RingJob whole = block_job(i, RingCollective::kReduceScatter);
      const std::size_t scattered = inside(whole, 0);
      RingJob part = whole;
      const ChunkRange mine = chunk_range(whole.count, whole.elem_bytes, local.size, local.position);
      part.collective = RingCollective::kAllreduce;
      part.in = part.out = whole.out + mine.first * whole.elem_bytes;
      part.count = mine.count;
      const Slicing slicing =
          slice_ring(part.count, part.elem_bytes, rail.size, rail_fifo.slot_bytes, rail_fifo.slot_count);
      across_.stages.push_back({RingExecutor(rail, part, slicing), scattered});
    }
    if (i >= kBlocksAhead) {
      const std::size_t block = i - kBlocksAhead;
      inside(block_job(block, RingCollective::kAllGather), block + 1);
    }
  }
}

bool RailsExecutor::advance_head(Sequence& sequence, const Sequence& other) {
  if (sequence.done == sequence.stages.size()) return false;
  Stage& head = sequence.stages[sequence.done];
  if (other.done < head.after) return false;
  const RingExecutor::State state = head.executor.advance();
  if (state == RingExecutor::State::kDone) ++sequence.done;
  return state != RingExecutor::State::kBlocked;
}

RingExecutor::State RailsExecutor::advance() {
  // The network first: what it has brought is what everybody waits for.
  bool moved = advance_head(across_, inside_);
  moved |= advance_head(inside_, across_);
  if (inside_.done == inside_.stages.size() && across_.done == across_.stages.size())
    return RingExecutor::State::kDone;
  return moved ? RingExecutor::State::kMoved : RingExecutor::State::kBlocked;
}

RailsExecutor::Waits RailsExecutor::waits() const noexcept {
  if (across_.done < across_.stages.size() && across_.stages[across_.done].after <= inside_.done)
    return across_.stages[across_.done].executor.waits_for_previous() ? Waits::kOnRailPrevious
                                                                      : Waits::kOnRailNext;
  const RingExecutor& head = inside_.stages[std::min(inside_.done, inside_.stages.size() - 1)].executor;
  return head.waits_for_previous() ? Waits::kOnLocalPrevious : Waits::kOnLocalNext;
}

}  // namespace loom::device
