// elf_file.hpp -- whether a shared library is whole. The loader does not look: what a truncated file lacks is
// a SIGBUS for whoever loads it.
#pragma once

#include <string>

namespace loom::tools {

/// Half a sentence; empty: nothing is missing, as far as its headers say.
std::string damage_of(const std::string& path);

}  // namespace loom::tools
