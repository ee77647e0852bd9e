// held.hpp -- what a process holds that could grow.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

namespace loom::test {

/// What a process holds.
struct Held {
  std::size_t files = 0, mappings = 0, names = 0, resident_kib = 0;

  static Held now() {
    Held result;
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd"))
      ++result.files;
    std::string line;
    for (std::ifstream maps("/proc/self/maps"); std::getline(maps, line);)
      result.mappings += line.find(" rw-s ") != std::string::npos;
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm"))
      result.names += file.path().filename().string().find("loom") != std::string::npos;
    for (std::ifstream status("/proc/self/status"); std::getline(status, line);)
      if (line.starts_with("VmRSS:")) result.resident_kib = std::stoul(line.substr(6));
    return result;
  }
};

}  // namespace loom::test
