// gpu_world.hpp -- ranks of one process on a virtual GPU (tests/virtual_gpu), for tests of executors.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "device/cuda/zero_copy_executor.hpp"
#include "tests/virtual_gpu/driver/virtual_library.hpp"

namespace loom::device::cuda {

class Gpus : public virtual_gpu::Library {
 public:
  Gpus() : Library(VIRTUAL_GPU_LIBRARY) { call("cuCtxPushCurrent_v2", context_); }
  ~Gpus() {
    void* context;
    call("cuCtxPopCurrent_v2", &context);
  }
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;
  const Driver& driver() const { return *driver_; }
  Owner owner() const { return {context_, 0}; }

 private:
  std::unique_ptr<Driver> driver_ = Driver::open(VIRTUAL_GPU_LIBRARY, false);
  void* context_ = context(0);
};

/// Ranks that have links on one virtual GPU.
class World {
 public:
  World(const Gpus& gpus, int size, Gpu::Memory memory = Gpu::Memory::kPlain,
        const GpuLinks::Form& form = {.channels = 0}) {
    std::vector<GpuLinks::Handle> handles;
    for (int rank = 0; rank < size; ++rank) {
      gpus_.push_back(std::make_shared<Gpu>(gpus.driver(), gpus.owner()));
      links_.push_back(std::make_unique<GpuLinks>(gpus_.back(), form, size, memory));
      handles.push_back(links_.back()->handle());
    }
    for (int rank = 0; rank < size; ++rank) links_[static_cast<std::size_t>(rank)]->connect(handles, rank);
    for (auto& links : links_) EXPECT_TRUE(links->delivers());
    for (auto& links : links_) EXPECT_TRUE(links->has_been_reached());
  }
  ~World() {
    for (auto& links : links_) links->leave();
  }
  int size() const { return static_cast<int>(links_.size()); }
  GpuLinks& links(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  Gpu& gpu() { return *gpus_[0]; }

  /// calls: by rank. Throws nothing; a rank that fails fails the test. Returns what did not fit, by rank.
  std::vector<std::optional<CutBlock>> perform(const std::vector<Call>& calls) {
    std::vector<std::optional<CutBlock>> cuts(calls.size());
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < size(); ++rank)
        threads.emplace_back([&, rank] {
          try {
            ZeroCopyExecutor executor(links(rank), calls[static_cast<std::size_t>(rank)], true);
            while (executor.advance() != ZeroCopyExecutor::State::kDone) std::this_thread::yield();
            cuts[static_cast<std::size_t>(rank)] = executor.cut();
          } catch (const Error& error) {
            ADD_FAILURE() << error.what();
            links(rank).abandon();
          }
        });
    }
    return cuts;
  }

 private:
  std::vector<std::shared_ptr<Gpu>> gpus_;
  std::vector<std::unique_ptr<GpuLinks>> links_;
};

using Ints = std::vector<int>;
inline std::vector<std::byte> bytes_of(const Ints& ints) {
  std::vector<std::byte> bytes(ints.size() * sizeof(int));
  if (!ints.empty()) std::memcpy(bytes.data(), ints.data(), bytes.size());
  return bytes;
}

/// A buffer on the device, freed at the end.
class Buffer {
 public:
  Buffer(const Gpus& gpus, Gpu& gpu, const Ints& ints)
      : all_(gpus), gpu_(gpu), size_(ints.size()), at_(gpu.allocate(ints.size() * sizeof(int))) {
    gpus.write(at_, bytes_of(ints));
  }
  ~Buffer() { gpu_.release(at_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* at(std::size_t elem = 0) const { return at_ + elem * sizeof(int); }
  Ints read() const {
    Ints ints(size_);
    const std::vector<std::byte> bytes = all_.read(at_, size_ * sizeof(int));
    std::memcpy(ints.data(), bytes.data(), bytes.size());
    return ints;
  }

 private:
  const Gpus& all_;
  Gpu& gpu_;
  std::size_t size_;
  std::byte* at_;
};

}  // namespace loom::device::cuda
