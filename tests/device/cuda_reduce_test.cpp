#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "device/cuda/reduce.hpp"
#include "device/reduce.hpp"

namespace loom::device {
namespace {

/// Small numbers as elements of the type: sums and products of two of them are exact in every type.
template <class T>
T small(std::size_t i) {
  const auto n = static_cast<int>(i % 9) - 4;
  if constexpr (requires(T t) { t.re; })
    return {static_cast<decltype(T::re)>(n), static_cast<decltype(T::re)>(n / 2)};
  else if constexpr (requires(T t) { t.index; })
    return {static_cast<decltype(T::value)>(n), static_cast<decltype(T::index)>(i % 5)};
  else if constexpr (requires(T t) { t.bits; })
    return T::from_float(static_cast<float>(n));
  else
    return static_cast<T>(n);
}

template <class T>
std::vector<std::byte> elements(std::size_t count, std::size_t factor) {
  std::vector<std::byte> bytes(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const T value = small<T>(i * factor);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) { EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess); }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* data() { return data_; }

 private:
  void* data_ = nullptr;
};

template <class T>
void agrees_with_the_host(Op op, Type type, int& combinations) {
  constexpr std::size_t kCount = 100003;
  const std::size_t bytes = kCount * sizeof(T);
  const ReduceFn on_host = find_reduce(op, type);
  DeviceBytes a(bytes), b(bytes);
  const auto on_device = [&](std::size_t count) {
    return cuda::launch_reduce(op, type, a.data(), a.data(), b.data(), count, nullptr);
  };
  const bool long_double =
      type == Type::kLongDouble || type == Type::kComplexLongDouble || type == Type::kLongDoubleInt;
  if (on_host == nullptr || long_double) {
    EXPECT_EQ(on_device(1), cudaErrorNotSupported);
    return;
  }
  const std::vector<std::byte> x = elements<T>(kCount, 37), y = elements<T>(kCount, 101);
  std::vector<std::byte> expected(bytes), got(bytes);
  on_host(expected.data(), x.data(), y.data(), kCount);
  ASSERT_EQ(cudaMemcpy(a.data(), x.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(b.data(), y.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(on_device(kCount), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(got.data(), a.data(), bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  // Element by element: padding may differ.
  for (std::size_t i = 0; i < kCount; ++i) {
    T e, g;
    std::memcpy(&e, expected.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&g, got.data() + i * sizeof(T), sizeof(T));
    if constexpr (requires { e.re; })
      ASSERT_TRUE(e.re == g.re && e.im == g.im) << i;
    else if constexpr (requires { e.index; })
      ASSERT_TRUE(e.value == g.value && e.index == g.index) << i;
    else if constexpr (requires { e.bits; })
      ASSERT_EQ(e.bits, g.bits) << i;
    else
      ASSERT_EQ(e, g) << i;
  }
  ++combinations;
}

template <class... T>
int every_combination(std::tuple<T...>*) {
  int combinations = 0;
  for (int op = 0; op < kOpCount; ++op) {
    int type = 0;
    (agrees_with_the_host<T>(static_cast<Op>(op), static_cast<Type>(type++), combinations), ...);
  }
  return combinations;
}

TEST(CudaReduce, AgreesWithTheHostForEveryTypeAndOperation) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "skipped: no CUDA device";
  // Ten operations on 8 integer types, four on 4 real ones, two on 2 complex ones and 7 pairs.
  EXPECT_EQ(every_combination(static_cast<Types*>(nullptr)), 10 * 8 + 4 * 4 + 2 * 2 + 2 * 7);
}

}  // namespace
}  // namespace loom::device
