// test_data.hpp -- topology files of this folder, and those of a folder beside the repository where it is
// there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/nccl_xml.hpp"

namespace loom::topo {

inline std::string data_file(const std::string& name) {
  return std::string(LOOM_TEST_DATA "/") + name;
}

/// Empty where the folder is absent.
inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent))
    if (entry.path().extension() == ".xml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// All that there are: our own, and the shared ones.
inline std::vector<std::filesystem::path> all_files() {
  std::vector<std::filesystem::path> files = files_in(LOOM_TEST_DATA);
  for (auto& path : files_in(LOOM_SHARED_TOPOLOGIES)) files.push_back(path);
  return files;
}

/// What reading `text` complains of; "" if nothing.
inline std::string complaint_about(const std::string& text) {
  try {
    parse_system(text, "f.xml");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadInput);
    return error.what();
  }
}

}  // namespace loom::topo
