// kernel_args.hpp -- what kernels.cu and those who launch its kernels agree on. Plain data, of host and
// device.
//
// There is an image for each operation of device/reduce/operations.hpp, by its number, and one more for data
// that is only moved. Each image has a kernel of both kinds for each type, by its number: loom_reduce_0_8,
// loom_collective_0_8.
#pragma once

#include "device/steps/collective.hpp"

namespace loom::device::cuda {

inline constexpr int kImages = kOpCount + 1;
inline constexpr int kMoveImage = kOpCount;  ///< with kernels for kUint8 alone

/// loom_reduce_<image>_<type>: out = op over the operands, in order. `out` may be one of them.
struct ReduceArgs {
  static constexpr int kMostOperands = 8;

  void* out = nullptr;
  const void* in[kMostOperands] = {};
  int operands = 0;  ///< at least two
  std::size_t count = 0;
};
inline constexpr unsigned kReduceThreads = 512;

/// loom_collective_<image>_<type>: one block for each channel.
struct CollectiveArgs {
  steps::Task task;  ///< of channel 0; the windows of the others are as long, one behind the other
  steps::ChannelForm form;
  steps::Channel* channels = nullptr;  ///< this rank's, in device memory
  const Word* abandoned = nullptr;     ///< every wait ends once this is not 0
  Word* failed = nullptr;              ///< set when a wait has ended so
};
inline constexpr unsigned kCollectiveThreads = 512;

}  // namespace loom::device::cuda
