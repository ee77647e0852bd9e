#include "device/cuda/network_writes.hpp"

#include "device/cuda/driver_interface.hpp"

namespace loom::device::cuda {

std::unique_ptr<NetworkWrites> NetworkWrites::of(std::shared_ptr<Gpu> gpu) {
  Flush flush = nullptr;
  if (gpu->attribute(kNetworkOrdering, 0) < kOrderedForOwner) {
    flush = reinterpret_cast<Flush>(gpu->driver().find("cuFlushGPUDirectRDMAWrites"));
    if (flush == nullptr || (gpu->attribute(kNetworkFlushes, 0) & kFlushByHost) == 0) return nullptr;
  }
  return std::unique_ptr<NetworkWrites>(new NetworkWrites(std::move(gpu), flush));
}

void NetworkWrites::take_in() const {
  if (flush_ == nullptr) return;
  const Driver::CurrentContext current(gpu_->driver(), gpu_->owner());
  int result = current.result();
  if (result == 0) result = flush_(kFlushCurrentContext, kFlushForOwner);
  if (result != 0) throw gpu_->driver().error("it takes in what the network has written", result);
}

}  // namespace loom::device::cuda
