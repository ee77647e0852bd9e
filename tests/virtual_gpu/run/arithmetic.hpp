// arithmetic.hpp -- the handlers of what computes a value from registers, by operation and type.
#pragma once

#include <string_view>

#include "tests/virtual_gpu/run/code.hpp"

namespace virtual_gpu::run::detail {

/// All return nullptr for what there is not. Types without sign also serve as bits.
///
/// opcode: "add", "mul.lo", "min.ftz", ...
Handler arithmetic(std::string_view opcode, ptx::Type type);
Handler comparison(std::string_view compare, ptx::Type type, bool flushes);
Handler conversion(const Conversion& conversion);
Handler select();
Handler move();
/// Op::elems parts of Op::elem_bytes: from one register, or into one.
Handler pack();
Handler unpack();
/// to = (from + Op::offset) & Op::width
Handler add_offset();

/// Signed results come with their sign in all 64 bits.
Slot convert(Slot value, const Conversion& conversion);

memory::View::Change atomic_change(std::string_view operation, ptx::Type type);

}  // namespace virtual_gpu::run::detail
