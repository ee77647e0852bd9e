// lower.cpp -- PTX instructions to ops. Whatever of an instruction is not understood is an error.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/virtual_gpu/run/arithmetic.hpp"

namespace virtual_gpu::run::detail {
namespace {

using ptx::Kind;
using ptx::Operand;
using ptx::Type;
using What = ptx::Operand::What;

constexpr Type kB32{Kind::kBits, 32}, kU32{Kind::kUnsigned, 32}, kB64{Kind::kBits, 64},
    kPredicate{Kind::kPredicate, 1};

std::uint64_t ones(unsigned bits) {
  return bits >= 64 ? ~0ULL : (1ULL << bits) - 1;
}
std::size_t round_up(std::size_t value, std::size_t align) {
  return (value + align - 1) / align * align;
}

/// The constants of a program, each once.
class Constants {
 public:
  Source add(std::uint64_t value) {
    const auto [at, is_new] = indexes_.emplace(value, static_cast<std::int32_t>(indexes_.size()));
    if (is_new) slots_.insert(slots_.end(), kLanes, value);
    return ~at->second;
  }
  std::vector<Slot> take() { return std::move(slots_); }

 private:
  std::map<std::uint64_t, std::int32_t> indexes_;
  std::vector<Slot> slots_;
};

/// The modifiers of an instruction, taken one by one; all must be.
class Modifiers {
 public:
  explicit Modifiers(const ptx::Instruction& instruction)
      : instruction_(instruction), left_(instruction.modifiers) {}

  bool take(std::string_view name) {
    const auto found = std::find(left_.begin(), left_.end(), name);
    if (found == left_.end()) return false;
    left_.erase(found);
    return true;
  }
  /// Which of the names is there; its index.
  std::optional<std::size_t> take_one_of(std::initializer_list<std::string_view> names) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (take(names.begin()[i])) return i;
    return std::nullopt;
  }
  Type type() {
    for (auto at = left_.begin(); at != left_.end(); ++at)
      if (const auto found = ptx::find_type(*at)) {
        left_.erase(at);
        return *found;
      }
    fail("has no type");
  }
  /// What is left, as one word: "wide", "wrap"
  std::string_view word() {
    if (left_.empty()) fail("lacks a modifier");
    const std::string_view result = left_.front();
    left_.erase(left_.begin());
    return result;
  }
  void must_be_empty() const {
    if (!left_.empty()) fail(fmt::format("has the unknown modifier .{}", left_.front()));
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw ptx::Error(instruction_.line,
                     fmt::format("{} {}: {}", instruction_.opcode, what, instruction_.text));
  }

 private:
  const ptx::Instruction& instruction_;
  std::vector<std::string_view> left_;
};

/// Variables of shared memory at fixed addresses, those of the module before those of functions.
class SharedLayout {
 public:
  std::uint64_t place(const ptx::Variable& variable) {
    if (variable.bytes == 0) return kDynamicShared;
    end_ = round_up(end_, variable.align) + variable.bytes;
    return end_ - variable.bytes;
  }
  std::size_t end() const { return end_; }
  /// Those of a kernel lie where those of another do.
  void go_back(std::size_t end) { end_ = end; }

 private:
  std::size_t end_ = 0;
};

class Lowering {
 public:
  Lowering(const ptx::Module& module, const Program::Place& place) : module_(module) {
    for (const ptx::Variable& variable : module.variables) {
      if (variable.space == ptx::Space::kShared)
        module_addresses_.push_back(shared_.place(variable));
      else if (place)
        module_addresses_.push_back(place(variable));
      else
        throw ptx::Error(variable.line, variable.name + " has no place in memory");
    }
  }
  Code lower();

 private:
  using Lower = void (Lowering::*)(Op&, Modifiers&);
  static const std::map<std::string_view, Lower>& opcodes();

  void lower_function(const ptx::Function& function);
  void lower_instruction(const ptx::Instruction& instruction);
  void lay_out(const ptx::Function& function);
  void find_depths();
  void depth_of(std::size_t function, std::set<std::size_t>& above);
  void add_entry(std::size_t function);

  void lower_arithmetic(Op& op, Modifiers& modifiers);
  void lower_setp(Op& op, Modifiers& modifiers);
  void lower_selp(Op& op, Modifiers& modifiers);
  void lower_mov(Op& op, Modifiers& modifiers);
  void lower_cvt(Op& op, Modifiers& modifiers);
  void lower_cvta(Op& op, Modifiers& modifiers);
  void lower_ld(Op& op, Modifiers& modifiers);
  void lower_st(Op& op, Modifiers& modifiers);
  void lower_atom(Op& op, Modifiers& modifiers);
  void lower_fence(Op& op, Modifiers& modifiers);
  void lower_nanosleep(Op& op, Modifiers& modifiers);
  void lower_bra(Op& op, Modifiers& modifiers);
  void lower_call(Op& op, Modifiers& modifiers);
  void lower_ret(Op& op, Modifiers& modifiers);
  void lower_exit(Op& op, Modifiers& modifiers);
  void lower_trap(Op& op, Modifiers& modifiers);
  void lower_bar(Op& op, Modifiers& modifiers);
  void lower_vote(Op& op, Modifiers& modifiers);
  void lower_shfl(Op& op, Modifiers& modifiers);
  void lower_activemask(Op& op, Modifiers& modifiers);

  [[noreturn]] void fail(std::string_view what) const {
    throw ptx::Error(instruction_->line, fmt::format("{}: {}", what, instruction_->text));
  }
  std::size_t count() const { return instruction_->operands.size(); }
  const Operand& operand(std::size_t i) const {
    if (i >= count()) fail("an operand is missing");
    return instruction_->operands[i];
  }
  void expect_operands(std::size_t least, std::size_t most) const {
    if (count() < least || count() > most) fail("the number of operands is wrong");
  }
  Source source(const Operand& from, Type type, bool may_be_wider = false);
  /// A register, or nothing.
  std::int32_t result(const Operand& to, Type type, bool may_be_wider = false) const;
  std::int32_t kept_result(const Operand& to, Type type, bool may_be_wider = false) const {
    if (to.what == What::kSink) fail("a result goes to a register");
    return result(to, type, may_be_wider);
  }
  std::uint64_t width_of(const Operand& to) const {
    return to.what == What::kRegister ? ones(function_->registers[to.index].bits) : ~0ULL;
  }
  void address(Op& op, const Operand& of);
  Where where(Modifiers& modifiers);
  void order(Op& op, Modifiers& modifiers, memory::Order strong);
  std::optional<memory::Scope> scope(Modifiers& modifiers);
  void memory_form(Op& op, Modifiers& modifiers);
  void parts(Op& op, Type type, bool packs);

  const ptx::Module& module_;
  const ptx::Function* function_ = nullptr;
  const ptx::Instruction* instruction_ = nullptr;
  std::vector<std::uint64_t> module_addresses_;
  std::vector<std::uint64_t> addresses_;  ///< of the function's variables, each in its space
  std::vector<std::vector<std::uint64_t>> parameter_offsets_;  ///< of each function: results, then parameters
  SharedLayout shared_;
  Constants constants_;
  Code code_;
  std::vector<std::uint32_t> targets_;  ///< of the function's branches, as indexes of its instructions
  std::map<std::string_view, std::size_t> by_name_;
};

// ---------------------------------------------------------------------------------------------- functions

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
  find_depths();
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
  end.line = function.instructions.empty() ? function.line : function.instructions.back().line;
  code_.ops.push_back(std::move(end));
  lowered.end = static_cast<std::uint32_t>(code_.ops.size());
  find_meetings(code_.ops, lowered);
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
  if (found == opcodes().end()) fail(fmt::format("unknown opcode {}", instruction.opcode));
  const bool may_negate = found->second == &Lowering::lower_setp || found->second == &Lowering::lower_bar ||
                          found->second == &Lowering::lower_vote;
  for (const Operand& one : instruction.operands)
    if (one.negated && !may_negate) fail("this instruction negates no operand");
  Modifiers modifiers(instruction);
  (this->*found->second)(op, modifiers);
  modifiers.must_be_empty();
  code_.ops.push_back(std::move(op));
}

/// What a function takes with all that it calls.
void Lowering::find_depths() {
  std::set<std::size_t> above;
  for (std::size_t i = 0; i < code_.functions.size(); ++i) depth_of(i, above);
}

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
              .registers = static_cast<unsigned>(function.most_slots),
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

// ----------------------------------------------------------------------------------------------- operands

Source Lowering::source(const Operand& from, Type type, bool may_be_wider) {
  if (from.is_address) fail("an address where a value belongs");
  switch (from.what) {
    case What::kRegister: {
      const Type is = function_->registers[from.index];
      if ((is.kind == Kind::kPredicate) != (type.kind == Kind::kPredicate) || is.bytes() < type.bytes() ||
          (is.bytes() > type.bytes() && !may_be_wider))
        fail("a register of another width than the instruction's type");
      if (from.offset != 0) fail("an offset from a register that is no address");
      return static_cast<Source>(from.index);
    }
    case What::kInteger:
      if (type.kind == Kind::kFloat) fail("a whole number where a float belongs");
      return constants_.add(type.kind == Kind::kPredicate ? from.bits != 0 : from.bits & ones(type.bits));
    case What::kFloat32:
    case What::kFloat64: {
      const Type is{Kind::kFloat, from.what == What::kFloat32 ? 32U : 64U};
      if (type.kind == Kind::kFloat && !type.packed)
        return constants_.add(convert(from.bits, {.to = type, .from = is}));
      if (type.kind != Kind::kBits || type.bits != is.bits) fail("a float where none belongs");
      return constants_.add(from.bits);
    }
    default:
      fail("an operand of another kind belongs here");
  }
}

std::int32_t Lowering::result(const Operand& to, Type type, bool may_be_wider) const {
  if (to.what == What::kSink) return kNoSlot;
  if (to.what != What::kRegister || to.is_address || to.negated) fail("a result goes to a register");
  const Type is = function_->registers[to.index];
  if ((is.kind == Kind::kPredicate) != (type.kind == Kind::kPredicate) || is.bytes() < type.bytes() ||
      (is.bytes() > type.bytes() && !may_be_wider))
    fail("a register of another width than the result's type");
  return static_cast<std::int32_t>(to.index);
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

// --------------------------------------------------------------------------------------------- arithmetic

void Lowering::lower_arithmetic(Op& op, Modifiers& modifiers) {
  std::string name(instruction_->opcode);
  const bool is_multiply = name == "mul" || name == "mad", is_funnel = name == "shf";
  const Type type = modifiers.type();
  const bool is_float = type.kind == Kind::kFloat || type.kind == Kind::kBfloat;
  const bool rounds =
      is_float && (name == "add" || name == "sub" || name == "mul" || name == "fma" || name == "div");
  if (rounds && !modifiers.take("rn"))
    modifiers.fail("of floats needs .rn: others may be contracted or are not known");
  if (is_funnel) {
    const auto direction = modifiers.take_one_of({"l", "r"}), mode = modifiers.take_one_of({"wrap", "clamp"});
    if (!direction || !mode) modifiers.fail("lacks a modifier");
    name += fmt::format(".{}.{}", *direction == 0 ? "l" : "r", *mode == 0 ? "wrap" : "clamp");
  } else if (is_multiply && !is_float) {
    name += fmt::format(".{}", modifiers.word());
  }
  if (is_float && modifiers.take("ftz")) name += ".ftz";
  op.handler = arithmetic(name, type);
  if (op.handler == nullptr) modifiers.fail("is not known for its type");

  const bool wide = name.ends_with(".wide"), counts = name == "popc" || name == "clz";
  Type of_result = type;
  if (wide) of_result.bits *= 2;
  if (counts) of_result = kU32;
  const bool shifts = name == "shl" || name == "shr", field = name == "bfe" || name == "bfi";
  std::size_t same = 2, others = 0;  // sources of its own type, and of others
  if (name.starts_with("not") || name.starts_with("neg") || name.starts_with("abs") || name == "brev" ||
      counts)
    same = 1;
  if (name.starts_with("fma") || name == "prmt" || is_funnel) same = 3;
  if (name == "lop3") same = 4;
  if (shifts) std::tie(same, others) = std::pair(1, 1);
  if (field) std::tie(same, others) = std::pair(name == "bfe" ? 1 : 2, 2);
  if (name.starts_with("mad")) others = 1;
  expect_operands(1 + same + others, 1 + same + others);
  op.to[0] = kept_result(operand(0), of_result);
  for (std::size_t i = 0; i < same; ++i) op.from[i] = source(operand(1 + i), type);
  for (std::size_t i = same; i < same + others; ++i)
    op.from[i] = source(operand(1 + i), name.starts_with("mad") ? of_result : kU32);
}

void Lowering::lower_setp(Op& op, Modifiers& modifiers) {
  const Type type = modifiers.type();
  const bool flushes = modifiers.take("ftz");
  const std::string_view compare = modifiers.word();
  const auto boolean = modifiers.take_one_of({"and", "or", "xor"});
  constexpr Boolean kBooleans[] = {Boolean::kAnd, Boolean::kOr, Boolean::kXor};
  if (boolean) op.boolean = kBooleans[*boolean];
  op.handler = comparison(compare, type, flushes);
  if (op.handler == nullptr) modifiers.fail("is not known for its type");
  expect_operands(boolean ? 4 : 3, boolean ? 4 : 3);
  const Operand& to = operand(0);
  if (to.what == What::kPair) {
    for (std::size_t i = 0; i < 2; ++i) op.to[i] = result(to.elements[i], kPredicate);
  } else {
    op.to[0] = result(to, kPredicate);
  }
  for (std::size_t i = 0; i < 2; ++i) op.from[i] = source(operand(1 + i), type);
  if (boolean) {
    op.from[2] = source(operand(3), kPredicate);
    op.negated = operand(3).negated;
  }
}

void Lowering::lower_selp(Op& op, Modifiers& modifiers) {
  const Type type = modifiers.type();
  expect_operands(4, 4);
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
  static const std::map<std::string_view, Special> kSpecials = {
      {"%tid.x", Special::kTidX},
      {"%tid.y", Special::kTidY},
      {"%tid.z", Special::kTidZ},
      {"%ntid.x", Special::kNtidX},
      {"%ntid.y", Special::kNtidY},
      {"%ntid.z", Special::kNtidZ},
      {"%ctaid.x", Special::kCtaidX},
      {"%ctaid.y", Special::kCtaidY},
      {"%ctaid.z", Special::kCtaidZ},
      {"%nctaid.x", Special::kNctaidX},
      {"%nctaid.y", Special::kNctaidY},
      {"%nctaid.z", Special::kNctaidZ},
      {"%laneid", Special::kLaneid},
      {"%warpid", Special::kWarpid},
      {"%nwarpid", Special::kNwarpid},
      {"%smid", Special::kSmid},
      {"%clock", Special::kClock},
      {"%clock64", Special::kClock64},
      {"%globaltimer", Special::kGlobaltimer},
      {"%lanemask_eq", Special::kLanemaskEq},
      {"%lanemask_le", Special::kLanemaskLe},
      {"%lanemask_lt", Special::kLanemaskLt},
      {"%lanemask_ge", Special::kLanemaskGe},
      {"%lanemask_gt", Special::kLanemaskGt},
      {"%dynamic_smem_size", Special::kDynamicSmemSize}};
  const Type type = modifiers.type();
  expect_operands(2, 2);
  const Operand &to = operand(0), &from = operand(1);
  if (to.what == What::kVector || from.what == What::kVector)
    return parts(op, type, from.what == What::kVector);
  op.to[0] = kept_result(to, type);
  op.width = width_of(to);
  op.handler = move();
  switch (from.what) {
    case What::kSpecial: {
      const auto found = kSpecials.find(from.name);
      if (found == kSpecials.end()) fail(fmt::format("unknown register {}", from.name));
      op.flow = Flow::kSpecial;
      op.special = found->second;
      return;
    }
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
  constexpr Rounding kRoundings[] = {Rounding::kNearest, Rounding::kZero, Rounding::kDown, Rounding::kUp};
  const auto rounding = modifiers.take_one_of({"rn", "rz", "rm", "rp"}),
             integral = modifiers.take_one_of({"rni", "rzi", "rmi", "rpi"});
  const bool from_float = is_float(c.from), to_float = is_float(c.to);
  const bool narrows = to_float && (!from_float || c.to.bits < c.from.bits ||
                                    (c.to.bits == c.from.bits && c.to.kind != c.from.kind));
  if (narrows != rounding.has_value()) modifiers.fail("needs .rn or the like just where it loses bits");
  if (from_float && !to_float && !integral) modifiers.fail("needs .rzi or the like");
  if (integral && (!from_float || narrows)) modifiers.fail("has a rounding that does not belong there");
  if (rounding) c.rounding = kRoundings[*rounding];
  if (integral) c.rounding = kRoundings[*integral];
  c.to_integral = integral.has_value();
  c.flushes = modifiers.take("ftz");
  c.saturates = modifiers.take("sat");
  if (c.to.packed || c.from.packed || c.to.kind == Kind::kPredicate || c.from.kind == Kind::kPredicate)
    modifiers.fail("is not known for its types");
  expect_operands(2, 2);
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
  expect_operands(2, 2);
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

// ------------------------------------------------------------------------------------------------- memory

/// .param is the frame's, until address() finds out that it is the kernel's.
Where Lowering::where(Modifiers& modifiers) {
  constexpr Where kPlaces[] = {Where::kGlobal, Where::kGlobal, Where::kShared, Where::kShared,
                               Where::kLocal,  Where::kFrame,  Where::kFrame,  Where::kFrame};
  const auto named = modifiers.take_one_of(
      {"global", "const", "shared", "shared::cta", "local", "param", "param::entry", "param::func"});
  return named ? kPlaces[*named] : Where::kGeneric;
}

std::optional<memory::Scope> Lowering::scope(Modifiers& modifiers) {
  using memory::Scope;
  constexpr Scope kScopes[] = {Scope::kBlock, Scope::kGpu, Scope::kSystem};
  const auto named = modifiers.take_one_of({"cta", "gpu", "sys"});
  return named ? std::optional(kScopes[*named]) : std::nullopt;
}

/// `strong`: .acquire of a load, .release of a store.
void Lowering::order(Op& op, Modifiers& modifiers, memory::Order strong) {
  using memory::Order;
  if (modifiers.take("volatile")) {
    op.order = Order::kRelaxed;
    return;
  }
  if (modifiers.take("relaxed"))
    op.order = Order::kRelaxed;
  else if (modifiers.take(strong == Order::kAcquire ? "acquire" : "release"))
    op.order = strong;
  else
    modifiers.take("weak");
  if (op.order == Order::kWeak) return;
  const auto named = scope(modifiers);
  if (!named) modifiers.fail("needs a scope");
  op.scope = *named;
}

/// What ld and st have in common.
void Lowering::memory_form(Op& op, Modifiers& modifiers) {
  op.where = where(modifiers);
  // Hints for caches, which no program may rely on.
  modifiers.take_one_of({"ca", "cg", "cs", "lu", "wb", "wt"});
  modifiers.take_one_of(
      {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"});
  modifiers.take_one_of({"L2::64B", "L2::128B", "L2::256B"});
  constexpr std::uint8_t kVectors[] = {2, 4};
  const auto vector = modifiers.take_one_of({"v2", "v4"});
  op.elems = vector ? kVectors[*vector] : std::uint8_t{1};
  const Type type = modifiers.type();
  if (type.kind == Kind::kPredicate) modifiers.fail("is not known for its type");
  op.elem_bytes = static_cast<std::uint8_t>(type.bytes());
  op.is_signed = type.kind == Kind::kSigned;
  if (op.elems * op.elem_bytes > 16) modifiers.fail("takes 16 bytes at most");
  expect_operands(2, 2);
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
  op.flow = Flow::kLoad;
  order(op, modifiers, memory::Order::kAcquire);
  modifiers.take("nc");  // may be old, as any weak load may
  memory_form(op, modifiers);
}

void Lowering::lower_st(Op& op, Modifiers& modifiers) {
  op.flow = Flow::kStore;
  order(op, modifiers, memory::Order::kRelease);
  memory_form(op, modifiers);
  if (op.where == Where::kParameters) fail("a kernel's parameters cannot be stored to");
}

void Lowering::lower_atom(Op& op, Modifiers& modifiers) {
  using memory::Order;
  op.flow = Flow::kAtomic;
  const bool returns = instruction_->opcode == "atom";
  constexpr Order kOrders[] = {Order::kRelaxed, Order::kAcquire, Order::kRelease, Order::kAcquireRelease};
  const auto named = modifiers.take_one_of({"relaxed", "acquire", "release", "acq_rel"});
  op.order = named ? kOrders[*named] : Order::kRelaxed;
  op.scope = scope(modifiers).value_or(memory::Scope::kGpu);
  op.where = where(modifiers);
  const Type type = modifiers.type();
  const std::string_view operation = modifiers.word();
  op.change = atomic_change(operation, type);
  if (op.change == nullptr) modifiers.fail("is not known for its type");
  if (type.kind == Kind::kFloat && operation != "add" && operation != "exch")
    modifiers.fail("is not known for its type");
  op.elems = 1;
  op.elem_bytes = static_cast<std::uint8_t>(type.bytes());
  const std::size_t first = returns ? 1 : 0, values = operation == "cas" ? 2 : 1;
  expect_operands(first + 1 + values, first + 1 + values);
  if (returns) op.to[0] = result(operand(0), type);
  for (std::size_t i = 0; i < values; ++i) op.from[1 + i] = source(operand(first + 1 + i), type);
  address(op, operand(first));
  if (op.where != Where::kGlobal && op.where != Where::kShared && op.where != Where::kGeneric)
    fail("not in this space");
}

void Lowering::lower_fence(Op& op, Modifiers& modifiers) {
  op.flow = Flow::kFence;
  expect_operands(0, 0);
  if (instruction_->opcode == "membar" && modifiers.take("gl")) {
    op.scope = memory::Scope::kGpu;
    return;
  }
  if (instruction_->opcode == "fence") modifiers.take_one_of({"sc", "acq_rel"});
  const auto named = scope(modifiers);
  if (!named) modifiers.fail("needs a scope");
  op.scope = *named;
}

void Lowering::lower_nanosleep(Op& op, Modifiers& modifiers) {
  op.flow = Flow::kPause;
  expect_operands(1, 1);
  source(operand(0), modifiers.type());
}

// --------------------------------------------------------------------------------------------------- flow

void Lowering::lower_bra(Op& op, Modifiers& modifiers) {
  op.flow = Flow::kBranch;
  modifiers.take("uni");
  expect_operands(1, 1);
  const auto label = function_->labels.find(operand(0).name);
  if (operand(0).what != What::kName || label == function_->labels.end()) fail("there is no such label");
  op.target = code_.functions[by_name_.at(function_->name)].begin + static_cast<std::uint32_t>(label->second);
}

/// call [(result),] name [, (arguments)]: all in .param variables of the caller.
void Lowering::lower_call(Op& op, Modifiers& modifiers) {
  op.flow = Flow::kCall;
  modifiers.take("uni");
  std::size_t next = 0;
  const Operand nothing{.what = What::kList};
  const Operand& results = operand(0).what == What::kList ? operand(next++) : nothing;
  const Operand& name = operand(next++);
  const Operand& arguments = next < count() ? operand(next++) : nothing;
  expect_operands(next, next);
  const auto found = by_name_.find(name.name);
  if (name.what != What::kName || arguments.what != What::kList) fail("calls by name alone are known");
  if (found == by_name_.end() || !module_.functions[found->second].has_body ||
      code_.functions[found->second].is_entry)
    fail(fmt::format("{} is no function with a body", name.name));
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
      fail(fmt::format("{} has another size than in {}", called.variables[i].name, called.name));
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
  expect_operands(0, 0);
  op.flow = function_->is_entry ? Flow::kExit : Flow::kReturn;
}
void Lowering::lower_exit(Op& op, Modifiers&) {
  expect_operands(0, 0);
  op.flow = Flow::kExit;
}
void Lowering::lower_trap(Op& op, Modifiers&) {
  expect_operands(0, 0);
  op.flow = Flow::kTrap;
}

/// bar.sync a[, threads]; bar.red.op.type result, a[, threads], p; bar.warp.sync mask
void Lowering::lower_bar(Op& op, Modifiers& modifiers) {
  if (modifiers.take("warp")) {
    op.flow = Flow::kWarp;
    op.lanes = LaneAction::kJoin;
    expect_operands(1, 1);
    if (!modifiers.take("sync")) modifiers.fail("lacks .sync");
    op.from[0] = source(operand(0), kB32);
    return;
  }
  op.flow = Flow::kBarrier;
  modifiers.take("cta");
  modifiers.take("aligned");
  std::size_t first = 0, last = count();
  if (modifiers.take("red")) {
    constexpr Reduction kReductions[] = {Reduction::kAnd, Reduction::kOr, Reduction::kPopc};
    const auto named = modifiers.take_one_of({"and", "or", "popc"});
    const Type type = modifiers.type();
    if (!named || type != (*named == 2 ? kU32 : kPredicate)) modifiers.fail("is not known for its type");
    op.reduction = kReductions[*named];
    expect_operands(3, 4);
    op.to[0] = result(operand(0), type);
    op.from[2] = source(operand(last - 1), kPredicate);
    op.negated = operand(last - 1).negated;
    first = 1;
    --last;
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
  op.flow = Flow::kWarp;
  constexpr LaneAction kActions[] = {LaneAction::kAll, LaneAction::kAny, LaneAction::kUni,
                                     LaneAction::kBallot};
  if (!modifiers.take("sync")) modifiers.fail("without .sync is gone");
  const auto named = modifiers.take_one_of({"all", "any", "uni", "ballot"});
  const Type type = modifiers.type();
  if (!named || type != (*named == 3 ? kB32 : kPredicate)) modifiers.fail("is not known for its type");
  op.lanes = kActions[*named];
  expect_operands(3, 3);
  op.to[0] = result(operand(0), type);
  op.from[1] = source(operand(1), kPredicate);
  op.negated = operand(1).negated;
  op.from[0] = source(operand(2), kB32);
}

/// shfl.sync.mode.b32 d[|p], a, b, c, mask
void Lowering::lower_shfl(Op& op, Modifiers& modifiers) {
  op.flow = Flow::kWarp;
  constexpr LaneAction kActions[] = {LaneAction::kShuffleIdx, LaneAction::kShuffleUp,
                                     LaneAction::kShuffleDown, LaneAction::kShuffleBfly};
  if (!modifiers.take("sync")) modifiers.fail("without .sync is gone");
  const auto named = modifiers.take_one_of({"idx", "up", "down", "bfly"});
  if (!named || modifiers.type() != kB32) modifiers.fail("is not known for its type");
  op.lanes = kActions[*named];
  expect_operands(5, 5);
  const Operand& to = operand(0);
  op.to[0] = result(to.what == What::kPair ? to.elements[0] : to, kB32);
  if (to.what == What::kPair) op.to[1] = result(to.elements[1], kPredicate);
  for (std::size_t i = 1; i < 4; ++i) op.from[i] = source(operand(i), kB32);
  op.from[0] = source(operand(4), kB32);
}

void Lowering::lower_activemask(Op& op, Modifiers& modifiers) {
  op.flow = Flow::kActiveMask;
  expect_operands(1, 1);
  if (modifiers.type() != kB32) modifiers.fail("is not known for its type");
  op.to[0] = kept_result(operand(0), kB32);
}

const std::map<std::string_view, Lowering::Lower>& Lowering::opcodes() {
  static const std::map<std::string_view, Lower> table = [] {
    std::map<std::string_view, Lower> result = {
        {"setp", &Lowering::lower_setp},    {"selp", &Lowering::lower_selp},
        {"mov", &Lowering::lower_mov},      {"cvt", &Lowering::lower_cvt},
        {"cvta", &Lowering::lower_cvta},    {"ld", &Lowering::lower_ld},
        {"st", &Lowering::lower_st},        {"atom", &Lowering::lower_atom},
        {"red", &Lowering::lower_atom},     {"fence", &Lowering::lower_fence},
        {"membar", &Lowering::lower_fence}, {"nanosleep", &Lowering::lower_nanosleep},
        {"bra", &Lowering::lower_bra},      {"call", &Lowering::lower_call},
        {"ret", &Lowering::lower_ret},      {"exit", &Lowering::lower_exit},
        {"trap", &Lowering::lower_trap},    {"bar", &Lowering::lower_bar},
        {"barrier", &Lowering::lower_bar},  {"vote", &Lowering::lower_vote},
        {"shfl", &Lowering::lower_shfl},    {"activemask", &Lowering::lower_activemask}};
    for (const std::string_view name :
         {"add", "sub", "mul", "mad", "fma", "div",  "rem", "neg",  "abs", "min", "max",  "and", "or",
          "xor", "not", "shl", "shr", "shf", "popc", "clz", "brev", "bfe", "bfi", "prmt", "lop3"})
      result.emplace(name, &Lowering::lower_arithmetic);
    return result;
  }();
  return table;
}

}  // namespace

Code lower(const ptx::Module& module, const Program::Place& place) {
  return Lowering(module, place).lower();
}

}  // namespace virtual_gpu::run::detail
