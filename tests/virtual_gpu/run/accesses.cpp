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

/// Calls body<N>() with the number of bytes that a lane loads or stores.
template <class Body>
void by_bytes(std::size_t bytes, Body&& body) {
  switch (bytes) {
    case 1:
      return body.template operator()<1>();
    case 2:
      return body.template operator()<2>();
    case 4:
      return body.template operator()<4>();
    case 8:
      return body.template operator()<8>();
    default:
      return body.template operator()<16>();
  }
}

template <std::size_t kBytes>
bool all_written(const std::uint8_t* flags) {
  std::array<std::uint8_t, kBytes> all, are;
  all.fill(1);
  std::memcpy(are.data(), flags, kBytes);
  return are == all;
}

/// An element as a register has it.
template <std::size_t kBytes>
Slot extended(const Op& op, const std::byte* elem) {
  Slot value = 0;
  std::memcpy(&value, elem, kBytes);
  constexpr unsigned kUnused = 64 - kBytes * 8U;
  if (op.is_signed) value = static_cast<Slot>(static_cast<std::int64_t>(value << kUnused) >> kUnused);
  return value & op.width;
}

}  // namespace

inline Block::Place Block::place(const Set& set, const Op& op, Slot base) const {
  const std::uint64_t address = base + op.offset;
  if (op.where == Where::kFrame) return {Where::kLocal, set.first_byte + address};
  if (op.where != Where::kGeneric) return {op.where, address};
  constexpr Where kWindows[] = {Where::kGlobal, Where::kShared, Where::kLocal, Where::kParameters};
  const std::uint64_t window = address >> kWindowBits;
  if (window == 0 || window >= std::size(kWindows)) return {Where::kGlobal, address};
  return {kWindows[window], address - (window << kWindowBits)};
}

/// Where the host has memory of the block, of a thread, or the parameters.
template <std::size_t kBytes>
inline std::byte* Block::inner(Warp& warp, const Op& op, Place place, unsigned lane, bool stores) {
  std::byte* memory = nullptr;
  std::uint8_t* written = nullptr;
  std::size_t end = 0, at = place.address;
  const char* name = "shared";
  if (place.where == Where::kLocal) {
    name = "local";
    end = warp.local.size() / kLanes;
    memory = warp.local.data() + lane * end;
    written = warp.local_written.data() + lane * end;
  } else if (place.where == Where::kShared && at >= kDynamicShared) {
    at -= kDynamicShared;
    memory = shared_.data() + entry_.shared_bytes;
    written = shared_written_.data() + entry_.shared_bytes;
    end = launch_.dynamic_shared_bytes;
  } else if (place.where == Where::kShared) {
    memory = shared_.data();
    written = shared_written_.data();
    end = entry_.shared_bytes;
  } else {
    name = "parameter";
    end = launch_.parameters.size();
    if (stores) fail(Fault::Kind::kReadOnly, warp, lane, op, "a kernel's parameters cannot be stored to");
    memory = const_cast<std::byte*>(launch_.parameters.data());
  }
  if (at % kBytes != 0)
    fail(Fault::Kind::kMisaligned, warp, lane, op,
         loom::format("{:#x} of {} memory is no multiple of {}", at, name, kBytes));
  if (at > end || end - at < kBytes)
    fail(Fault::Kind::kForeignAddress, warp, lane, op,
         loom::format("{} bytes at {:#x} of {} memory, which has {}", kBytes, at, name, end));
  if (written != nullptr && stores) std::memset(written + at, 1, kBytes);
  if (written != nullptr && !stores && !all_written<kBytes>(written + at))
    fail(Fault::Kind::kNeverWritten, warp, lane, op,
         loom::format("{} bytes at {:#x} of {} memory were never written", kBytes, at, name));
  return memory + at;
}

void Block::load(Warp& warp, const Set& set, const Op& op, Mask mask) {
  const std::size_t bytes = std::size_t{op.elem_bytes} * op.elems;
  const Frame registers = frame(warp, set);
  const Slot* const bases = registers.in(op, 0);
  Data data;
  std::array<Access, kLanes> global;
  std::size_t globals = 0;
  by_bytes(bytes, [&]<std::size_t kBytes>() {
    for_lanes(mask, [&](unsigned lane) {
      const Place at = place(set, op, bases[lane]);
      if (at.where == Where::kGlobal)
        global[globals++] = {thread(warp, lane), at.address, data[lane].data()};
      else
        std::memcpy(data[lane].data(), inner<kBytes>(warp, op, at, lane, false), kBytes);
    });
  });
  if (globals > 0) view_->load({bytes, op.order, op.scope}, {global.data(), globals});
  // A flag in shared memory orders what is in global memory, too.
  if (globals == 0 && op.order == memory::Order::kAcquire)
    for_lanes(mask, [&](unsigned lane) { view_->fence(thread(warp, lane), op.scope); });
  for (std::size_t i = 0; i < op.elems; ++i) {
    if (op.to[i] == kNoSlot) continue;
    Slot* const to = registers.out(op, i);
    by_bytes(op.elem_bytes, [&]<std::size_t kBytes>() {
      if constexpr (kBytes <= sizeof(Slot))
        for_lanes(mask,
                  [&](unsigned lane) { to[lane] = extended<kBytes>(op, data[lane].data() + i * kBytes); });
    });
  }
}

void Block::store(Warp& warp, const Set& set, const Op& op, Mask mask) {
  const std::size_t bytes = std::size_t{op.elem_bytes} * op.elems;
  const Frame registers = frame(warp, set);
  const Slot* const bases = registers.in(op, 0);
  Data data;
  for (std::size_t i = 0; i < op.elems; ++i) {
    const Slot* const stored = registers.in(op, 1 + i);
    by_bytes(op.elem_bytes, [&]<std::size_t kBytes>() {
      if constexpr (kBytes <= sizeof(Slot))
        for_lanes(mask,
                  [&](unsigned lane) { std::memcpy(data[lane].data() + i * kBytes, &stored[lane], kBytes); });
    });
  }
  std::array<Access, kLanes> global;
  std::size_t globals = 0;
  by_bytes(bytes, [&]<std::size_t kBytes>() {
    for_lanes(mask, [&](unsigned lane) {
      const Place at = place(set, op, bases[lane]);
      if (at.where == Where::kGlobal) {
        global[globals++] = {thread(warp, lane), at.address, data[lane].data()};
        return;
      }
      if (op.order == memory::Order::kRelease) view_->fence(thread(warp, lane), op.scope);
      std::memcpy(inner<kBytes>(warp, op, at, lane, true), data[lane].data(), kBytes);
    });
  });
  if (globals > 0) view_->store({bytes, op.order, op.scope}, {global.data(), globals});
}

void Block::atomic(Warp& warp, const Set& set, const Op& op, Mask mask) {
  for_lanes(mask, [&](unsigned lane) {
    const Slot a = value(warp, set, op, 1, lane), b = value(warp, set, op, 2, lane);
    const Place at = place(set, op, value(warp, set, op, 0, lane));
    Slot old = 0;
    if (at.where == Where::kGlobal) {
      old =
          view_->update({op.elem_bytes, op.order, op.scope}, thread(warp, lane), at.address, op.change, a, b);
    } else {
      if (op.order != memory::Order::kRelaxed) view_->fence(thread(warp, lane), op.scope);
      by_bytes(op.elem_bytes, [&]<std::size_t kBytes>() {
        inner<kBytes>(warp, op, at, lane, false);
        old = update(inner<kBytes>(warp, op, at, lane, true), op, a, b);
      });
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
