// module.hpp -- a loaded module: its program, variables and kernels.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/virtual_gpu/driver/driver.hpp"
#include "tests/virtual_gpu/run/launch.hpp"

namespace virtual_gpu {

/// CUfunction
struct Function {
  Module* module;
  const run::Entry* entry;
  std::size_t most_dynamic = kSharedOfBlock;  ///< bytes of dynamic shared memory that a launch may ask for
};

/// CUmodule
struct Module {
  Context* context;
  unsigned version = 0;  ///< 90 of PTX 9.0
  std::shared_ptr<const run::Program> program = {};
  std::map<std::string, AllocationPtr> variables = {};
  std::map<std::string, std::unique_ptr<Function>> functions = {};
};

}  // namespace virtual_gpu
