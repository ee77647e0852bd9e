// kernel_links.hpp -- a rank's links of the kernel executor: one kernel for a call, with a block for each
// channel, which exchanges data with the other ranks' kernels through memory (steps/collective.hpp). All
// ranks' kernels must be resident at once: each rank has its GPU, or they share one through streams of a
// process or through MPS. Never run on a GPU so far.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "device/call.h"
#include "device/cuda/gpu_stream.hpp"
#include "device/cuda/kernel_way.hpp"
#include "device/cuda/mapped_memory.hpp"
#include "device/link/carrier.hpp"

namespace loom::device::cuda {

/// Throws what Gpu throws.
class KernelLinks {
 public:
  /// memory: by rank, where this process reaches that rank's kernel_bytes(), all zeros; nullptr of those on
  /// other hosts. It and `stream` must outlive this. far: this rank's ends of links to other hosts, and
  /// far_on_gpu of as many bytes of this GPU, all zeros, as they take there.
  KernelLinks(GpuStream& stream, int rank, std::span<std::byte* const> memory, const KernelChannels& channels,
              std::vector<steps::FarEnd> far = {}, std::byte* far_on_gpu = nullptr);
  ~KernelLinks();
  KernelLinks(const KernelLinks&) = delete;
  KernelLinks& operator=(const KernelLinks&) = delete;

  /// This rank's ends of links to other hosts, as the host reaches them, and its memory that they are in.
  const std::vector<steps::FarEnd>& far_ends() const { return far_ends_; }
  std::shared_ptr<std::byte> far_memory() const { return far_ ? far_->on_host() : nullptr; }
  /// Of these ends; must be there before the first call that crosses hosts, and outlive this.
  void carry_by(Carrier& carrier) noexcept { carrier_ = &carrier; }

  /// Launches the kernel with nothing to do, and waits for it: a driver loads code and makes room for stacks
  /// at a first launch, and may wait for all kernels of the context before it does. For ranks that share a
  /// context.
  void prepare(std::optional<Op> op, Type type);
  /// How to make such a call, and what it is predicted to take.
  struct Choice {
    KernelWay way;
    double us;
  };
  /// Of KernelWays; that of the last call is remembered. For any thread.
  Choice choose(Collective collective, std::size_t bytes, KernelLinkage linkage);
  /// Enqueues the call: a task of divide() for so many channels, with its buffers and its root. No op: data
  /// is only moved, as kUint8. blocks: by rank, where their lengths differ. One at a time.
  void start(steps::Task task, std::optional<Op> op, Type type, int channels,
             std::span<const Part> blocks = {});
  /// Whether it has ended: then its results are there, for the GPU and for whoever copies them, and no other
  /// host waits for this one. Mostly one look at host memory. Launches it again where it has left, and moves
  /// what there is between hosts. Throws as Carrier does.
  bool has_ended();
  /// Messages moved between hosts so far: grows while there is progress.
  std::uint64_t moves_between_hosts() const noexcept { return carrier_ == nullptr ? 0 : carrier_->moves(); }
  /// For messages: a rank of another host whose messages are missing, and how far it has come.
  std::optional<int> awaited_far() const { return carrier_ == nullptr ? std::nullopt : carrier_->awaited(); }
  std::string standing_of(int far_rank) const { return carrier_->standing(far_rank); }
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
  bool results_are_there();
  /// Whether the kernel had left, and has been launched again.
  bool goes_on();

  /// An all-to-all lists two for each rank.
  std::size_t blocks_bytes() const { return 2 * static_cast<std::size_t>(ranks_) * sizeof(Part); }

  GpuStream& stream_;
  int rank_, ranks_;
  steps::ChannelForm form_;
  steps::Layout layout_;
  KernelWays ways_;
  struct Chosen {
    Collective collective;
    std::size_t bytes;
    KernelLinkage linkage;
    Choice choice;
  };
  std::mutex choosing_;
  std::optional<Chosen> chosen_;  ///< guarded by choosing_
  std::vector<steps::FarEnd> far_ends_;
  /// Of steps::Layout; behind it a word in which a kernel's blocks count themselves, and a call's blocks.
  std::byte* table_ = nullptr;
  std::size_t table_bytes_;
  std::optional<MappedMemory> far_;
  Carrier* carrier_ = nullptr;
  Words* words_ = nullptr;  ///< behind them a call's blocks
  CollectiveArgs args_;     ///< of the last launch
  std::optional<Op> op_;
  Type type_ = Type::kUint8;
  unsigned blocks_ = 0;
  Word launches_ = 0;
  unsigned looks_ = 0;
};

}  // namespace loom::device::cuda
