// arithmetic.hpp -- the handlers of what computes a value from registers, by operation and type.
#pragma once

#include <string_view>

#include "tests/virtual_gpu/run/code.hpp"

namespace virtual_gpu::run::detail {

struct Arithmetic {
  Handler handler = nullptr;  ///< nullptr: there is none
  ptx::Type result{};
  std::size_t sources = 0;
  std::array<ptx::Type, 4> from{};
};
/// name: "add", "mul.lo", "add.rn", ... Types without sign also serve as bits.
Arithmetic arithmetic(std::string_view name, ptx::Type type);
/// Whether there are any of this opcode.
bool is_arithmetic(std::string_view opcode);

/// These return nullptr for what there is not.
Handler comparison(std::string_view compare, ptx::Type type);
memory::View::Change atomic_change(std::string_view operation, ptx::Type type);

Handler select();
Handler move();
/// Of integers, as Op::conversion says.
Handler conversion();
/// Op::elems parts of Op::elem_bytes: from one register, or into one.
Handler pack();
Handler unpack();
/// to = (from + Op::offset) & Op::width
Handler add_offset();

}  // namespace virtual_gpu::run::detail
