// without_toolkit.hpp -- what kernels.cu uses of CUDA's headers, for clang on a machine without CUDA.
#pragma once

#include <__clang_cuda_builtin_vars.h>  // clang's own: threadIdx and the like

#include <cstdlib>  // clang's <new> for CUDA wants malloc and free

#define __CUDACC__ 1
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__  // only spares a copy of the arguments

__device__ inline int __syncthreads_or(int condition) {
  return __nvvm_bar0_or(condition);
}
__device__ inline bool __all_sync(unsigned lanes, bool condition) {
  return __nvvm_vote_all_sync(lanes, condition);
}
__device__ inline void __syncwarp(unsigned lanes) {
  __nvvm_bar_warp_sync(lanes);
}
