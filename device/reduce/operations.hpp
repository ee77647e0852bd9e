// operations.hpp -- the operations and element types that have kernels: one list for host and CUDA.
#pragma once

#include <concepts>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "device/reduce/element_types.hpp"

namespace loom::device {

enum class Op { kSum, kProd, kMin, kMax, kLand, kLor, kLxor, kBand, kBor, kBxor, kMinloc, kMaxloc };
inline constexpr int kOpCount = 12;

enum class Type {
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat,
  kDouble,
  kLongDouble,
  kHalf,
  kBfloat16,
  kComplexFloat,
  kComplexDouble,
  kComplexLongDouble,
  kFloatInt,
  kDoubleInt,
  kLongInt,
  kIntInt,
  kShortInt,
  kLongDoubleInt,
  kFloatFloat,
  kDoubleDouble
};
inline constexpr int kTypeCount = 24;

/// The C++ type of each Type, in its order. Pairs are laid out as MPI 4.1, section 6.9.4, has them in C.
using Types = std::tuple<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t,
                         std::uint32_t, std::uint64_t, float, double, long double, Half, Bfloat16,
                         Complex<float>, Complex<double>, Complex<long double>, Pair<float, int>,
                         Pair<double, int>, Pair<std::int64_t, int>, Pair<int, int>, Pair<std::int16_t, int>,
                         Pair<long double, int>, Pair<float, float>, Pair<double, double>>;
static_assert(std::tuple_size_v<Types> == kTypeCount);

/// Which operation takes which type (MPI 4.1, sections 6.9.2 and 6.9.4).
template <class T>
concept Integer = std::is_integral_v<T>;
template <class T>
concept Real = std::is_floating_point_v<T>;
template <class T>
concept ShortReal = std::same_as<T, Half> || std::same_as<T, Bfloat16>;
template <class T>
concept Ordered = Integer<T> || Real<T> || ShortReal<T>;

/// Integer arithmetic wraps, signed too: computed without sign, in at least the width that C would promote
/// to.
template <Integer T>
using Wrapping = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;

struct Sum {
  template <Integer T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
  template <Real T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
  template <ShortReal T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return T::from_float(a.to_float() + b.to_float());
  }
  template <Real T>
  LOOM_HOST_DEVICE Complex<T> operator()(Complex<T> a, Complex<T> b) const {
    return {a.re + b.re, a.im + b.im};
  }
};
struct Prod {
  template <Integer T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
  template <Real T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return a * b;
  }
  template <ShortReal T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return T::from_float(a.to_float() * b.to_float());
  }
  /// The textbook formula: an infinite operand may give NaN where C's operator would recover an infinity.
  template <Real T>
  LOOM_HOST_DEVICE Complex<T> operator()(Complex<T> a, Complex<T> b) const {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};
struct Min {
  template <Ordered T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <Ordered T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

struct Land {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const {
    return static_cast<decltype(a)>(a && b);
  }
};
struct Lor {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const {
    return static_cast<decltype(a)>(a || b);
  }
};
struct Lxor {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const {
    return static_cast<decltype(a)>(!a != !b);
  }
};
struct Band {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const {
    return static_cast<decltype(a)>(a & b);
  }
};
struct Bor {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const {
    return static_cast<decltype(a)>(a | b);
  }
};
struct Bxor {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const {
    return static_cast<decltype(a)>(a ^ b);
  }
};

/// Of equal values the lower index (the second of the pair) wins.
struct Minloc {
  template <class V, class I>
  LOOM_HOST_DEVICE Pair<V, I> operator()(Pair<V, I> a, Pair<V, I> b) const {
    const bool second = (b.value < a.value) | ((b.value == a.value) & (b.index < a.index));
    return {second ? b.value : a.value, second ? b.index : a.index};
  }
};
struct Maxloc {
  template <class V, class I>
  LOOM_HOST_DEVICE Pair<V, I> operator()(Pair<V, I> a, Pair<V, I> b) const {
    const bool second = (a.value < b.value) | ((b.value == a.value) & (b.index < a.index));
    return {second ? b.value : a.value, second ? b.index : a.index};
  }
};

/// The functor of each Op, in its order.
using Operations = std::tuple<Sum, Prod, Min, Max, Land, Lor, Lxor, Band, Bor, Bxor, Minloc, Maxloc>;
static_assert(std::tuple_size_v<Operations> == kOpCount);

/// Whether a different order of the operands, or of the brackets, may change the bits of a result: sums and
/// products of floating point numbers, and minima and maxima of NaNs or of zeros of both signs.
constexpr bool depends_on_order(Type type) {
  return (type >= Type::kFloat && type <= Type::kDoubleInt) || type >= Type::kLongDoubleInt;
}
static_assert(!depends_on_order(Type::kLongInt) && !depends_on_order(Type::kShortInt));

}  // namespace loom::device
