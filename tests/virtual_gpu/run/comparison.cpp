// comparison.cpp -- setp.
#include <functional>

#include "tests/virtual_gpu/run/handlers.hpp"

namespace virtual_gpu::run::detail {
namespace {

/// p|q = kF(a, b) boolean c | !kF(a, b) boolean c
template <auto kF, class T, bool kFlushes>
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
    const bool result = kF(x, y);
    if (p != nullptr) p[lane] = with_third(result);
    if (q != nullptr) q[lane] = with_third(!result);
  });
}

constexpr std::equal_to<> kEqual{};
constexpr std::less<> kLess{};
constexpr std::less_equal<> kLessEqual{};
constexpr std::greater<> kGreater{};
constexpr std::greater_equal<> kGreaterEqual{};
constexpr auto kDiffer = []<Number T>(T a, T b) { return a < b || a > b; };  // both are numbers
/// True also for what is no number.
template <auto kF>
constexpr auto kUnordered = []<Real T>(T a, T b) { return a != a || b != b || kF(a, b); };
constexpr auto kNumbers = []<Real T>(T a, T b) { return a == a && b == b; };
constexpr auto kNotNumbers = []<Real T>(T a, T b) { return a != a || b != b; };

template <auto kF, bool kFlushes>
Handler comparison_of(ptx::Type type) {
  return by_type(
      type,
      []<class T>() -> Handler {
        if constexpr (Number<T> && std::predicate<decltype(kF), T, T> &&
                      (!kFlushes || std::same_as<T, float>))
          return compare<kF, T, kFlushes>;
        else
          return nullptr;
      },
      Types{});
}
struct Comparison {
  std::string_view name;
  Handler (*plain)(ptx::Type);
  Handler (*flushing)(ptx::Type);
};
template <auto kF>
constexpr Comparison row(std::string_view name) {
  return {name, comparison_of<kF, false>, comparison_of<kF, true>};
}
constexpr Comparison kComparisons[] = {row<kEqual>("eq"),
                                       row<kDiffer>("ne"),
                                       row<kLess>("lt"),
                                       row<kLessEqual>("le"),
                                       row<kGreater>("gt"),
                                       row<kGreaterEqual>("ge"),
                                       row<kLess>("lo"),
                                       row<kLessEqual>("ls"),
                                       row<kGreater>("hi"),
                                       row<kGreaterEqual>("hs"),
                                       row<kUnordered<kEqual>>("equ"),
                                       row<kUnordered<kDiffer>>("neu"),
                                       row<kUnordered<kLess>>("ltu"),
                                       row<kUnordered<kLessEqual>>("leu"),
                                       row<kUnordered<kGreater>>("gtu"),
                                       row<kUnordered<kGreaterEqual>>("geu"),
                                       row<kNumbers>("num"),
                                       row<kNotNumbers>("nan")};

}  // namespace

Handler comparison(std::string_view compare, ptx::Type type, bool flushes) {
  const Comparison* const row = find_row(kComparisons, compare);
  return row == nullptr ? nullptr : (flushes ? row->flushing : row->plain)(type);
}

}  // namespace virtual_gpu::run::detail
