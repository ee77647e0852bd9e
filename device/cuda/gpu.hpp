// gpu.hpp -- one GPU of this process as executors use it: memory that other processes reach, and kernels, all
// through the driver of driver.hpp. Work goes through streams (gpu_stream.hpp). Nothing of CUDA is needed to
// build it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/gpu_facts.hpp"
#include "device/cuda/kernel_args.hpp"
#include "device/cuda/virtual_memory.hpp"

namespace loom::device::cuda {

/// How another process of the host finds memory from Gpu::allocate(). Plain data: it travels as bytes.
struct MemoryHandle {
  std::int64_t pid = 0;
  std::uint64_t address = 0;
  MemoryFile file{};                   ///< of virtual memory
  std::array<std::byte, 64> driver{};  ///< CUipcMemHandle, of other memory
};

class OpenedMemory;

/// What the communicators of a process share of it. Every function throws Error (kDevice, kOutOfMemory)
/// unless it is noexcept.
class Gpu {
 public:
  enum class Memory {
    kPlain,   ///< of the context; CUDA's IPC shares it
    kVirtual  ///< of the device (virtual_memory.hpp); shared where IPC does not work
  };

  /// Uses the owner's context. most_bytes: the limit of what allocate() has
  /// given out at a time. Also throws where this build has no kernels.
  Gpu(const Driver& driver, const Owner& owner,
      std::size_t most_bytes = std::numeric_limits<std::size_t>::max());
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Whether this owner's memory is this GPU's, in this context.
  bool is_of(const Owner& owner) const noexcept { return owner.context == context_; }

  /// Whether its context is still the one that this was made in: a program may reset its device at any time.
  /// Then contexts, memory and kernels of new ones get the addresses of the old.
  bool is_alive() const noexcept;
  const Driver& driver() const noexcept { return driver_; }
  Owner owner() const noexcept { return {context_, device_}; }

  /// Zeroed.
  std::byte* allocate(std::size_t bytes, Memory kind = Memory::kPlain);
  /// Nothing may use it any more.
  void release(std::byte* memory) noexcept;
  /// The same later: release_unused(), which may wait for the GPU, frees it once nobody else shares `use`.
  /// For memory that a network may still read or write, and for callers that may not wait.
  void release_later(std::byte* memory, std::shared_ptr<void> use) noexcept;
  void release_unused() noexcept;
  /// Host memory that the GPU reaches at the same address.
  std::byte* allocate_on_host(std::size_t bytes);
  void release_on_host(std::byte* memory) noexcept;
  /// Locks pages of the caller's, which the GPU reaches at the address that is returned. They count as memory
  /// of the GPU does.
  std::byte* map(std::byte* pages, std::size_t bytes);
  /// Nothing on the GPU may use them any more. Whether they may be unmapped from the process.
  bool unmap(std::byte* pages) noexcept;
  MemoryHandle share(std::byte* memory) const;
  /// Any memory of the program's. An id of 0: the driver does not know it.
  struct Allocation {
    std::uint64_t id = 0;  ///< the driver's number for it, which never recurs
    std::uint64_t begin = 0, bytes = 0;
  };
  Allocation allocation_of(const void* address) const;
  /// Of what begins there. Nothing: CUDA's IPC does not share such memory.
  std::optional<MemoryHandle> try_share(std::uint64_t begin) const;
  /// Closes what the memory's handle keeps open; afterwards no process can attach it.
  void close_handle(std::byte* memory) noexcept;
  /// Where this process reaches a peer's memory, on this GPU or on another that this one has a path to. For
  /// memory of this process, the memory itself.
  std::byte* attach(const MemoryHandle& handle);
  void detach(const MemoryHandle& handle, std::byte* memory) noexcept;
  /// The same for what several communicators and requests may have open.
  OpenedMemory& opened() noexcept { return *opened_; }

  /// For set-up: waits for no other stream, and has ended on return.
  void copy(void* to, const void* from, std::size_t bytes);
  /// As the driver knows it; loaded at its first use. No op: data is only moved, as kUint8.
  void* combine_kernel(std::optional<Op> op, Type type) { return kernel(0, op, type); }
  void* collective_kernel(std::optional<Op> op, Type type) { return kernel(1, op, type); }
  /// Of collective_kernel(): blocks that the GPU holds at once where nothing else is on it.
  unsigned resident_blocks(std::optional<Op> op, Type type);
  GpuFacts facts() const;
  /// A CUdevice_attribute; `if_unknown` where the driver does not know it. Throws Error.
  int attribute(int which, int if_unknown) const;
  /// Bytes that this process may still allocate there, or lock for it.
  std::uint64_t room() const;

  /// Whether MPI defines the operation on the type, and a GPU has the type.
  static bool supports(Op op, Type type) noexcept;

 private:
  struct Functions;
  class Current;
  /// As the driver has loaded it, or why it has not.
  struct Module {
    void* handle = nullptr;
    std::string why_not;
  };
  void* module(int op, Type type) LOOM_REQUIRES(loading_);
  void* kernel(int kind, std::optional<Op> op, Type type);
  int get_handle(MemoryHandle& handle) const;
  std::byte* allocate_any(std::size_t bytes, Memory kind);
  /// What make() returns, which takes so many bytes of the limit until it is given back. Throws Error.
  template <class Make>
  std::byte* within_limit(std::size_t bytes, Make&& make);
  void give_back(std::byte* memory) noexcept;
  void release_any(std::byte* memory) noexcept;
  std::byte* keep(VirtualMemory memory);
  bool drop(std::byte* memory) noexcept;
  void check(int result, const char* doing) const;
  int device() const;
  void free_all() noexcept;

  const Driver& driver_;
  std::unique_ptr<Functions> functions_;
  void* context_;
  int device_;
  void* stream_ = nullptr;       ///< for set-up
  std::uint64_t anchor_ = 0;     ///< address of some memory: it is there as long as the context
  std::uint64_t anchor_id_ = 0;  ///< the driver's number for this memory, which never recurs
  std::size_t most_bytes_;
  mutable Mutex mutex_;
  /// By address, pages that are locked included.
  std::map<std::byte*, std::size_t> allocated_ LOOM_GUARDED_BY(mutex_);
  std::size_t used_ LOOM_GUARDED_BY(mutex_) = 0;  ///< bytes of these, and those about to be
  /// By kind, operation and type; those that were loaded, with what they were loaded from.
  std::array<std::array<std::array<std::atomic<void*>, kTypeCount>, kKernelOps>, 2> kernels_{};
  Mutex loading_;
  std::map<const char*, Module> modules_ LOOM_GUARDED_BY(loading_);  ///< by image
  struct InUse {
    std::byte* memory;
    std::shared_ptr<void> use;
  };
  std::list<InUse> in_use_ LOOM_GUARDED_BY(mutex_);
  std::map<std::byte*, VirtualMemory> virtual_ LOOM_GUARDED_BY(mutex_);  ///< by address, own and attached
  std::unique_ptr<OpenedMemory> opened_;
};

}  // namespace loom::device::cuda
