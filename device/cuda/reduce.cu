#include <algorithm>
#include <array>

#include "device/cuda/reduce.hpp"

namespace loom::device::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr std::size_t kMaxBlocks = 1024;  // several for each multiprocessor of any GPU; the loop strides over the rest

template <class Operation, class T>
__global__ void __launch_bounds__(kThreads) reduce_kernel(T* out, const T* a, const T* b, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    out[i] = Operation{}(a[i], b[i]);
}

using Launch = void (*)(void* out, const void* a, const void* b, std::size_t count, unsigned blocks, cudaStream_t);

template <class Operation, class T>
void launch(void* out, const void* a, const void* b, std::size_t count, unsigned blocks, cudaStream_t stream) {
  reduce_kernel<Operation><<<blocks, kThreads, 0, stream>>>(static_cast<T*>(out), static_cast<const T*>(a),
                                                            static_cast<const T*>(b), count);
}

/// A GPU has no long double, alone or in complex numbers and pairs: it would silently compute in double.
template <class T>
constexpr bool on_device = !std::is_same_v<T, long double> && !std::is_same_v<T, Complex<long double>> &&
                           !std::is_same_v<T, Pair<long double, int>>;

template <class Operation, class T>
constexpr Launch entry() {
  if constexpr (on_device<T> && std::is_invocable_v<Operation, T, T>)
    return &launch<Operation, T>;
  else
    return nullptr;
}

using Row = std::array<Launch, kTypeCount>;

template <class Operation, class... T>
constexpr Row row(std::tuple<T...>*) {
  return {entry<Operation, T>()...};
}

template <class... Operation>
constexpr std::array<Row, sizeof...(Operation)> table(std::tuple<Operation...>*) {
  return {row<Operation>(static_cast<Types*>(nullptr))...};
}

constexpr auto kLaunch = table(static_cast<Operations*>(nullptr));

}  // namespace

cudaError_t launch_reduce(Op op, Type type, void* out, const void* a, const void* b, std::size_t count,
                          cudaStream_t stream) {
  const Launch launch = kLaunch[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
  if (launch == nullptr) return cudaErrorNotSupported;
  if (count == 0) return cudaSuccess;
  launch(out, a, b, count, static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks)), stream);
  return cudaGetLastError();
}

}  // namespace loom::device::cuda
