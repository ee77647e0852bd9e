// memory_types.hpp -- which memory UCX can send from and receive in.
#pragma once

namespace loom::ucx_transport {

/// Whether a context as Open MPI's pml/ucx opens it (UCX_MPI_*, UCX_* in the environment) takes memory of
/// CUDA's devices: UCX has been built with CUDA, and may use it. Opens one for the answer, which takes some
/// milliseconds. False if that fails.
bool open_mpi_moves_cuda_memory() noexcept;

}  // namespace loom::ucx_transport
