// residency.hpp -- how a grid gets places on a GPU, each for one block at a time.
#pragma once

#include <cstddef>
#include <functional>

namespace virtual_gpu::run {

/// Used by threads of one grid.
class Residency {
 public:
  virtual ~Residency() = default;
  /// Waits for one place at least, and takes as many as there are, up to `most`. 0: `given_up()`.
  virtual std::size_t take(std::size_t most, const std::function<bool()>& given_up) = 0;
  virtual void give_back() = 0;
};

}  // namespace virtual_gpu::run
