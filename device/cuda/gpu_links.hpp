// gpu_links.hpp -- memory of GPUs that the ranks of one communicator share, for either executor, from its
// allocation to its release. The caller exchanges handles and results between the ranks. What leads to other
// hosts lies in host memory, its slots maybe on this GPU, and is carried by whom the caller says.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/cuda/kernel_links.hpp"
#include "device/cuda/zero_copy_links.hpp"
#include "device/link/process_watch.hpp"
#include "device/link/shared_memory.hpp"

namespace loom::device::cuda {

/// One rank's ends. First construct it; then connect() with all ranks' handles; when all have, call
/// delivers(), and when it has been true for all, check_kernels(). If a step throws Error or returns false on
/// any rank, no rank may go on.
///
/// GPU memory that IPC shares must not be freed while another process has it mapped, and CUDA does not tell
/// when that ends. So a rank leaves, which its peers see, and its memory is freed when all have left.
class GpuLinks {
 public:
  struct Handle {
    SegmentHandle flags;
    MemoryHandle memory;
    ProcessId process;  ///< as it tells of itself
  };
  /// Which executors there are links for, how much memory that takes, and what kernels may do in it; the same
  /// on all ranks.
  struct Form {
    std::size_t bounce_bytes = ZeroCopyLinks::kBounceBytes;  ///< 0: no links for zero copy
    int channels = kMostChannels;  ///< 0: no links between kernels. Else all must be resident at once
    KernelChannels kernels = {};   ///< so many shapes; none: rings and trees in order of rank

    bool zero_copy() const { return bounce_bytes > 0; }
    bool has_kernels() const { return channels > 0; }
    /// Whether kernels have the links that such a call needs beside rings and trees, if any.
    bool may_exchange(Collective collective) const { return kernels.exchange || !exchanges(collective); }
    std::size_t zero_copy_bytes() const { return ZeroCopyLinks::bytes(bounce_bytes); }
    /// With the shapes that there are.
    KernelChannels of_kernels(int ranks) const;
    /// Of each rank's GPU.
    std::size_t bytes(int ranks) const {
      return zero_copy_bytes() + (has_kernels() ? kernel_bytes(ranks, of_kernels(ranks)) : 0);
    }
    /// The same with what links to other hosts take: locked pages of its host, and memory of this GPU.
    std::size_t bytes_with_far(int ranks) const {
      return zero_copy_bytes() + (has_kernels() ? kernel_bytes_with_far(ranks, of_kernels(ranks)) : 0);
    }
    bool shrink(int ranks);
    /// A rank's ends of links to other hosts.
    std::vector<steps::FarEnd> far_ends(int ranks, int rank) const;
  };
  /// The largest form that takes no more than `room` bytes: with fewer channels, smaller bounce buffers, or
  /// those alone. Nothing: there is none.
  static std::optional<Form> fitting(Form form, int ranks, std::uint64_t room);
  /// Bytes of a GPU's memory, and of locked pages, for such links, and for the smallest ones that fitting()
  /// would make of them.
  static std::uint64_t room_for(const Form& form, int ranks);
  static std::uint64_t least_room(Form form, int ranks);

  /// memory: the kind that the ranks share, the same on all of them.
  GpuLinks(std::shared_ptr<Gpu> gpu, const Form& form, int ranks, Gpu::Memory memory = Gpu::Memory::kPlain);
  ~GpuLinks();
  GpuLinks(const GpuLinks&) = delete;
  GpuLinks& operator=(const GpuLinks&) = delete;

  /// For the others: from now on they may have this rank's memory mapped.
  Handle handle() noexcept;
  /// handles: by rank; those of other hosts are not looked at. Puts a word into this rank's memory. far: its
  /// Form::far_ends(), each with slots here or on this GPU.
  void connect(std::span<const Handle> handles, int self, std::vector<steps::FarEnd> far = {});
  /// The slots of each end of KernelLinks::far_ends(). Who has them keeps their memory: a network may still
  /// be at work there when these links have gone.
  std::vector<std::shared_ptr<std::byte>> far_slots() const;
  /// For the links between kernels that lead to other hosts, after connect() and before check_kernels().
  void carry_by(std::unique_ptr<Carrier> carrier) noexcept;
  /// Whether this GPU reads every rank's word, by copies and, for zero copy, by kernels: peer access may be
  /// announced and not work. Writes every rank a word by kernels.
  bool delivers();
  /// Whether every rank's word has come here.
  bool has_been_reached();
  /// Where there are links between kernels: loads the kernels that check_kernels() runs. Takes as long as a
  /// driver compiles.
  void prepare_check();
  /// Once all have done so: tries these links with all other ranks (link_check.hpp). Throws Error, and lets
  /// the others know.
  void check_kernels(std::chrono::milliseconds limit);

  const Form& form() const noexcept { return form_; }
  ZeroCopyLinks& zero_copy() noexcept { return *zero_copy_; }
  KernelLinks& kernels() noexcept { return *kernels_; }
  /// The memory is still there, and the context.
  bool is_alive() const noexcept { return scratch_ && gpu_->is_alive(); }

  /// Peers find out when they wait.
  void abandon() noexcept;
  /// Whether a kernel of this rank of my host, which had not ended at the first abandon(), may still be at
  /// work in my buffers. For 2 seconds it may, and for 20 while its process lives and is not stopped.
  bool may_still_work(int rank) const noexcept;
  /// Throws Error (kGivenUp) when a rank has abandoned them.
  void check_peers() const;
  /// Of links that lead to other hosts; see Carrier.
  void say_waiting() noexcept {
    if (carrier_) carrier_->say_waiting();
  }
  std::optional<bool> waits(int rank) const noexcept {
    return carrier_ ? carrier_->waits(rank) : std::nullopt;
  }
  /// For messages: this rank has enqueued its next call; that is behind no work of its program any more.
  void call_has_begun() noexcept;
  void call_is_free_to_run() noexcept;
  /// A rank for which the kernels of this rank's last call wait.
  struct HeldUpBy {
    int rank;
    bool has_begun;  ///< the call; but its program has put work on the GPU before, which has not ended
  };
  /// The lowest such rank, and those that have not begun first; nothing where no rank is known to be one.
  std::optional<HeldUpBy> held_up_by() const noexcept;
  const Gpu& gpu() const noexcept { return *gpu_; }
  /// Of this communicator's calls.
  GpuStream& stream() noexcept { return *stream_; }
  /// Of its persistent requests that have lanes: those must not come behind a kernel that waits for other
  /// ranks. Made by the first call of this. Throws Error.
  GpuStream& stream_of_lanes();
  LaunchWordsPool& launch_words() noexcept { return *launch_words_; }

  /// Detaches from the other ranks' memory.
  void leave() noexcept;
  bool all_have_left() const noexcept;

 private:
  struct Flags;
  struct Release {
    Gpu* gpu;
    void operator()(std::byte* memory) const noexcept { gpu->release(memory); }
  };
  using Owned = std::unique_ptr<std::byte, Release>;
  static Flags& flags_in(const Segment& segment);
  void close_handles() noexcept;
  std::byte* attach(const MemoryHandle& memory) const;
  static std::uint64_t word_of(const Handle& handle) { return handle.flags.token | 1; }

  std::shared_ptr<Gpu> gpu_;
  Form form_;
  Gpu::Memory memory_kind_;
  std::size_t bytes_;
  Segment segment_;
  Owned memory_;   ///< bytes_, the bounce buffers first, and behind them a word, and one from each rank
  Owned scratch_;  ///< a word
  Owned far_;      ///< slots of links to other hosts
  std::shared_ptr<void> far_use_;  ///< whoever has such slots shares it
  std::unique_ptr<GpuStream> stream_, stream_of_lanes_;
  MemoryHandle shared_;
  bool is_on_my_host(std::size_t rank) const;
  std::vector<bool> peers_in_memory() const;
  /// Calls body(rank, flags) for this rank and those of its host, in order of rank, until it is true.
  template <class Body>
  bool any_flags(Body&& body) const;

  std::vector<Handle> handles_;
  std::vector<Segment> attached_;     ///< by rank; empty of those on other hosts
  std::vector<ProcessId> processes_;  ///< by rank
  std::vector<std::byte*> mapped_;    ///< by rank; nullptr: not needed, or no longer
  std::unique_ptr<Carrier> carrier_;
  std::optional<LaunchWordsPool> launch_words_;
  std::optional<ZeroCopyLinks> zero_copy_;
  std::optional<KernelLinks> kernels_;
  int self_ = -1;
  std::atomic<std::chrono::steady_clock::rep> abandoned_at_ = 0;
  std::uint64_t calls_ = 0;  ///< that this rank has enqueued
  bool told_ = false;        ///< others may have the memory mapped
};

}  // namespace loom::device::cuda
