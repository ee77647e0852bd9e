#include "tests/virtual_gpu/ptx/lexer.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "tests/virtual_gpu/ptx/module.hpp"

namespace virtual_gpu::ptx {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_in_word(char c) {
  return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}

}  // namespace

void Lexer::skip_blanks() {
  while (at_ < text_.size()) {
    if (text_[at_] == '\n') {
      ++line_;
      ++at_;
    } else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r') {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.substr(at_, 2) == "/*") {
      const std::size_t end = text_.find("*/", at_);
      if (end == text_.npos) throw Error(line_, "the comment has no end");
      for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n';
    } else {
      return;
    }
  }
}

template <class Belongs>
std::string_view Lexer::take_while(Belongs&& belongs) {
  const std::size_t begin = at_;
  while (at_ < text_.size() && belongs(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

Token Lexer::next() {
  skip_blanks();
  Token token{.what = Token::What::kEnd, .text = text_.substr(at_, 0), .line = line_};
  if (at_ == text_.size()) return token;
  const char first = text_[at_];
  if (is_digit(first)) {
    token.what = Token::What::kNumber;
    // 0x1F, 0f3F800000, 12U, 9.0, 1.5e-3. An E in hexadecimal digits is no exponent.
    const bool decimal =
        at_ + 1 == text_.size() || !is_letter(text_[at_ + 1]) || (text_[at_ + 1] | 0x20) == 'e';
    char previous = ' ';
    token.text = take_while([&](char c) {
      const bool of_exponent = decimal && (c == '-' || c == '+') && (previous | 0x20) == 'e';
      previous = c;
      return is_digit(c) || is_letter(c) || c == '.' || of_exponent;
    });
  } else if (first == '.') {
    ++at_;
    token.what = Token::What::kDotted;
    token.text = take_while([](char c) { return is_in_word(c) || c == ':'; });  // .L2::128B
    if (token.text.empty()) throw Error(line_, "a dot without a name");
  } else if (is_letter(first) || first == '_' || first == '$' || first == '%') {
    token.what = Token::What::kWord;
    token.text = text_.substr(at_++, 1);
    token.text = {token.text.data(), 1 + take_while(is_in_word).size()};
  } else if (first == '"') {
    token.what = Token::What::kString;
    ++at_;
    token.text = take_while([](char c) { return c != '"' && c != '\n'; });
    if (text_.substr(at_, 1) != "\"") throw Error(line_, "the string has no end");
    ++at_;
  } else if (std::string_view("{}()[]<>,;:=+-@!|").find(first) != std::string_view::npos) {
    token.what = Token::What::kSign;
    token.text = text_.substr(at_++, 1);
  } else {
    throw Error(line_, loom::format("unexpected '{}'", first));
  }
  return token;
}

}  // namespace virtual_gpu::ptx
