// arithmetic.cpp -- values computed from registers, and by atomics. Each function is a lambda of C++ types;
// tables say which opcode takes it.
#include <algorithm>
#include <utility>

#include "tests/virtual_gpu/run/handlers.hpp"

namespace virtual_gpu::run::detail {
namespace {

template <Integer T>
constexpr unsigned kBits = sizeof(T) * 8;
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
constexpr auto kAdd = []<Number T>(T a, T b) {
  if constexpr (Real<T>)
    return canonical(a + b);
  else
    return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b));
};
constexpr auto kSub = []<Number T>(T a, T b) {
  if constexpr (Real<T>)
    return canonical(a - b);
  else
    return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
};
constexpr auto kMul = []<Real T>(T a, T b) { return canonical(a * b); };
constexpr auto kFma = []<Real T>(T a, T b, T c) { return canonical(std::fma(a, b, c)); };
constexpr auto kDiv = []<Number T>(T a, T b) {
  if constexpr (Real<T>) {
    return canonical(a / b);
  } else {
    if (b == 0) throw DividedByZero{};
    return static_cast<T>(Wide<T>(a) / Wide<T>(b));
  }
};
constexpr auto kRem = []<Integer T>(T a, T b) {
  if (b == 0) throw DividedByZero{};
  return static_cast<T>(Wide<T>(a) % Wide<T>(b));
};
constexpr auto kMulLo = []<Integer T>(T a, T b) {
  return static_cast<T>(static_cast<Wide<Unsigned<T>>>(Unsigned<T>(a)) * Unsigned<T>(b));
};
constexpr auto kMulHi = []<Integer T>(T a, T b) {
  return static_cast<T>(Wide<T>(a) * Wide<T>(b) >> kBits<T>);
};
template <class T>
concept Narrow = Integer<T> && sizeof(T) <= 4;
constexpr auto kMulWide = []<Narrow T>(T a, T b) {
  return static_cast<Double<T>>(Double<T>(a) * Double<T>(b));
};
template <auto kProduct>
constexpr auto kMad =
    [](auto a, auto b, auto c) -> decltype(kAdd(kProduct(a, b), c)) { return kAdd(kProduct(a, b), c); };
constexpr auto kNeg = []<Number T>(T a) {
  if constexpr (Real<T>)
    return -a;
  else
    return static_cast<T>(Unsigned<T>{0} - Unsigned<T>(a));
};
constexpr auto kAbs = []<Number T>(T a) {
  if constexpr (Real<T>)
    return std::fabs(a);
  else
    return a < 0 ? kNeg(a) : a;
};
/// Of a number and what is none, the number; -0 is less than +0.
constexpr auto kMin = []<Number T>(T a, T b) -> T {
  if constexpr (Real<T>) {
    if (a != a) return canonical(b);
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
  return std::min(a, b);
};
constexpr auto kMax = []<Number T>(T a, T b) -> T {
  if constexpr (Real<T>) {
    if (a != a) return canonical(b);
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  }
  return std::max(a, b);
};
constexpr auto kAnd = []<std::integral T>(T a, T b) { return static_cast<T>(a & b); };
constexpr auto kOr = []<std::integral T>(T a, T b) { return static_cast<T>(a | b); };
constexpr auto kXor = []<std::integral T>(T a, T b) { return static_cast<T>(a ^ b); };
constexpr auto kNot = []<std::integral T>(T a) {
  if constexpr (std::is_same_v<T, bool>)
    return !a;
  else
    return static_cast<T>(~a);
};
/// Amounts beyond the width shift everything out.
constexpr auto kShl = []<Integer T>(T a, std::uint32_t by) {
  return by >= kBits<T> ? T{0} : static_cast<T>(Unsigned<T>(a) << by);
};
constexpr auto kShr = []<Integer T>(T a, std::uint32_t by) {
  if (by >= kBits<T>) return a < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> by);
};
template <bool kLeft, bool kWrap>
constexpr auto kFunnel = [](std::uint32_t low, std::uint32_t high, std::uint32_t by) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  const std::uint32_t amount = kWrap ? by & 31 : std::min(by, 32U);
  return static_cast<std::uint32_t>(kLeft ? both << amount >> 32 : both >> amount);
};
template <Integer T>
bool bit_of(T value, unsigned i) {
  return (Unsigned<T>(value) >> i & 1U) != 0;
}
/// `length` bits from `first` on; signed ones are extended with the highest bit that is there.
constexpr auto kBfe = []<Integer T>(T a, std::uint32_t first, std::uint32_t length) {
  first &= 0xff;
  length &= 0xff;
  const bool sign =
      std::is_signed_v<T> && length != 0 && bit_of(a, std::min(first + length - 1, kBits<T> - 1));
  Unsigned<T> result = 0;
  for (unsigned i = 0; i < kBits<T>; ++i)
    if (i < length && first + i < kBits<T> ? bit_of(a, first + i) : sign)
      result = static_cast<Unsigned<T>>(result | Unsigned<T>{1} << i);
  return static_cast<T>(result);
};
constexpr auto kBfi = []<Integer T>(T bits, T into, std::uint32_t first, std::uint32_t length) {
  first &= 0xff;
  length &= 0xff;
  for (unsigned i = 0; i < length && first + i < kBits<T>; ++i) {
    const Unsigned<T> place = Unsigned<T>{1} << (first + i);
    into = static_cast<T>(bit_of(bits, i) ? into | place : into & ~place);
  }
  return into;
};
/// Each half-byte of `selector` chooses a byte of b:a; its highest bit asks for that byte's sign instead.
constexpr auto kPrmt = [](std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t choice = selector >> (4 * i);
    auto byte = static_cast<std::uint32_t>(bytes >> (8 * (choice & 7)) & 0xff);
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
};
/// Any function of three bits, by its table.
constexpr auto kLop3 = [](std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
  std::uint32_t result = 0;
  for (unsigned row = 0; row < 8; ++row)
    if ((table >> row & 1) != 0)
      result |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
  return result;
};

/// In a list of what a function takes: the instruction's type, and the one of twice its width.
struct Same;
struct Twice;
template <class From, class T>
struct Taken {
  using Type = From;
};
template <class T>
struct Taken<Same, T> {
  using Type = T;
};
template <class T>
struct Taken<Twice, T> {
  using Type = void;
};
template <Integer T>
requires(sizeof(T) <= 4) struct Taken<Twice, T> {
  using Type = Double<T>;
};

/// to = kF(from...), on each lane.
template <auto kF, class... From>
void compute(const Op& op, const Frame& frame, Mask mask) {
  Slot* const to = frame.out(op, 0);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::array<const Slot*, sizeof...(From)> from{frame.in(op, I)...};
    for_lanes(mask, [&](unsigned lane) { to[lane] = packed(kF(unpack_as<From>(from[I][lane])...)); });
  }
  (std::index_sequence_for<From...>{});
}

template <class Of, class T>
ptx::Type type_of(ptx::Type type) {
  if constexpr (std::is_same_v<Of, T>) return type;
  return {std::is_signed_v<Of> ? ptx::Kind::kSigned : ptx::Kind::kUnsigned, sizeof(Of) * 8};
}

/// For the types of the list that the function takes.
template <class List, auto kF, class... From>
Arithmetic of(ptx::Type type) {
  return by_type(
      type,
      [&]<class T>() -> Arithmetic {
        if constexpr (std::invocable<decltype(kF), typename Taken<From, T>::Type...>)
          return {compute<kF, typename Taken<From, T>::Type...>,
                  type_of<std::invoke_result_t<decltype(kF), typename Taken<From, T>::Type...>, T>(type),
                  sizeof...(From),
                  {type_of<typename Taken<From, T>::Type, T>(type)...}};
        else
          return {};
      },
      List{});
}

using U32 = std::uint32_t;
struct Row {
  std::string_view name;
  Arithmetic (*find)(ptx::Type);
};
/// Floats are added and multiplied with .rn alone: without it, compilers may contract.
constexpr Row kArithmetic[] = {
    {"add", of<Integers, kAdd, Same, Same>},
    {"sub", of<Integers, kSub, Same, Same>},
    {"mul.lo", of<Types, kMulLo, Same, Same>},
    {"mul.hi", of<Types, kMulHi, Same, Same>},
    {"mul.wide", of<Types, kMulWide, Same, Same>},
    {"mad.lo", of<Types, kMad<kMulLo>, Same, Same, Same>},
    {"mad.hi", of<Types, kMad<kMulHi>, Same, Same, Same>},
    {"mad.wide", of<Types, kMad<kMulWide>, Same, Same, Twice>},
    {"div", of<Integers, kDiv, Same, Same>},
    {"rem", of<Types, kRem, Same, Same>},
    {"add.rn", of<Reals, kAdd, Same, Same>},
    {"sub.rn", of<Reals, kSub, Same, Same>},
    {"mul.rn", of<Reals, kMul, Same, Same>},
    {"fma.rn", of<Reals, kFma, Same, Same, Same>},
    {"div.rn", of<Reals, kDiv, Same, Same>},
    {"neg", of<Types, kNeg, Same>},
    {"abs", of<Types, kAbs, Same>},
    {"min", of<Types, kMin, Same, Same>},
    {"max", of<Types, kMax, Same, Same>},
    {"and", of<Types, kAnd, Same, Same>},
    {"or", of<Types, kOr, Same, Same>},
    {"xor", of<Types, kXor, Same, Same>},
    {"not", of<Types, kNot, Same>},
    {"shl", of<Types, kShl, Same, U32>},
    {"shr", of<Types, kShr, Same, U32>},
    {"bfe", of<Types, kBfe, Same, U32, U32>},
    {"bfi", of<Types, kBfi, Same, Same, U32, U32>},
    {"shf.l.wrap", of<Words, kFunnel<true, true>, Same, Same, Same>},
    {"shf.r.wrap", of<Words, kFunnel<false, true>, Same, Same, Same>},
    {"shf.l.clamp", of<Words, kFunnel<true, false>, Same, Same, Same>},
    {"shf.r.clamp", of<Words, kFunnel<false, false>, Same, Same, Same>},
    {"prmt", of<Words, kPrmt, Same, Same, Same>},
    {"lop3", of<Words, kLop3, Same, Same, Same, Same>},
};

constexpr auto kExchange = []<Number T>(T, T a) { return a; };
constexpr auto kIncrement = []<std::same_as<U32> T>(T old, T a) { return old >= a ? 0 : old + 1; };
constexpr auto kDecrement = []<std::same_as<U32> T>(T old, T a) { return old == 0 || old > a ? a : old - 1; };

using memory::View;
template <class List, auto kF>
View::Change change(ptx::Type type) {
  return by_type(
      type,
      []<class T>() -> View::Change {
        if constexpr (std::invocable<decltype(kF), T, T>)
          return [](std::uint64_t old, std::uint64_t a, std::uint64_t) {
            return packed(static_cast<T>(kF(unpack_as<T>(old), unpack_as<T>(a))));
          };
        else
          return nullptr;
      },
      List{});
}
View::Change compare_and_swap(ptx::Type type) {
  if (type.kind != ptx::Kind::kBits || type.bits < 32) return nullptr;
  return [](std::uint64_t old, std::uint64_t a, std::uint64_t b) { return old == a ? b : old; };
}
using Atomics = TypeList<std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;
using AtomicsAndReals = TypeList<std::uint32_t, std::int32_t, std::uint64_t, std::int64_t, float, double>;
struct AtomicRow {
  std::string_view name;
  View::Change (*find)(ptx::Type);
};
constexpr AtomicRow kAtomics[] = {
    {"add", change<AtomicsAndReals, kAdd>}, {"exch", change<AtomicsAndReals, kExchange>},
    {"min", change<Atomics, kMin>},         {"max", change<Atomics, kMax>},
    {"and", change<Atomics, kAnd>},         {"or", change<Atomics, kOr>},
    {"xor", change<Atomics, kXor>},         {"inc", change<Words, kIncrement>},
    {"dec", change<Words, kDecrement>},     {"cas", compare_and_swap},
};

}  // namespace

Arithmetic arithmetic(std::string_view name, ptx::Type type) {
  const Row* const row = find_row(kArithmetic, name);
  return row == nullptr ? Arithmetic{} : row->find(type);
}

bool is_arithmetic(std::string_view opcode) {
  return std::ranges::any_of(
      kArithmetic, [&](const Row& row) { return row.name.substr(0, row.name.find('.')) == opcode; });
}

View::Change atomic_change(std::string_view operation, ptx::Type type) {
  const AtomicRow* const row = find_row(kAtomics, operation);
  return row == nullptr ? nullptr : row->find(type);
}

}  // namespace virtual_gpu::run::detail
