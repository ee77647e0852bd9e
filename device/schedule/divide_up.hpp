// divide_up.hpp -- how many pieces, tiles or slots something takes; on hosts and devices.
#pragma once

#include <cstddef>

#include "device/reduce/operations.hpp"

namespace loom::device {

/// How many pieces of b hold a: a / b, rounded up.
LOOM_HOST_DEVICE constexpr std::size_t divide_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

}  // namespace loom::device
