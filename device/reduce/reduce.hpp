// reduce.hpp -- the type x operation table of the host.
#pragma once

#include <array>
#include <cstddef>

#include "device/reduce/operations.hpp"

namespace loom::device {

/// out[i] = a[i] op b[i] for i in [0, count). No alignment is required. `out` may be `a` or `b`; otherwise
/// the three do not overlap. Bytes of an element that belong to no value (the padding of long double and of
/// pairs) may be anything.
using ReduceFn = void (*)(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count);

/// nullptr where MPI does not define the operation on the type. The same bits on every CPU: no instruction
/// set that is chosen at run time changes how a result is rounded.
ReduceFn find_reduce(Op op, Type type) noexcept;
inline bool supports(Op op, Type type) noexcept {
  return find_reduce(op, type) != nullptr;
}

inline constexpr auto kTypeSizes = []<class... T>(std::tuple<T...>*) {
  return std::array{sizeof(T)...};
}(static_cast<Types*>(nullptr));

inline constexpr auto kTypeAlignments = []<class... T>(std::tuple<T...>*) {
  return std::array{alignof(T)...};
}(static_cast<Types*>(nullptr));

/// Bytes from one element to the next: MPI's extent.
constexpr std::size_t size_of(Type type) noexcept {
  return kTypeSizes[static_cast<std::size_t>(type)];
}

/// Kernels need it; the CPU does without.
inline bool is_aligned(Type type, const void* elements) noexcept {
  return reinterpret_cast<std::uintptr_t>(elements) % kTypeAlignments[static_cast<std::size_t>(type)] == 0;
}

/// The instruction set that the table's loops were compiled for, chosen when it is first asked for: "AVX3",
/// "AVX2", ...
const char* reduce_target() noexcept;

}  // namespace loom::device
