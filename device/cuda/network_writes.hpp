// network_writes.hpp -- what a network port writes into a GPU's memory by itself (GPUDirect), and when
// kernels there see it. Writes of a device may still be on their way over PCIe when the network tells the
// host that they have been made.
#pragma once

#include <memory>

#include "device/cuda/gpu.hpp"

namespace loom::device::cuda {

class NetworkWrites {
 public:
  /// Nothing where kernels might never see them: the GPU neither keeps their order nor takes them in when it
  /// is told to, or the driver does not say. Throws Error.
  static std::unique_ptr<NetworkWrites> of(std::shared_ptr<Gpu> gpu);

  /// Afterwards the GPU's kernels see all that had been written. From any thread; waits for no kernel. Throws
  /// Error.
  void take_in() const;

 private:
  using Flush = int (*)(int target, int scope);
  NetworkWrites(std::shared_ptr<Gpu> gpu, Flush flush) : gpu_(std::move(gpu)), flush_(flush) {}

  std::shared_ptr<Gpu> gpu_;
  Flush flush_;  ///< nullptr: there is no need
};

}  // namespace loom::device::cuda
