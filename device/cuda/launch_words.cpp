#include "device/cuda/launch_words.hpp"

#include <new>

namespace loom::device::cuda {
namespace {

constexpr std::size_t kAtATime = 64;
/// Of host memory: a line, for kernels and hosts to meet nobody else's.
constexpr std::size_t kApart = 128;

}  // namespace

LaunchWordsPool::~LaunchWordsPool() {
  for (std::byte* memory : on_host_) gpu_.release_on_host(memory);
  for (std::byte* memory : on_gpu_) gpu_.release(memory);
}

void LaunchWordsPool::grow() {
  on_host_.reserve(on_host_.size() + 1);
  on_gpu_.reserve(on_gpu_.size() + 1);
  free_.reserve((on_host_.size() + 1) * kAtATime);
  on_host_.push_back(gpu_.allocate_on_host(kAtATime * kApart));
  std::byte* arrived;
  try {
    arrived = gpu_.allocate(kAtATime * sizeof(Word));
  } catch (...) {
    gpu_.release_on_host(on_host_.back());
    on_host_.pop_back();
    throw;
  }
  on_gpu_.push_back(arrived);
  for (std::size_t i = 0; i < kAtATime; ++i)
    free_.push_back(
        {.ended = new (on_host_.back() + i * kApart) Word, .arrived = reinterpret_cast<Word*>(arrived) + i});
}

LaunchWordsPool::Words LaunchWordsPool::take() {
  if (free_.empty()) grow();
  const Words words = free_.back();
  free_.pop_back();
  *words.ended = 0;
  return words;
}

}  // namespace loom::device::cuda
