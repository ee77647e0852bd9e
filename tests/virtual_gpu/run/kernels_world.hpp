// kernels_world.hpp -- loom's kernels as a compiler has left them in this build, and ranks that are grids of
// this process. Here, and in kernel_args.hpp, is what tests know of the kernels.
#pragma once

#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <ranges>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "device/cuda/images.hpp"
#include "device/cuda/kernel_args.hpp"
#include "tests/device/steps/steps_world.hpp"
#include "tests/virtual_gpu/driver/image.hpp"
#include "tests/virtual_gpu/run/launch.hpp"
#include "tests/virtual_gpu/test_space.hpp"

namespace virtual_gpu::run {

namespace cuda = loom::device::cuda;
namespace steps = loom::device::steps;

/// One of the kernels of an operation on a type.
struct KernelOf {
  cuda::Compiler compiler;
  int op;
  loom::device::Type type;

  loom::device::Type kernel_type() const { return cuda::kernel_type(op, type); }
  std::string name(const std::string& kind) const {
    return "loom_" + kind + "_" + std::to_string(op) + "_" + std::to_string(static_cast<int>(kernel_type()));
  }
};

/// The PTX that has them; of nvcc's the one for the latest architecture.
inline std::string ptx_of(const KernelOf& kernel) {
  const char* const image = cuda::kernel_image(kernel.compiler, kernel.op, kernel.kernel_type());
  if (!is_container(image)) return image;
  const Image* best = nullptr;
  const std::vector<Image> images = images_of(image);
  for (const Image& each : images)
    if (each.is_ptx && (best == nullptr || each.architecture > best->architecture)) best = &each;
  return text_of(*best);
}
/// Parsed once.
inline const Program& program_of(const KernelOf& kernel) {
  static std::map<const char*, Program> programs;
  const char* const image = cuda::kernel_image(kernel.compiler, kernel.op, kernel.kernel_type());
  const auto found = programs.find(image);
  return found != programs.end() ? found->second
                                 : programs.emplace(image, ptx::parse(ptx_of(kernel))).first->second;
}

/// Ends grids that do not come to an end.
class Watch {
 public:
  Watch()
      : thread_([this] {
          if (done_.get_future().wait_for(std::chrono::seconds(100)) == std::future_status::timeout)
            stop = true;
        }) {}
  ~Watch() { done_.set_value(); }
  std::atomic<bool> stop = false;

 private:
  std::promise<void> done_;
  std::jthread thread_;
};

template <class Args>
std::span<const std::byte> parameters(const Args& args) {
  return std::as_bytes(std::span(&args, 1));
}
template <class T>
T* device(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

/// Ranks that reach each other's memory.
class World {
 public:
  World(int size, int channels, std::size_t slot_bytes, std::size_t slots,
        memory::Path path = memory::Path::kNvlink)
      : size_(size), channels_(channels) {
    for (int p = 0; p < steps::kProtocols; ++p) form_.ring[p] = form_.pairwise[p] = {slot_bytes, slots};
    const steps::Layout layout(form_, size);
    std::vector<std::byte*> memory;
    for (int r = 0; r < size; ++r)
      memory.push_back(device<std::byte>(space_.add(layout.bytes(channels), {.path = path})));
    for (int r = 0; r < size; ++r) {
      links_.push_back(space_.add(sizeof(steps::Channel) * static_cast<std::size_t>(channels)));
      for (int c = 0; c < channels; ++c)
        space_.put(links_.back() + static_cast<std::size_t>(c) * sizeof(steps::Channel),
                   layout.channel(memory, r, c));
    }
    words_ = space_.add(16);
  }

  /// What went wrong; empty: all ranks have the right result.
  template <class T>
  std::string perform(const Program& program, const std::string& kernel, const steps::Call& call,
                      unsigned threads, Settings settings, std::size_t offset = 0) {
    const auto ranks = static_cast<std::size_t>(size_);
    std::vector<steps::Bytes> in(ranks);
    std::vector<std::uint64_t> in_at(ranks), out_at(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      in[r] = steps::elements<T>(call.in_count(), static_cast<unsigned>(settings.seed * 8 + r + 1));
      in_at[r] = space_.add(in[r].size() + offset) + offset;  // what lies behind the last element is foreign
      out_at[r] = space_.add(call.out_count() * sizeof(T) + offset) + offset;
      std::memcpy(space_.host(in_at[r]), in[r].data(), in[r].size());
    }
    Watch watch;
    std::vector<std::string> errors(ranks);
    std::vector<std::jthread> grids;
    for (std::size_t r = 0; r < ranks; ++r)
      grids.emplace_back([&, r] {
        cuda::CollectiveArgs args;
        args.task =
            call.task(static_cast<int>(r), device<void>(in_at[r]), device<void>(out_at[r]), 0, channels_);
        args.form = form_;
        args.channels = device<steps::Channel>(links_[r]);
        args.abandoned = device<const loom::device::Word>(words_);
        args.failed = device<loom::device::Word>(words_ + 8);
        Settings mine = settings;
        mine.seed = settings.seed * ranks + r;
        try {
          run(program, *program.find(kernel),
              {.grid = {static_cast<unsigned>(channels_)},
               .block = {threads},
               .parameters = parameters(args)},
              space_, mine, watch.stop);
        } catch (const std::exception& error) {
          errors[r] = error.what();
          watch.stop = true;
        }
      });
    grids.clear();
    for (std::size_t r = 0; r < ranks; ++r)
      if (!errors[r].empty()) return errors[r];
    for (std::size_t r = 0; r < ranks; ++r) {
      const steps::Bytes right =
          steps::expected(call, in, static_cast<int>(r), steps::Bytes(call.out_count() * sizeof(T)));
      const steps::Bytes found(space_.host(out_at[r]), space_.host(out_at[r]) + right.size());
      if (const auto at = steps::first_difference<T>(found, right); at >= 0)
        return "rank " + std::to_string(r) + " has a wrong element " + std::to_string(at);
      for (std::size_t i = 0; i < offset; ++i)
        if (space_.get<std::byte>(out_at[r] - offset + i) != std::byte{})
          return "rank " + std::to_string(r) + " has stored before its buffer";
    }
    if (space_.get<loom::device::Word>(words_ + 8) != 0) return "a wait has ended as if it were abandoned";
    return {};
  }

 private:
  int size_, channels_;
  steps::ChannelForm form_;
  TestSpace space_;
  std::vector<std::uint64_t> links_;  ///< where each rank's channels lie
  std::uint64_t words_ = 0;
};

}  // namespace virtual_gpu::run
