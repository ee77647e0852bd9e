// words.hpp -- small words of messages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace loom::tools {

/// "1 channel", "2 channels".
template <class Count>
std::string counted(Count count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace loom::tools
