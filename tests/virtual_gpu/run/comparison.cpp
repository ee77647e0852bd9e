// comparison.cpp -- setp.
#include <functional>

#include "tests/virtual_gpu/run/handlers.hpp"

namespace virtual_gpu::run::detail {
namespace {

/// p = kF(a, b)
template <auto kF, class T>
void compare(const Op& op, const Frame& frame, Mask mask) {
  const Slot *const a = frame.in(op, 0), *const b = frame.in(op, 1);
  Slot* const p = frame.out(op, 0);
  for_lanes(mask, [&](unsigned lane) { p[lane] = kF(unpack_as<T>(a[lane]), unpack_as<T>(b[lane])); });
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

template <auto kF>
Handler comparison_of(ptx::Type type) {
  return by_type(
      type,
      []<class T>() -> Handler {
        if constexpr (Number<T> && std::predicate<decltype(kF), T, T>)
          return compare<kF, T>;
        else
          return nullptr;
      },
      Types{});
}
struct Comparison {
  std::string_view name;
  Handler (*find)(ptx::Type);
};
template <auto kF>
constexpr Comparison row(std::string_view name) {
  return {name, comparison_of<kF>};
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

Handler comparison(std::string_view compare, ptx::Type type) {
  const Comparison* const row = find_row(kComparisons, compare);
  return row == nullptr ? nullptr : row->find(type);
}

}  // namespace virtual_gpu::run::detail
