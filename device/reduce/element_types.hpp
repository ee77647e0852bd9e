// element_types.hpp -- element types that C++20 does not have, as plain data: 16-bit floats, complex numbers,
// and the pairs of MINLOC and MAXLOC. For host and CUDA; bits are computed with integers, so that both give
// the same ones.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define LOOM_HOST_DEVICE __host__ __device__
#else
#define LOOM_HOST_DEVICE
#endif

namespace loom::device {

LOOM_HOST_DEVICE inline std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
LOOM_HOST_DEVICE inline float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

/// IEEE binary16. Computed in float and rounded to nearest even. Free of branches, so that loops over it
/// vectorise.
struct Half {
  std::uint16_t bits;

  LOOM_HOST_DEVICE float to_float() const {
    // Exponent and fraction moved into float's places lack 112 in the exponent. The multiplication adds it,
    // and makes normal numbers of subnormal ones. Infinity and NaN keep an exponent of all ones.
    const std::uint32_t magnitude = bits & 0x7fffU;
    const std::uint32_t scaled = bits_of(float_of(magnitude << 13) * 0x1p112F);
    const std::uint32_t special = magnitude >= 0x7c00U ? 0x7f800000U : 0U;
    return float_of(scaled | special | (bits & 0x8000U) << 16);
  }
  LOOM_HOST_DEVICE static Half from_float(float value) {
    const std::uint32_t sign = bits_of(value) >> 16 & 0x8000U, magnitude = bits_of(value) & 0x7fffffffU;
    const std::uint32_t normal = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
    // Beside 0.5 a float counts in steps of 2^-24, the smallest Half: the addition rounds a subnormal result.
    const std::uint32_t subnormal = bits_of(float_of(magnitude) + 0.5F) - 0x3f000000U;
    const std::uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;  // below 2^-14
    const std::uint32_t nan = 0x7e00U | (magnitude >> 13 & 0x3ffU);  // quiet, with what fits of its payload
    const std::uint32_t large = magnitude > 0x7f800000U ? nan : 0x7c00U;
    return {static_cast<std::uint16_t>(sign | (magnitude >= 0x47800000U ? large : finite))};
  }
  LOOM_HOST_DEVICE friend bool operator<(Half a, Half b) { return a.to_float() < b.to_float(); }
};

/// The upper half of a float. Computed in float and rounded to nearest even.
struct Bfloat16 {
  std::uint16_t bits;

  LOOM_HOST_DEVICE float to_float() const { return float_of(static_cast<std::uint32_t>(bits) << 16); }
  LOOM_HOST_DEVICE static Bfloat16 from_float(float value) {
    return {static_cast<std::uint16_t>(rounded(bits_of(value)) >> 16)};
  }
  /// The bits of a float, rounded so that the upper half is the result. NaN becomes quiet and stays NaN.
  LOOM_HOST_DEVICE static std::uint32_t rounded(std::uint32_t u) {
    return (u & 0x7fffffffU) > 0x7f800000U ? u | 0x400000U : u + 0x7fffU + (u >> 16 & 1U);
  }
  LOOM_HOST_DEVICE friend bool operator<(Bfloat16 a, Bfloat16 b) { return a.to_float() < b.to_float(); }
};

/// As C's and Fortran's complex types lie in memory.
template <class T>
struct Complex {
  T re, im;
};

/// A value and where it was found.
template <class V, class I>
struct Pair {
  V value;
  I index;
};

}  // namespace loom::device
