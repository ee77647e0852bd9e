// lower_flow.cpp -- where threads go on, and where they wait for each other.
#include "tests/virtual_gpu/run/lowering.hpp"

namespace virtual_gpu::run::detail {

void Lowering::lower_bra(Op& op, Modifiers& modifiers) {
  modifiers.take("uni");
  expect_operands(1);
  const auto label = function_->labels.find(operand(0).name);
  if (operand(0).what != What::kName || label == function_->labels.end()) fail("there is no such label");
  op.target = code_.functions[by_name_.at(function_->name)].begin + static_cast<std::uint32_t>(label->second);
}

/// call [(result),] name [, (arguments)]: all in .param variables of the caller.
void Lowering::lower_call(Op& op, Modifiers& modifiers) {
  modifiers.take("uni");
  std::size_t next = 0;
  const Operand nothing{.what = What::kList};
  const Operand& results = operand(0).what == What::kList ? operand(next++) : nothing;
  const Operand& name = operand(next++);
  const Operand& arguments = next < count() ? operand(next++) : nothing;
  expect_operands(next);
  const auto found = by_name_.find(name.name);
  if (name.what != What::kName || arguments.what != What::kList) fail("calls by name alone are known");
  if (found == by_name_.end() || !module_.functions[found->second].has_body ||
      code_.functions[found->second].is_entry)
    fail(loom::format("{} is no function with a body", name.name));
  const ptx::Function& called = module_.functions[found->second];
  if (results.elements.size() != called.results || arguments.elements.size() != called.parameters)
    fail("results or arguments are not as many as the function has");
  Call call{.caller = by_name_.at(function_->name), .function = found->second};
  for (std::size_t i = 0; i < called.results + called.parameters; ++i) {
    const bool is_result = i < called.results;
    const Operand& mine = is_result ? results.elements[i] : arguments.elements[i - called.results];
    if (mine.what != What::kVariable || function_->variables[mine.index].space != ptx::Space::kParam)
      fail("arguments lie in .param variables");
    if (function_->variables[mine.index].bytes != called.variables[i].bytes)
      fail(loom::format("{} has another size than in {}", called.variables[i].name, called.name));
    const std::size_t here = addresses_[mine.index], there = parameter_offsets_[found->second][i];
    if (is_result)
      call.results.push_back({there, here, called.variables[i].bytes});
    else
      call.arguments.push_back({here, there, called.variables[i].bytes});
  }
  op.target = static_cast<std::uint32_t>(code_.calls.size());
  code_.calls.push_back(std::move(call));
}

void Lowering::lower_ret(Op& op, Modifiers& modifiers) {
  modifiers.take("uni");
  expect_operands(0);
  if (function_->is_entry) op.flow = Flow::kExit;
}
void Lowering::lower_bare(Op&, Modifiers&) {
  expect_operands(0);
}
void Lowering::lower_nanosleep(Op&, Modifiers& modifiers) {
  expect_operands(1);
  source(operand(0), modifiers.type());
}

/// bar.sync a[, threads]; bar.red.op.type result, a[, threads], p; bar.warp.sync mask
void Lowering::lower_bar(Op& op, Modifiers& modifiers) {
  if (modifiers.take("warp")) {
    op.flow = Flow::kWarp;
    op.lanes = LaneAction::kJoin;
    expect_operands(1);
    if (!modifiers.take("sync")) modifiers.fail("lacks .sync");
    op.from[0] = source(operand(0), kB32);
    return;
  }
  modifiers.take("cta");
  modifiers.take("aligned");
  std::size_t first = 0, last = count();
  if (modifiers.take("red")) {
    using enum Reduction;
    op.reduction =
        modifiers.take_one_of<Reduction>({{"and", kAnd}, {"or", kOr}, {"popc", kPopc}}).value_or(kNone);
    const Type type = modifiers.type();
    if (op.reduction == kNone || type != (op.reduction == kPopc ? kU32 : kPredicate))
      modifiers.fail("is not known for its type");
    expect_operands(3, 4);
    op.to[0] = result(operand(0), type);
    op.from[2] = condition(op, operand(--last));
    first = 1;
  } else if (modifiers.take("sync")) {
    expect_operands(1, 2);
  } else {
    modifiers.fail("is neither .sync nor .red");
  }
  op.from[0] = source(operand(first), kB32);
  op.elems = static_cast<std::uint8_t>(last - first - 1);  // 1: says how many threads
  if (op.elems == 1) op.from[1] = source(operand(first + 1), kB32);
}

/// vote.sync.all.pred p, q, mask; vote.sync.ballot.b32 d, q, mask
void Lowering::lower_vote(Op& op, Modifiers& modifiers) {
  using enum LaneAction;
  if (!modifiers.take("sync")) modifiers.fail("without .sync is gone");
  const auto named =
      modifiers.take_one_of<LaneAction>({{"all", kAll}, {"any", kAny}, {"uni", kUni}, {"ballot", kBallot}});
  const Type type = modifiers.type();
  if (!named || type != (*named == kBallot ? kB32 : kPredicate)) modifiers.fail("is not known for its type");
  op.lanes = *named;
  expect_operands(3);
  op.to[0] = result(operand(0), type);
  op.from[1] = condition(op, operand(1));
  op.from[0] = source(operand(2), kB32);
}

void Lowering::lower_activemask(Op& op, Modifiers& modifiers) {
  expect_operands(1);
  if (modifiers.type() != kB32) modifiers.fail("is not known for its type");
  op.to[0] = kept_result(operand(0), kB32);
}

}  // namespace virtual_gpu::run::detail
