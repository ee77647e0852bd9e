// reduce.cpp -- plain loops over the functors of operations.hpp, compiled once for each instruction set that
// Highway knows and that matters here. This file includes itself once for each (HWY_TARGET_INCLUDE); the best
// table is chosen at run time. Of Highway only headers are used, so that the plugin needs no further library.
#include "device/reduce/reduce.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstring>
#include <utility>

// AVX-512 as of Skylake, AVX2, and the instructions that the compiler may use anyway (which Highway, allowed
// nothing else, calls EMU128 or SCALAR): further targets gain nothing where memory is the limit.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_AVX2 | HWY_EMU128 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/reduce/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef LOOM_DEVICE_REDUCE_TABLE
#define LOOM_DEVICE_REDUCE_TABLE
namespace loom::device {
namespace {
using Row = std::array<ReduceFn, kTypeCount>;
using Table = std::array<Row, kOpCount>;
}  // namespace
}  // namespace loom::device
#endif

HWY_BEFORE_NAMESPACE();
namespace loom::device {
namespace {
namespace HWY_NAMESPACE {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// In every loop below `out` is `a`, is `b`, or overlaps neither: no iteration reads what another wrote.

template <class Operation, class T>
void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i)
    store(out + i * sizeof(T), Operation{}(load<T>(a + i * sizeof(T)), load<T>(b + i * sizeof(T))));
}

// The functions below compute the same from parts of equal size: compilers vectorise interleaved numbers, not
// structures.

template <class T>
void reduce_complex_sum(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  reduce<Sum, T>(out, a, b, 2 * count);
}

/// Two numbers as the halves of a word: neither has to move to be a float, or to be put back.
template <class Operation>
void reduce_bfloat16(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  const std::size_t words = count / 2;
#pragma GCC ivdep
  for (std::size_t i = 0; i < words; ++i) {
    const auto x = load<std::uint32_t>(a + 4 * i), y = load<std::uint32_t>(b + 4 * i);
    const std::uint32_t low = bits_of(Operation{}(float_of(x << 16), float_of(y << 16)));
    const std::uint32_t high = bits_of(Operation{}(float_of(x & 0xffff0000U), float_of(y & 0xffff0000U)));
    store(out + 4 * i, Bfloat16::rounded(low) >> 16 | (Bfloat16::rounded(high) & 0xffff0000U));
  }
  reduce<Operation, Bfloat16>(out + 4 * words, a + 4 * words, b + 4 * words, count % 2);
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
namespace hn = hwy::HWY_NAMESPACE;

template <class V>
V apply(Sum, V x, V y) {
  return hn::Add(x, y);
}
template <class V>
V apply(Prod, V x, V y) {
  return hn::Mul(x, y);
}
template <class V>
V apply(Min, V x, V y) {
  return hn::IfThenElse(hn::Lt(y, x), y, x);
}
template <class V>
V apply(Max, V x, V y) {
  return hn::IfThenElse(hn::Lt(x, y), y, x);
}

/// The CPU converts.
template <class Operation>
void reduce_half(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  const hn::ScalableTag<float> wide;
  const hn::Rebind<hwy::float16_t, decltype(wide)> narrow;
  const std::size_t lanes = hn::Lanes(wide);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(a + 2 * i));
    const auto y = hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(b + 2 * i));
    const auto result = apply(Operation{}, hn::PromoteTo(wide, x), hn::PromoteTo(wide, y));
    hn::StoreU(hn::DemoteTo(narrow, result), narrow, reinterpret_cast<hwy::float16_t*>(out + 2 * i));
  }
  reduce<Operation, Half>(out + 2 * i, a + 2 * i, b + 2 * i, count - i);
}

template <class D, class T = hn::TFromD<D>>
void multiply_complex_vector(D tag, T* out, const T* a, const T* b) {
  const auto x = hn::LoadU(tag, a), y = hn::LoadU(tag, b);
  const auto by_re = hn::Mul(hn::DupEven(x), y), by_im = hn::Mul(hn::DupOdd(x), hn::Reverse2(tag, y));
  hn::StoreU(hn::OddEven(hn::Add(by_re, by_im), hn::Sub(by_re, by_im)), tag, out);
}

/// Spelled out, the last numbers too: GCC 12 makes fused multiplications of a plain loop, whatever
/// -ffp-contract says.
template <class T>
void reduce_complex_product(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  const hn::ScalableTag<T> tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;  // in halves of a number
  for (; i + lanes <= 2 * count; i += lanes)
    multiply_complex_vector(tag, reinterpret_cast<T*>(out) + i, reinterpret_cast<const T*>(a) + i,
                            reinterpret_cast<const T*>(b) + i);
  T x[hn::MaxLanes(tag)] = {}, y[hn::MaxLanes(tag)] = {};
  const std::size_t at = i * sizeof(T), rest = 2 * count * sizeof(T) - at;
  if (rest == 0) return;  // the operands may be null then
  std::memcpy(x, a + at, rest);
  std::memcpy(y, b + at, rest);
  multiply_complex_vector(tag, x, x, y);
  std::memcpy(out + at, x, rest);
}
#else
template <class Operation>
constexpr ReduceFn reduce_half = &reduce<Operation, Half>;
template <class T>
constexpr ReduceFn reduce_complex_product = &reduce<Prod, Complex<T>>;
#endif

/// A pair as two words, each with a value at its lower address; the padding goes where its value goes.
template <class Operation, class V, class I, class Word>
void reduce_pairs(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  static_assert(sizeof(Pair<V, I>) == 2 * sizeof(Word) && alignof(Pair<V, I>) == sizeof(Word));
  const auto value_in = [](Word word) {
    if constexpr (sizeof(V) == sizeof(Word))
      return __builtin_bit_cast(V, word);
    else
      return static_cast<V>(word);
  };
  const auto index_in = [](Word word) {
    if constexpr (sizeof(I) == sizeof(Word))
      return __builtin_bit_cast(I, word);
    else
      return static_cast<I>(word);
  };
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t head = 2 * i * sizeof(Word), tail = head + sizeof(Word);
    const Word ah = load<Word>(a + head), at = load<Word>(a + tail), bh = load<Word>(b + head),
               bt = load<Word>(b + tail);
    const V av = value_in(ah), bv = value_in(bh);
    const bool better = std::is_same_v<Operation, Minloc> ? bv < av : av < bv;
    const bool second = better | ((av == bv) & (index_in(bt) < index_in(at)));
    store(out + head, second ? bh : ah);
    store(out + tail, second ? bt : at);
  }
}

template <class Operation, class T>
struct Kernel {
  static constexpr ReduceFn get() {
    if constexpr (std::is_invocable_v<Operation, T, T>)
      return &reduce<Operation, T>;
    else
      return nullptr;  // e.g. a bitwise operation on float
  }
};
template <class T>
struct Kernel<Sum, Complex<T>> {
  static constexpr ReduceFn get() { return &reduce_complex_sum<T>; }
};
template <class T>
struct Kernel<Prod, Complex<T>> {
  static constexpr ReduceFn get() {
    if constexpr (sizeof(T) <= sizeof(double))
      return reduce_complex_product<T>;
    else
      return &reduce<Prod, Complex<T>>;
  }
};
template <class Operation>
requires std::is_invocable_v<Operation, Half, Half>
struct Kernel<Operation, Half> {
  static constexpr ReduceFn get() { return reduce_half<Operation>; }
};
template <class Operation>
requires std::is_invocable_v<Operation, Bfloat16, Bfloat16>
struct Kernel<Operation, Bfloat16> {
  static constexpr ReduceFn get() { return &reduce_bfloat16<Operation>; }
};
template <class Operation, class V, class I>
requires std::is_invocable_v<Operation, Pair<V, I>, Pair<V, I>>
struct Kernel<Operation, Pair<V, I>> {
  static constexpr ReduceFn get() {
    if constexpr (std::endian::native == std::endian::little && sizeof(Pair<V, I>) == 8)
      return &reduce_pairs<Operation, V, I, std::int32_t>;
    else if constexpr (std::endian::native == std::endian::little && sizeof(Pair<V, I>) == 16)
      return &reduce_pairs<Operation, V, I, std::int64_t>;
    else
      return &reduce<Operation, Pair<V, I>>;
  }
};

template <class Operation, class... T>
constexpr Row row(std::tuple<T...>*) {
  return {Kernel<Operation, T>::get()...};
}

template <class... Operation>
constexpr Table table(std::tuple<Operation...>*) {
  return {row<Operation>(static_cast<Types*>(nullptr))...};
}

constexpr Table kReduce = table(static_cast<Operations*>(nullptr));

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace loom::device
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loom::device {
namespace {

struct Choice {
  const Table* table;
  const char* target;
};

#if defined(__x86_64__)
// Clang's __builtin_cpu_supports() does not know it.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
// All that Highway lets the compiler use for these targets, in any of its versions.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("aes") &&
         __builtin_cpu_supports("pclmul");
}
bool has_avx3() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd");
}
#endif

Choice choose() {
#if HWY_TARGETS & HWY_AVX3 && HWY_STATIC_TARGET != HWY_AVX3
  if (has_avx3()) return {&N_AVX3::kReduce, "AVX3"};
#endif
#if HWY_TARGETS & HWY_AVX2 && HWY_STATIC_TARGET != HWY_AVX2
  if (has_avx2()) return {&N_AVX2::kReduce, "AVX2"};
#endif
  return {&HWY_NAMESPACE::kReduce, "the compiler's own"};
}

const Choice& choice() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace

ReduceFn find_reduce(Op op, Type type) noexcept {
  return (*choice().table)[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
}

const char* reduce_target() noexcept {
  return choice().target;
}

}  // namespace loom::device
#endif
