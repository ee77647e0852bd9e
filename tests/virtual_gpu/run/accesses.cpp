// accesses.cpp -- loads, stores and atomics of a set of lanes; and special registers.
#include <cstring>

#include "base/format.hpp"
#include "tests/virtual_gpu/run/block.hpp"

namespace virtual_gpu::run::detail {
namespace {

using memory::Access;
using Data = std::array<std::array<std::byte, 16>, kLanes>;

/// An atomic of memory that this thread of the host has for itself.
Slot update(std::byte* at, const Op& op, Slot a, Slot b) {
  Slot old = 0;
  std::memcpy(&old, at, op.elem_bytes);
  const Slot now = op.change(old, a, b);
  std::memcpy(at, &now, op.elem_bytes);
  return old;
}

}  // namespace

Block::Place Block::place(Warp& warp, const Set& set, const Op& op, unsigned lane) {
  const std::uint64_t address = value(warp, set, op, 0, lane) + op.offset;
  if (op.where == Where::kFrame) return {Where::kLocal, set.first_byte + address};
  if (op.where != Where::kGeneric) return {op.where, address};
  constexpr Where kWindows[] = {Where::kGlobal, Where::kShared, Where::kLocal, Where::kParameters};
  const std::uint64_t window = address >> kWindowBits;
  if (window == 0 || window >= std::size(kWindows)) return {Where::kGlobal, address};
  return {kWindows[window], address - (window << kWindowBits)};
}

/// Where the host has memory of the block, of a thread, or the parameters.
std::byte* Block::inner(Warp& warp, const Op& op, Place place, unsigned lane, std::size_t bytes,
                        bool stores) {
  std::byte* memory = nullptr;
  std::uint8_t* written = nullptr;
  std::size_t end = 0, at = place.address;
  std::string_view name = "shared";
  if (place.where == Where::kShared && at >= kDynamicShared) {
    at -= kDynamicShared;
    memory = shared_.data() + entry_.shared_bytes;
    written = shared_written_.data() + entry_.shared_bytes;
    end = launch_.dynamic_shared_bytes;
  } else if (place.where == Where::kShared) {
    memory = shared_.data();
    written = shared_written_.data();
    end = entry_.shared_bytes;
  } else if (place.where == Where::kLocal) {
    name = "local";
    end = warp.local.size() / kLanes;
    memory = warp.local.data() + lane * end;
    written = warp.local_written.data() + lane * end;
  } else {
    name = "parameter";
    end = launch_.parameters.size();
    if (stores) fail(Fault::Kind::kReadOnly, warp, lane, op, "a kernel's parameters cannot be stored to");
    memory = const_cast<std::byte*>(launch_.parameters.data());
  }
  if (at % bytes != 0)
    fail(Fault::Kind::kMisaligned, warp, lane, op,
         loom::format("{:#x} of {} memory is no multiple of {}", at, name, bytes));
  if (at > end || end - at < bytes)
    fail(Fault::Kind::kForeignAddress, warp, lane, op,
         loom::format("{} bytes at {:#x} of {} memory, which has {}", bytes, at, name, end));
  if (written != nullptr && stores) std::memset(written + at, 1, bytes);
  if (written != nullptr && !stores && std::memchr(written + at, 0, bytes) != nullptr)
    fail(Fault::Kind::kNeverWritten, warp, lane, op,
         loom::format("{} bytes at {:#x} of {} memory were never written", bytes, at, name));
  return memory + at;
}

void Block::load(Warp& warp, const Set& set, const Op& op, Mask mask) {
  const std::size_t bytes = std::size_t{op.elem_bytes} * op.elems;
  Data data;
  std::array<Access, kLanes> global;
  std::size_t globals = 0;
  for_lanes(mask, [&](unsigned lane) {
    const Place at = place(warp, set, op, lane);
    if (at.where == Where::kGlobal)
      global[globals++] = {thread(warp, lane), at.address, data[lane].data()};
    else
      std::memcpy(data[lane].data(), inner(warp, op, at, lane, bytes, false), bytes);
  });
  if (globals > 0) view_->load({bytes, op.order, op.scope}, {global.data(), globals});
  const unsigned unused = 64 - op.elem_bytes * 8U;
  for_lanes(mask, [&](unsigned lane) {
    // A flag in shared memory orders what is in global memory, too.
    if (globals == 0 && op.order == memory::Order::kAcquire) view_->fence(thread(warp, lane), op.scope);
    for (std::size_t i = 0; i < op.elems; ++i) {
      Slot value = 0;
      std::memcpy(&value, data[lane].data() + i * op.elem_bytes, op.elem_bytes);
      if (op.is_signed) value = static_cast<Slot>(static_cast<std::int64_t>(value << unused) >> unused);
      if (op.to[i] != kNoSlot) frame(warp, set).out(op, i)[lane] = value & op.width;
    }
  });
}

void Block::store(Warp& warp, const Set& set, const Op& op, Mask mask) {
  const std::size_t bytes = std::size_t{op.elem_bytes} * op.elems;
  Data data;
  std::array<Access, kLanes> global;
  std::size_t globals = 0;
  for_lanes(mask, [&](unsigned lane) {
    for (std::size_t i = 0; i < op.elems; ++i) {
      const Slot stored = value(warp, set, op, 1 + i, lane);
      std::memcpy(data[lane].data() + i * op.elem_bytes, &stored, op.elem_bytes);
    }
    const Place at = place(warp, set, op, lane);
    if (at.where == Where::kGlobal) {
      global[globals++] = {thread(warp, lane), at.address, data[lane].data()};
      return;
    }
    if (op.order == memory::Order::kRelease) view_->fence(thread(warp, lane), op.scope);
    std::memcpy(inner(warp, op, at, lane, bytes, true), data[lane].data(), bytes);
  });
  if (globals > 0) view_->store({bytes, op.order, op.scope}, {global.data(), globals});
}

void Block::atomic(Warp& warp, const Set& set, const Op& op, Mask mask) {
  for_lanes(mask, [&](unsigned lane) {
    const Slot a = value(warp, set, op, 1, lane), b = value(warp, set, op, 2, lane);
    const Place at = place(warp, set, op, lane);
    Slot old;
    if (at.where == Where::kGlobal) {
      old =
          view_->update({op.elem_bytes, op.order, op.scope}, thread(warp, lane), at.address, op.change, a, b);
    } else {
      if (op.order != memory::Order::kRelaxed) view_->fence(thread(warp, lane), op.scope);
      inner(warp, op, at, lane, op.elem_bytes, false);
      old = update(inner(warp, op, at, lane, op.elem_bytes, true), op, a, b);
    }
    if (op.to[0] != kNoSlot) frame(warp, set).out(op, 0)[lane] = old;
  });
}

void Block::special(Warp& warp, const Set& set, const Op& op, Mask mask) {
  Slot* const to = frame(warp, set).out(op, 0);
  for_lanes(mask, [&](unsigned lane) {
    to[lane] = op.special({thread(warp, lane), launch_.block, launch_.grid, index_}) & op.width;
  });
}

}  // namespace virtual_gpu::run::detail
