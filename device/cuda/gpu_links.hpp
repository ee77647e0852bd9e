// gpu_links.hpp -- memory of GPUs that the ranks of one communicator share, for either executor, from its
// making to its end. The caller carries handles and verdicts between the ranks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/cuda/host_driven_executor.hpp"
#include "device/cuda/kernel_links.hpp"
#include "device/link/shared_memory.hpp"

namespace loom::device::cuda {

/// One rank's ends. First make it, then, with all ranks' handles, connect(); when all have, see whether
/// delivers(). Each step throws Error or answers no where it does not work, and then no rank may go on.
///
/// The memory of a GPU that IPC shares must not be freed while another process has it mapped, nor is it known
/// when that has come to its end. So a rank leaves, which its peers see, and its memory is freed when all
/// have left.
class GpuLinks {
 public:
  struct Handle {
    SegmentHandle flags;
    MemoryHandle memory;
  };
  /// Whom the memory is for. Kernels of the kernel executor must all be at work at once (see Sharing).
  enum class Kind { kHostDriven, kKernel, kBoth };

  /// How much of it there is; the same on all ranks.
  struct Form {
    Form(Kind wanted) : kind(wanted) {}  // NOLINT(google-explicit-constructor)
    Kind kind;
    std::size_t bank_bytes = GpuCicoBuffers::kBankBytes;
    int channels = kMostChannels;

    std::size_t cico_bytes() const { return kind == Kind::kKernel ? 0 : GpuCicoBuffers::bytes(bank_bytes); }
    /// Of each rank's GPU.
    std::size_t bytes(int ranks) const {
      return cico_bytes() + (kind == Kind::kHostDriven ? 0 : kernel_bytes(ranks, channels));
    }
  };
  /// The largest form that takes no more than `room` bytes: smaller banks, fewer channels, and where kBoth is
  /// wanted the CICO buffers alone. Nothing: there is none.
  static std::optional<Form> fitting(Kind wanted, int ranks, std::uint64_t room);

  /// memory: what the ranks share, of the same kind on all of them.
  GpuLinks(std::shared_ptr<Gpu> gpu, const Form& form, int ranks, Gpu::Memory memory = Gpu::Memory::kPlain);
  ~GpuLinks();
  GpuLinks(const GpuLinks&) = delete;
  GpuLinks& operator=(const GpuLinks&) = delete;

  /// For the others: from now on they may have this rank's memory mapped.
  Handle handle() noexcept;
  /// handles: by rank. Puts a word into this rank's memory.
  void connect(std::span<const Handle> handles, int self);
  /// Whether every rank's word can be read, by way of this GPU: peer access may be there and not work.
  bool delivers();

  /// Of its kind.
  bool has_kernel() const noexcept { return kernels_.has_value(); }
  bool has_cico() const noexcept { return cico_.has_value(); }
  const Form& form() const noexcept { return form_; }
  GpuCicoBuffers& cico() noexcept { return *cico_; }
  KernelLinks& kernels() noexcept { return *kernels_; }
  /// The memory is still there, and the context.
  bool is_alive() const { return scratch_ && gpu_->is_alive(scratch_.get()); }

  /// Peers find out when they wait.
  void abandon() noexcept;
  /// Throws Error (kGivenUp) when a rank has abandoned them.
  void check_peers() const;
  const Gpu& gpu() const noexcept { return *gpu_; }

  /// Touches no other rank's memory any more.
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
  static std::uint64_t word_of(const Handle& handle) { return handle.flags.token | 1; }

  std::shared_ptr<Gpu> gpu_;
  Form form_;
  Gpu::Memory memory_kind_;
  std::size_t bytes_;
  Segment segment_;
  Owned memory_;   ///< bytes_, the CICO buffers first, and a word behind
  Owned scratch_;  ///< a word, in plain memory: it is there as long as the context
  MemoryHandle shared_;
  std::vector<Handle> handles_;
  std::vector<Segment> attached_;   ///< by rank
  std::vector<std::byte*> mapped_;  ///< by rank; nullptr: not, or no longer
  std::optional<GpuCicoBuffers> cico_;
  std::optional<KernelLinks> kernels_;
  int self_ = -1;
  bool told_ = false;  ///< others may have the memory mapped
};

}  // namespace loom::device::cuda
