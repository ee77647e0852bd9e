// kernels_world.hpp -- loom's kernels as a compiler has left them in this build, and ranks that are grids of
// this process. Here, and in kernel_args.hpp, is what tests know of the kernels.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "device/cuda/images.hpp"
#include "device/cuda/kernel_args.hpp"
#include "tests/device/steps/step_calls.hpp"
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

/// Memory in which loads are judged that may come late.
inline constexpr TestSpace::Kind kWatched{.path = memory::Path::kNvlink, .watches_loads = true};

/// Ranks that reach each other's memory. Each FIFO is a region of its own: what lies behind it is foreign.
class World {
 public:
  /// kind: of the FIFOs.
  World(int size, int channels, std::size_t slot_bytes, std::size_t slots,
        const TestSpace::Kind& kind = {.path = memory::Path::kNvlink})
      : size_(size), channels_(channels), kind_(kind), ends_(static_cast<std::size_t>(size)) {
    for (int p = 0; p < steps::kProtocols; ++p)
      form_.ring[p] = form_.tree[p] = form_.pairwise[p] = form_.exchange[p] = {slot_bytes, slots};
    const steps::Layout layout(form_, size, steps::channels_with_chains(size, channels));
    std::vector<std::byte*> memory;
    for (int r = 0; r < size; ++r)
      memory.push_back(device<std::byte>(static_cast<std::uint64_t>(r + 1) << 40));  // to tell links apart
    for (int r = 0; r < size; ++r) {
      tables_.push_back(space_.add(layout.table_bytes(channels)));
      steps::Bytes table = layout.table(memory, r, channels, device<std::byte>(tables_.back()));
      for (int c = 0; c < channels; ++c) {
        std::byte* const at = table.data() + static_cast<std::size_t>(c) * sizeof(steps::Channel);
        steps::Channel channel;
        std::memcpy(&channel, at, sizeof(channel));
        give_places(channel);
        std::memcpy(at, &channel, sizeof(channel));
        give_places_of_exchange(
            channel.exchange,
            table.data() + (reinterpret_cast<std::uintptr_t>(channel.exchange.links) - tables_.back()));
      }
      std::memcpy(space_.host(tables_.back()), table.data(), table.size());
      End& end = ends_[static_cast<std::size_t>(r)];
      end.look = [this, &end] { look_at(end); };
      for (int which = 0; which < kWords; ++which)
        end.words[which] = space_.add(
            sizeof(loom::device::Word),
            {.this_gpu_only = which == kArrived, .on_store = which == kEnded ? &end.look : nullptr});
    }
    abandoned_ = space_.add(sizeof(loom::device::Word));
  }
  /// Kernels leave after so many looks in vain, and are launched again. by_turns: one rank's at a time.
  void leave_after(unsigned looks, bool by_turns) {
    patience_ = looks;
    by_turns_ = by_turns;
  }
  /// How often kernels were launched in all.
  unsigned launches() const { return launches_; }

  /// What went wrong; empty: all ranks have the right result.
  template <class T>
  std::string perform(const Program& program, const std::string& kernel, const steps::Call& call,
                      unsigned threads, Settings settings, std::size_t offset = 0) {
    const auto ranks = static_cast<std::size_t>(size_);
    std::vector<steps::Bytes> in(ranks);
    std::vector<std::uint64_t> in_at(ranks), out_at(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      in[r] = steps::elements<T>(call.in_count(static_cast<int>(r)),
                                 static_cast<unsigned>(settings.seed * 8 + r + 1));
      in_at[r] = space_.add(in[r].size() + offset) + offset;  // what lies behind the last element is foreign
      ends_[r].out_bytes = call.out_count(static_cast<int>(r)) * sizeof(T);
      ends_[r].out = out_at[r] = space_.add(ends_[r].out_bytes + offset) + offset;
      std::memcpy(space_.host(in_at[r]), in[r].data(), in[r].size());
    }
    Company company(static_cast<unsigned>(size_ * channels_));
    const std::string error =
        launch(program, kernel, call, threads, settings, in_at, out_at, size_, company, call.count);
    if (!error.empty()) return error;
    for (std::size_t r = 0; r < ranks; ++r) {
      const steps::Bytes right = steps::expected(
          call, in, static_cast<int>(r), steps::Bytes(call.out_count(static_cast<int>(r)) * sizeof(T)));
      if (!ends_[r].seen) return "rank " + std::to_string(r) + " has not said that it has ended";
      if (const auto at = steps::first_difference<T>(ends_[r].result, right); at >= 0)
        return "rank " + std::to_string(r) + " has a wrong element " + std::to_string(at);
      if (ends_[r].failed) return "rank " + std::to_string(r) + " has left as if the call were abandoned";
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
                                        space_.add(call.in_count(0) * sizeof(T))),
        out(in.size(), space_.add(call.out_count(0) * sizeof(T)));
    const int ranks = hindrance == Hindrance::kAbsent ? size_ - 1 : size_;
    Company company(static_cast<unsigned>(ranks * channels_ + 1));
    std::atomic<bool> over = false;
    std::jthread leaver([&] {
      std::atomic_ref word(*reinterpret_cast<loom::device::Word*>(space_.host(abandoned_)));
      // Until a kernel has seen the word, and then no longer: it is launched again.
      for (std::uint64_t i = 0; i < 1 << 23 && !over && launches_ <= static_cast<unsigned>(ranks); ++i) {
        word = i % 2;
        if (i % 63 == 0) std::this_thread::yield();  // with either value: others may run only meanwhile
      }
      word = 1;
      company.leave();
    });
    const std::string error = launch(program, kernel, call, threads, settings, in, out, ranks, company,
                                     hindrance == Hindrance::kPart ? 24 / sizeof(T) : call.count);
    over = true;
    if (!error.empty()) return error;
    for (int r = 0; r < size_ - 1; ++r)
      if (!ends_[static_cast<std::size_t>(r)].failed)
        return "rank " + std::to_string(r) + " does not say that the call was abandoned";
    return {};
  }

 private:
  /// Both ends of a link get the same.
  template <class T>
  void give_place(T*& at, std::size_t bytes, const TestSpace::Kind& kind) {
    const auto [place, is_new] = places_.try_emplace(reinterpret_cast<std::uintptr_t>(at));
    if (is_new) place->second = space_.add(bytes, kind);
    at = device<T>(place->second);
  }
  template <class Ends>
  void give_places(Ends& ends, int froms, int tos, const steps::FifoForm& form) {
    const auto give = [&](auto& end) {
      give_place(end.slots, form.bytes(), kind_);
      give_place(end.filled, sizeof(loom::device::Word), {.path = kind_.path});
      give_place(end.consumed, sizeof(loom::device::Word), {.path = kind_.path});
    };
    std::for_each_n(ends.from, froms, give);
    std::for_each_n(ends.to, tos, give);
  }
  void give_places(steps::Channel& channel) {
    constexpr int kSimple = static_cast<int>(steps::Protocol::kSimple);
    for (auto* ends : {&channel.grid.local, &channel.grid.rail})
      give_places(*ends, ends->froms, ends->tos, form_.ring[kSimple]);
    if (channel.grid.scratch != nullptr)
      give_place(channel.grid.scratch, form_.ring[kSimple].slot_count / 2 * form_.ring[kSimple].slot_bytes,
                 kind_);
    for (int p = 0; p < steps::kProtocols; ++p) {
      auto& ring = channel.ring.ends[p];
      auto& pairwise = channel.pairwise[p];
      give_places(ring, ring.froms, ring.tos, form_.ring[p]);
      give_places(pairwise, pairwise.froms, pairwise.tos, form_.pairwise[p]);
      for (int t = 0; t < channel.trees; ++t) {
        const int ends = std::max(0, 2 * channel.tree[t].neighbours - 1);  // all but the last twice
        give_places(channel.tree[t].ends[p], ends, ends, form_.tree[p]);
      }
    }
  }

  /// at: where its links are now.
  void give_places_of_exchange(const steps::Distances& exchange, std::byte* at) {
    for (int d = exchange.first; d < size_; d += exchange.stride, at += sizeof(steps::DistanceLinks)) {
      steps::DistanceLinks links;
      std::memcpy(&links, at, sizeof(links));
      steps::Ends<1> ends{{links.from}, {links.to}, 1, 1, {}};
      give_places(ends, 1, 1, form_.exchange[static_cast<int>(steps::Protocol::kSimple)]);
      links.from = ends.from[0], links.to = ends.to[0];
      std::memcpy(at, &links, sizeof(links));
    }
  }

  /// One grid for each of the ranks [0, ranks). The first fault.
  std::string launch(const Program& program, const std::string& kernel, const steps::Call& call,
                     unsigned threads, const Settings& settings, const std::vector<std::uint64_t>& in,
                     const std::vector<std::uint64_t>& out, int ranks, Company& company,
                     std::size_t last_count) {
    Watch watch;
    std::mutex mutex;
    std::string first;
    std::vector<std::uint64_t> blocks;
    for (int rank = 0; rank < size_ && call.lists_blocks(); ++rank) {
      const std::vector<loom::device::Part> mine = call.blocks(rank);
      blocks.push_back(space_.add(mine.size() * sizeof(mine[0])));
      std::memcpy(space_.host(blocks.back()), mine.data(), mine.size() * sizeof(mine[0]));
    }
    /// Whether the kernel has left, and is to be launched again.
    const auto launch_one = [&](std::size_t r, bool resumes) {
      End& end = ends_[r];
      const int rank = static_cast<int>(r);
      steps::Call mine_of = call;
      if (rank == size_ - 1) mine_of.count = last_count;
      const auto at = [&](int which) { return device<loom::device::Word>(end.words[which]); };
      cuda::CollectiveArgs args{
          .task =
              mine_of.task(rank, device<void>(in[r]), device<void>(out[r]), static_cast<unsigned>(channels_),
                           blocks.empty() ? nullptr : device<loom::device::Part>(blocks[r])),
          .form = form_,
          .channels = device<steps::Channel>(tables_[r]),
          .abandoned = device<const loom::device::Word>(abandoned_),
          .failed = at(kFailed),
          .left = at(kLeft),
          .words = {at(kArrived), at(kEnded), 1},
          .patience = patience_};
      args.task.resumes = resumes;
      for (const int which : {kLeft, kEnded}) space_.put(end.words[which], loom::device::Word{0});
      end.seen = end.failed = end.left = false;
      ++launches_;
      Settings mine = settings;
      mine.company = patience_ == 0 ? &company : nullptr;
      for (int c = 0; c < channels_ && resumes; ++c) company.join();  // its blocks had left with the kernel
      mine.seed = settings.seed * static_cast<std::uint64_t>(size_) + r;
      try {
        run(program, *program.find(kernel),
            {.grid = {static_cast<unsigned>(channels_)}, .block = {threads}, .parameters = parameters(args)},
            space_, mine, watch.stop);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (first.empty()) first = error.what();
        watch.stop = true;
      }
      return !watch.stop && end.left;
    };
    if (by_turns_) {
      std::set<std::size_t> unfinished;
      for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
        if (launch_one(r, false)) unfinished.insert(r);
      for (unsigned turn = 0; turn < kMostTurns && !unfinished.empty(); ++turn)
        std::erase_if(unfinished, [&](std::size_t r) { return !launch_one(r, true); });
      return unfinished.empty() ? first : "ranks leave again and again";
    }
    std::vector<std::jthread> grids;
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
      grids.emplace_back([&, r] {
        for (bool resumes = false; launch_one(r, resumes); resumes = true) std::this_thread::yield();
      });
    grids.clear();
    return first;
  }

  /// Every link is as if as many messages had been sent as it has slots.
  void fill() {
    for (const std::uint64_t table : tables_) {
      auto channel = space_.get<steps::Channel>(table);  // these worlds have one
      for (int p = 0; p < steps::kProtocols; ++p) {
        channel.ring.ends[p].passed.sent = form_.ring[p].slot_count;
        channel.pairwise[p].passed.sent = form_.pairwise[p].slot_count;
        for (steps::Tree& tree : channel.tree)
          std::ranges::fill(tree.ends[p].passed, form_.tree[p].slot_count);
      }
      space_.put(table, channel);
    }
  }

  /// Words of a rank: whether it has left for good, or to be launched again; its blocks that have ended; its
  /// launch that has.
  enum { kFailed, kLeft, kArrived, kEnded, kWords };
  /// And what the host sees as soon as the last one says so.
  struct End {
    std::array<std::uint64_t, kWords> words{};
    std::uint64_t out = 0;
    std::size_t out_bytes = 0;
    std::function<void()> look{};
    bool seen = false, failed = false, left = false;
    steps::Bytes result{};
  };
  void look_at(End& end) {
    const auto is_set = [&](int which) { return space_.get<loom::device::Word>(end.words[which]) != 0; };
    end.seen = is_set(kEnded);
    end.failed = is_set(kFailed);
    end.left = is_set(kLeft);
    end.result.clear();
    if (end.out_bytes > 0) end.result.assign(space_.host(end.out), space_.host(end.out) + end.out_bytes);
  }

  static constexpr unsigned kMostTurns = 1000;  ///< of each rank in a call, where one runs at a time

  int size_, channels_;
  TestSpace::Kind kind_;
  steps::ChannelForm form_;
  TestSpace space_;
  std::map<std::uintptr_t, std::uint64_t> places_;  ///< of FIFOs and words, by where the layout has them
  std::vector<std::uint64_t> tables_;               ///< by rank
  std::vector<End> ends_;                           ///< by rank
  std::uint64_t abandoned_ = 0;                     ///< a word for all: the call is abandoned
  unsigned patience_ = 0;
  bool by_turns_ = false;
  std::atomic<unsigned> launches_ = 0;
};

}  // namespace virtual_gpu::run
