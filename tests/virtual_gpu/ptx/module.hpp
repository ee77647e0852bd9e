// module.hpp -- a module of PTX as it was read. Registers and variables are resolved to indexes; what an
// opcode and its modifiers mean is for those who run it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace virtual_gpu::ptx {

/// The text is not PTX, or is PTX that the virtual GPU does not know.
class Error : public std::runtime_error {
 public:
  Error(int line, const std::string& what);
  int line() const noexcept { return line_; }

 private:
  int line_;
};

enum class Kind : std::uint8_t { kBits, kUnsigned, kSigned, kFloat, kBfloat, kPredicate };
struct Type {
  Kind kind = Kind::kBits;
  unsigned bits = 0;    ///< of a predicate 1
  bool packed = false;  ///< two of them side by side: .f16x2, .bf16x2

  constexpr std::size_t bytes() const { return bits * (packed ? 2 : 1) / 8; }
  friend constexpr bool operator==(const Type&, const Type&) = default;
};
/// "u64", without the dot.
std::optional<Type> find_type(std::string_view name);

enum class Space : std::uint8_t { kGlobal, kConst, kShared, kLocal, kParam };

/// A variable: not a register.
struct Variable {
  std::string name{};
  Space space = Space::kGlobal;
  Type type{};
  std::size_t align = 1;
  std::size_t bytes = 0;             ///< 0: `extern` and without size, as dynamic shared memory is
  std::vector<std::byte> initial{};  ///< empty, or `bytes` of them
  bool is_extern = false;
  int line = 0;
};

struct Operand {
  enum class What : std::uint8_t {
    kRegister,        ///< index in Function::registers
    kVariable,        ///< index in Function::variables
    kModuleVariable,  ///< index in Module::variables
    kInteger,         ///< bits
    kFloat32,         ///< bits
    kFloat64,         ///< bits; also a decimal number
    kSpecial,         ///< name: "%tid.x"
    kName,            ///< name: a label or a function
    kVector,          ///< {a, b}: elements
    kList,            ///< (a, b) of a call: elements
    kSink             ///< _
  };
  What what = What::kInteger;
  bool negated = false;     ///< !%p1
  bool is_address = false;  ///< [it + offset]; what: register, variable or integer
  std::size_t index = 0;
  std::uint64_t bits = 0;
  std::int64_t offset = 0;
  std::string_view name{};
  std::vector<Operand> elements{};
};

struct Instruction {
  int line = 0;
  std::string_view text{};  ///< as it stands in the source, with its guard
  std::string_view opcode{};
  std::vector<std::string_view> modifiers{};  ///< types among them, in order, without dots
  std::optional<Operand> guard{};             ///< a register, may be negated
  std::vector<Operand> operands{};
};

struct Function {
  std::string name{};
  bool is_entry = false;
  bool has_body = false;
  int line = 0;
  std::vector<Type> registers{};  ///< those of inner scopes, too
  /// Results, then parameters, then those of the body and its inner scopes.
  std::vector<Variable> variables{};
  std::size_t results = 0, parameters = 0;
  std::vector<Instruction> instructions{};
  std::map<std::string_view, std::size_t> labels{};  ///< the index of the instruction behind; may be the end
  std::optional<std::array<unsigned, 3>> most_threads{};  ///< .maxntid
  unsigned least_blocks = 1;                              ///< that a multiprocessor is to hold: .minnctapersm
};

struct Module {
  std::shared_ptr<const std::string> text{};  ///< what all string_views here point into
  unsigned major = 0, minor = 0;              ///< .version
  std::string target{};                       ///< "sm_90"
  unsigned address_bits = 0;
  std::vector<Variable> variables{};
  std::vector<Function> functions{};  ///< a declaration and its definition are one
};

/// Throws Error.
Module parse(std::string_view text);

}  // namespace virtual_gpu::ptx
