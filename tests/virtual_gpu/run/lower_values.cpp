// lower_values.cpp -- instructions that make a value of registers.
#include "tests/virtual_gpu/run/lowering.hpp"

namespace virtual_gpu::run::detail {

void Lowering::lower_arithmetic(Op& op, Modifiers& modifiers) {
  const Type type = modifiers.type();
  std::string name(instruction_->opcode);
  while (!modifiers.is_empty()) name.append(".").append(modifiers.word());
  const Arithmetic found = arithmetic(name, type);
  if (found.handler == nullptr)
    modifiers.fail("is not known for its type; of floats, .rn alone is: others may be contracted");
  op.handler = found.handler;
  expect_operands(1 + found.sources);
  op.to[0] = kept_result(operand(0), found.result);
  for (std::size_t i = 0; i < found.sources; ++i) op.from[i] = source(operand(1 + i), found.from[i]);
}

void Lowering::lower_setp(Op& op, Modifiers& modifiers) {
  const Type type = modifiers.type();
  op.handler = comparison(modifiers.word(), type);
  if (op.handler == nullptr) modifiers.fail("is not known for its type");
  expect_operands(3);
  op.to[0] = kept_result(operand(0), kPredicate);
  for (std::size_t i = 0; i < 2; ++i) op.from[i] = source(operand(1 + i), type);
}

void Lowering::lower_selp(Op& op, Modifiers& modifiers) {
  const Type type = modifiers.type();
  expect_operands(4);
  op.handler = select();
  op.to[0] = kept_result(operand(0), type);
  for (std::size_t i = 0; i < 2; ++i) op.from[i] = source(operand(1 + i), type);
  op.from[2] = source(operand(3), kPredicate);
}

/// {a, b} as one register, or the other way round.
void Lowering::parts(Op& op, Type type, bool packs) {
  const Operand& vector = operand(packs ? 1 : 0);
  op.elems = static_cast<std::uint8_t>(vector.elements.size());
  if ((op.elems != 2 && op.elems != 4) || type.bits / op.elems < 8) fail("two parts or four");
  op.elem_bytes = static_cast<std::uint8_t>(type.bits / 8 / op.elems);
  const Type part{Kind::kBits, type.bits / op.elems};
  op.handler = packs ? pack() : unpack();
  if (packs)
    op.to[0] = kept_result(operand(0), type);
  else
    op.from[0] = source(operand(1), type);
  for (std::size_t i = 0; i < op.elems; ++i) {
    if (packs)
      op.from[i] = source(vector.elements[i], part);
    else
      op.to[i] = result(vector.elements[i], part);
  }
}

void Lowering::lower_mov(Op& op, Modifiers& modifiers) {
  const Type type = modifiers.type();
  expect_operands(2);
  const Operand &to = operand(0), &from = operand(1);
  if (to.what == What::kVector || from.what == What::kVector)
    return parts(op, type, from.what == What::kVector);
  op.to[0] = kept_result(to, type);
  op.width = width_of(to);
  op.handler = move();
  switch (from.what) {
    case What::kSpecial:
      op.flow = Flow::kSpecial;
      op.special = find_special(from.name);
      if (op.special == nullptr) fail(loom::format("unknown register {}", from.name));
      return;
    case What::kModuleVariable:
      op.from[0] = constants_.add((module_addresses_[from.index] + static_cast<std::uint64_t>(from.offset)) &
                                  op.width);
      return;
    case What::kVariable: {
      const auto at = addresses_[from.index] + static_cast<std::uint64_t>(from.offset);
      const ptx::Space space = function_->variables[from.index].space;
      const bool is_parameter =
          space == ptx::Space::kParam && function_->is_entry && from.index < function_->parameters;
      if (space == ptx::Space::kShared || is_parameter) {
        op.from[0] = constants_.add(at & op.width);
      } else {
        op.flow = Flow::kFrameAddress;
        op.offset = at;
      }
      return;
    }
    default:
      op.from[0] = source(from, type);
  }
}

void Lowering::lower_cvt(Op& op, Modifiers& modifiers) {
  const Type to = modifiers.type(), from = modifiers.type();
  for (const Type type : {to, from})
    if (type.kind != Kind::kSigned && type.kind != Kind::kUnsigned)
      modifiers.fail("is known for integers alone");
  op.conversion = {to, from};
  expect_operands(2);
  op.to[0] = kept_result(operand(0), to, true);
  op.from[0] = source(operand(1), from, true);
  op.width = width_of(operand(0));
  op.handler = conversion();
}

void Lowering::lower_cvta(Op& op, Modifiers& modifiers) {
  const bool to_space = modifiers.take("to");
  const Where space = where(modifiers);
  const Type type = modifiers.type();
  if (type != Type{Kind::kUnsigned, 64} || space == Where::kGeneric)
    modifiers.fail("is not known for its type");
  expect_operands(2);
  op.to[0] = kept_result(operand(0), type);
  const std::uint64_t window = space == Where::kShared  ? kSharedWindow
                               : space == Where::kLocal ? kLocalWindow
                               : space == Where::kFrame
                                   ? (function_->is_entry ? kParameterWindow : kLocalWindow)
                                   : 0;
  op.offset = to_space ? 0 - window : window;
  op.handler = add_offset();
  op.from[0] = source(operand(1), type);
}

}  // namespace virtual_gpu::run::detail
