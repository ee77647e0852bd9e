// real_gpu.hpp -- a GPU for tests and benchmarks, by way of the driver alone. LD_LIBRARY_PATH may put a
// virtual one first.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "device/cuda/gpu.hpp"

namespace loom::device::cuda {

/// Device 0, initialised, with its primary context retained as a program would. Of a machine without one:
/// nothing.
class RealGpu {
 public:
  static std::unique_ptr<RealGpu> find() {
    auto driver = Driver::open("libcuda.so.1", false);
    if (!driver) return nullptr;
    std::unique_ptr<RealGpu> gpu(new RealGpu(std::move(driver)));
    int devices = 0;
    if (gpu->call<int(unsigned)>("cuInit")(0) != 0 ||
        gpu->call<int(int*)>("cuDeviceGetCount")(&devices) != 0 || devices == 0 ||
        gpu->call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&gpu->context_, 0) != 0)
      return nullptr;
    return gpu;
  }
  ~RealGpu() {
    if (context_ != nullptr) call<int(int)>("cuDevicePrimaryCtxRelease_v2")(0);
  }
  RealGpu(const RealGpu&) = delete;
  RealGpu& operator=(const RealGpu&) = delete;

  template <class Function>
  Function* call(const char* name) const {
    return reinterpret_cast<Function*>(driver_->find(name));
  }
  const Driver& driver() const { return *driver_; }
  Owner owner() const { return {context_, 0}; }
  /// tests/virtual_gpu: sizes have to be small.
  bool is_virtual() const { return driver_->find("virtual_gpu_read") != nullptr; }
  /// "NVIDIA H100 80GB HBM3", and its multiprocessors.
  std::string name() const {
    char name[128] = "?";
    call<int(char*, int, int)>("cuDeviceGetName")(name, sizeof(name), 0);
    return name;
  }

 private:
  explicit RealGpu(std::unique_ptr<Driver> driver) : driver_(std::move(driver)) {}
  std::unique_ptr<Driver> driver_;
  void* context_ = nullptr;
};

/// Memory of a GPU, freed at the end.
class GpuBytes {
 public:
  GpuBytes(Gpu& gpu, std::size_t bytes)
      : gpu_(gpu), at_(gpu.allocate(std::max<std::size_t>(bytes, 1))), bytes_(bytes) {}
  ~GpuBytes() { gpu_.release(at_); }
  GpuBytes(const GpuBytes&) = delete;
  GpuBytes& operator=(const GpuBytes&) = delete;
  std::byte* at() const { return at_; }
  void write(const std::vector<std::byte>& bytes) {
    if (!bytes.empty()) gpu_.copy(at_, bytes.data(), bytes.size());
  }
  std::vector<std::byte> read() {
    std::vector<std::byte> bytes(bytes_);
    if (!bytes.empty()) gpu_.copy(bytes.data(), at_, bytes_);
    return bytes;
  }

 private:
  Gpu& gpu_;
  std::byte* at_;
  std::size_t bytes_;
};

}  // namespace loom::device::cuda
