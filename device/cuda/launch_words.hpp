// launch_words.hpp -- words in which the kernels of zero copy tell that they have ended: of a communicator's
// calls, and of each of its persistent requests. They are made and freed together, because CUDA may wait for
// all work of the context when it makes or frees memory.
#pragma once

#include <cstddef>
#include <vector>

#include "device/cuda/gpu.hpp"

namespace loom::device::cuda {

class LaunchWordsPool {
 public:
  struct Words {
    Word* ended = nullptr;    ///< in host memory that the GPU reaches: the launch that has ended last
    Word* arrived = nullptr;  ///< in GPU memory: a kernel's blocks count themselves there; 0 between launches
  };

  /// gpu must outlive this.
  explicit LaunchWordsPool(Gpu& gpu) : gpu_(gpu) {}
  ~LaunchWordsPool();
  LaunchWordsPool(const LaunchWordsPool&) = delete;
  LaunchWordsPool& operator=(const LaunchWordsPool&) = delete;

  /// As of no launch. Throws what Gpu throws.
  Words take();
  /// Once no kernel uses them.
  void give_back(const Words& words) noexcept { free_.push_back(words); }  // there is room: take()

 private:
  void grow();

  Gpu& gpu_;
  std::vector<std::byte*> on_host_, on_gpu_;
  std::vector<Words> free_;  ///< room for all that there are
};

}  // namespace loom::device::cuda
