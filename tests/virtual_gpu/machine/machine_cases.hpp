// machine_cases.hpp -- machines that the repository carries, and a folder for the state of a run.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/virtual_gpu/machine/machine.hpp"

namespace virtual_gpu::machine {

inline Machine carried(const std::string& name) {
  return Machine::from_file(std::string(LOOM_TEST_DATA "/") + name);
}

/// Sets a variable of the environment while it lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Environment() { ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

/// Gone again with the object.
class Folder {
 public:
  Folder() { std::filesystem::create_directories(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / ("virtual-gpu-" + std::to_string(::getpid()));
};

}  // namespace virtual_gpu::machine
