#include "device/host/split_rail_executor.hpp"

#include <algorithm>
#include <cstring>

#include "device/link/step_flag.hpp"
#include "device/schedule/divide_up.hpp"

namespace loom::device {
namespace {

// A block of an all-reduce is long enough that its rail is a pipeline of several slices, and a message has
// enough blocks to overlap (three virtual hosts of two ranks at 1 Gbit/s, loom_bench allreduce at 16 MiB).
constexpr std::size_t kBlockBytes = 2 * 1024 * 1024;
// Blocks reduced inside before the first one has to be back from the rail.
constexpr std::size_t kBlocksAhead = 2;
// The part of the whole message that block collectives process at once. It crosses the network once, not
// twice.
constexpr std::size_t kTileBytes = 2 * kBlockBytes;
constexpr std::size_t kTilesBetween = 3;  // tiles of a reduce-scatter between host and rail

/// The elements of so many bytes, in whole cache lines; at least one line.
std::size_t whole_lines(std::size_t bytes, std::size_t elem_bytes) {
  const std::size_t line = std::max<std::size_t>(1, kCacheLine / elem_bytes);
  return std::max<std::size_t>(1, bytes / elem_bytes / line) * line;
}

// Below this a slice on its way to another host costs more for being a message than for its bytes (three
// virtual hosts, with 1 Gbit/s and without a limit on the links, loom_bench allreduce).
constexpr std::size_t kWorthwhileBytes = 48 * 1024;

RingExecutor ring(const RingLinks& links, const FifoShape& fifo, const RingStage& stage,
                  std::size_t worthwhile = 0) {
  return {
      links, stage,
      slice_ring(stage.count, stage.elem_bytes, links.size, fifo.slot_bytes, fifo.slot_count, worthwhile)};
}

}  // namespace

SplitRailExecutor::SplitRailExecutor(const Grid& grid, const Call& call) : grid_(grid), call_(call) {
  if (call.collective == Collective::kAllreduce) {
    plan_allreduce();
    return;
  }
  lay_out_blocks();
  if (scatters(call.collective))
    plan_reduce_scatter();
  else
    plan_all_gather();
}

void SplitRailExecutor::add_inside(const RingStage& stage, std::size_t after) {
  inside_.add(ring(grid_.local, grid_.local_fifo, stage), after);
}

void SplitRailExecutor::add_across(const RingStage& stage, std::size_t after) {
  const RingLinks& rail = grid_.rail;
  if (stage.collective != RingCollective::kAllreduce || rail.size != 2)
    return across_.add(Across(ring(rail, grid_.rail_fifo, stage, kWorthwhileBytes)), after);
  exchanged_[static_cast<std::size_t>(1 - rail.position)] = {rail.next, rail.previous};
  across_.add(Across(ExchangeExecutor(exchanged_, rail.position, grid_.rail_fifo.slot_bytes,
                                      {.data = stage.out,
                                       .in = stage.in == stage.out ? nullptr : stage.in,
                                       .count = stage.count,
                                       .elem_bytes = stage.elem_bytes,
                                       .reduce = stage.reduce,
                                       .streaming = stage.streaming})),
              after);
}

void SplitRailExecutor::plan_allreduce() {
  const RingLinks& local = grid_.local;
  RingStage whole{RingCollective::kAllreduce, call_.in,      call_.out, call_.count,
                  call_.elem_bytes(),         call_.reduce()};
  whole.streaming = call_.streaming;
  if (local.size == 1) return add_across(whole, 0);

  const std::size_t block_elems = whole_lines(kBlockBytes, call_.elem_bytes());
  const std::size_t blocks = divide_up(call_.count, block_elems);
  const auto block_stage = [&](std::size_t block, RingCollective collective) {
    RingStage part = whole;
    const std::size_t first = block * block_elems;
    part.collective = collective;
    part.in += first * call_.elem_bytes();
    part.out += first * call_.elem_bytes();
    part.count = std::min(block_elems, call_.count - first);
    return part;
  };
  // inside: RS 0, RS 1, RS 2, AG 0, RS 3, AG 1, ...   across: AR 0, AR 1, AR 2, ...
  for (std::size_t i = 0; i < blocks + kBlocksAhead; ++i) {
    if (i < blocks) {
      RingStage scattered = block_stage(i, RingCollective::kReduceScatter);
      scattered.writes_result = false;  // a host's sums
      add_inside(scattered, 0);
      RingStage part = scattered;
      const ChunkRange mine = chunk_range(part.count, part.elem_bytes, local.size, local.position);
      part.collective = RingCollective::kAllreduce;
      part.writes_result = true;
      part.in = part.out = scattered.out + mine.first * part.elem_bytes;
      part.count = mine.count;
      add_across(part, inside_.size());
    }
    if (i >= kBlocksAhead) {
      const std::size_t block = i - kBlocksAhead;
      add_inside(block_stage(block, RingCollective::kAllGather), block + 1);
    }
  }
}

/// The message is all blocks, by rank. Listed blocks may lie anywhere in the program's buffer, differently on
/// each rank; a non-contiguous result is gathered in result_ first.
void SplitRailExecutor::lay_out_blocks() {
  if (call_.collective == Collective::kAllGatherV) {
    const std::span all(call_.out_blocks, grid_.ranks.size());
    std::byte* base = nullptr;
    for (const Block& block : all)
      if (block.bytes > 0 && (base == nullptr || block.data < base)) base = block.data;
    call_.out = base;
  }
  if (call_.out_packer != nullptr) {
    std::size_t bytes = 0;
    for (std::size_t rank = 0; rank < grid_.ranks.size(); ++rank)
      bytes += call_.collective == Collective::kAllGatherV ? call_.out_blocks[rank].bytes : call_.bytes();
    result_ = scratch(bytes);
    call_.out = result_.get();
  }
  for (const int rank : grid_.ranks) blocks_.push_back(block_of(rank));
  for (int host = 0; host < grid_.rail.size; ++host)
    rail_blocks_.push_back(blocks_on(host)[static_cast<std::size_t>(grid_.local.position)]);
}

ChunkRange SplitRailExecutor::block_of(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  if (call_.collective == Collective::kReduceScatterV)
    return {call_.bounds[r], call_.bounds[r + 1] - call_.bounds[r]};
  if (call_.collective != Collective::kAllGatherV) return {r * call_.count, call_.count};
  const Block& block = call_.out_blocks[r];
  if (block.bytes == 0) return {};
  if (call_.out_packer == nullptr) return {static_cast<std::size_t>(block.data - call_.out), block.bytes};
  std::size_t first = 0;
  for (std::size_t before = 0; before < r; ++before) first += call_.out_blocks[before].bytes;
  return {first, block.bytes};
}

std::span<const ChunkRange> SplitRailExecutor::blocks_on(int host) const {
  const auto locals = static_cast<std::size_t>(grid_.local.size);
  return std::span(blocks_).subspan(static_cast<std::size_t>(host) * locals, locals);
}

std::size_t SplitRailExecutor::longest_block() const {
  return std::ranges::max(blocks_, {}, &ChunkRange::count).count;
}

/// Elements of each block that are processed at once. On a host of one rank there is nothing to overlap with.
std::size_t SplitRailExecutor::tile_elems() const {
  if (grid_.local.size == 1) return std::max<std::size_t>(1, longest_block());
  return whole_lines(kTileBytes / blocks_.size(), call_.elem_bytes());
}

void SplitRailExecutor::plan_reduce_scatter() {
  const auto hosts = static_cast<std::size_t>(grid_.rail.size);
  const ChunkRange own = rail_blocks_[static_cast<std::size_t>(grid_.rail.position)];
  const std::size_t longest = longest_block(), tile = tile_elems();
  RingStage stage{RingCollective::kReduceScatter, call_.in, call_.out, 0, call_.elem_bytes(), call_.reduce()};
  stage.streaming = call_.streaming;
  if (grid_.local.size == 1) {
    // In place and with unequal parts, result and operand may overlap without being the same.
    if (call_.collective == Collective::kReduceScatterV && call_.in == call_.out) {
      result_ = scratch(own.count * call_.elem_bytes());
      stage.out = result_.get();
    }
    stage.count = longest * hosts;
    stage.chunks = blocks_;
    stage.out_first = own.first;
    return add_across(stage, 0);
  }

  // In between_ the t-th tiles of the blocks for each host lie one behind the other, as if each block began
  // `tile` elements after the one before.
  between_ = scratch(std::min(kTilesBetween, divide_up(longest, tile)) * hosts * tile * call_.elem_bytes());
  for (std::size_t host = 0; host < hosts; ++host) rail_blocks_[host].first = host * tile;
  for (std::size_t t = 0; t * tile < longest; ++t) {
    std::byte* const summed = between_.get() + t % kTilesBetween * hosts * tile * call_.elem_bytes();
    stage.window = {t * tile, tile};
    const std::size_t most = std::min(tile, longest - t * tile);
    for (std::size_t host = 0; host < hosts; ++host) {
      RingStage inside = stage;
      inside.writes_result = false;
      inside.chunks = blocks_on(static_cast<int>(host));
      const ChunkRange& mine = inside.chunks[static_cast<std::size_t>(grid_.local.position)];
      inside.count = most * static_cast<std::size_t>(grid_.local.size);
      inside.out = summed + host * tile * call_.elem_bytes();
      inside.out_first = mine.first + stage.window.first;
      add_inside(inside, t < kTilesBetween ? 0 : t - kTilesBetween + 1);
    }
    RingStage across = stage;
    across.chunks = rail_blocks_;
    across.count = most * hosts;
    across.in = summed;
    across.in_first = stage.window.first;
    across.out_first = static_cast<std::size_t>(grid_.rail.position) * tile;
    add_across(across, inside_.size());
  }
}

void SplitRailExecutor::plan_all_gather() {
  put_own_block();
  const std::size_t longest = longest_block(), tile = tile_elems();
  RingStage stage{RingCollective::kAllGather, nullptr, call_.out, 0, call_.elem_bytes(), nullptr};
  stage.streaming = call_.streaming;
  for (std::size_t t = 0; t * tile < longest; ++t) {
    stage.window = {t * tile, tile};
    const std::size_t most = std::min(tile, longest - t * tile);
    RingStage across = stage;
    across.chunks = rail_blocks_;
    across.count = most * static_cast<std::size_t>(grid_.rail.size);
    add_across(across, 0);
    for (int host = 0; host < grid_.rail.size && grid_.local.size > 1; ++host) {
      RingStage inside = stage;
      inside.chunks = blocks_on(host);
      inside.count = most * static_cast<std::size_t>(grid_.local.size);
      add_inside(inside, t + 1);
    }
  }
}

/// An all-gather begins with every rank's block in its place. What a block is too short for, an error of the
/// program, becomes zeros.
void SplitRailExecutor::put_own_block() {
  const ChunkRange own = rail_blocks_[static_cast<std::size_t>(grid_.rail.position)];
  const bool is_listed = call_.collective == Collective::kAllGatherV;
  const std::size_t room = own.count * call_.elem_bytes(), sent = is_listed ? call_.in_blocks[0].bytes : room;
  if (sent > room) cut_ = {self(), sent, room};
  std::byte* const to = call_.out + own.first * call_.elem_bytes();
  if (const std::size_t bytes = std::min(sent, room); call_.in_packer != nullptr) {
    if (bytes > 0) call_.in_packer->move(call_.in_packer->context, 0, to, bytes);
  } else if (const std::byte* const from = is_listed ? call_.in_blocks[0].data : call_.in; bytes > 0) {
    if (call_.streaming != nullptr) call_.streaming->need(from, bytes);
    if (from != to) std::memcpy(to, from, bytes);
  }
  if (sent < room) std::memset(to + sent, 0, room - sent);
  if (call_.streaming != nullptr && room > 0) call_.streaming->have(to, room);
}

/// Moves result_ to the caller's buffer.
void SplitRailExecutor::finish() {
  if (finished_) return;
  finished_ = true;
  if (result_ == nullptr) return;
  if (scatters(call_.collective)) {
    const std::size_t bytes =
        rail_blocks_[static_cast<std::size_t>(grid_.rail.position)].count * call_.elem_bytes();
    std::memcpy(call_.out, result_.get(), bytes);
    if (call_.streaming != nullptr) call_.streaming->have(call_.out, bytes);
    return;
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    call_.out_packer->move(call_.out_packer->context, grid_.ranks[i],
                           result_.get() + blocks_[i].first * call_.elem_bytes(),
                           blocks_[i].count * call_.elem_bytes());
}

RingExecutor::State SplitRailExecutor::advance() {
  const RingExecutor::State state = advance_both(across_, inside_);
  if (state == RingExecutor::State::kDone) finish();
  return state;
}

int SplitRailExecutor::awaited() const noexcept {
  const auto one_of = [](const auto& executor, int previous, int next) {
    return executor.waits_for_previous() ? previous : next;
  };
  if (const Across* rail = across_.head(inside_))
    return one_of(*rail, grid_.rail_neighbour(-1), grid_.rail_neighbour(1));
  if (const RingExecutor* local = inside_.head(across_))
    return one_of(*local, grid_.local_neighbour(-1), grid_.local_neighbour(1));
  return grid_.rail_neighbour(1);
}

}  // namespace loom::device
