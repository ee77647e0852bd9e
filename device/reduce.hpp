// reduce.hpp -- the type x operation table of the host.
#pragma once

#include <cstddef>

#include "device/operations.hpp"

namespace loom::device {

/// out[i] = a[i] op b[i] for i in [0, count). No alignment is required. `out` may be `a` or `b`; otherwise the three do
/// not overlap.
using ReduceFn = void (*)(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count);

/// nullptr where MPI does not define the operation on the type.
ReduceFn find_reduce(Op op, Type type) noexcept;

std::size_t size_of(Type type) noexcept;

}  // namespace loom::device
