// lowering.hpp -- how one instruction after the other becomes an op. Whatever of an instruction is not
// understood is an error.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>

#include "base/format.hpp"
#include "tests/virtual_gpu/run/arithmetic.hpp"

namespace virtual_gpu::run::detail {

using ptx::Kind;
using ptx::Operand;
using ptx::Type;
using What = ptx::Operand::What;

inline constexpr Type kB32{Kind::kBits, 32}, kU32{Kind::kUnsigned, 32}, kPredicate{Kind::kPredicate, 1};

inline std::uint64_t ones(unsigned bits) {
  return bits >= 64 ? ~0ULL : (1ULL << bits) - 1;
}
inline std::size_t round_up(std::size_t value, std::size_t align) {
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
  void take_any(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names)
      if (take(name)) return;
  }
  /// What the name stands for that is there.
  template <class T>
  std::optional<T> take_one_of(std::initializer_list<std::pair<std::string_view, T>> names) {
    for (const auto& [name, meaning] : names)
      if (take(name)) return meaning;
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
  /// The next that is left.
  std::string_view word() {
    if (left_.empty()) fail("lacks a modifier");
    const std::string_view result = left_.front();
    left_.erase(left_.begin());
    return result;
  }
  bool is_empty() const { return left_.empty(); }
  void must_be_empty() const {
    if (!is_empty()) fail(loom::format("has the unknown modifier .{}", left_.front()));
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw ptx::Error(instruction_.line,
                     loom::format("{} {}: {}", instruction_.opcode, what, instruction_.text));
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
  Lowering(const ptx::Module& module, const Program::Place& place);
  Code lower();

 private:
  struct Opcode {
    void (Lowering::*lower)(Op&, Modifiers&);
    Flow flow = Flow::kCompute;
    bool may_negate = false;  ///< a predicate among its operands
  };
  static const std::map<std::string_view, Opcode>& opcodes();

  void lower_function(const ptx::Function& function);
  void lower_instruction(const ptx::Instruction& instruction);
  void lay_out(const ptx::Function& function);
  void depth_of(std::size_t function, std::set<std::size_t>& above);
  void add_entry(std::size_t function);

  // lower_values.cpp
  void lower_arithmetic(Op& op, Modifiers& modifiers);
  void lower_setp(Op& op, Modifiers& modifiers);
  void lower_selp(Op& op, Modifiers& modifiers);
  void lower_mov(Op& op, Modifiers& modifiers);
  void lower_cvt(Op& op, Modifiers& modifiers);
  void lower_cvta(Op& op, Modifiers& modifiers);
  void parts(Op& op, Type type, bool packs);

  // lower_memory.cpp
  void lower_ld(Op& op, Modifiers& modifiers);
  void lower_st(Op& op, Modifiers& modifiers);
  void lower_atom(Op& op, Modifiers& modifiers);
  void lower_fence(Op& op, Modifiers& modifiers);
  Where where(Modifiers& modifiers);
  void order(Op& op, Modifiers& modifiers, std::string_view strong, memory::Order its);
  std::optional<memory::Scope> scope(Modifiers& modifiers);
  memory::Scope needed_scope(Modifiers& modifiers);
  void memory_form(Op& op, Modifiers& modifiers);

  // lower_flow.cpp
  void lower_bra(Op& op, Modifiers& modifiers);
  void lower_call(Op& op, Modifiers& modifiers);
  void lower_ret(Op& op, Modifiers& modifiers);
  void lower_bare(Op& op, Modifiers& modifiers);
  void lower_nanosleep(Op& op, Modifiers& modifiers);
  void lower_bar(Op& op, Modifiers& modifiers);
  void lower_vote(Op& op, Modifiers& modifiers);
  void lower_activemask(Op& op, Modifiers& modifiers);

  // operands.cpp
  std::size_t count() const { return instruction_->operands.size(); }
  const Operand& operand(std::size_t i) const;
  void expect_operands(std::size_t least, std::size_t most) const;
  void expect_operands(std::size_t number) const { expect_operands(number, number); }
  Source source(const Operand& from, Type type, bool may_be_wider = false);
  /// The last source: a predicate that may be negated.
  Source condition(Op& op, const Operand& from);
  /// A register, or nothing.
  std::int32_t result(const Operand& to, Type type, bool may_be_wider = false) const;
  std::int32_t kept_result(const Operand& to, Type type, bool may_be_wider = false) const;
  std::uint64_t width_of(const Operand& to) const;
  void address(Op& op, const Operand& of);

  [[noreturn]] void fail(std::string_view what) const {
    throw ptx::Error(instruction_->line, loom::format("{}: {}", what, instruction_->text));
  }

  const ptx::Module& module_;
  const ptx::Function* function_ = nullptr;
  const ptx::Instruction* instruction_ = nullptr;
  std::vector<std::uint64_t> module_addresses_;
  std::vector<std::uint64_t> addresses_;  ///< of the function's variables, each in its space
  std::vector<std::vector<std::uint64_t>> parameter_offsets_;  ///< of each function: results, then parameters
  SharedLayout shared_;
  Constants constants_;
  Code code_;
  std::map<std::string_view, std::size_t> by_name_;
};

}  // namespace virtual_gpu::run::detail
