// words.hpp -- words and numbers in text.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/format.hpp"

namespace loom::tools {

/// "1 channel", "2 channels".
template <class Count>
std::string counted(Count count, std::string_view what) {
  return loom::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// As a shell takes it: in quotes where it has to be.
inline std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:+-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text)
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  return quoted + "'";
}

/// "0-3,6" of ascending numbers.
inline std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += loom::format("{}", numbers[i]);
    if (end - i > 1) text += loom::format("-{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

/// "64K", "1G"; what is no multiple stays as it is.
inline std::string bytes_text(std::size_t bytes) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0; bytes /= 1024) ++unit;
  return loom::format("{}{}", bytes, kUnits[unit]);
}

/// All of `text`, or nothing.
template <class Number>
std::optional<Number> parsed(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace loom::tools
