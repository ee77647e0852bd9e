#include "device/host/ring_executor.hpp"

#include <algorithm>
#include <cstring>

#include "device/link/step_flag.hpp"
#include "device/schedule/divide_up.hpp"

namespace loom::device {
namespace {

// A slice that goes to two places is processed in blocks of this size, so that the second copy finds the data
// in the L1 cache.
constexpr std::size_t kBlockBytes = 8 * 1024;

// Below this a slice costs more in flags than its share of the pipeline saves (host, 2 ranks, loom_bench
// allreduce).
constexpr std::size_t kMinSliceBytes = 8 * 1024;

std::size_t longest_chunk(std::size_t count, std::size_t elem_bytes, int size) {
  const std::size_t elems_per_line = std::max<std::size_t>(1, kCacheLine / elem_bytes);
  const std::size_t share = divide_up(count, static_cast<std::size_t>(size));
  return divide_up(share, elems_per_line) * elems_per_line;
}

}  // namespace

ChunkRange chunk_range(std::size_t count, std::size_t elem_bytes, int size, int chunk) {
  const std::size_t length = longest_chunk(count, elem_bytes, size);
  const std::size_t first = std::min(count, static_cast<std::size_t>(chunk) * length);
  return {first, std::min(length, count - first)};
}

Slicing slice_ring(std::size_t count, std::size_t elem_bytes, int size, std::size_t slot_bytes,
                   std::size_t slot_count, std::size_t worthwhile) {
  const std::size_t slices_per_round = std::max<std::size_t>(1, slot_count / 2);
  const std::size_t chunk_bytes = longest_chunk(count, elem_bytes, size) * elem_bytes;
  const std::size_t least =
      std::min(std::max(kMinSliceBytes, std::min(worthwhile, chunk_bytes / 2)), slot_bytes);
  const std::size_t slice_bytes = std::clamp(divide_up(chunk_bytes, slices_per_round), least, slot_bytes);
  // Whole cache lines, where a slot holds one, keep slices aligned.
  const std::size_t elems_per_line = std::max<std::size_t>(1, kCacheLine / elem_bytes);
  const std::size_t elems = slice_bytes / elem_bytes;
  return {std::max<std::size_t>(1, elems >= elems_per_line ? elems / elems_per_line * elems_per_line : elems),
          slices_per_round};
}

RingExecutor::RingExecutor(const RingLinks& links, const RingStage& stage, const Slicing& slicing)
    : links_(links),
      stage_(stage),
      slicing_(slicing),
      chunk_elems_(stage.count == 0 ? 0 : longest_chunk(stage.count, stage.elem_bytes, links.size)) {
  if (stage.chunks.empty()) return;
  chunk_elems_ = 0;
  for (int position = 0; position < links.size; ++position)
    chunk_elems_ = std::max(chunk_elems_, chunk(position).count);
}

ChunkRange RingExecutor::chunk(int position) const {
  if (stage_.chunks.empty()) return chunk_range(stage_.count, stage_.elem_bytes, links_.size, position);
  const ChunkRange& whole = stage_.chunks[static_cast<std::size_t>(position)];
  const std::size_t skipped = std::min(stage_.window.first, whole.count);
  return {whole.first + skipped, std::min(stage_.window.count, whole.count - skipped)};
}

RingExecutor::State RingExecutor::advance() {
  const int steps = ring_step_count(stage_.collective, links_.size);
  bool moved = false;
  while (round_ * slicing_.slices_per_round * slicing_.slice_elems < chunk_elems_) {
    const RingStep step = ring_step(stage_.collective, links_.position, links_.size, step_);
    if (!perform_slice(step)) return moved ? State::kMoved : State::kBlocked;
    moved = true;
    next_slice();
    if (step_ == steps) {
      step_ = 0;
      ++round_;
    }
  }
  return State::kDone;
}

void RingExecutor::next_slice() {
  const std::size_t done = (round_ * slicing_.slices_per_round + ++slice_) * slicing_.slice_elems;
  if (slice_ == slicing_.slices_per_round || done >= chunk_elems_) {
    slice_ = 0;
    ++step_;
  }
}

bool RingExecutor::perform_slice(const RingStep& step) {
  std::byte* sent = nullptr;
  if (sends(step.action)) {
    sent = links_.next->try_acquire();
    if (sent == nullptr) {
      waits_for_previous_ = false;
      return false;
    }
  }

  // A shorter chunk's last slices are short or empty; they travel all the same, so that all ranks count
  // alike.
  const ChunkRange chunk = this->chunk(step.chunk);
  const std::size_t offset =
      std::min(chunk.count, (round_ * slicing_.slices_per_round + slice_) * slicing_.slice_elems);
  const std::size_t elems = std::min(slicing_.slice_elems, chunk.count - offset);
  const auto move_slice = [&](const std::byte* received) {
    if (elems > 0) move(step.action, chunk.first + offset, elems, sent, received);
  };
  waits_for_previous_ = true;
  if (!receives(step.action)) {
    move_slice(nullptr);
  } else if (stage_.streaming == nullptr) {
    if (!links_.previous->try_consume(elems * stage_.elem_bytes, Consumer(move_slice))) return false;
  } else {  // which may throw
    const std::byte* const received = links_.previous->try_receive();
    if (received == nullptr) return false;
    move_slice(received);
    links_.previous->release();
  }
  if (sent != nullptr) links_.next->publish(elems * stage_.elem_bytes);
  return true;
}

/// Elements [first, first + elems) of the message.
void RingExecutor::move(RingAction action, std::size_t first, std::size_t elems, std::byte* sent,
                        const std::byte* received) const {
  const std::size_t bytes = elems * stage_.elem_bytes;
  const std::byte* const in =
      stage_.collective == RingCollective::kAllGather
          ? nullptr
          : stage_.in + first * stage_.elem_bytes - stage_.in_first * stage_.elem_bytes;
  std::byte* const out = stage_.out == nullptr  // of a rank whose part is empty
                             ? nullptr
                             : stage_.out + first * stage_.elem_bytes - stage_.out_first * stage_.elem_bytes;
  if (stage_.streaming != nullptr && in != nullptr && reads_own(action)) stage_.streaming->need(in, bytes);
  switch (action) {
    case RingAction::kSend:
      std::memcpy(sent, stage_.collective == RingCollective::kAllGather ? out : in, bytes);
      break;
    case RingAction::kRecvReduceSend:
      stage_.reduce(sent, received, in, elems);
      break;
    case RingAction::kRecvReduceCopySend: {
      const std::size_t block_elems = kBlockBytes / stage_.elem_bytes;
      for (std::size_t i = 0; i < elems; i += block_elems) {
        const std::size_t n = std::min(block_elems, elems - i), b = i * stage_.elem_bytes;
        stage_.reduce(out + b, received + b, in + b, n);
        std::memcpy(sent + b, out + b, n * stage_.elem_bytes);
      }
      break;
    }
    case RingAction::kRecvReduceCopy:
      stage_.reduce(out, received, in, elems);
      break;
    case RingAction::kRecvCopySend:
      for (std::size_t b = 0; b < bytes; b += kBlockBytes) {
        const std::size_t n = std::min(kBlockBytes, bytes - b);
        std::memcpy(out + b, received + b, n);
        std::memcpy(sent + b, received + b, n);
      }
      break;
    case RingAction::kRecvCopy:
      std::memcpy(out, received, bytes);
      break;
  }
  if (stage_.streaming != nullptr && stage_.writes_result && stores(action))
    stage_.streaming->have(out, bytes);
}

}  // namespace loom::device
