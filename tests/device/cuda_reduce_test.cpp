#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "device/cuda/reduce.hpp"
#include "device/reduce.hpp"

namespace loom::device {
namespace {

TEST(CudaReduce, AgreesWithTheHostForEveryTypeAndOperation) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "skipped: no CUDA device";

  constexpr std::size_t kCount = 100003;
  const std::size_t max_bytes = kCount * sizeof(double);
  std::byte *a = nullptr, *b = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&a), max_bytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&b), max_bytes), cudaSuccess);
  int combinations = 0;
  for (int op = 0; op < kOpCount; ++op)
    for (int type = 0; type < kTypeCount; ++type) {
      const ReduceFn on_host = find_reduce(static_cast<Op>(op), static_cast<Type>(type));
      const auto on_device = [&](std::size_t count) {
        return cuda::launch_reduce(static_cast<Op>(op), static_cast<Type>(type), a, a, b, count, nullptr);
      };
      if (on_host == nullptr) {
        EXPECT_EQ(on_device(1), cudaErrorNotSupported);
        continue;
      }
      const std::size_t bytes = kCount * size_of(static_cast<Type>(type));
      // Any bytes will do for integers; for floating point, exponents near that of 1 keep NaN and infinity away.
      std::vector<std::byte> x(bytes), y(bytes), expected(bytes), got(bytes);
      for (std::size_t i = 0; i < bytes; ++i) {
        x[i] = static_cast<std::byte>(i * 37 >> 3);
        y[i] = static_cast<std::byte>(i * 101 >> 2);
      }
      const auto type_index = static_cast<Type>(type);
      for (std::size_t i = 0; i < kCount; ++i) {
        const float fx = static_cast<float>(i % 1000) - 500, fy = static_cast<float>(i % 77) - 38;
        const double dx = fx, dy = fy;
        if (type_index == Type::kFloat) std::memcpy(&x[i * 4], &fx, 4), std::memcpy(&y[i * 4], &fy, 4);
        if (type_index == Type::kDouble) std::memcpy(&x[i * 8], &dx, 8), std::memcpy(&y[i * 8], &dy, 8);
      }
      on_host(expected.data(), x.data(), y.data(), kCount);
      ASSERT_EQ(cudaMemcpy(a, x.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
      ASSERT_EQ(cudaMemcpy(b, y.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
      ASSERT_EQ(on_device(kCount), cudaSuccess);
      ASSERT_EQ(cudaMemcpy(got.data(), a, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
      EXPECT_EQ(got, expected) << "operation " << op << ", type " << type;
      ++combinations;
    }
  EXPECT_EQ(combinations, 4 * kTypeCount + 6 * (kTypeCount - 2));
  cudaFree(a);
  cudaFree(b);
}

}  // namespace
}  // namespace loom::device
