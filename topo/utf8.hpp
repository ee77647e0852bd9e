// utf8.hpp -- text as characters. Whatever is printed, drawn or written is UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace loom::topo {

/// The longest beginning of `text` that is UTF-8 (RFC 3629: no surrogates, nothing longer than needed).
std::string_view valid_utf8(std::string_view text);

/// At most `count` characters from the beginning of UTF-8 `text`.
std::string_view first_characters(std::string_view text, std::size_t count);

/// How many characters UTF-8 `text` has.
std::size_t character_count(std::string_view text);

}  // namespace loom::topo
