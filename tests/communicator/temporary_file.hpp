// temporary_file.hpp -- files that ranks of a test read or write.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace loom::test {

/// The path of a file with this text; with none, of a file that is not there.
inline std::string temporary(const char* name, const std::string& text = "") {
  const std::string path = ::testing::TempDir() + name;
  std::filesystem::remove(path);
  if (!text.empty()) std::ofstream(path) << text;
  return path;
}

}  // namespace loom::test
