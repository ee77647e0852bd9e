// moves.cpp -- handlers that compute nothing: they move values between registers.
#include "tests/virtual_gpu/run/arithmetic.hpp"

namespace virtual_gpu::run::detail {

Handler select() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const Slot *const a = frame.in(op, 0), *const b = frame.in(op, 1), *const which = frame.in(op, 2);
    Slot* const to = frame.out(op, 0);
    for_lanes(mask, [&](unsigned lane) { to[lane] = which[lane] != 0 ? a[lane] : b[lane]; });
  };
}
Handler move() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const Slot* const from = frame.in(op, 0);
    Slot* const to = frame.out(op, 0);
    for_lanes(mask, [&](unsigned lane) { to[lane] = from[lane]; });
  };
}
Handler pack() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const unsigned bits = op.elem_bytes * 8U;
    for_lanes(mask, [&](unsigned lane) {
      Slot result = 0;
      for (std::size_t i = 0; i < op.elems; ++i) result |= frame.in(op, i)[lane] << (bits * i);
      frame.out(op, 0)[lane] = result;
    });
  };
}
Handler unpack() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const unsigned bits = op.elem_bytes * 8U;
    const Slot* const from = frame.in(op, 0);
    for_lanes(mask, [&](unsigned lane) {
      const Slot whole = from[lane];
      for (std::size_t i = 0; i < op.elems; ++i)
        if (op.to[i] != kNoSlot) frame.out(op, i)[lane] = whole >> (bits * i) & ((1ULL << bits) - 1);
    });
  };
}
Handler add_offset() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const Slot* const from = frame.in(op, 0);
    Slot* const to = frame.out(op, 0);
    for_lanes(mask, [&](unsigned lane) { to[lane] = (from[lane] + op.offset) & op.width; });
  };
}

}  // namespace virtual_gpu::run::detail
