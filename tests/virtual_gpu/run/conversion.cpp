// conversion.cpp -- cvt. Every value of every type is a long double of x86, whole; it is rounded once.
#include <cmath>
#include <limits>

#include "tests/virtual_gpu/run/arithmetic.hpp"

namespace virtual_gpu::run::detail {
namespace {

static_assert(std::numeric_limits<long double>::digits >= 64, "holds every integer and float of PTX");

struct Format {
  int exponent_bits, fraction_bits;
};
Format format_of(ptx::Type type) {
  if (type.kind == ptx::Kind::kBfloat) return {8, 7};
  return type.bits == 16 ? Format{5, 10} : type.bits == 32 ? Format{8, 23} : Format{11, 52};
}

bool is_float(ptx::Type type) {
  return type.kind == ptx::Kind::kFloat || type.kind == ptx::Kind::kBfloat;
}
std::uint64_t ones(unsigned bits) {
  return bits == 64 ? ~0ULL : (1ULL << bits) - 1;
}

long double to_integral(long double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero:
      return std::trunc(value);
    case Rounding::kDown:
      return std::floor(value);
    case Rounding::kUp:
      return std::ceil(value);
    case Rounding::kNearest:
      break;
  }
  const long double below = std::floor(value), rest = value - below;  // exact
  if (rest != 0.5L) return rest < 0.5L ? below : below + 1;
  return std::fmod(below, 2.0L) == 0 ? below : below + 1;
}

long double decode(Slot bits, Format format) {
  const std::uint64_t fraction = bits & ones(static_cast<unsigned>(format.fraction_bits)),
                      exponent =
                          bits >> format.fraction_bits & ones(static_cast<unsigned>(format.exponent_bits));
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  long double value;
  if (exponent == ones(static_cast<unsigned>(format.exponent_bits)))
    value = fraction != 0 ? std::numeric_limits<long double>::quiet_NaN()
                          : std::numeric_limits<long double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(static_cast<long double>(fraction), 1 - bias - format.fraction_bits);
  else
    value = std::ldexp(static_cast<long double>(fraction | 1ULL << format.fraction_bits),
                       static_cast<int>(exponent) - bias - format.fraction_bits);
  return (bits >> (format.fraction_bits + format.exponent_bits) & 1) != 0 ? -value : value;
}

Slot encode(long double value, Format format, Rounding rounding) {
  const auto fraction_bits = static_cast<unsigned>(format.fraction_bits),
             exponent_bits = static_cast<unsigned>(format.exponent_bits);
  const std::uint64_t infinity = ones(exponent_bits) << fraction_bits;
  if (std::isnan(value)) return infinity | ones(fraction_bits);
  const bool negative = std::signbit(value);
  const std::uint64_t sign = negative ? 1ULL << (fraction_bits + exponent_bits) : 0;
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(value), 1 - bias);
  // A whole number of units in the last place. One too many for its exponent is the first of the next.
  const long double units =
      std::fabs(to_integral(std::ldexp(value, format.fraction_bits - exponent), rounding));
  const std::uint64_t magnitude =
      static_cast<std::uint64_t>(units) + (static_cast<std::uint64_t>(exponent + bias - 1) << fraction_bits);
  if (magnitude < infinity) return sign | magnitude;
  const bool away =
      rounding == Rounding::kNearest || rounding == (negative ? Rounding::kDown : Rounding::kUp);
  return sign | (away ? infinity : infinity - 1);
}

Slot flush(Slot bits, ptx::Type type) {
  return type == ptx::Type{ptx::Kind::kFloat, 32} && (bits & 0x7f800000U) == 0 ? bits & 0x80000000U : bits;
}

long double least(ptx::Type type) {
  return type.kind == ptx::Kind::kSigned ? -std::ldexp(1.0L, static_cast<int>(type.bits) - 1) : 0;
}
long double most(ptx::Type type) {
  return std::ldexp(1.0L, static_cast<int>(type.bits) - (type.kind == ptx::Kind::kSigned)) - 1;
}
long double clamp(long double value, ptx::Type type) {
  return std::min(std::max(value, least(type)), most(type));
}
/// A whole number in its range.
Slot encode_integer(long double value, ptx::Type type) {
  const Slot bits =
      value < 0 ? static_cast<Slot>(static_cast<std::int64_t>(value)) : static_cast<Slot>(value);
  return type.kind == ptx::Kind::kSigned ? bits : bits & ones(type.bits);
}

long double decode_integer(Slot bits, ptx::Type type) {
  bits &= ones(type.bits);
  if (type.kind != ptx::Kind::kSigned) return static_cast<long double>(bits);
  const unsigned unused = 64 - type.bits;
  return static_cast<long double>(static_cast<std::int64_t>(bits << unused) >> unused);
}

/// Integers to narrower or wider ones: a matter of bits.
Slot resize(Slot bits, const Conversion& c) {
  const auto extend = [](Slot value, ptx::Type type) {
    const unsigned unused = 64 - type.bits;
    return type.kind == ptx::Kind::kSigned
               ? static_cast<Slot>(static_cast<std::int64_t>(value << unused) >> unused)
               : value << unused >> unused;
  };
  return extend(extend(bits, c.from), c.to);
}

}  // namespace

Slot convert(Slot value, const Conversion& c) {
  if (!is_float(c.from)) {
    if (is_float(c.to)) return encode(decode_integer(value, c.from), format_of(c.to), c.rounding);
    return c.saturates ? encode_integer(clamp(decode_integer(value, c.from), c.to), c.to) : resize(value, c);
  }
  if (c.flushes) value = flush(value, c.from);
  long double number = decode(value, format_of(c.from));
  if (is_float(c.to)) {
    if (c.to_integral) number = std::copysign(to_integral(number, c.rounding), number);
    if (c.saturates) number = number > 0 ? std::min(number, 1.0L) : 0;  // also what is no number
    const Slot result = encode(number, format_of(c.to), c.rounding);
    return c.flushes ? flush(result, c.to) : result;
  }
  if (std::isnan(number)) return c.from.bits == 64 || c.to.bits == 64 ? 1ULL << (c.to.bits - 1) : 0;
  return encode_integer(clamp(std::isinf(number) ? number : to_integral(number, c.rounding), c.to), c.to);
}

Handler conversion(const Conversion& c) {
  if (!is_float(c.from) && !is_float(c.to) && !c.saturates)
    return [](const Op& op, const Frame& frame, Mask mask) {
      const Slot* const from = frame.in(op, 0);
      Slot* const to = frame.out(op, 0);
      for_lanes(mask, [&](unsigned lane) { to[lane] = resize(from[lane], op.conversion) & op.width; });
    };
  return [](const Op& op, const Frame& frame, Mask mask) {
    const Slot* const from = frame.in(op, 0);
    Slot* const to = frame.out(op, 0);
    for_lanes(mask, [&](unsigned lane) { to[lane] = convert(from[lane], op.conversion) & op.width; });
  };
}

}  // namespace virtual_gpu::run::detail
