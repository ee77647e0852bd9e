// accesses.cpp -- loads, stores and atomics of a set of lanes; and special registers.
#include <cstring>
#include <type_traits>

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

/// Where the host has memory of the block, of a thread, or the parameters; checked but for `written`.
template <std::size_t kBytes>
inline Block::Inner Block::inner(Warp& warp, const Op& op, Place place, unsigned lane, bool stores) {
  Inner result;
  std::size_t end = 0, at = place.address;
  if (place.where == Where::kLocal) {
    end = warp.local.size() / kLanes;
    result = {"local", warp.local.data(), warp.local_written.data(), end};
  } else if (place.where == Where::kShared && at >= kDynamicShared) {
    at -= kDynamicShared;
    end = launch_.dynamic_shared_bytes;
    result = {"shared", shared_.data() + entry_.shared_bytes, shared_written_.data() + entry_.shared_bytes};
  } else if (place.where == Where::kShared) {
    end = entry_.shared_bytes;
    result = {"shared", shared_.data(), shared_written_.data()};
  } else {
    end = launch_.parameters.size();
    if (stores) fail(Fault::Kind::kReadOnly, warp, lane, op, "a kernel's parameters cannot be stored to");
    result = {"parameter", const_cast<std::byte*>(launch_.parameters.data())};
  }
  if (at % kBytes != 0)
    fail(Fault::Kind::kMisaligned, warp, lane, op,
         loom::format("{:#x} of {} memory is no multiple of {}", at, result.name, kBytes));
  if (at > end || end - at < kBytes)
    fail(Fault::Kind::kForeignAddress, warp, lane, op,
         loom::format("{} bytes at {:#x} of {} memory, which has {}", kBytes, at, result.name, end));
  result.memory += at;
  if (result.written != nullptr) result.written += at;
  return result;
}

template <std::size_t kBytes>
inline std::byte* Block::use(Warp& warp, const Op& op, const Inner& inner, unsigned lane, bool stores) {
  const std::size_t offset = lane * inner.stride;
  if (inner.written != nullptr && stores) std::memset(inner.written + offset, 1, kBytes);
  if (inner.written != nullptr && !stores && !all_written<kBytes>(inner.written + offset))
    fail(Fault::Kind::kNeverWritten, warp, lane, op,
         loom::format("{} bytes of {} memory were never written", kBytes, inner.name));
  return inner.memory + offset;
}

/// Calls body(lane, address) for the lanes that access global memory, and body(lane, pointer) for the others.
template <std::size_t kBytes, class Body>
inline void Block::for_places(Warp& warp, const Set& set, const Op& op, Mask mask, bool stores, Body&& body) {
  const Slot* const bases = frame(warp, set).in(op, 0);
  Place at{};
  Inner found;
  Slot last = 0;
  bool any = false;
  for_lanes(mask, [&](unsigned lane) {
    if (!any || bases[lane] != last) {  // most instructions have one base
      last = bases[lane];
      any = true;
      at = place(set, op, last);
      if (at.where != Where::kGlobal) found = inner<kBytes>(warp, op, at, lane, stores);
    }
    if (at.where == Where::kGlobal)
      body(lane, at.address);
    else
      body(lane, use<kBytes>(warp, op, found, lane, stores));
  });
}

void Block::load(Warp& warp, const Set& set, const Op& op, Mask mask) {
  const std::size_t bytes = std::size_t{op.elem_bytes} * op.elems;
  const Frame registers = frame(warp, set);
  Data data;
  std::array<Access, kLanes> global;
  std::size_t globals = 0;
  by_bytes(bytes, [&]<std::size_t kBytes>() {
    for_places<kBytes>(warp, set, op, mask, false, [&](unsigned lane, auto place) {
      if constexpr (std::is_integral_v<decltype(place)>)
        global[globals++] = {thread(warp, lane), place, data[lane].data()};
      else
        std::memcpy(data[lane].data(), place, kBytes);
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
    for_places<kBytes>(warp, set, op, mask, true, [&](unsigned lane, auto place) {
      if constexpr (std::is_integral_v<decltype(place)>) {
        global[globals++] = {thread(warp, lane), place, data[lane].data()};
      } else {
        if (op.order == memory::Order::kRelease) view_->fence(thread(warp, lane), op.scope);
        std::memcpy(place, data[lane].data(), kBytes);
      }
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
        const Inner found = inner<kBytes>(warp, op, at, lane, true);
        use<kBytes>(warp, op, found, lane, false);
        old = update(use<kBytes>(warp, op, found, lane, true), op, a, b);
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
