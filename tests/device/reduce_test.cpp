#include "device/reduce.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

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
