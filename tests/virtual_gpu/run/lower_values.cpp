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
  const bool flushes = modifiers.take("ftz");
  const std::string_view compare = modifiers.word();
  const auto boolean =
      modifiers.take_one_of<Boolean>({{"and", Boolean::kAnd}, {"or", Boolean::kOr}, {"xor", Boolean::kXor}});
  op.boolean = boolean.value_or(Boolean::kNone);
  op.handler = comparison(compare, type, flushes);
  if (op.handler == nullptr) modifiers.fail("is not known for its type");
  expect_operands(boolean ? 4 : 3);
  const Operand& to = operand(0);
  if (to.what == What::kPair) {
    for (std::size_t i = 0; i < 2; ++i) op.to[i] = result(to.elements[i], kPredicate);
  } else {
    op.to[0] = result(to, kPredicate);
  }
  for (std::size_t i = 0; i < 2; ++i) op.from[i] = source(operand(1 + i), type);
  if (boolean) op.from[2] = condition(op, operand(3));
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
      if (op.special == nullptr) fail(fmt::format("unknown register {}", from.name));
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
  Conversion& c = op.conversion;
  c.to = modifiers.type();
  c.from = modifiers.type();
  const auto is_float = [](Type type) { return type.kind == Kind::kFloat || type.kind == Kind::kBfloat; };
  using enum Rounding;
  const auto rounding =
      modifiers.take_one_of<Rounding>({{"rn", kNearest}, {"rz", kZero}, {"rm", kDown}, {"rp", kUp}});
  const auto integral =
      modifiers.take_one_of<Rounding>({{"rni", kNearest}, {"rzi", kZero}, {"rmi", kDown}, {"rpi", kUp}});
  const bool from_float = is_float(c.from), to_float = is_float(c.to);
  const bool narrows = to_float && (!from_float || c.to.bits < c.from.bits ||
                                    (c.to.bits == c.from.bits && c.to.kind != c.from.kind));
  if (narrows != rounding.has_value()) modifiers.fail("needs .rn or the like just where it loses bits");
  if (from_float && !to_float && !integral) modifiers.fail("needs .rzi or the like");
  if (integral && (!from_float || narrows)) modifiers.fail("has a rounding that does not belong there");
  c.rounding = rounding.value_or(integral.value_or(kNearest));
  c.to_integral = integral.has_value();
  c.flushes = modifiers.take("ftz");
  c.saturates = modifiers.take("sat");
  if (c.to.packed || c.from.packed || c.to.kind == Kind::kPredicate || c.from.kind == Kind::kPredicate)
    modifiers.fail("is not known for its types");
  expect_operands(2);
  op.to[0] = kept_result(operand(0), c.to, true);
  op.from[0] = source(operand(1), c.from, true);
  op.width = width_of(operand(0));
  op.handler = conversion(c);
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
