// lexer.hpp -- PTX as tokens.
#pragma once

#include <string_view>

namespace virtual_gpu::ptx {

struct Token {
  enum class What {
    kWord,    ///< a name, also one that starts with %, $ or _
    kDotted,  ///< a directive or a modifier; without its dot
    kNumber,
    kString,  ///< without quotes
    kSign,    ///< one character
    kEnd
  };
  What what = What::kEnd;
  std::string_view text;
  int line = 1;

  bool is(char sign) const { return what == What::kSign && text[0] == sign; }
  bool is_dotted(std::string_view name) const { return what == What::kDotted && text == name; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  /// Throws Error for a character that PTX does not have.
  Token next();

 private:
  void skip_blanks();
  template <class Belongs>
  std::string_view take_while(Belongs&& belongs);

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace virtual_gpu::ptx
