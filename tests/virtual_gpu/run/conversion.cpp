// conversion.cpp -- cvt of integers to narrower or wider ones: a matter of bits. loom's kernels convert no
// floats.
#include "tests/virtual_gpu/run/arithmetic.hpp"

namespace virtual_gpu::run::detail {
namespace {

Slot extended(Slot value, ptx::Type type) {
  const unsigned unused = 64 - type.bits;
  return type.kind == ptx::Kind::kSigned
             ? static_cast<Slot>(static_cast<std::int64_t>(value << unused) >> unused)
             : value << unused >> unused;
}

}  // namespace

Handler conversion() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const ptx::Type result = op.conversion.to, operand = op.conversion.from;
    const Slot* const from = frame.in(op, 0);
    Slot* const to = frame.out(op, 0);
    for_lanes(mask,
              [&](unsigned lane) { to[lane] = extended(extended(from[lane], operand), result) & op.width; });
  };
}

}  // namespace virtual_gpu::run::detail
