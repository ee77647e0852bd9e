// lower.cpp -- PTX to ops: functions, their variables and what they take, and the table of opcodes.
#include <algorithm>

#include "tests/virtual_gpu/run/flow_graph.hpp"
#include "tests/virtual_gpu/run/lowering.hpp"

namespace virtual_gpu::run::detail {

/// Those of arithmetic.hpp beside these.
const std::map<std::string_view, Lowering::Opcode>& Lowering::opcodes() {
  using L = Lowering;
  static const std::map<std::string_view, Opcode> table = {
      {"setp", {&L::lower_setp}},
      {"selp", {&L::lower_selp}},
      {"mov", {&L::lower_mov}},
      {"cvt", {&L::lower_cvt}},
      {"cvta", {&L::lower_cvta}},
      {"ld", {&L::lower_ld, Flow::kLoad}},
      {"st", {&L::lower_st, Flow::kStore}},
      {"atom", {&L::lower_atom, Flow::kAtomic}},
      {"red", {&L::lower_atom, Flow::kAtomic}},
      {"fence", {&L::lower_fence, Flow::kFence}},
      {"membar", {&L::lower_fence, Flow::kFence}},
      {"bra", {&L::lower_bra, Flow::kBranch}},
      {"call", {&L::lower_call, Flow::kCall}},
      {"ret", {&L::lower_ret, Flow::kReturn}},
      {"exit", {&L::lower_bare, Flow::kExit}},
      {"trap", {&L::lower_bare, Flow::kTrap}},
      {"nanosleep", {&L::lower_nanosleep, Flow::kPause}},
      {"bar", {&L::lower_bar, Flow::kBarrier, true}},
      {"barrier", {&L::lower_bar, Flow::kBarrier, true}},
      {"vote", {&L::lower_vote, Flow::kWarp, true}},
      {"activemask", {&L::lower_activemask, Flow::kActiveMask}},
  };
  return table;
}

Lowering::Lowering(const ptx::Module& module, const Program::Place& place) : module_(module) {
  for (const ptx::Variable& variable : module.variables) {
    if (variable.space == ptx::Space::kShared)
      module_addresses_.push_back(shared_.place(variable));
    else if (place)
      module_addresses_.push_back(place(variable));
    else
      throw ptx::Error(variable.line, variable.name + " has no place in memory");
  }
}

Code Lowering::lower() {
  code_.text = module_.text;
  for (const ptx::Function& function : module_.functions) {
    by_name_.emplace(function.name, code_.functions.size());
    code_.functions.push_back({.name = function.name, .is_entry = function.is_entry});
    std::vector<std::uint64_t> offsets;
    std::size_t end = 0;
    for (std::size_t i = 0; i < function.results + function.parameters; ++i) {
      end = round_up(end, function.variables[i].align);
      offsets.push_back(end);
      end += function.variables[i].bytes;
    }
    parameter_offsets_.push_back(std::move(offsets));
  }
  // Shared variables of device functions lie below those of kernels, whoever calls them.
  for (const bool entries : {false, true}) {
    const std::size_t common = shared_.end();
    for (std::size_t i = 0; i < module_.functions.size(); ++i) {
      const ptx::Function& function = module_.functions[i];
      if (function.is_entry != entries || !function.has_body) continue;
      if (entries) shared_.go_back(common);
      lower_function(function);
    }
  }
  std::set<std::size_t> above;
  for (std::size_t i = 0; i < code_.functions.size(); ++i) depth_of(i, above);
  for (std::size_t i = 0; i < code_.functions.size(); ++i)
    if (code_.functions[i].is_entry) add_entry(i);
  code_.constants = constants_.take();
  return std::move(code_);
}

void Lowering::lay_out(const ptx::Function& function) {
  Function& lowered = code_.functions[by_name_.at(function.name)];
  addresses_ = parameter_offsets_[by_name_.at(function.name)];
  std::size_t end = 0;
  if (!function.is_entry && !addresses_.empty())
    end = addresses_.back() + function.variables[addresses_.size() - 1].bytes;
  for (std::size_t i = addresses_.size(); i < function.variables.size(); ++i) {
    const ptx::Variable& variable = function.variables[i];
    if (variable.space == ptx::Space::kShared) {
      addresses_.push_back(shared_.place(variable));
    } else {
      end = round_up(end, variable.align);
      addresses_.push_back(end);
      end += variable.bytes;
    }
  }
  lowered.frame_bytes = round_up(end, 16);
  lowered.slots = function.registers.size();
  lowered.shared_bytes = shared_.end();
}

void Lowering::lower_function(const ptx::Function& function) {
  function_ = &function;
  lay_out(function);
  Function& lowered = code_.functions[by_name_.at(function.name)];
  lowered.begin = static_cast<std::uint32_t>(code_.ops.size());
  for (const ptx::Instruction& instruction : function.instructions) lower_instruction(instruction);
  // The end of the text is a return, which lanes may also jump to.
  Op end{.flow = function.is_entry ? Flow::kExit : Flow::kReturn};
  end.from.fill(constants_.add(0));
  end.line = function.instructions.empty() ? function.line : function.instructions.back().line;
  code_.ops.push_back(std::move(end));
  lowered.end = static_cast<std::uint32_t>(code_.ops.size());
  const FlowGraph graph(code_.ops, lowered);
  find_meetings(code_.ops, lowered, graph);
  share_slots(code_.ops, lowered, graph);
}

void Lowering::lower_instruction(const ptx::Instruction& instruction) {
  instruction_ = &instruction;
  Op op;
  op.line = instruction.line;
  op.text = instruction.text;
  op.from.fill(constants_.add(0));
  if (instruction.guard) {
    op.guarded = true;
    op.guard_negated = instruction.guard->negated;
    op.guard = static_cast<std::int32_t>(instruction.guard->index);
  }
  const auto found = opcodes().find(instruction.opcode);
  if (found == opcodes().end() && !is_arithmetic(instruction.opcode))
    fail(loom::format("unknown opcode {}", instruction.opcode));
  const Opcode opcode = found == opcodes().end() ? Opcode{&Lowering::lower_arithmetic} : found->second;
  op.flow = opcode.flow;
  for (const Operand& one : instruction.operands)
    if (one.negated && !opcode.may_negate) fail("this instruction negates no operand");
  Modifiers modifiers(instruction);
  (this->*opcode.lower)(op, modifiers);
  modifiers.must_be_empty();
  code_.ops.push_back(std::move(op));
}

/// What a function takes with all that it calls.
void Lowering::depth_of(std::size_t index, std::set<std::size_t>& above) {
  Function& function = code_.functions[index];
  if (function.most_slots != 0) return;
  if (!above.insert(index).second)
    throw ptx::Error(module_.functions[index].line, function.name + " calls itself, which is not known");
  std::size_t slots = 0, bytes = 0;
  for (std::uint32_t pc = function.begin; pc < function.end; ++pc) {
    if (code_.ops[pc].flow != Flow::kCall) continue;
    const std::size_t called = code_.calls[code_.ops[pc].target].function;
    depth_of(called, above);
    slots = std::max(slots, code_.functions[called].most_slots);
    bytes = std::max(bytes, code_.functions[called].most_frame_bytes);
    function.shared_bytes = std::max(function.shared_bytes, code_.functions[called].shared_bytes);
  }
  function.most_slots = function.slots + slots + 1;
  function.most_frame_bytes = function.frame_bytes + bytes;
  above.erase(index);
}

void Lowering::add_entry(std::size_t index) {
  const Function& function = code_.functions[index];
  const ptx::Function& read = module_.functions[index];
  Entry entry{.name = function.name,
              .shared_bytes = function.shared_bytes,
              .local_bytes = function.most_frame_bytes,
              .function = index};
  for (std::size_t i = 0; i < read.parameters; ++i) {
    const ptx::Variable& variable = read.variables[i];
    entry.parameters.push_back({parameter_offsets_[index][i], variable.bytes, variable.align});
    entry.parameter_bytes = entry.parameters.back().offset + variable.bytes;
  }
  entry.least_blocks = read.least_blocks;
  if (read.most_threads)
    entry.most_threads = Dim{(*read.most_threads)[0], (*read.most_threads)[1], (*read.most_threads)[2]};
  code_.entries.push_back(std::move(entry));
}

Code lower(const ptx::Module& module, const Program::Place& place) {
  return Lowering(module, place).lower();
}

}  // namespace virtual_gpu::run::detail
