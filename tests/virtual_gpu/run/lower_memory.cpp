// lower_memory.cpp -- loads, stores, atomics and fences.
#include "tests/virtual_gpu/run/lowering.hpp"

namespace virtual_gpu::run::detail {

using memory::Order;
using memory::Scope;

/// .param is the frame's, until address() finds out that it is the kernel's.
Where Lowering::where(Modifiers& modifiers) {
  using enum Where;
  return modifiers
      .take_one_of<Where>({{"global", kGlobal},
                           {"const", kGlobal},
                           {"shared", kShared},
                           {"shared::cta", kShared},
                           {"local", kLocal},
                           {"param", kFrame},
                           {"param::entry", kFrame},
                           {"param::func", kFrame}})
      .value_or(kGeneric);
}

std::optional<Scope> Lowering::scope(Modifiers& modifiers) {
  return modifiers.take_one_of<Scope>(
      {{"cta", Scope::kBlock}, {"gpu", Scope::kGpu}, {"sys", Scope::kSystem}});
}
Scope Lowering::needed_scope(Modifiers& modifiers) {
  const auto named = scope(modifiers);
  if (!named) modifiers.fail("needs a scope");
  return *named;
}

/// `strong`: "acquire" of a load, "release" of a store. Volatile is relaxed at system scope.
void Lowering::order(Op& op, Modifiers& modifiers, std::string_view strong, Order its) {
  if (modifiers.take("volatile")) {
    op.order = Order::kRelaxed;
    return;
  }
  op.order =
      modifiers.take_one_of<Order>({{"weak", Order::kWeak}, {"relaxed", Order::kRelaxed}, {strong, its}})
          .value_or(Order::kWeak);
  if (op.order != Order::kWeak) op.scope = needed_scope(modifiers);
}

/// What ld and st have in common.
void Lowering::memory_form(Op& op, Modifiers& modifiers) {
  op.where = where(modifiers);
  // Hints for caches, which no program may rely on.
  modifiers.take_any({"ca", "cg", "cs", "lu", "wb", "wt"});
  modifiers.take_any(
      {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"});
  modifiers.take_any({"L2::64B", "L2::128B", "L2::256B"});
  const auto vector = modifiers.take_one_of<std::uint8_t>({{"v2", std::uint8_t{2}}, {"v4", std::uint8_t{4}}});
  op.elems = vector.value_or(1);
  const Type type = modifiers.type();
  if (type.kind == Kind::kPredicate) modifiers.fail("is not known for its type");
  op.elem_bytes = static_cast<std::uint8_t>(type.bytes());
  op.is_signed = type.kind == Kind::kSigned;
  if (op.elems * op.elem_bytes > 16) modifiers.fail("takes 16 bytes at most");
  expect_operands(2);
  const bool loads = op.flow == Flow::kLoad;
  const Operand& value = operand(loads ? 0 : 1);
  const bool is_vector = value.what == What::kVector;
  if (is_vector != vector.has_value() || (is_vector && value.elements.size() != op.elems))
    fail("as many registers as the instruction has elements belong here");
  const Type bits{Kind::kBits, static_cast<unsigned>(type.bytes()) * 8};
  for (std::size_t i = 0; i < op.elems; ++i) {
    const Operand& elem = is_vector ? value.elements[i] : value;
    if (loads) {
      op.to[i] = result(elem, bits, true);
      op.width &= width_of(elem);
    } else {
      op.from[1 + i] =
          source(elem, type.kind == Kind::kFloat && elem.what != What::kRegister ? type : bits, true);
    }
  }
  address(op, operand(loads ? 1 : 0));
}

void Lowering::lower_ld(Op& op, Modifiers& modifiers) {
  order(op, modifiers, "acquire", Order::kAcquire);
  modifiers.take("nc");  // may be old, as any weak load may
  memory_form(op, modifiers);
}

void Lowering::lower_st(Op& op, Modifiers& modifiers) {
  order(op, modifiers, "release", Order::kRelease);
  memory_form(op, modifiers);
  if (op.where == Where::kParameters) fail("a kernel's parameters cannot be stored to");
}

void Lowering::lower_atom(Op& op, Modifiers& modifiers) {
  const bool returns = instruction_->opcode == "atom";
  op.order = modifiers
                 .take_one_of<Order>({{"relaxed", Order::kRelaxed},
                                      {"acquire", Order::kAcquire},
                                      {"release", Order::kRelease},
                                      {"acq_rel", Order::kAcquireRelease}})
                 .value_or(Order::kRelaxed);
  op.scope = scope(modifiers).value_or(Scope::kGpu);
  op.where = where(modifiers);
  const Type type = modifiers.type();
  const std::string_view operation = modifiers.word();
  op.change = atomic_change(operation, type);
  if (op.change == nullptr) modifiers.fail("is not known for its type");
  op.elems = 1;
  op.elem_bytes = static_cast<std::uint8_t>(type.bytes());
  const std::size_t first = returns ? 1 : 0, values = operation == "cas" ? 2 : 1;
  expect_operands(first + 1 + values);
  if (returns) op.to[0] = result(operand(0), type);
  for (std::size_t i = 0; i < values; ++i) op.from[1 + i] = source(operand(first + 1 + i), type);
  address(op, operand(first));
  if (op.where != Where::kGlobal && op.where != Where::kShared && op.where != Where::kGeneric)
    fail("not in this space");
}

void Lowering::lower_fence(Op& op, Modifiers& modifiers) {
  expect_operands(0);
  const bool is_old = instruction_->opcode == "membar";
  if (!is_old) modifiers.take_any({"sc", "acq_rel"});
  op.scope = is_old && modifiers.take("gl") ? Scope::kGpu : needed_scope(modifiers);
}

}  // namespace virtual_gpu::run::detail
