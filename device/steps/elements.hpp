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
///
/// Data that are only moved go as bytes, whatever their type. Theirs is a multiple of what the buffer is
/// aligned for, in most cases: a unit is assembled of pieces of that length, since one byte at a time would
/// take a GPU ten times as long.
template <class T, class Unit>
class Buffer {
 public:
  LOOM_HOST_DEVICE Buffer(T* at, std::size_t count) : at_(at), count_(count) {
    const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(at) | sizeof(Unit);
    alignment_ = static_cast<unsigned>(bits & (~bits + 1));
  }

  LOOM_HOST_DEVICE Unit load(std::size_t i) const {
    const std::size_t first = i * kElems;
    if (first + kElems <= count_) {
      const T* const at = at_ + first;
      if (alignment_ == sizeof(Unit)) return load_as<Unit>(at);
      if constexpr (kAreBytes) {
        if (alignment_ == 8) return load_as<std::uint64_t>(at);
        if (alignment_ == 4) return load_as<std::uint32_t>(at);
        if (alignment_ == 2) return load_as<std::uint16_t>(at);
      }
    }
    Elements<std::remove_const_t<T>, Unit> part = {};
    LOOM_UNROLL
    for (std::size_t k = 0; k < kElems; ++k)
      if (first + k < count_) part.elem[k] = at_[first + k];
    return __builtin_bit_cast(Unit, part);
  }
  LOOM_HOST_DEVICE void store(std::size_t i, Unit unit) const {
    const std::size_t first = i * kElems;
    if (first + kElems <= count_) {
      T* const at = at_ + first;
      if (alignment_ == sizeof(Unit)) return store_as<Unit>(at, unit);
      if constexpr (kAreBytes) {
        if (alignment_ == 8) return store_as<std::uint64_t>(at, unit);
        if (alignment_ == 4) return store_as<std::uint32_t>(at, unit);
        if (alignment_ == 2) return store_as<std::uint16_t>(at, unit);
      }
    }
    const auto part = __builtin_bit_cast(Elements<T, Unit>, unit);
    LOOM_UNROLL
    for (std::size_t k = 0; k < kElems; ++k)
      if (first + k < count_) at_[first + k] = part.elem[k];
  }

 private:
  static constexpr std::size_t kElems = elems_in<T, Unit>;
  static constexpr bool kAreBytes = std::is_same_v<std::remove_const_t<T>, std::uint8_t>;

  /// A whole unit, aligned for Piece.
  template <class Piece>
  LOOM_HOST_DEVICE static Unit load_as(const T* at) {
#ifdef __CUDA_ARCH__
    Elements<Piece, Unit> pieces;
    LOOM_UNROLL
    for (std::size_t k = 0; k < elems_in<Piece, Unit>; ++k)
      pieces.elem[k] = reinterpret_cast<const Piece*>(at)[k];
    return __builtin_bit_cast(Unit, pieces);
#else
    Unit unit;  // the program's elements are of another type
    std::memcpy(&unit, at, sizeof(unit));
    return unit;
#endif
  }
  template <class Piece>
  LOOM_HOST_DEVICE static void store_as(T* at, Unit unit) {
#ifdef __CUDA_ARCH__
    const auto pieces = __builtin_bit_cast(Elements<Piece, Unit>, unit);
    LOOM_UNROLL
    for (std::size_t k = 0; k < elems_in<Piece, Unit>; ++k) reinterpret_cast<Piece*>(at)[k] = pieces.elem[k];
#else
    std::memcpy(at, &unit, sizeof(unit));
#endif
  }

  T* at_;
  std::size_t count_;
  unsigned alignment_;  ///< of every unit: a power of two, of its length at the most
};

}  // namespace loom::device::steps
