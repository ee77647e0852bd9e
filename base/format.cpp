// The one file that compiles fmt's code.
#define FMT_HEADER_ONLY
#include "base/format.hpp"

#include <fmt/format.h>

namespace loom::compiled {

// Inline functions of fmt's small header call it in files without NDEBUG; here, it may be inlined itself.
[[gnu::used]] static auto* called_elsewhere() {
  using namespace fmt::detail;
  using namespace fmt;  // its place since fmt 12
  return &assert_fail;
}

std::string format(fmt::string_view text, fmt::format_args values) {
  return fmt::vformat(text, values);
}

void format_into(char* room, std::size_t bytes, fmt::string_view text, fmt::format_args values) {
  *fmt::vformat_to_n(room, bytes - 1, text, values).out = '\0';
}

void print(std::FILE* file, fmt::string_view text, fmt::format_args values) {
  const std::string whole = fmt::vformat(text, values);
  (void)std::fwrite(whole.data(), 1, whole.size(), file);  // fmt::vprint would throw
}

}  // namespace loom::compiled
