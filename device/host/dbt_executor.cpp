#include "device/host/dbt_executor.hpp"

#include <algorithm>
#include <utility>

#include "device/link/step_flag.hpp"

namespace loom::device {
namespace {

// An all-reduce's next block begins across hosts when the last one is back, so a block must be much longer
// than what fills the trees.
constexpr std::size_t kMinBlockBytes = 2 * 1024 * 1024;
constexpr std::size_t kBlocks = 8;
// Blocks of a broadcast or reduce follow each other at once.
constexpr std::size_t kOneWayBlockBytes = 256 * 1024;
constexpr std::size_t kBlocksBetween = 4;  // of a reduce, between host and rail

}  // namespace

DbtExecutor::DbtExecutor(const Grid& grid, const DbtLinks& trees, const Call& call, int root_host,
                         int root_place)
    : grid_(grid), call_(call) {
  if (call.collective == Collective::kAllreduce)
    plan_allreduce(trees);
  else if (call.collective == Collective::kBroadcast)
    plan_broadcast(trees, root_host, root_place);
  else
    plan_reduce(trees, root_host, root_place);
}

std::size_t DbtExecutor::block_elems(std::size_t bytes) const {
  const std::size_t line = std::max<std::size_t>(1, kCacheLine / call_.elem_bytes());
  return std::max<std::size_t>(1, bytes / call_.elem_bytes() / line * line);
}

void DbtExecutor::plan_allreduce(const DbtLinks& trees) {
  const RingLinks& local = grid_.local;
  TreeStage whole{TreeCollective::kAllreduce, call_.in,      call_.out, call_.count,
                  call_.elem_bytes(),         call_.reduce()};
  whole.streaming = call_.streaming;
  if (local.size == 1) return across_.add(tree(trees, kNobody, whole), 0);

  const std::size_t block = block_elems(std::max(kMinBlockBytes, call_.bytes() / kBlocks));
  const auto ring = [&](RingCollective collective, const TreeStage& part) {
    const FifoShape& fifo = grid_.local_fifo;
    RingStage half{collective, part.in, part.out, part.count, part.elem_bytes, part.reduce};
    half.streaming = part.streaming;
    half.writes_result = collective == RingCollective::kAllGather;  // else a host's sums
    return Inside(RingExecutor(
        local, half, slice_ring(part.count, part.elem_bytes, local.size, fifo.slot_bytes, fifo.slot_count)));
  };
  // inside: RS 0, RS 1, AG 0, RS 2, AG 1, ...   across: AR 0, AR 1, ...
  const auto part_at = [&](std::size_t first) {
    TreeStage part = whole;
    part.in += first * call_.elem_bytes();
    part.out += first * call_.elem_bytes();
    part.count = std::min(block, call_.count - first);
    return part;
  };
  std::size_t gathered = 0;
  const auto gather = [&] {
    inside_.add(ring(RingCollective::kAllGather, part_at(gathered * block)), gathered + 1);
    ++gathered;
  };
  for (std::size_t first = 0; first < call_.count; first += block) {
    TreeStage part = part_at(first);
    inside_.add(ring(RingCollective::kReduceScatter, part), 0);
    const ChunkRange mine = chunk_range(part.count, part.elem_bytes, local.size, local.position);
    part.out += mine.first * part.elem_bytes;
    part.in = part.out;
    part.count = mine.count;
    across_.add(tree(trees, kNobody, part), inside_.size());
    if (first > 0) gather();
  }
  gather();
}

/// Inside my host; its root is the rank at root_place.
RootedExecutor DbtExecutor::chain(const TreeStage& part, int root_place) const {
  Grid host = grid_;
  host.rail = {grid_.rail.position, 1, nullptr, nullptr};
  host.rail_fifo = host.local_fifo;
  Call call = call_;
  call.in = part.in;
  call.out = part.out;
  call.count = part.count;
  call.in_packer = call.out_packer = nullptr;
  return {host, call, 0, root_place};
}

void DbtExecutor::plan_broadcast(const DbtLinks& trees, int root_host, int root_place) {
  const bool on_rail = grid_.local.position == root_place;
  const bool is_root = on_rail && grid_.rail.position == root_host;
  const Packer* const packer = is_root ? call_.in_packer : call_.out_packer;
  const std::byte* data = is_root ? call_.in : call_.out;
  if (packer != nullptr) {
    between_ = scratch(call_.bytes());
    data = between_.get();
    if (is_root) packer->move(packer->context, 0, between_.get(), call_.bytes());
    unpacks_ = !is_root;
  }
  const std::size_t block = block_elems(kOneWayBlockBytes);
  for (std::size_t first = 0; first < call_.count; first += block) {
    const std::byte* const at = data + first * call_.elem_bytes();
    // The root only reads its message; the others have nothing to read here, and only write.
    TreeStage part{TreeCollective::kBroadcast, at, is_root ? nullptr : const_cast<std::byte*>(at),
                   std::min(block, call_.count - first), call_.elem_bytes()};
    part.streaming = call_.streaming;
    if (on_rail) across_.add(tree(trees, root_host, part), 0);
    if (grid_.local.size > 1) inside_.add(Inside(chain(part, root_place)), across_.size());
  }
}

void DbtExecutor::plan_reduce(const DbtLinks& trees, int root_host, int root_place) {
  const bool on_rail = grid_.local.position == root_place;
  const bool is_root = on_rail && grid_.rail.position == root_host;
  const bool sums = on_rail && grid_.local.size > 1;
  const std::size_t block = block_elems(kOneWayBlockBytes), block_bytes = block * call_.elem_bytes();
  if (sums) between_ = scratch(std::min(kBlocksBetween * block_bytes, call_.bytes()));
  for (std::size_t first = 0, b = 0; first < call_.count; first += block, ++b) {
    const std::size_t at = first * call_.elem_bytes();
    TreeStage part{TreeCollective::kReduce,
                   call_.in + at,
                   sums ? between_.get() + b % kBlocksBetween * block_bytes : nullptr,
                   std::min(block, call_.count - first),
                   call_.elem_bytes(),
                   call_.reduce()};
    part.streaming = call_.streaming;
    const std::size_t after = on_rail && b >= kBlocksBetween ? b - kBlocksBetween + 1 : 0;
    if (grid_.local.size > 1) inside_.add(Inside(chain(part, root_place)), after);
    if (!on_rail) continue;
    if (sums) part.in = part.out;
    part.out = is_root ? call_.out + at : nullptr;
    across_.add(tree(trees, root_host, part), inside_.size());
  }
}

RingExecutor::State DbtExecutor::advance() {
  const RingExecutor::State state = advance_both(across_, inside_);
  if (state == RingExecutor::State::kDone && std::exchange(unpacks_, false))
    call_.out_packer->move(call_.out_packer->context, 0, between_.get(), call_.bytes());
  return state;
}

int DbtExecutor::Inside::awaited(const Grid& grid) const noexcept {
  if (chain_) return chain_->awaited();
  return grid.local_neighbour(ring_->waits_for_previous() ? -1 : 1);
}

int DbtExecutor::awaited() const noexcept {
  if (const DoubleTreeExecutor* tree = across_.head(inside_))
    return grid_.rank_at(tree->awaited(), grid_.local.position);
  if (const Inside* local = inside_.head(across_)) return local->awaited(grid_);
  return grid_.rail_neighbour(1);
}

}  // namespace loom::device
