// reduce.hpp -- the type x operation table on a CUDA device: the host's functors, compiled as kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "device/operations.hpp"

namespace loom::device::cuda {

/// Starts out[i] = a[i] op b[i] for i in [0, count) on the stream. Device memory, aligned for the type; `out` may be `a`
/// or `b`. cudaErrorNotSupported where MPI does not define the operation on the type, and for long double.
cudaError_t launch_reduce(Op op, Type type, void* out, const void* a, const void* b, std::size_t count,
                          cudaStream_t stream);

}  // namespace loom::device::cuda
