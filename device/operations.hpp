// operations.hpp -- the operations and element types that have kernels: one list for host and CUDA.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#ifdef __CUDACC__
#define LOOM_HOST_DEVICE __host__ __device__
#else
#define LOOM_HOST_DEVICE
#endif

namespace loom::device {

enum class Op { kSum, kProd, kMin, kMax, kLand, kLor, kLxor, kBand, kBor, kBxor };
inline constexpr int kOpCount = 10;

enum class Type { kInt8, kInt16, kInt32, kInt64, kUint8, kUint16, kUint32, kUint64, kFloat, kDouble };
inline constexpr int kTypeCount = 10;

/// The C++ type of each Type, in its order.
using Types = std::tuple<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t,
                         std::uint32_t, std::uint64_t, float, double>;
static_assert(std::tuple_size_v<Types> == kTypeCount);

/// Integer arithmetic wraps, signed too: computed without sign, in at least the width that C would promote to.
template <class T>
struct WrappingImpl {
  using type = T;
};
template <class T>
  requires std::is_integral_v<T>
struct WrappingImpl<T> {
  using type = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
};
template <class T>
using Wrapping = typename WrappingImpl<T>::type;

struct Sum {
  template <class T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Prod {
  template <class T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
struct Min {
  template <class T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const { return b < a ? b : a; }
};
struct Max {
  template <class T>
  LOOM_HOST_DEVICE T operator()(T a, T b) const { return a < b ? b : a; }
};

/// The logical and bitwise operations are MPI's for integers only (MPI 4.1, section 6.9.2).
template <class T>
concept Integer = std::is_integral_v<T>;
struct Land {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const { return static_cast<decltype(a)>(a && b); }
};
struct Lor {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const { return static_cast<decltype(a)>(a || b); }
};
struct Lxor {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const { return static_cast<decltype(a)>(!a != !b); }
};
struct Band {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const { return static_cast<decltype(a)>(a & b); }
};
struct Bor {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const { return static_cast<decltype(a)>(a | b); }
};
struct Bxor {
  LOOM_HOST_DEVICE auto operator()(Integer auto a, Integer auto b) const { return static_cast<decltype(a)>(a ^ b); }
};

/// The functor of each Op, in its order.
using Operations = std::tuple<Sum, Prod, Min, Max, Land, Lor, Lxor, Band, Bor, Bxor>;
static_assert(std::tuple_size_v<Operations> == kOpCount);

}  // namespace loom::device
