// kernel.hpp -- short kernels for tests.
#pragma once

#include <optional>
#include <string>

#include "tests/virtual_gpu/run/launch.hpp"
#include "tests/virtual_gpu/test_space.hpp"

namespace virtual_gpu::run {

/// A program with one kernel `k` of some 64-bit parameters p0, p1, ... The body finds registers of every
/// kind, and its parameters in %p0 and on.
class Kernel {
 public:
  explicit Kernel(const std::string& body, std::size_t parameters = 0, const std::string& before = "")
      : program_(ptx::parse(text(body, parameters, before))) {}

  void run(TestSpace& space, const Dim& grid, const Dim& block, std::vector<std::uint64_t> parameters = {},
           const Settings& settings = {}, unsigned dynamic_shared_bytes = 0) const {
    const std::atomic<bool> never = false;
    run(space, grid, block, std::move(parameters), settings, dynamic_shared_bytes, never);
  }
  void run(TestSpace& space, const Dim& grid, const Dim& block, std::vector<std::uint64_t> parameters,
           const Settings& settings, unsigned dynamic_shared_bytes, const std::atomic<bool>& stop) const {
    virtual_gpu::run::run(program_, *program_.find("k"),
                          {grid, block, dynamic_shared_bytes, std::as_bytes(std::span(parameters))}, space,
                          settings, stop);
  }
  const Entry& entry() const { return *program_.find("k"); }

  static std::string text(const std::string& body, std::size_t parameters, const std::string& before) {
    std::string list, loads;
    for (std::size_t i = 0; i < parameters; ++i) {
      const std::string n = std::to_string(i);
      list += (i > 0 ? ", " : "") + (".param .u64 p" + n);
      loads += "ld.param.u64 %p" + n + ", [p" + n + "];\n";
    }
    return ".version 9.0\n.target sm_90\n.address_size 64\n" + before + "\n.visible .entry k(" + list +
           ")\n{\n.reg .pred %q<10>; .reg .b16 %h<10>; .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .f32 %f<10>; "
           ".reg .f64 %e<10>; .reg .b64 %p<8>;\n" +
           loads + body + "\nret;\n}\n";
  }

 private:
  Program program_;
};

}  // namespace virtual_gpu::run
