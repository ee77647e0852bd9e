// kernels.cu -- the kernels of the programs, by the structs of kernels.hpp. nvcc or clang compiles them to
// images, which support/vectors.cpp loads.
#ifdef __CUDA__  // clang
#include "device/cuda/without_toolkit.hpp"
#endif

#include "mpi_examples/kernels.hpp"

namespace {

__device__ int first() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}
__device__ int stride() {
  return static_cast<int>(gridDim.x * blockDim.x);
}

template <class Work>
__device__ void for_each(const Work& work, int n) {
  for (int i = first(); i < n; i += stride()) work(i);
}

}  // namespace

extern "C" {

__global__ void combine(loom::kernels::Combine work, int n) {
  for_each(work, n);
}
__global__ void laplacian(loom::kernels::Laplacian work, int n) {
  for_each(work, n);
}
__global__ void forward(loom::kernels::Forward work, int n) {
  for_each(work, n);
}
__global__ void gradient(loom::kernels::Gradient work, int n) {
  for_each(work, n);
}
__global__ void backward(loom::kernels::Backward work, int n) {
  for_each(work, n);
}

/// In an order that depends on n alone, so that a run can be repeated bit by bit.
__global__ void dot(loom::kernels::Dot work, int n) {
  constexpr unsigned kThreads = loom::kernels::kThreads;
  __shared__ double sums[kThreads];
  double sum = 0;
  for (int i = first(); i < n; i += stride()) sum += work.x[i] * work.y[i];
  sums[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) work.sums[blockIdx.x] = sums[0];
}

}  // extern "C"
