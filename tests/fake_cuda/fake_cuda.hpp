// fake_cuda.hpp -- what tests may ask of the fake driver beyond CUDA's interface; found with dlsym.
//
// It is a libcuda.so.1 without a GPU. Device memory is mapped twice: where the program has its address, no
// CPU may touch it, and where the fake knows it, only its copies do. So whoever reads or writes a device
// buffer with the CPU ends at once. Work in a stream is put off until somebody synchronises with it, as a
// slow GPU would; streams that are made are non-blocking ones. Other processes may map memory, as CUDA's IPC
// lets them. loom's kernels are known by their names, and done by the host's table of reductions.
//
// Of the environment of each process: FAKE_CUDA_SHARED gives it the same GPU as all others that have it;
// FAKE_CUDA_MPS is what a driver answers that has heard of MPS, 0 or 1; FAKE_CUDA_MULTIPROCESSORS are those
// of the GPU. FAKE_CUDA_NO_IPC makes IPC fail: "get", "open", or so that its attribute says so; where
// FAKE_CUDA_VIRTUAL_MEMORY is 1, virtual memory is offered. FAKE_CUDA_GBPS is how many GB/s each stream
// copies, while the CPU does something else; else copies take what they take.
#pragma once

#include <cstddef>
#include <cstdint>

struct FakeCudaCounts {
  std::uint64_t copies;  ///< asynchronous ones, as the library under test makes them
  std::uint64_t bytes;   ///< that these have copied
  std::uint64_t synchronisations;
  std::uint64_t foreign_context;              ///< copies while the memory's own context was not current
  std::uint64_t allocations;                  ///< alive, and mappings; for each, the fake has a file open
  std::uint64_t handles;                      ///< of virtual memory, alive; likewise
  std::uint64_t reservations;                 ///< of addresses, alive
  std::uint64_t registered, most_registered;  ///< bytes of host memory, now and at the most
  std::uint64_t looks;                        ///< questions of where a pointer points
  std::uint64_t kernels;                      ///< that have been launched
  std::uint64_t streams;                      ///< and events, alive
};

extern "C" {
using FakeCudaRead = void(FakeCudaCounts*);
/// The call of this function after `after` more of it, and all that follow, fail with the error; 0: none
/// fails.
using FakeCudaFail = void(const char* function, int after, int error);
/// Puts a kernel into the default stream that sets all bytes.
using FakeCudaFill = void(void* device, int value, std::size_t bytes);
}
