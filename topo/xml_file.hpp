// xml_file.hpp -- whole text files, as topology files are read and written.
#pragma once

#include <cstddef>
#include <string>

namespace loom::topo {

/// The file's text. Throws Error (kBadInput: there is none, it is not a plain file, it is larger than `limit`
/// bytes).
std::string read_text_file(const std::string& path, std::size_t limit = 16U << 20);
/// Replaces the file in one step, where links lead to if it is one; its rights stay. What is no regular file
/// (a device, a pipe), or is this program's output, is written to instead. Throws Error (kSystem,
/// kOutOfMemory), which names `path`; nothing is left behind then.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace loom::topo
