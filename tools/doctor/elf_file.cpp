#include "tools/doctor/elf_file.hpp"

#include <elf.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/format.hpp"

namespace loom::tools {
namespace {

template <class Header>
bool read_at(std::ifstream& file, std::uint64_t place, Header& header) {
  file.seekg(static_cast<std::streamoff>(place));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&header), sizeof(header)));
}

/// The bytes that the headers speak of. The section headers come last in what linkers write.
std::uint64_t bytes_of(std::ifstream& file, const Elf64_Ehdr& head) {
  std::uint64_t bytes = head.e_shoff + std::uint64_t{head.e_shnum} * head.e_shentsize;
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    const std::uint64_t place = head.e_phoff + std::uint64_t{i} * head.e_phentsize;
    bytes = std::max(bytes, place + sizeof(segment));
    if (read_at(file, place, segment)) bytes = std::max(bytes, segment.p_offset + segment.p_filesz);
    file.clear();
  }
  return bytes;
}

}  // namespace

std::string damage_of(const std::string& path) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (error || !file)
    return loom::format("it cannot be read: {}",
                        error ? error.message() : std::generic_category().message(errno));
  Elf64_Ehdr head;
  if (!read_at(file, 0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64)
    return "it is no shared library";
  const std::uint64_t whole = bytes_of(file, head);
  return bytes < whole ? loom::format("it has {} of {} bytes", bytes, whole) : "";
}

}  // namespace loom::tools
