// elements.hpp -- elements of any type as vectors and words: loaded, stored and reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/reduce/operations.hpp"
#include "device/steps/memory.hpp"

namespace loom::device::steps {

/// For data that is only moved.
struct NoOperation {
  template <class T>
  LOOM_HOST_DEVICE T operator()(T a, T) const {
    return a;
  }
};

/// A GPU has no long double, alone or in complex numbers and pairs: it would silently compute in double.
template <class T>
inline constexpr bool on_device =
    !std::is_same_v<T, long double> && !std::is_same_v<T, Complex<long double>> &&
    !std::is_same_v<T, Pair<long double, int>>;

/// Unit: Vector or Word.
template <class T, class Unit>
inline constexpr std::size_t elems_in = sizeof(Unit) / sizeof(T);

template <class T, class Unit>
struct Elements {
  T elem[elems_in<T, Unit>];
};

template <class Operation, class T, class Unit>
LOOM_HOST_DEVICE Unit combine(Unit a, Unit b) {
  static_assert(sizeof(Elements<T, Unit>) == sizeof(Unit));
  const auto x = __builtin_bit_cast(Elements<T, Unit>, a), y = __builtin_bit_cast(Elements<T, Unit>, b);
  Elements<T, Unit> result;
  LOOM_UNROLL
  for (std::size_t i = 0; i < elems_in<T, Unit>; ++i) result.elem[i] = Operation{}(x.elem[i], y.elem[i]);
  return __builtin_bit_cast(Unit, result);
}

/// The program's elements, aligned for their type alone, as units. The last unit may be partial.
template <class T, class Unit>
class Buffer {
 public:
  LOOM_HOST_DEVICE Buffer(T* at, std::size_t count)
      : at_(at), count_(count), aligned_(reinterpret_cast<std::uintptr_t>(at) % alignof(Unit) == 0) {}

  LOOM_HOST_DEVICE Unit load(std::size_t i) const {
    const std::size_t first = i * kElems;
    if (aligned_ && first + kElems <= count_) {
#ifdef __CUDA_ARCH__
      return reinterpret_cast<const Unit*>(at_)[i];
#else
      Unit unit;  // the program's elements are of another type
      std::memcpy(&unit, at_ + first, sizeof(unit));
      return unit;
#endif
    }
    Elements<std::remove_const_t<T>, Unit> part = {};
    LOOM_UNROLL
    for (std::size_t k = 0; k < kElems; ++k)
      if (first + k < count_) part.elem[k] = at_[first + k];
    return __builtin_bit_cast(Unit, part);
  }
  LOOM_HOST_DEVICE void store(std::size_t i, Unit unit) const {
    const std::size_t first = i * kElems;
    if (aligned_ && first + kElems <= count_) {
#ifdef __CUDA_ARCH__
      reinterpret_cast<Unit*>(at_)[i] = unit;
#else
      std::memcpy(at_ + first, &unit, sizeof(unit));
#endif
      return;
    }
    const auto part = __builtin_bit_cast(Elements<T, Unit>, unit);
    LOOM_UNROLL
    for (std::size_t k = 0; k < kElems; ++k)
      if (first + k < count_) at_[first + k] = part.elem[k];
  }

 private:
  static constexpr std::size_t kElems = elems_in<T, Unit>;
  T* at_;
  std::size_t count_;
  bool aligned_;
};

}  // namespace loom::device::steps
