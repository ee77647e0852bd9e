#include "device/reduce/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/device/element.hpp"

namespace loom::device {
namespace {

template <class T>
std::vector<T> apply(Op op, Type type, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(a.size());
  const ReduceFn reduce = find_reduce(op, type);
  EXPECT_NE(reduce, nullptr);
  reduce(reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<const std::byte*>(a.data()),
         reinterpret_cast<const std::byte*>(b.data()), a.size());
  return out;
}

TEST(Reduce, DoesTheArithmeticOfEachOperation) {
  const std::vector<int> a = {6, -3, 0, 5}, b = {3, -4, 0, 0};
  EXPECT_EQ(apply(Op::kSum, Type::kInt32, a, b), (std::vector<int>{9, -7, 0, 5}));
  EXPECT_EQ(apply(Op::kProd, Type::kInt32, a, b), (std::vector<int>{18, 12, 0, 0}));
  EXPECT_EQ(apply(Op::kMin, Type::kInt32, a, b), (std::vector<int>{3, -4, 0, 0}));
  EXPECT_EQ(apply(Op::kMax, Type::kInt32, a, b), (std::vector<int>{6, -3, 0, 5}));
  EXPECT_EQ(apply(Op::kLand, Type::kInt32, a, b), (std::vector<int>{1, 1, 0, 0}));
  EXPECT_EQ(apply(Op::kLor, Type::kInt32, a, b), (std::vector<int>{1, 1, 0, 1}));
  EXPECT_EQ(apply(Op::kLxor, Type::kInt32, a, b), (std::vector<int>{0, 0, 0, 1}));
  EXPECT_EQ(apply(Op::kBand, Type::kInt32, a, b), (std::vector<int>{2, -4, 0, 0}));
  EXPECT_EQ(apply(Op::kBor, Type::kInt32, a, b), (std::vector<int>{7, -3, 0, 5}));
  EXPECT_EQ(apply(Op::kBxor, Type::kInt32, a, b), (std::vector<int>{5, 1, 0, 5}));
}

template <class T>
void check_wrapping(Type type) {
  const T max = std::numeric_limits<T>::max(), min = std::numeric_limits<T>::min();
  EXPECT_EQ(apply<T>(Op::kSum, type, {max}, {T{1}}), std::vector<T>{min});
  EXPECT_EQ(apply<T>(Op::kProd, type, {max}, {max}), std::vector<T>{T{1}});
}

TEST(Reduce, WrapsIntegersOfEveryWidth) {
  check_wrapping<std::int8_t>(Type::kInt8);
  check_wrapping<std::int16_t>(Type::kInt16);
  check_wrapping<std::int32_t>(Type::kInt32);
  check_wrapping<std::int64_t>(Type::kInt64);
  check_wrapping<std::uint8_t>(Type::kUint8);
  check_wrapping<std::uint16_t>(Type::kUint16);
  check_wrapping<std::uint32_t>(Type::kUint32);
  check_wrapping<std::uint64_t>(Type::kUint64);
}

TEST(Reduce, ComparesUnsignedAsUnsigned) {
  EXPECT_EQ(apply<std::uint8_t>(Op::kMax, Type::kUint8, {200}, {100}), std::vector<std::uint8_t>{200});
  EXPECT_EQ(apply<std::int8_t>(Op::kMax, Type::kInt8, {-56}, {100}), std::vector<std::int8_t>{100});
}

TEST(Reduce, HasNoLogicalOrBitwiseOperationOnFloatingPoint) {
  for (const Op op : {Op::kLand, Op::kLor, Op::kLxor, Op::kBand, Op::kBor, Op::kBxor}) {
    EXPECT_EQ(find_reduce(op, Type::kFloat), nullptr);
    EXPECT_EQ(find_reduce(op, Type::kDouble), nullptr);
    EXPECT_NE(find_reduce(op, Type::kUint64), nullptr);
  }
}

// --- Every entry of the table against its functor, one element at a time.

template <class T>
bool same(const T& a, const T& b) {
  if constexpr (requires { a.re; })
    return a.re == b.re && a.im == b.im;
  else if constexpr (requires { a.index; })
    return a.value == b.value && a.index == b.index;
  else if constexpr (requires { a.bits; })
    return a.bits == b.bits;
  else
    return a == b;
}

template <class Operation, class T>
int check_entry(Op op, Type type) {
  if constexpr (!std::is_invocable_v<Operation, T, T>) {
    EXPECT_FALSE(supports(op, type)) << "operation " << static_cast<int>(op) << ", type "
                                     << static_cast<int>(type);
    return 0;
  } else {
    std::mt19937_64 random(static_cast<unsigned>(type));
    for (const std::size_t count : {0UL, 1UL, 3UL, 16UL, 65UL, 1001UL}) {
      std::vector<T> a(count), b(count);
      for (std::size_t i = 0; i < count; ++i) a[i] = element<T>(random), b[i] = element<T>(random);
      const std::vector<T> out = apply(op, type, a, b);
      for (std::size_t i = 0; i < count; ++i)
        if (!same(out[i], Operation{}(a[i], b[i]))) {
          ADD_FAILURE() << "operation " << static_cast<int>(op) << ", type " << static_cast<int>(type)
                        << ", element " << i;
          return 1;
        }
    }
    return 1;
  }
}

template <class Operation, class... T>
int check_row(Op op, std::tuple<T...>*) {
  int type = 0, supported = 0;
  ((supported += check_entry<Operation, T>(op, static_cast<Type>(type++))), ...);
  return supported;
}
template <class... Operation>
int check_table(std::tuple<Operation...>*) {
  int op = 0, supported = 0;
  ((supported += check_row<Operation>(static_cast<Op>(op++), static_cast<Types*>(nullptr))), ...);
  return supported;
}

TEST(Reduce, ComputesEveryEntryAsItsFunctorDoes) {
  // Ten operations on 8 integer types, four on 5 real ones, two on 3 complex ones and 8 pairs.
  EXPECT_EQ(check_table(static_cast<Operations*>(nullptr)), 10 * 8 + 4 * 5 + 2 * 3 + 2 * 8);
}

TEST(Reduce, FindsTheLowestIndexOfEqualExtremes) {
  using P = Pair<double, int>;
  const std::vector<P> a = {{1, 7}, {1, 3}, {5, 0}, {-1, 4}}, b = {{1, 2}, {1, 9}, {2, 1}, {8, 3}};
  const auto least = apply(Op::kMinloc, Type::kDoubleInt, a, b),
             most = apply(Op::kMaxloc, Type::kDoubleInt, a, b);
  const std::vector<P> expected_least = {{1, 2}, {1, 3}, {2, 1}, {-1, 4}},
                       expected_most = {{1, 2}, {1, 3}, {5, 0}, {8, 3}};
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same(least[i], expected_least[i])) << i;
    EXPECT_TRUE(same(most[i], expected_most[i])) << i;
  }
}

TEST(Reduce, MultipliesComplexNumbers) {
  const auto product =
      apply<Complex<float>>(Op::kProd, Type::kComplexFloat, {{1, 2}, {0, 1}}, {{3, -1}, {0, 1}});
  EXPECT_TRUE(same(product[0], {5, 5}));
  EXPECT_TRUE(same(product[1], {-1, 0}));
}

TEST(Half, ConvertsThereAndBackForEveryValue) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float value = half.to_float();
    const bool nan = (bits & 0x7fff) > 0x7c00;
    EXPECT_EQ(std::isnan(value), nan);
    if (!nan) {
      ASSERT_EQ(Half::from_float(value).bits, bits);
    }
  }
}

TEST(Half, RoundsToNearestEvenAndOverflowsToInfinity) {
  EXPECT_EQ(Half::from_float(1.0F).bits, 0x3c00);
  EXPECT_EQ(Half::from_float(-2.0F).bits, 0xc000);
  EXPECT_EQ(Half::from_float(1 + 0x1p-11F).bits, 0x3c00) << "a tie goes to the even one";
  EXPECT_EQ(Half::from_float(1 + 0x3p-11F).bits, 0x3c02);
  EXPECT_EQ(Half::from_float(65504).bits, 0x7bff);
  EXPECT_EQ(Half::from_float(65519).bits, 0x7bff);
  EXPECT_EQ(Half::from_float(65520).bits, 0x7c00);
  EXPECT_EQ(Half::from_float(1e30F).bits, 0x7c00);
  EXPECT_EQ(Half::from_float(0x1p-24F).bits, 1);
  EXPECT_EQ(Half::from_float(0x1p-25F).bits, 0) << "half of the smallest: a tie";
  EXPECT_EQ(Half::from_float(0x3p-26F).bits, 1);
  EXPECT_EQ(Half{0x0001}.to_float(), 0x1p-24F);
}

TEST(Bfloat16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(Bfloat16::from_float(1.0F).bits, 0x3f80);
  EXPECT_EQ(Bfloat16::from_float(1 + 0x1p-8F).bits, 0x3f80);
  EXPECT_EQ(Bfloat16::from_float(1 + 0x3p-8F).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(Bfloat16::from_float(std::numeric_limits<float>::quiet_NaN()).to_float()));
}

TEST(Reduce, MayWriteOverEitherOperandAtAnyAlignment) {
  constexpr std::size_t kCount = 1001;
  for (const bool over_first : {true, false}) {
    std::vector<std::byte> first(kCount * sizeof(float) + 3), second(first.size() + 5);
    std::byte *a = first.data() + 3, *b = second.data() + 1;
    for (std::size_t i = 0; i < kCount; ++i) {
      const float x = static_cast<float>(i), y = 0.5F;
      std::memcpy(a + i * sizeof(float), &x, sizeof(x));
      std::memcpy(b + i * sizeof(float), &y, sizeof(y));
    }
    std::byte* out = over_first ? a : b;
    find_reduce(Op::kSum, Type::kFloat)(out, a, b, kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      float sum;
      std::memcpy(&sum, out + i * sizeof(float), sizeof(sum));
      ASSERT_EQ(sum, static_cast<float>(i) + 0.5F);
    }
  }
}

}  // namespace
}  // namespace loom::device
