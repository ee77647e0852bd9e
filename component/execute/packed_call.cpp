#include "component/execute/packed_call.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <span>

#include "component/execute/device_pieces.hpp"
#include "device/schedule/divide_up.hpp"

namespace loom {

using device::Block;
using device::cuda::GpuStream;
using device::cuda::Owner;
using device::cuda::PackedRows;

namespace {

/// A table of them takes 3 MiB.
constexpr std::size_t kMostEntries = 65536;
constexpr std::size_t kAlignment = 256;

/// The largest unit that divides every number; at most 16.
std::size_t unit_of(std::uint64_t all_bits) {
  std::size_t unit = 16;
  while ((all_bits & (unit - 1)) != 0) unit /= 2;
  return unit;
}

/// As many packed blocks, one behind the other.
void lay_out(std::vector<Block>& packed, const Block* blocks, int count, std::byte* memory) {
  packed.assign(blocks, blocks + count);
  for (Block& block : packed) {
    block.data = memory;
    memory += block.bytes;
  }
}

/// Kernels divide entries by their rows: long ones are cut.
void add_rows(std::vector<PackedRows>& to, const PackedRows& rows) {
  constexpr std::size_t kLong = 16384, kCut = 8192;
  if (rows.row_bytes <= kLong || to.size() + 2 * rows.rows > kMostEntries) {
    to.push_back(rows);
    return;
  }
  const std::size_t whole = rows.row_bytes / kCut, rest = rows.row_bytes % kCut;
  for (std::size_t row = 0; row < rows.rows; ++row) {
    char* const first = rows.first + static_cast<std::ptrdiff_t>(row) * rows.distance;
    const std::size_t packed = rows.packed + row * rows.packed_distance;
    to.push_back({first, kCut, packed, kCut, kCut, whole});
    if (rest > 0) to.push_back({first + whole * kCut, 0, packed + whole * kCut, rest, rest, 1});
  }
}

}  // namespace

std::size_t PackedCall::Side::table_at() const {
  return device::divide_up(bytes, kAlignment) * kAlignment;
}

std::size_t PackedCall::Side::room() const {
  return rows.empty() ? 0 : table_at() + rows.size() * sizeof(PackedRows);
}

/// A type may refer to several buffers, and rows at equal distances may be of several, too. Memory of GPUs
/// has addresses in pieces of 2 MiB, so that between two of its rows nothing else can hide from a look at
/// each MiB.
bool PackedCall::is_on_one_gpu(const PackedRows& rows) {
  constexpr std::size_t kApart = std::size_t{1} << 20;
  const device::cuda::Driver& driver = process_.staging()->driver();
  const std::size_t distance = static_cast<std::size_t>(rows.distance < 0 ? -rows.distance : rows.distance);
  const std::size_t step = std::max<std::size_t>(1, distance == 0 ? rows.rows : kApart / distance);
  for (std::size_t row = 0; row < rows.rows;
       row = row + 1 == rows.rows ? rows.rows : std::min(row + step, rows.rows - 1)) {
    const std::optional<Owner> owner =
        driver.owner_of(rows.first + static_cast<std::ptrdiff_t>(row) * rows.distance);
    if (!owner || !take_owner(owner_, *owner)) return false;
  }
  return true;
}

/// Of a side of so many bytes.
bool PackedCall::find_rows(Side& side, const device::Packer* packer, std::size_t bytes) {
  PackedRows* list = nullptr;
  std::size_t number = 0;
  if (packer->list_rows == nullptr || !packer->list_rows(packer->context, kMostEntries, &list, &number))
    return false;
  const std::unique_ptr<PackedRows, decltype(&std::free)> owned(list, &std::free);
  side.bytes = 0;
  std::uint64_t bits = 0;
  for (const PackedRows& rows : std::span(list, number)) {
    if (!is_on_one_gpu(rows)) return false;
    side.bytes += rows.row_bytes * rows.rows;
    bits |= reinterpret_cast<std::uintptr_t>(rows.first) | static_cast<std::uint64_t>(rows.distance) |
            rows.packed | rows.packed_distance | rows.row_bytes;
    add_rows(side.rows, rows);
  }
  side.unit = unit_of(bits);
  return side.bytes == bytes;
}

bool PackedCall::has_gpu() const {
  return gpu_ && stream_ && gpu_->is_alive() && gpu_->is_of(*owner_);
}

bool PackedCall::has_memory() const {
  return in_.room() <= in_.memory.bytes() && out_.room() <= out_.memory.bytes();
}

/// Of owner_. False: it takes no kernels.
bool PackedCall::use_gpu() {
  if (has_gpu()) return !refused_;
  stream_.reset();
  for (Side* side : {&in_, &out_}) side->memory.clear();  // of another GPU
  gpu_ = process_.gpu(*owner_);
  stream_ = std::make_unique<GpuStream>(*gpu_);
  refused_ = true;
  stream_->prepare_combine({}, device::Type::kUint8);
  refused_ = false;
  return true;
}

/// A quarter of what is left beside the packed calls of this communicator: most of it is for its links, and
/// for later communicators.
bool PackedCall::has_room() const {
  if (has_memory()) return true;
  const std::size_t all = of_all_;
  std::size_t then = all - counted_;
  for (const Side* side : {&in_, &out_}) {
    const std::size_t has = side->memory.bytes();
    then += side->room() <= has ? has : std::max(side->room(), has + has / 2);  // what GpuBuffer takes
  }
  return then <= (gpu_->room() + all) / 4;
}

void PackedCall::take_memory(Side& side) {
  if (side.room() > 0) side.memory.make_room(gpu_, side.room());
}

void PackedCall::count_memory() noexcept {
  of_all_ += holds() - counted_;  // or less: the difference wraps
  counted_ = holds();
}

/// Without memory, or a kernel, whoever stages the buffers finds out again.
bool PackedCall::make_ready() {
  lacks_ = lacks_room_ = false;
  bool ready = false;
  try {
    ready = use_gpu();
    lacks_room_ = ready && !has_room();
    ready = ready && !lacks_room_;
    if (ready) {
      take_memory(in_);
      take_memory(out_);
    }
  } catch (const std::exception&) {
    ready = false;
  }
  count_memory();
  return ready;
}

const std::byte* PackedCall::buffer() const noexcept {
  return reinterpret_cast<const std::byte*>((in_.rows.empty() ? out_ : in_).rows.front().first);
}

bool PackedCall::prepare(const device::Call& call, int rank, int ranks, bool may_wait) {
  lacks_ = lacks_room_ = false;
  const loom_significance* const row = loom_significance_of(static_cast<int>(call.collective));
  const loom_role role = loom_role_of(rank, call.root);
  const bool listed = device::lists_blocks(call.collective);
  const auto number = [&](loom_side side) { return loom_blocks_of(row, side, role, ranks); };
  const auto bytes_of = [&](loom_side side, const Block* blocks) {
    if (!listed) return static_cast<std::size_t>(number(side)) * call.bytes();
    std::size_t bytes = 0;
    for (const Block& block : std::span(blocks, static_cast<std::size_t>(number(side)))) bytes += block.bytes;
    return bytes;
  };
  in_.rows.clear();
  out_.rows.clear();
  moves_ = false;
  owner_.reset();
  // Packed, an operand in place is another buffer than the result. The result of a scatter's root is never
  // written: it stays a block of the operand.
  const bool keeps_result = call.owns_its_block && row->in_place.side == LOOM_OUT;
  const bool packs_in = call.in_packer != nullptr && number(LOOM_IN) > 0,
             packs_out = call.out_packer != nullptr && number(LOOM_OUT) > 0 && !keeps_result;
  if (keeps_result && !packs_in) return false;
  call_ = call;
  call_.in_packer = call_.out_packer = nullptr;
  call_.owns_its_block = keeps_result;
  try {
    if (packs_in && !find_rows(in_, call.in_packer, bytes_of(LOOM_IN, call.in_blocks))) return false;
    if (packs_out && !find_rows(out_, call.out_packer, bytes_of(LOOM_OUT, call.out_blocks))) return false;
    if (!owner_) return true;  // no bytes
    if (has_gpu() && refused_) return false;
    lacks_ = !may_wait && !(has_gpu() && has_memory());
    if (lacks_ || !make_ready()) return false;
    if (packs_in) {
      call_.in = in_.memory.memory();
      if (listed) lay_out(in_.blocks, call.in_blocks, number(LOOM_IN), in_.memory.memory());
      if (listed) call_.in_blocks = in_.blocks.data();
    }
    if (keeps_result) {
      out_.blocks.assign(1, in_.blocks[static_cast<std::size_t>(rank)]);
      call_.out_blocks = out_.blocks.data();
    }
    if (packs_out) {
      call_.out = out_.memory.memory();
      if (listed) lay_out(out_.blocks, call.out_blocks, number(LOOM_OUT), out_.memory.memory());
      if (listed) call_.out_blocks = out_.blocks.data();
    }
  } catch (const std::exception&) {  // no memory
    return false;
  }
  return true;
}

/// From memory that is not page-locked the driver copies when the stream is empty: before it waits for the
/// program.
void PackedCall::upload_table(Side& side) {
  if (side.rows.empty()) return;
  stream_->copy(side.memory.memory() + side.table_at(), side.rows.data(),
                side.rows.size() * sizeof(PackedRows));
}

void PackedCall::move(bool packs, Side& side) {
  if (side.rows.empty()) return;
  stream_->move_rows(packs,
                     {.table = reinterpret_cast<const PackedRows*>(side.memory.memory() + side.table_at()),
                      .entries = static_cast<int>(side.rows.size()),
                      .unit = side.unit,
                      .packed = side.memory.memory()},
                     side.bytes);
}

void PackedCall::pack(const device::cuda::ProgramMark* after) {
  moves_ = !in_.rows.empty() || !out_.rows.empty();
  if (!moves_) return;
  upload_table(in_);
  upload_table(out_);
  after != nullptr ? stream_->follow(*after) : stream_->follow_program();
  move(true, in_);
}

void PackedCall::unpack() {
  moves_ = !out_.rows.empty();
  move(false, out_);
}

}  // namespace loom
