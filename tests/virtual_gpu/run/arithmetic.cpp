#include "tests/virtual_gpu/run/arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

namespace virtual_gpu::run::detail {
namespace {

template <class T>
T unpack_as(Slot slot) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<std::uint32_t>(slot));
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<double>(slot);
  else if constexpr (std::is_same_v<T, bool>)
    return slot != 0;
  else
    return static_cast<T>(slot);
}
template <class T>
Slot packed(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<std::uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<std::uint64_t>(value);
  else if constexpr (std::is_same_v<T, bool>)
    return value ? 1 : 0;
  else
    return static_cast<std::make_unsigned_t<T>>(value);
}

/// to = F(from...), on each lane.
template <class F, class... From>
void compute(const Op& op, const Frame& frame, Mask mask) {
  Slot* const to = frame.out(op, 0);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::array<const Slot*, sizeof...(From)> from{frame.in(op, I)...};
    for_lanes(mask, [&](unsigned lane) { to[lane] = packed(F{}(unpack_as<From>(from[I][lane])...)); });
  }
  (std::index_sequence_for<From...>{});
}

template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;
template <class T>
concept Real = std::floating_point<T>;
template <Integer T>
inline constexpr unsigned kBits = sizeof(T) * 8;
template <Integer T>
using Unsigned = std::make_unsigned_t<T>;
/// What products and sums of a type are computed in: without overflow for two factors.
template <Integer T>
using Wide =
    std::conditional_t<sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
/// Of .wide.
template <Integer T>
using Double =
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>>;

/// What a GPU makes of any float that is not a number; a double keeps what the host makes of it.
template <Real T>
T canonical(T value) {
  if constexpr (std::is_same_v<T, float>) return value == value ? value : std::bit_cast<float>(0x7fffffffU);
  return value;
}
float flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
}
/// With .ftz.
template <class F>
struct Flushed {
  template <std::same_as<float>... T>
  float operator()(T... value) const {
    return flushed(F{}(flushed(value)...));
  }
};

struct Add {
  template <Integer T>
  T operator()(T a, T b) const {
    return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b));
  }
  template <Real T>
  T operator()(T a, T b) const {
    return canonical(a + b);
  }
};
struct Sub {
  template <Integer T>
  T operator()(T a, T b) const {
    return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
  }
  template <Real T>
  T operator()(T a, T b) const {
    return canonical(a - b);
  }
};
struct Mul {
  template <Real T>
  T operator()(T a, T b) const {
    return canonical(a * b);
  }
};
struct Fma {
  template <Real T>
  T operator()(T a, T b, T c) const {
    return canonical(std::fma(a, b, c));
  }
};
struct Div {
  template <Integer T>
  T operator()(T a, T b) const {
    if (b == 0) throw DividedByZero{};
    return static_cast<T>(Wide<T>(a) / Wide<T>(b));
  }
  template <Real T>
  T operator()(T a, T b) const {
    return canonical(a / b);
  }
};
struct Rem {
  template <Integer T>
  T operator()(T a, T b) const {
    if (b == 0) throw DividedByZero{};
    return static_cast<T>(Wide<T>(a) % Wide<T>(b));
  }
};
struct MulLo {
  template <Integer T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wide<Unsigned<T>>>(Unsigned<T>(a)) * Unsigned<T>(b));
  }
};
struct MulHi {
  template <Integer T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wide<T>(a) * Wide<T>(b) >> kBits<T>);
  }
};
struct MulWide {
  template <Integer T>
  requires(sizeof(T) <= 4) Double<T>
  operator()(T a, T b) const { return static_cast<Double<T>>(Double<T>(a) * Double<T>(b)); }
};
template <class Product>
struct Mad {
  template <Integer T>
  requires std::invocable<Product, T, T>
  auto operator()(T a, T b, std::invoke_result_t<Product, T, T> c) const { return Add{}(Product{}(a, b), c); }
};
struct Neg {
  template <Integer T>
  T operator()(T a) const {
    return static_cast<T>(Unsigned<T>{0} - Unsigned<T>(a));
  }
  template <Real T>
  T operator()(T a) const {
    return -a;
  }
};
struct Abs {
  template <Integer T>
  T operator()(T a) const {
    return a < 0 ? Neg{}(a) : a;
  }
  template <Real T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
/// Of a number and what is none, the number; -0 is less than +0.
struct Min {
  template <Integer T>
  T operator()(T a, T b) const {
    return std::min(a, b);
  }
  template <Real T>
  T operator()(T a, T b) const {
    if (a != a) return canonical(b);
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
};
struct Max {
  template <Integer T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
  template <Real T>
  T operator()(T a, T b) const {
    if (a != a) return canonical(b);
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  }
};
struct And {
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <std::integral T>
  T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>)
      return !a;
    else
      return static_cast<T>(~a);
  }
};
/// Amounts beyond the width shift everything out.
struct Shl {
  template <Integer T>
  T operator()(T a, std::uint32_t by) const {
    return by >= kBits<T> ? T{0} : static_cast<T>(Unsigned<T>(a) << by);
  }
};
struct Shr {
  template <Integer T>
  T operator()(T a, std::uint32_t by) const {
    if (by >= kBits<T>) return a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> by);
  }
};
template <bool kLeft, bool kWrap>
struct Funnel {
  std::uint32_t operator()(std::uint32_t low, std::uint32_t high, std::uint32_t by) const {
    const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
    const std::uint32_t amount = kWrap ? by & 31 : std::min(by, 32U);
    return static_cast<std::uint32_t>(kLeft ? both << amount >> 32 : both >> amount);
  }
};
struct Popc {
  template <Integer T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::popcount(Unsigned<T>(a)));
  }
};
struct Clz {
  template <Integer T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(Unsigned<T>(a)));
  }
};
struct Brev {
  template <Integer T>
  T operator()(T a) const {
    Unsigned<T> result = 0;
    for (unsigned i = 0; i < kBits<T>; ++i)
      result |= static_cast<Unsigned<T>>((Unsigned<T>(a) >> i & 1U) << (kBits<T> - 1 - i));
    return static_cast<T>(result);
  }
};
/// `length` bits from `first` on; signed ones are extended with the highest bit that is there.
struct Bfe {
  template <Integer T>
  T operator()(T a, std::uint32_t first, std::uint32_t length) const {
    first &= 0xff;
    length &= 0xff;
    const bool sign = std::is_signed_v<T> && length != 0 &&
                      (Unsigned<T>(a) >> std::min(first + length - 1, kBits<T> - 1) & 1U) != 0;
    Unsigned<T> result = 0;
    for (unsigned i = 0; i < kBits<T>; ++i) {
      const bool bit = i < length && first + i < kBits<T> ? (Unsigned<T>(a) >> (first + i) & 1U) != 0 : sign;
      if (bit) result |= Unsigned<T>{1} << i;
    }
    return static_cast<T>(result);
  }
};
struct Bfi {
  template <Integer T>
  T operator()(T bits, T into, std::uint32_t first, std::uint32_t length) const {
    first &= 0xff;
    length &= 0xff;
    for (unsigned i = 0; i < length && first + i < kBits<T>; ++i) {
      const Unsigned<T> place = Unsigned<T>{1} << (first + i);
      into = static_cast<T>((Unsigned<T>(bits) >> i & 1U) != 0 ? into | place : into & ~place);
    }
    return into;
  }
};
/// Each half-byte of `selector` chooses a byte of b:a; its highest bit asks for that byte's sign instead.
struct Prmt {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t selector) const {
    const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
    std::uint32_t result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t choice = selector >> (4 * i);
      auto byte = static_cast<std::uint32_t>(bytes >> (8 * (choice & 7)) & 0xff);
      if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};
/// Any function of three bits, by its table.
struct Lop3 {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) const {
    std::uint32_t result = 0;
    for (unsigned row = 0; row < 8; ++row)
      if ((table >> row & 1) != 0)
        result |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
    return result;
  }
};

template <class T>
bool is_type(ptx::Type type) {
  using ptx::Kind;
  if (type.packed) return false;
  if constexpr (std::is_same_v<T, bool>) return type.kind == Kind::kPredicate;
  if (type.bits != sizeof(T) * 8) return false;
  if constexpr (Real<T>) return type.kind == Kind::kFloat;
  if constexpr (std::is_signed_v<T>) return type.kind == Kind::kSigned;
  return type.kind == Kind::kUnsigned || type.kind == Kind::kBits;
}
template <class... T>
struct TypeList {};
using Types = TypeList<std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t, std::int64_t,
                       float, double, bool>;

/// Calls found<T>() with the first type that is meant and for which it returns something.
template <class Find, class... T>
auto by_type(ptx::Type type, Find&& find, TypeList<T...>) {
  decltype(find.template operator()<float>()) result = nullptr;
  (void)((is_type<T>(type) && (result = find.template operator()<T>(), true)) || ...);
  return result;
}

/// F(T...), or F(T..., Rest...).
template <class F, std::size_t kSame, class... Rest>
Handler of_type(ptx::Type type) {
  return by_type(
      type,
      []<class T>() -> Handler {
        return []<std::size_t... I>(std::index_sequence<I...>)->Handler {
          if constexpr (std::invocable<F, std::enable_if_t<(I >= 0), T>..., Rest...>)
            return compute<F, std::enable_if_t<(I >= 0), T>..., Rest...>;
          else
            return nullptr;
        }
        (std::make_index_sequence<kSame>{});
      },
      Types{});
}
template <class Product>
Handler multiply_add(ptx::Type type) {
  return by_type(
      type,
      []<class T>() -> Handler {
        if constexpr (std::invocable<Product, T, T>)
          return compute<Mad<Product>, T, T, std::invoke_result_t<Product, T, T>>;
        else
          return nullptr;
      },
      Types{});
}

using Finder = Handler (*)(ptx::Type);
template <class F, class... T>
Handler fixed(ptx::Type type) {
  return type.bits == 32 ? compute<F, T...> : nullptr;
}
using U32 = std::uint32_t;

constexpr std::pair<std::string_view, Finder> kArithmetic[] = {
    {"add", of_type<Add, 2>},
    {"sub", of_type<Sub, 2>},
    {"mul", of_type<Mul, 2>},
    {"fma", of_type<Fma, 3>},
    {"div", of_type<Div, 2>},
    {"add.ftz", of_type<Flushed<Add>, 2>},
    {"sub.ftz", of_type<Flushed<Sub>, 2>},
    {"mul.ftz", of_type<Flushed<Mul>, 2>},
    {"fma.ftz", of_type<Flushed<Fma>, 3>},
    {"div.ftz", of_type<Flushed<Div>, 2>},
    {"min.ftz", of_type<Flushed<Min>, 2>},
    {"max.ftz", of_type<Flushed<Max>, 2>},
    {"neg.ftz", of_type<Flushed<Neg>, 1>},
    {"abs.ftz", of_type<Flushed<Abs>, 1>},
    {"rem", of_type<Rem, 2>},
    {"mul.lo", of_type<MulLo, 2>},
    {"mul.hi", of_type<MulHi, 2>},
    {"mul.wide", of_type<MulWide, 2>},
    {"mad.lo", multiply_add<MulLo>},
    {"mad.hi", multiply_add<MulHi>},
    {"mad.wide", multiply_add<MulWide>},
    {"neg", of_type<Neg, 1>},
    {"abs", of_type<Abs, 1>},
    {"min", of_type<Min, 2>},
    {"max", of_type<Max, 2>},
    {"and", of_type<And, 2>},
    {"or", of_type<Or, 2>},
    {"xor", of_type<Xor, 2>},
    {"not", of_type<Not, 1>},
    {"shl", of_type<Shl, 1, U32>},
    {"shr", of_type<Shr, 1, U32>},
    {"popc", of_type<Popc, 1>},
    {"clz", of_type<Clz, 1>},
    {"brev", of_type<Brev, 1>},
    {"bfe", of_type<Bfe, 1, U32, U32>},
    {"bfi", of_type<Bfi, 2, U32, U32>},
    {"shf.l.wrap", fixed<Funnel<true, true>, U32, U32, U32>},
    {"shf.r.wrap", fixed<Funnel<false, true>, U32, U32, U32>},
    {"shf.l.clamp", fixed<Funnel<true, false>, U32, U32, U32>},
    {"shf.r.clamp", fixed<Funnel<false, false>, U32, U32, U32>},
    {"prmt", fixed<Prmt, U32, U32, U32>},
    {"lop3", fixed<Lop3, U32, U32, U32, U32>},
};

/// p|q = (a F b) boolean c | !(a F b) boolean c
template <class F, class T, bool kFlushes>
void compare(const Op& op, const Frame& frame, Mask mask) {
  const Slot *const a = frame.in(op, 0), *const b = frame.in(op, 1), *const c = frame.in(op, 2);
  Slot* const p = op.to[0] == kNoSlot ? nullptr : frame.out(op, 0);
  Slot* const q = op.to[1] == kNoSlot ? nullptr : frame.out(op, 1);
  for_lanes(mask, [&](unsigned lane) {
    T x = unpack_as<T>(a[lane]), y = unpack_as<T>(b[lane]);
    if constexpr (kFlushes) {
      x = flushed(x);
      y = flushed(y);
    }
    const bool third = op.boolean != Boolean::kNone && (c[lane] != 0) != op.negated;
    const auto with_third = [&](bool value) {
      switch (op.boolean) {
        case Boolean::kAnd:
          return value && third;
        case Boolean::kOr:
          return value || third;
        case Boolean::kXor:
          return value != third;
        case Boolean::kNone:
          break;
      }
      return value;
    };
    const bool result = F{}(x, y);
    if (p != nullptr) p[lane] = with_third(result);
    if (q != nullptr) q[lane] = with_third(!result);
  });
}

template <class F>
struct Unordered {  ///< true also for what is no number
  template <Real T>
  bool operator()(T a, T b) const {
    return a != a || b != b || F{}(a, b);
  }
};
struct Differ {  ///< both are numbers
  template <Integer T>
  bool operator()(T a, T b) const {
    return a != b;
  }
  template <Real T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};
struct BothNumbers {
  template <Real T>
  bool operator()(T a, T b) const {
    return a == a && b == b;
  }
};
struct NotBothNumbers {
  template <Real T>
  bool operator()(T a, T b) const {
    return a != a || b != b;
  }
};

using Equal = std::equal_to<>;
using Less = std::less<>;
using LessEqual = std::less_equal<>;
using Greater = std::greater<>;
using GreaterEqual = std::greater_equal<>;
template <class F, bool kFlushes>
Handler comparison_of(ptx::Type type) {
  return by_type(
      type,
      []<class T>() -> Handler {
        if constexpr (!std::same_as<T, bool> && std::predicate<F, T, T> &&
                      (!kFlushes || std::same_as<T, float>))
          return compare<F, T, kFlushes>;
        else
          return nullptr;
      },
      Types{});
}
struct Comparison {
  std::string_view name;
  Finder plain, flushing;
};
template <class F>
constexpr Comparison row(std::string_view name) {
  return {name, comparison_of<F, false>, comparison_of<F, true>};
}
constexpr Comparison kComparisons[] = {row<Equal>("eq"),
                                       row<Differ>("ne"),
                                       row<Less>("lt"),
                                       row<LessEqual>("le"),
                                       row<Greater>("gt"),
                                       row<GreaterEqual>("ge"),
                                       row<Less>("lo"),
                                       row<LessEqual>("ls"),
                                       row<Greater>("hi"),
                                       row<GreaterEqual>("hs"),
                                       row<Unordered<Equal>>("equ"),
                                       row<Unordered<Differ>>("neu"),
                                       row<Unordered<Less>>("ltu"),
                                       row<Unordered<LessEqual>>("leu"),
                                       row<Unordered<Greater>>("gtu"),
                                       row<Unordered<GreaterEqual>>("geu"),
                                       row<BothNumbers>("num"),
                                       row<NotBothNumbers>("nan")};

struct Exchange {
  template <class T>
  T operator()(T, T a) const {
    return a;
  }
};
struct Increment {
  std::uint32_t operator()(std::uint32_t old, std::uint32_t a) const { return old >= a ? 0 : old + 1; }
};
struct Decrement {
  std::uint32_t operator()(std::uint32_t old, std::uint32_t a) const {
    return old == 0 || old > a ? a : old - 1;
  }
};
template <class F>
memory::View::Change change_of(ptx::Type type) {
  return by_type(
      type,
      []<class T>() -> memory::View::Change {
        if constexpr (!std::same_as<T, bool> && sizeof(T) >= 4 && std::invocable<F, T, T>)
          return [](std::uint64_t old, std::uint64_t a, std::uint64_t) {
            return packed(static_cast<T>(F{}(unpack_as<T>(old), unpack_as<T>(a))));
          };
        else
          return nullptr;
      },
      Types{});
}

}  // namespace

Handler arithmetic(std::string_view opcode, ptx::Type type) {
  for (const auto& [name, find] : kArithmetic)
    if (name == opcode) return find(type);
  return nullptr;
}

Handler comparison(std::string_view compare, ptx::Type type, bool flushes) {
  for (const Comparison& row : kComparisons)
    if (row.name == compare) return (flushes ? row.flushing : row.plain)(type);
  return nullptr;
}

Handler select() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const Slot *const a = frame.in(op, 0), *const b = frame.in(op, 1), *const which = frame.in(op, 2);
    Slot* const to = frame.out(op, 0);
    for_lanes(mask, [&](unsigned lane) { to[lane] = which[lane] != 0 ? a[lane] : b[lane]; });
  };
}
Handler move() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const Slot* const from = frame.in(op, 0);
    Slot* const to = frame.out(op, 0);
    for_lanes(mask, [&](unsigned lane) { to[lane] = from[lane]; });
  };
}
Handler pack() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const unsigned bits = op.elem_bytes * 8U;
    for_lanes(mask, [&](unsigned lane) {
      Slot result = 0;
      for (std::size_t i = 0; i < op.elems; ++i) result |= frame.in(op, i)[lane] << (bits * i);
      frame.out(op, 0)[lane] = result;
    });
  };
}
Handler unpack() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const unsigned bits = op.elem_bytes * 8U;
    const Slot* const from = frame.in(op, 0);
    for_lanes(mask, [&](unsigned lane) {
      const Slot whole = from[lane];
      for (std::size_t i = 0; i < op.elems; ++i)
        if (op.to[i] != kNoSlot) frame.out(op, i)[lane] = whole >> (bits * i) & ((1ULL << bits) - 1);
    });
  };
}
Handler add_offset() {
  return [](const Op& op, const Frame& frame, Mask mask) {
    const Slot* const from = frame.in(op, 0);
    Slot* const to = frame.out(op, 0);
    for_lanes(mask, [&](unsigned lane) { to[lane] = (from[lane] + op.offset) & op.width; });
  };
}

memory::View::Change atomic_change(std::string_view operation, ptx::Type type) {
  using Find = memory::View::Change (*)(ptx::Type);
  constexpr std::pair<std::string_view, Find> kChanges[] = {
      {"add", change_of<Add>}, {"exch", change_of<Exchange>}, {"min", change_of<Min>},
      {"max", change_of<Max>}, {"and", change_of<And>},       {"or", change_of<Or>},
      {"xor", change_of<Xor>}};
  for (const auto& [name, find] : kChanges)
    if (name == operation) return find(type);
  const bool is_u32 = type == ptx::Type{ptx::Kind::kUnsigned, 32};
  if (operation == "inc" && is_u32)
    return [](std::uint64_t old, std::uint64_t a, std::uint64_t) {
      return packed(Increment{}(unpack_as<std::uint32_t>(old), unpack_as<std::uint32_t>(a)));
    };
  if (operation == "dec" && is_u32)
    return [](std::uint64_t old, std::uint64_t a, std::uint64_t) {
      return packed(Decrement{}(unpack_as<std::uint32_t>(old), unpack_as<std::uint32_t>(a)));
    };
  if (operation == "cas" && type.kind == ptx::Kind::kBits && type.bits >= 32)
    return [](std::uint64_t old, std::uint64_t a, std::uint64_t b) { return old == a ? b : old; };
  return nullptr;
}

}  // namespace virtual_gpu::run::detail
