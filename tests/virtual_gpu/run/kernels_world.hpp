// kernels_world.hpp -- loom's kernels as a compiler has left them in this build, and ranks that are grids of
// this process. Here, and in kernel_args.hpp, is what tests know of the kernels.
#pragma once

#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
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
    words_ = space_.add(8 * static_cast<std::size_t>(1 + 3 * size));
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
    Company company(static_cast<unsigned>(size_ * channels_));
    const std::string error =
        launch(program, kernel, call, threads, settings, in_at, out_at, size_, company, call.count);
    if (!error.empty()) return error;
    for (std::size_t r = 0; r < ranks; ++r) {
      const steps::Bytes right =
          steps::expected(call, in, static_cast<int>(r), steps::Bytes(call.out_count() * sizeof(T)));
      const steps::Bytes found(space_.host(out_at[r]), space_.host(out_at[r]) + right.size());
      if (const auto at = steps::first_difference<T>(found, right); at >= 0)
        return "rank " + std::to_string(r) + " has a wrong element " + std::to_string(at);
      if (space_.get<loom::device::Word>(failed_word(static_cast<int>(r))) != 0)
        return "rank " + std::to_string(r) + " has left as if the call were abandoned";
      for (std::size_t i = 0; i < offset; ++i)
        if (space_.get<std::byte>(out_at[r] - offset + i) != std::byte{})
          return "rank " + std::to_string(r) + " has stored before its buffer";
    }
    return {};
  }

  /// Why a call does not come to its end.
  enum class Hindrance {
    kAbsent,  ///< the last rank does not come
    kPart,    ///< all that it does is a shorter call
    kFull     ///< nobody has consumed what was sent before, and there is no slot left
  };
  /// What goes wrong when the ranks are told to leave. The word that says so is seen by one thread now, by
  /// another one later.
  template <class T>
  std::string abandon(const Program& program, const std::string& kernel, const steps::Call& call,
                      unsigned threads, const Settings& settings, Hindrance hindrance) {
    if (hindrance == Hindrance::kFull) fill();
    const std::vector<std::uint64_t> in(static_cast<std::size_t>(size_),
                                        space_.add(call.in_count() * sizeof(T))),
        out(in.size(), space_.add(call.out_count() * sizeof(T)));
    const int ranks = hindrance == Hindrance::kAbsent ? size_ - 1 : size_;
    Company company(static_cast<unsigned>(ranks * channels_ + 1));
    std::atomic<bool> over = false;
    std::jthread leaver([&] {
      std::atomic_ref word(*reinterpret_cast<loom::device::Word*>(space_.host(words_)));
      for (std::uint64_t i = 0; i < 1 << 23 && !over; ++i) {
        word = i % 2;
        if (i % 64 == 0) std::this_thread::yield();
      }
      word = 1;
      company.leave();
    });
    const std::string error = launch(program, kernel, call, threads, settings, in, out, ranks, company,
                                     hindrance == Hindrance::kPart ? 24 / sizeof(T) : call.count);
    over = true;
    if (!error.empty()) return error;
    for (int r = 0; r < size_ - 1; ++r)
      if (space_.get<loom::device::Word>(failed_word(r)) != 1)
        return "rank " + std::to_string(r) + " does not say that the call was abandoned";
    return {};
  }

 private:
  /// One grid for each of the ranks [0, ranks). The first fault.
  std::string launch(const Program& program, const std::string& kernel, const steps::Call& call,
                     unsigned threads, const Settings& settings, const std::vector<std::uint64_t>& in,
                     const std::vector<std::uint64_t>& out, int ranks, Company& company,
                     std::size_t last_count) {
    Watch watch;
    std::mutex mutex;
    std::string first;
    std::vector<std::jthread> grids;
    for (int rank = 0; rank < ranks; ++rank)
      grids.emplace_back([&, rank] {
        const auto r = static_cast<std::size_t>(rank);
        cuda::CollectiveArgs args;
        steps::Call mine_of = call;
        if (rank == size_ - 1) mine_of.count = last_count;
        args.task = mine_of.task(rank, device<void>(in[r]), device<void>(out[r]), 0, channels_);
        args.form = form_;
        args.channels = device<steps::Channel>(links_[r]);
        args.abandoned = device<const loom::device::Word>(words_);
        args.failed = device<loom::device::Word>(failed_word(rank));
        args.arrived = device<loom::device::Word>(words_ + 8 * (1 + ranks + r));
        args.ended = device<loom::device::Word>(words_ + 8 * (1 + 2 * ranks + r));
        args.call = 1;
        Settings mine = settings;
        mine.company = &company;
        mine.seed = settings.seed * static_cast<std::uint64_t>(size_) + r;
        try {
          run(program, *program.find(kernel),
              {.grid = {static_cast<unsigned>(channels_)},
               .block = {threads},
               .parameters = parameters(args)},
              space_, mine, watch.stop);
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          if (first.empty()) first = error.what();
          watch.stop = true;
        }
      });
    grids.clear();
    return first;
  }

  /// Every link is as if as many messages had been sent as it has slots.
  void fill() {
    for (const std::uint64_t channels : links_) {
      auto channel = space_.get<steps::Channel>(channels);
      for (int p = 0; p < steps::kProtocols; ++p) {
        channel.ring[p].passed.sent = form_.ring[p].slot_count;
        channel.pairwise[p].passed.sent = form_.pairwise[p].slot_count;
      }
      space_.put(channels, channel);
    }
  }
  std::uint64_t failed_word(int rank) const { return words_ + 8 * static_cast<std::uint64_t>(1 + rank); }

  int size_, channels_;
  steps::ChannelForm form_;
  TestSpace space_;
  std::vector<std::uint64_t> links_;  ///< where each rank's channels lie
  std::uint64_t words_ = 0;           ///< whether the call is abandoned; whether each rank has left for that
};

}  // namespace virtual_gpu::run
