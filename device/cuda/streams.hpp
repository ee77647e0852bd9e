// streams.hpp -- the driver's functions for streams and events, as code needs them that copies beside the
// program's own work. The declarations follow the documented interface of CUDA's driver.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/driver.hpp"

namespace loom::device::cuda {

inline constexpr unsigned kNonBlockingStream = 1;  // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kUntimedEvent = 2;       // CU_EVENT_DISABLE_TIMING
inline constexpr int kNotReady = 600;              // CUDA_ERROR_NOT_READY
/// Each returns the driver's result.
struct StreamFunctions {
  int (*create_stream)(void**, unsigned);
  int (*destroy_stream)(void*);
  int (*synchronize)(void*);
  int (*create_event)(void**, unsigned);
  int (*destroy_event)(void*);
  int (*record)(void* event, void* stream);
  int (*wait_in_stream)(void* stream, void* event, unsigned flags);
  int (*wait)(void* event);
  int (*query)(void* event);
  int (*copy)(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream);

  /// Throws Error.
  explicit StreamFunctions(const Driver& driver) {
    driver.find(create_stream, "cuStreamCreate");
    driver.find(destroy_stream, "cuStreamDestroy_v2");
    driver.find(synchronize, "cuStreamSynchronize");
    driver.find(create_event, "cuEventCreate");
    driver.find(destroy_event, "cuEventDestroy_v2");
    driver.find(record, "cuEventRecord");
    driver.find(wait_in_stream, "cuStreamWaitEvent");
    driver.find(wait, "cuEventSynchronize");
    driver.find(query, "cuEventQuery");
    driver.find(copy, "cuMemcpyAsync");
  }
};

}  // namespace loom::device::cuda
