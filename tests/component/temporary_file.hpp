// temporary_file.hpp -- a folder for files that ranks of a test read or write.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace loom::test {

/// Its folder lasts as long as the test.
class WithFiles : public ::testing::Test {
 protected:
  WithFiles() {
    std::string pattern = ::testing::TempDir() + "loom-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr)
      throw std::system_error(errno, std::generic_category(), pattern);
    folder_ = pattern;
  }
  ~WithFiles() override { std::filesystem::remove_all(folder_); }

  /// The path of a file with this text; with none, of a file that is not there.
  std::string temporary(const char* name, const std::string& text = "") const {
    const std::string path = folder_ / name;
    if (!text.empty()) std::ofstream(path) << text;
    return path;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace loom::test
