// kernel_links.hpp -- a rank's links of the kernel executor: one kernel for a call, with a block for each
// channel, which exchanges data with the other ranks' kernels through memory (steps/collective.hpp). All
// ranks' kernels must be resident at once: each rank has its GPU, or they share one through streams of a
// process or through MPS. Never run on a GPU so far.
#pragma once

#include <span>
#include <vector>

#include "device/call.h"
#include "device/cuda/gpu_stream.hpp"
#include "device/steps/layout.hpp"

namespace loom::device::cuda {

/// Slots as they suit a GPU (estimates, not measured): a slice of a ring keeps one block busy for some 10 us;
/// pairwise links are one FIFO of each protocol for every two ranks.
constexpr steps::ChannelForm kernel_form() {
  using steps::Protocol;
  steps::ChannelForm form;
  form.ring[static_cast<int>(Protocol::kSimple)] = {.slot_bytes = 128 * 1024, .slot_count = 8};
  form.ring[static_cast<int>(Protocol::kLL128)] = {.slot_bytes = 32 * 1024, .slot_count = 8};
  form.tree[static_cast<int>(Protocol::kSimple)] = {.slot_bytes = 64 * 1024, .slot_count = 8};
  form.tree[static_cast<int>(Protocol::kLL)] = {.slot_bytes = 8 * 1024, .slot_count = 8};
  form.tree[static_cast<int>(Protocol::kLL128)] = {.slot_bytes = 16 * 1024, .slot_count = 8};
  form.pairwise[static_cast<int>(Protocol::kLL)] = {.slot_bytes = 16 * 1024, .slot_count = 4};
  form.pairwise[static_cast<int>(Protocol::kLL128)] = {.slot_bytes = 32 * 1024, .slot_count = 4};
  return form;
}

inline constexpr int kMostChannels = 16;

/// Bytes of memory of each rank.
std::size_t kernel_bytes(int ranks, int channels = kMostChannels);

/// How kernels perform a call. Pure arithmetic on what all ranks share.
struct KernelWay {
  steps::Algorithm algorithm;
  steps::Protocol protocol;
  int channels;
};
/// Nothing: there is none. bytes: of the message, or of a block. may_ll128, most_channels: of the links.
std::optional<KernelWay> kernel_way(Collective collective, std::size_t bytes, int ranks, bool may_ll128,
                                    int most_channels = kMostChannels);

/// A Task of a call's sizes (see steps::Task), equal on all ranks. Chunks are whole lines, so that vectors
/// stay aligned.
steps::Task divide(const KernelWay& way, std::size_t count, std::size_t elem_bytes, int size);

/// Throws what Gpu throws.
class KernelLinks {
 public:
  /// memory: by rank, where this process reaches that rank's kernel_bytes(), all zeros. It and `stream` must
  /// outlive this. shapes: of the channels, fastest first; the same on all ranks, and without trees.
  KernelLinks(GpuStream& stream, int rank, std::span<std::byte* const> memory,
              std::vector<steps::ChannelShape> shapes);
  ~KernelLinks();
  KernelLinks(const KernelLinks&) = delete;
  KernelLinks& operator=(const KernelLinks&) = delete;

  /// Launches the kernel with nothing to do, and waits for it: a driver loads code and makes room for stacks
  /// at a first launch, and may wait for all kernels of the context before it does. For ranks that share a
  /// context.
  void prepare(std::optional<Op> op, Type type);
  /// Enqueues the call: a task of divide() for so many channels, with its buffers and its root. No op: data
  /// is only moved, as kUint8. One at a time.
  void start(steps::Task task, std::optional<Op> op, Type type, int channels);
  /// Whether it has ended: then its results are there, for the GPU and for whoever copies them. Mostly one
  /// look at host memory. Launches it again where it has left.
  bool has_ended();
  /// Of a call that has ended: it was abandoned, and the links must not be used any more.
  bool was_abandoned() const;
  /// Waits for it. False: it was abandoned.
  bool finish();
  /// The kernel ends soon, wherever it waits.
  void abandon() noexcept;

 private:
  /// In host memory that the GPU reaches. Each on a line of its own.
  struct Words {
    alignas(128) Word abandoned;
    alignas(128) Word failed;
    alignas(128) Word left;
    alignas(128) Word ended;  ///< number of the last launch that has
  };
  Gpu& gpu() const noexcept { return stream_.gpu(); }
  void launch();
  /// Whether the kernel had left, and has been launched again.
  bool goes_on();

  GpuStream& stream_;
  int rank_;
  std::byte* table_ = nullptr;  ///< of steps::Layout, and behind it a word in which blocks count themselves
  std::size_t table_bytes_;
  Words* words_ = nullptr;
  CollectiveArgs args_;  ///< of the last launch
  std::optional<Op> op_;
  Type type_ = Type::kUint8;
  unsigned blocks_ = 0;
  std::vector<unsigned> total_weights_;  ///< of the first channel, of the first two, ...
  Word launches_ = 0;
  unsigned looks_ = 0;
};

}  // namespace loom::device::cuda
