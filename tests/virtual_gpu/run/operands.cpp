// operands.cpp -- operands of instructions: registers, constants, addresses.
#include <bit>

#include "tests/virtual_gpu/run/lowering.hpp"

namespace virtual_gpu::run::detail {

namespace {

bool fits(Type of_register, Type type, bool may_be_wider) {
  return (of_register.kind == Kind::kPredicate) == (type.kind == Kind::kPredicate) &&
         (of_register.bytes() == type.bytes() || (may_be_wider && of_register.bytes() > type.bytes()));
}

}  // namespace

const Operand& Lowering::operand(std::size_t i) const {
  if (i >= count()) fail("an operand is missing");
  return instruction_->operands[i];
}
void Lowering::expect_operands(std::size_t least, std::size_t most) const {
  if (count() < least || count() > most) fail("the number of operands is wrong");
}

Source Lowering::source(const Operand& from, Type type, bool may_be_wider) {
  if (from.is_address) fail("an address where a value belongs");
  switch (from.what) {
    case What::kRegister: {
      if (!fits(function_->registers[from.index], type, may_be_wider))
        fail("a register of another width than the instruction's type");
      if (from.offset != 0) fail("an offset from a register that is no address");
      return static_cast<Source>(from.index);
    }
    case What::kInteger:
      if (type.kind == Kind::kFloat) fail("a whole number where a float belongs");
      return constants_.add(type.kind == Kind::kPredicate ? from.bits != 0 : from.bits & ones(type.bits));
    case What::kFloat32:
    case What::kFloat64: {
      const bool is_32 = from.what == What::kFloat32;
      if (type == Type{Kind::kFloat, 32} && !is_32)
        return constants_.add(
            std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(from.bits))));
      if ((type.kind != Kind::kBits && type.kind != Kind::kFloat) || type.bits != (is_32 ? 32 : 64))
        fail("a float where none belongs");
      return constants_.add(from.bits);
    }
    default:
      fail("an operand of another kind belongs here");
  }
}

std::int32_t Lowering::result(const Operand& to, Type type, bool may_be_wider) const {
  if (to.what == What::kSink) return kNoSlot;
  if (to.what != What::kRegister || to.is_address || to.negated) fail("a result goes to a register");
  if (!fits(function_->registers[to.index], type, may_be_wider))
    fail("a register of another width than the result's type");
  return static_cast<std::int32_t>(to.index);
}

std::int32_t Lowering::kept_result(const Operand& to, Type type, bool may_be_wider) const {
  if (to.what == What::kSink) fail("a result goes to a register");
  return result(to, type, may_be_wider);
}

std::uint64_t Lowering::width_of(const Operand& to) const {
  return to.what == What::kRegister ? ones(function_->registers[to.index].bits) : ~0ULL;
}

Source Lowering::condition(Op& op, const Operand& from) {
  op.negated = from.negated;
  return source(from, kPredicate);
}

void Lowering::address(Op& op, const Operand& of) {
  if (!of.is_address) fail("an address belongs in [ ]");
  op.offset = static_cast<std::uint64_t>(of.offset);
  switch (of.what) {
    case What::kRegister:
      if (function_->registers[of.index].bits < 32) fail("an address has 32 bits or more");
      op.from[0] = static_cast<Source>(of.index);
      // A parameter whose address was taken: of a function's, in its frame, which lies in local memory.
      if (op.where == Where::kFrame) op.where = function_->is_entry ? Where::kParameters : Where::kLocal;
      return;
    case What::kInteger:
      op.offset += of.bits;
      return;
    case What::kModuleVariable:
      op.offset += module_addresses_[of.index];
      if (const Where its =
              module_.variables[of.index].space == ptx::Space::kShared ? Where::kShared : Where::kGlobal;
          op.where == Where::kGeneric)
        op.where = its;
      else if (op.where != its)
        fail("a variable of another space");
      return;
    case What::kVariable: {
      const ptx::Variable& variable = function_->variables[of.index];
      op.offset += addresses_[of.index];
      if (variable.space == ptx::Space::kShared) {
        if (op.where != Where::kShared) fail("a variable of another space");
      } else if (variable.space == ptx::Space::kLocal) {
        if (op.where != Where::kLocal) fail("a variable of another space");
        op.where = Where::kFrame;
      } else {
        if (op.where != Where::kFrame) fail("a variable of another space");
        if (function_->is_entry && of.index < function_->parameters) op.where = Where::kParameters;
      }
      return;
    }
    default:
      fail("no address");
  }
}

}  // namespace virtual_gpu::run::detail
