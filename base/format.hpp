// format.hpp -- text from values, by {fmt}. Its code is compiled once, in format.cpp: files that format stay
// cheap to compile, nothing needs its library, and no symbol of it meets the application's.
#pragma once

#if __has_include(<fmt/base.h>)
#include <fmt/base.h>
#else
#include <fmt/core.h>  // what base.h is called before fmt 11
#endif

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace loom {

/// Checked against the types of the values as it is compiled.
template <class... T>
using FormatString = fmt::format_string<T...>;

namespace compiled {
template <class Checked>
fmt::string_view text_of(const Checked& checked) {
  if constexpr (requires { checked.get(); })  // since fmt 10
    return checked.get();
  else
    return checked;
}
std::string format(fmt::string_view text, fmt::format_args values);
void format_into(char* room, std::size_t bytes, fmt::string_view text, fmt::format_args values);
void print(std::FILE* file, fmt::string_view text, fmt::format_args values);
}  // namespace compiled

template <class... T>
std::string format(FormatString<T...> text, T&&... values) {
  return compiled::format(compiled::text_of(text), fmt::make_format_args(values...));
}

/// What does not fit is cut off; the text ends with '\0' always.
template <std::size_t kBytes, class... T>
void format_into(char (&room)[kBytes], FormatString<T...> text, T&&... values) {
  compiled::format_into(room, kBytes, compiled::text_of(text), fmt::make_format_args(values...));
}

template <class... T>
void print(std::FILE* file, FormatString<T...> text, T&&... values) {  // failed: see ferror(), no exception
  compiled::print(file, compiled::text_of(text), fmt::make_format_args(values...));
}

template <class... T>
void print(FormatString<T...> text, T&&... values) {
  compiled::print(stdout, compiled::text_of(text), fmt::make_format_args(values...));
}

/// Each value as "{}" shows it.
template <class Range>
std::string join(const Range& values, std::string_view between) {
  std::string text;
  bool first = true;
  for (const auto& value : values) {
    if (!first) text += between;
    text += loom::format("{}", value);  // not std::format, which std::string would bring in too
    first = false;
  }
  return text;
}

}  // namespace loom
