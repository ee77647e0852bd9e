
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/format.hpp"
#include "tests/virtual_gpu/ptx/lexer.hpp"
#include "tests/virtual_gpu/ptx/module.hpp"

namespace virtual_gpu::ptx {

Error::Error(int line, const std::string& what)
    : std::runtime_error(loom::format("line {}: {}", line, what)), line_(line) {}

std::optional<Type> find_type(std::string_view name) {
  struct Named {
    std::string_view name;
    Type type;
  };
  static constexpr Named kTypes[] = {
      {"pred", {Kind::kPredicate, 1}},      {"b8", {Kind::kBits, 8}},
      {"b16", {Kind::kBits, 16}},           {"b32", {Kind::kBits, 32}},
      {"b64", {Kind::kBits, 64}},           {"u8", {Kind::kUnsigned, 8}},
      {"u16", {Kind::kUnsigned, 16}},       {"u32", {Kind::kUnsigned, 32}},
      {"u64", {Kind::kUnsigned, 64}},       {"s8", {Kind::kSigned, 8}},
      {"s16", {Kind::kSigned, 16}},         {"s32", {Kind::kSigned, 32}},
      {"s64", {Kind::kSigned, 64}},         {"f16", {Kind::kFloat, 16, false}},
      {"f16x2", {Kind::kFloat, 16, true}},  {"f32", {Kind::kFloat, 32}},
      {"f64", {Kind::kFloat, 64}},          {"bf16", {Kind::kBfloat, 16, false}},
      {"bf16x2", {Kind::kBfloat, 16, true}}};
  const auto* const found = std::ranges::find(kTypes, name, &Named::name);
  return found == std::end(kTypes) ? std::nullopt : std::optional(found->type);
}

namespace {

using What = Operand::What;

/// What names mean in a function, a parameter list or a pair of braces.
class Scope {
 public:
  /// False: the name is taken.
  bool add(std::string_view name, const Operand& meaning) { return names_.emplace(name, meaning).second; }
  /// name0, name1, ...: registers that follow one another.
  bool add_range(std::string_view name, std::size_t first, std::size_t count) {
    return ranges_.emplace(name, Range{first, count}).second;
  }
  std::optional<Operand> find(std::string_view name) const {
    if (const auto found = names_.find(name); found != names_.end()) return found->second;
    for (std::size_t digits = 1;
         digits < name.size() && name[name.size() - digits] >= '0' && name[name.size() - digits] <= '9';
         ++digits) {
      const std::string_view number = name.substr(name.size() - digits);
      const auto range = ranges_.find(name.substr(0, name.size() - digits));
      if (range == ranges_.end() || (digits > 1 && number[0] == '0')) continue;
      std::size_t index = range->second.count;
      std::from_chars(number.data(), number.data() + digits, index);
      if (index < range->second.count)
        return Operand{.what = What::kRegister, .index = range->second.first + index};
    }
    return std::nullopt;
  }

 private:
  struct Range {
    std::size_t first, count;
  };
  std::map<std::string, Operand, std::less<>> names_;
  std::map<std::string, Range, std::less<>> ranges_;
};

class Parser {
 public:
  explicit Parser(std::string_view text)
      : module_{.text = std::make_shared<const std::string>(text)}, lexer_(*module_.text) {
    token_ = lexer_.next();
  }
  Module parse();

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(token_.line, what); }
  [[noreturn]] void unexpected() const {
    fail(token_.what == Token::What::kEnd ? "the text ends too early"
                                          : loom::format("unexpected '{}'", token_.text));
  }
  Token take() {
    const Token taken = token_;
    token_ = lexer_.next();
    return taken;
  }
  Token take(Token::What what) {
    if (token_.what != what) unexpected();
    return take();
  }
  bool take_if(char sign) {
    if (!token_.is(sign)) return false;
    take();
    return true;
  }
  bool take_if(std::string_view dotted) {
    if (!token_.is_dotted(dotted)) return false;
    take();
    return true;
  }
  void expect(char sign) {
    if (!take_if(sign))
      fail(loom::format("'{}' where '{}' belongs", token_.what == Token::What::kEnd ? "the end" : token_.text,
                        sign));
  }

  void version();
  bool skipped();
  void skip_line();
  void module_item();
  void function(bool is_entry);
  void function_directives(Function& function);
  void parameters(std::size_t& count);
  void body();
  void registers();
  Variable variable(Space space, bool is_extern);
  void module_variable(Space space, bool is_extern);
  void inner_variable(Space space, bool is_extern);
  void initial(Variable& variable, std::size_t& at);
  void instruction(const std::optional<Token>& word);
  Operand operand();
  Operand address();
  Operand number(bool negative);
  std::uint64_t whole_number();
  std::int64_t offset();
  Operand meaning(const Token& word);
  void add_name(const Variable& variable, What what, std::size_t index);
  std::optional<Space> take_space();

  Module module_;
  Lexer lexer_;
  Token token_;
  std::vector<Scope> scopes_{1};  ///< the module's first
  Function* function_ = nullptr;
};

Module Parser::parse() {
  version();
  while (token_.what != Token::What::kEnd) module_item();
  for (const Function& function : module_.functions)
    if (function.is_entry && !function.has_body) throw Error(function.line, function.name + " has no body");
  return std::move(module_);
}

void Parser::version() {
  if (!take_if("version")) fail("PTX starts with .version");
  const std::string_view number = take(Token::What::kNumber).text;
  const std::size_t dot = number.find('.');
  if (dot == number.npos) fail(loom::format("'{}' is not a version", number));
  std::from_chars(number.data(), number.data() + dot, module_.major);
  std::from_chars(number.data() + dot + 1, number.data() + number.size(), module_.minor);
}

/// Drops what says nothing about what the program does.
bool Parser::skipped() {
  if (token_.is_dotted("loc") || token_.is_dotted("file")) {
    skip_line();
  } else if (take_if("pragma")) {
    while (!token_.is(';'))
      take(token_.what == Token::What::kString ? Token::What::kString : Token::What::kSign);
    expect(';');
  } else if (take_if("section")) {
    while (!token_.is('{')) take();
    for (int depth = 0; token_.what != Token::What::kEnd;) {
      depth += token_.is('{') - token_.is('}');
      take();
      if (depth == 0) return true;
    }
    unexpected();
  } else {
    return false;
  }
  return true;
}

void Parser::skip_line() {
  for (const int line = token_.line; token_.what != Token::What::kEnd && token_.line == line;) take();
}

std::optional<Space> Parser::take_space() {
  constexpr std::pair<std::string_view, Space> kSpaces[] = {{"global", Space::kGlobal},
                                                            {"const", Space::kConst},
                                                            {"shared", Space::kShared},
                                                            {"local", Space::kLocal},
                                                            {"param", Space::kParam}};
  for (const auto& [name, space] : kSpaces)
    if (take_if(name)) return space;
  return std::nullopt;
}

void Parser::module_item() {
  if (skipped()) return;
  if (take_if("target")) {
    module_.target = take(Token::What::kWord).text;
    while (take_if(',')) take(Token::What::kWord);
  } else if (take_if("address_size")) {
    module_.address_bits = static_cast<unsigned>(whole_number());
    if (module_.address_bits != 64) fail("addresses of 64 bits alone are known");
  } else {
    const bool is_extern = token_.is_dotted("extern");
    if (is_extern || token_.is_dotted("visible") || token_.is_dotted("weak") || token_.is_dotted("common"))
      take();
    if (take_if("entry"))
      function(true);
    else if (take_if("func"))
      function(false);
    else if (const auto space = take_space(); space && *space != Space::kParam && *space != Space::kLocal)
      module_variable(*space, is_extern);
    else
      unexpected();
  }
}

void Parser::module_variable(Space space, bool is_extern) {
  module_.variables.push_back(variable(space, is_extern));
  add_name(module_.variables.back(), What::kModuleVariable, module_.variables.size() - 1);
  expect(';');
}

void Parser::add_name(const Variable& variable, What what, std::size_t index) {
  if (!scopes_.back().add(variable.name, Operand{.what = what, .index = index}))
    throw Error(variable.line, variable.name + " is there already");
}

/// [.align n] [.v2] .type [.ptr [.space] [.align n]] name [dimensions] [= initial]
Variable Parser::variable(Space space, bool is_extern) {
  Variable result{.space = space, .is_extern = is_extern, .line = token_.line};
  std::size_t align = 0, elems = 1;
  while (token_.is_dotted("align") || token_.is_dotted("v2") || token_.is_dotted("v4")) {
    const std::string_view what = take().text;
    if (what == "align")
      align = whole_number();
    else
      elems = what == "v2" ? 2 : 4;
  }
  const Token type = take(Token::What::kDotted);
  if (const auto found = find_type(type.text); found && found->kind != Kind::kPredicate)
    result.type = *found;
  else
    throw Error(type.line, loom::format("a variable cannot be of type .{}", type.text));
  if (take_if("ptr")) {  // says where the parameter points to
    take_space();
    if (take_if("align")) whole_number();
  }
  result.name = take(Token::What::kWord).text;
  bool has_size = true;
  while (take_if('[')) {
    if (token_.is(']'))
      has_size = false;
    else
      elems *= whole_number();
    expect(']');
  }
  result.align = align != 0 ? align : result.type.bytes();
  if (!std::has_single_bit(result.align)) fail("an alignment is a power of two");
  if (has_size) result.bytes = elems * result.type.bytes();
  if (!has_size && !token_.is('=') && !is_extern) fail(result.name + " has no size");
  if (take_if('=')) {
    if (!has_size) fail("an initial value needs a size");
    result.initial.resize(result.bytes);
    std::size_t at = 0;
    initial(result, at);
  }
  return result;
}

void Parser::initial(Variable& variable, std::size_t& at) {
  if (take_if('{')) {
    do {
      if (!token_.is('}')) initial(variable, at);
    } while (take_if(','));
    expect('}');
    return;
  }
  const bool negative = take_if('-');
  if (token_.what != Token::What::kNumber) fail("an initial value is a number; addresses are not known");
  Operand value = number(negative);
  if (value.what == What::kFloat64 && variable.type == Type{Kind::kFloat, 32})
    value.bits = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(value.bits)));
  if (at + variable.type.bytes() > variable.bytes) fail("more initial values than elements");
  std::memcpy(variable.initial.data() + at, &value.bits, variable.type.bytes());
  at += variable.type.bytes();
}

/// What follows .entry or .func.
void Parser::function(bool is_entry) {
  Function read{.is_entry = is_entry, .line = token_.line};
  function_ = &read;
  scopes_.emplace_back();
  if (!is_entry && token_.is('(')) parameters(read.results);
  read.name = take(Token::What::kWord).text;
  if (token_.is('(')) parameters(read.parameters);
  function_directives(read);
  if (token_.is('{')) {
    read.has_body = true;
    body();
  } else {
    expect(';');
  }
  scopes_.pop_back();
  function_ = nullptr;

  for (Function& declared : module_.functions) {
    if (declared.name != read.name) continue;
    if (declared.has_body && read.has_body) throw Error(read.line, read.name + " is there already");
    if (read.has_body) declared = std::move(read);
    return;
  }
  module_.functions.push_back(std::move(read));
}

void Parser::parameters(std::size_t& count) {
  expect('(');
  while (!token_.is(')')) {
    if (!take_if("param")) fail("parameters lie in .param space");
    function_->variables.push_back(variable(Space::kParam, false));
    add_name(function_->variables.back(), What::kVariable, function_->variables.size() - 1);
    ++count;
    if (!token_.is(')')) expect(',');
  }
  expect(')');
}

void Parser::function_directives(Function& function) {
  while (token_.what == Token::What::kDotted) {
    if (skipped() || take_if("noreturn")) continue;
    const Token directive = take();
    if (directive.text == "maxntid" || directive.text == "reqntid") {
      std::array<unsigned, 3> most{1, 1, 1};
      std::size_t i = 0;
      do {
        if (i == most.size()) fail("three numbers at most");
        most[i++] = static_cast<unsigned>(whole_number());
      } while (take_if(','));
      function.most_threads = most;
    } else if (directive.text == "minnctapersm") {
      function.least_blocks = static_cast<unsigned>(whole_number());
    } else if (directive.text == "maxnreg" || directive.text == "maxnctapersm") {
      whole_number();  // for a compiler
    } else {
      throw Error(directive.line, loom::format("unknown directive .{}", directive.text));
    }
  }
}

void Parser::body() {
  expect('{');
  scopes_.emplace_back();
  while (!token_.is('}')) {
    if (token_.what == Token::What::kEnd) unexpected();
    if (token_.is('{')) {
      body();
    } else if (skipped()) {
      continue;
    } else if (take_if("reg")) {
      registers();
    } else if (token_.what == Token::What::kDotted) {
      const bool is_extern = take_if("extern");
      const auto space = take_space();
      if (!space) fail(loom::format("unknown directive .{}", token_.text));
      inner_variable(*space, is_extern);
    } else if (token_.is('@')) {
      instruction(std::nullopt);
    } else {
      const Token word = take(Token::What::kWord);
      if (!take_if(':'))
        instruction(word);
      else if (!function_->labels.emplace(word.text, function_->instructions.size()).second)
        throw Error(word.line, loom::format("the label {} is there already", word.text));
    }
  }
  take();
  scopes_.pop_back();
}

void Parser::inner_variable(Space space, bool is_extern) {
  if (space == Space::kGlobal || space == Space::kConst) fail("such a variable belongs outside of functions");
  function_->variables.push_back(variable(space, is_extern));
  add_name(function_->variables.back(), What::kVariable, function_->variables.size() - 1);
  expect(';');
}

void Parser::registers() {
  const Token dotted = take(Token::What::kDotted);
  const auto type = find_type(dotted.text);
  if (!type) throw Error(dotted.line, loom::format("a register cannot be of type .{}", dotted.text));
  do {
    const Token name = take(Token::What::kWord);
    const std::size_t first = function_->registers.size();
    bool is_new;
    if (take_if('<')) {
      const std::size_t count = whole_number();
      if (count > 1'000'000) fail("too many registers");
      expect('>');
      is_new = scopes_.back().add_range(name.text, first, count);
      function_->registers.resize(first + count, *type);
    } else {
      is_new = scopes_.back().add(name.text, Operand{.what = What::kRegister, .index = first});
      function_->registers.push_back(*type);
    }
    if (!is_new) throw Error(name.line, loom::format("{} is there already", name.text));
  } while (take_if(','));
  expect(';');
}

/// [@[!]p] opcode.modifiers operands;  `word`: the opcode, if it was taken already.
void Parser::instruction(const std::optional<Token>& word) {
  Instruction result{.line = word ? word->line : token_.line};
  const char* const begin = word ? word->text.data() : token_.text.data();
  if (!word) {
    expect('@');
    const bool negated = take_if('!');
    Operand guard = meaning(take(Token::What::kWord));
    if (guard.what != What::kRegister || function_->registers[guard.index].kind != Kind::kPredicate)
      fail("a guard is a predicate");
    guard.negated = negated;
    result.guard = guard;
  }
  result.opcode = word ? word->text : take(Token::What::kWord).text;
  while (token_.what == Token::What::kDotted) result.modifiers.push_back(take().text);
  if (!token_.is(';')) {
    do {
      result.operands.push_back(operand());
    } while (take_if(','));
  }
  result.text = {begin, static_cast<std::size_t>(token_.text.data() - begin)};
  expect(';');
  function_->instructions.push_back(std::move(result));
}

Operand Parser::operand() {
  const bool vector = token_.is('{'), list = token_.is('(');
  if (vector || list) {
    take();
    Operand result{.what = vector ? What::kVector : What::kList};
    const char end = vector ? '}' : ')';
    while (!token_.is(end)) {
      result.elements.push_back(operand());
      if (!token_.is(end)) expect(',');
    }
    take();
    return result;
  }
  if (take_if('[')) return address();
  if (take_if('!')) {
    Operand result = meaning(take(Token::What::kWord));
    result.negated = true;
    return result;
  }
  if (take_if('-')) return number(true);
  if (token_.what == Token::What::kNumber) return number(false);
  Operand result = meaning(take(Token::What::kWord));
  result.offset = offset();
  return result;
}

Operand Parser::address() {
  Operand result = token_.what == Token::What::kNumber ? number(false) : meaning(take(Token::What::kWord));
  if (result.what != What::kRegister && result.what != What::kVariable && result.what != What::kInteger &&
      result.what != What::kModuleVariable)
    fail(loom::format("{} is no address", result.name));
  result.is_address = true;
  result.offset = offset();
  expect(']');
  return result;
}

/// [+ n], [- n], [+ -n]
std::int64_t Parser::offset() {
  const bool plus = take_if('+'), minus = take_if('-');
  if (!plus && !minus) return 0;
  const auto value = static_cast<std::int64_t>(whole_number());
  return minus ? -value : value;
}

std::uint64_t Parser::whole_number() {
  const Operand result = number(false);
  if (result.what != What::kInteger) fail("a whole number belongs here");
  return result.bits;
}

Operand Parser::number(bool negative) {
  const Token token = take(Token::What::kNumber);
  std::string_view text = token.text;
  const auto read = [&](std::string_view digits, int base) {
    std::uint64_t bits = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, base);
    if (error != std::errc{} || end != digits.data() + digits.size())
      throw Error(token.line, loom::format("'{}' is not a number", token.text));
    return bits;
  };
  const char kind = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : ' ';
  if (kind == 'f' || kind == 'd') {
    const bool is_float = kind == 'f';
    if (negative || text.size() != (is_float ? 10U : 18U))
      throw Error(token.line, loom::format("'{}' is not a number", token.text));
    return {.what = is_float ? What::kFloat32 : What::kFloat64, .bits = read(text.substr(2), 16)};
  }
  if (kind != 'x' && text.find_first_of(".eE") != text.npos) {
    const std::string copy(text);
    char* end = nullptr;
    const double value = std::strtod(copy.c_str(), &end);
    if (end != copy.c_str() + copy.size())
      throw Error(token.line, loom::format("'{}' is not a number", token.text));
    return {.what = What::kFloat64, .bits = std::bit_cast<std::uint64_t>(negative ? -value : value)};
  }
  if (text.ends_with('U')) text.remove_suffix(1);
  const std::uint64_t bits = kind == 'x'      ? read(text.substr(2), 16)
                             : kind == 'b'    ? read(text.substr(2), 2)
                             : text[0] == '0' ? read(text, 8)
                                              : read(text, 10);
  return {.what = What::kInteger, .bits = negative ? 0 - bits : bits};
}

Operand Parser::meaning(const Token& word) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(word.text)) return *found;
  if (word.text == "_") return {.what = What::kSink};
  if (word.text == "WARP_SZ") return {.what = What::kInteger, .bits = 32};
  if (word.text[0] != '%') return {.what = What::kName, .name = word.text};
  // %tid.x: the parts stand side by side in the text.
  std::string_view name = word.text;
  if (token_.what == Token::What::kDotted && token_.text.data() == name.data() + name.size() + 1)
    name = {name.data(), name.size() + 1 + take().text.size()};
  return {.what = What::kSpecial, .name = name};
}

}  // namespace

Module parse(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace virtual_gpu::ptx
