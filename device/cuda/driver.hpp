// driver.hpp -- CUDA's driver, opened where the machine has one: whose memory is this, and copies between it
// and the host's. Nothing of CUDA is needed to build it, and nothing is linked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "base/mutex.hpp"

namespace loom::device::cuda {

/// Rows of bytes that lie alike in a device buffer and in its staging buffer. As loom_strided_region in
/// component/core.h.
struct StridedRegion {
  std::byte* device;
  std::byte* host;
  std::size_t row_bytes, rows;
  std::size_t pitch;  ///< bytes from row to row, at least row_bytes; means nothing for a single row
};

std::size_t bytes_of(std::span<const StridedRegion> regions) noexcept;

enum class Direction { kToHost, kToDevice };

/// Who owns memory that the CPU must not touch.
struct Owner {
  void* context;  ///< nullptr: there is none
  int device;     ///< ordinal in this process

  bool operator==(const Owner&) const = default;
};

/// Of several buffers, whether all are of one GPU, `owner` of those before. Where there is no context, memory
/// is of any on its device.
inline bool take_owner(std::optional<Owner>& owner, const Owner& next) {
  if (!owner) owner = next;
  if (owner->context == nullptr) owner->context = next.context;
  return owner->device == next.device && (next.context == nullptr || next.context == owner->context);
}

class Driver {
 public:
  /// The driver under this name, or nullptr where there is none or one that lacks functions. It is not
  /// initialised: that is up to the program. `if_loaded`: only if someone has loaded it already.
  static std::unique_ptr<Driver> open(const char* name, bool if_loaded);
  ~Driver();

  /// Nothing: the CPU may use the memory, because it is plain, or host memory that CUDA knows. Managed memory
  /// has an owner: copies wait for the device's work on it. One question to CUDA, or none where the memory
  /// can never be a device's (host_memory.hpp). Never cached: addresses are freed and used again.
  ///
  /// Where CUDA does not answer, because a kernel of the program has failed, memory that the CPU may read is
  /// the host's if none there has been seen to be a device's. Throws Error where that is not so.
  ///
  /// Memory of pools and of virtual mappings is in no context. What the program does there is in the one that
  /// it has made current in this thread, if that is on the memory's device; else it is taken to be in
  /// `otherwise`, or in the primary context, if that is there.
  std::optional<Owner> owner_of(const void* address, void* otherwise = nullptr) const;
  /// Whether such memory is in a context by itself. Throws as owner_of().
  bool is_in_a_context(const void* address) const;

  /// Whether the owner's context is the primary one of its device, and there. Of another context nothing can
  /// be asked that would not take its end badly.
  bool is_primary(const Owner& owner) const noexcept;

  /// Until all has ended that the program has put into the legacy default stream of the owner's context.
  /// Throws Error.
  void wait_for_program(const Owner& owner) const;

  /// Copies after what the program has put into the legacy default stream and the streams that synchronise
  /// with it; all has been copied on return. Throws Error; in_flight then says whether copies may still be
  /// going on.
  void copy(const Owner& owner, std::span<const StridedRegion> regions, Direction direction,
            bool& in_flight) const;

  /// Enqueues the copies in a stream of the current context, and returns the driver's result. Copies of
  /// memory whose pages are not locked are made before this returns.
  int enqueue(std::span<const StridedRegion> regions, Direction direction, void* stream) const;

  /// Locks pages in memory, which makes their copies faster; whether that worked. The pages stay the caller's
  /// even when the context has gone.
  bool pin(const Owner& owner, void* memory, std::size_t bytes) const noexcept;
  /// With no owner, in the current context: an owner known from earlier may be gone. Whether CUDA has
  /// unlocked the pages, so that they may be unmapped.
  bool unpin(const std::optional<Owner>& in_context_of, void* memory) const noexcept;

  /// As long as this lives, this thread's calls are allowed, and end nobody's capture, while a stream of the
  /// program captures: by default CUDA takes calls of any thread that wait, ask or make something for
  /// mistakes of the capturing one. What loom does has no part in a capture.
  class RelaxedCaptures {
   public:
    explicit RelaxedCaptures(const Driver& driver) noexcept;
    ~RelaxedCaptures();
    RelaxedCaptures(const RelaxedCaptures&) = delete;
    RelaxedCaptures& operator=(const RelaxedCaptures&) = delete;

   private:
    const Driver& driver_;
    int mode_;        ///< of this thread, while it is relaxed
    bool exchanged_;  ///< not before the program has initialised CUDA
  };

  /// Makes the owner's context current in this thread as long as this lives: streams and copies belong to
  /// contexts, and a thread that MPI's progress runs in may have none. result(): the driver's; 0: success.
  /// Inside another one of the same context it has nothing to do.
  class CurrentContext {
   public:
    CurrentContext(const Driver& driver, const Owner& owner);
    ~CurrentContext();
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;
    int result() const noexcept { return result_; }

   private:
    const Driver& driver_;
    const Owner owner_;
    const CurrentContext* const around_;
    std::optional<RelaxedCaptures> relaxed_;
    int result_ = 0;
    bool pushed_ = false;
    std::optional<int> retained_;
  };

  /// Where loom's work comes after the program's, in the current context: the legacy default stream. While
  /// the program captures work in a stream that synchronises with that one, CUDA forbids its use, which would
  /// end the capture. Then a stream of loom's own that synchronises with it, too: it comes after what is in
  /// the legacy stream, and does not wait for the program's other streams.
  class ProgramStream {
   public:
    explicit ProgramStream(const Driver& driver) noexcept;
    ~ProgramStream();  ///< what is in it goes on
    ProgramStream(const ProgramStream&) = delete;
    ProgramStream& operator=(const ProgramStream&) = delete;
    void* stream() const noexcept { return stream_; }
    /// Until all before it has ended. Returns the driver's result.
    int synchronize() const noexcept;

   private:
    const Driver& driver_;
    void* stream_;
    bool is_own_ = false;
  };
  /// Whether the program captures so, in the owner's context.
  bool is_legacy_stream_forbidden(const Owner& owner) const noexcept;

  /// The context that is current in this thread, as the program uses it. Nothing: there is none, or CUDA is
  /// not initialised.
  std::optional<Owner> current_owner() const noexcept;

  /// The seconds of a driver that keeps time of its own, as the one of tests/virtual_gpu where its user asks
  /// for that; else nullptr.
  using Clock = double (*)();
  Clock own_clock() const noexcept;

  /// Any function of the driver, or nullptr.
  void* find(const char* name) const noexcept;
  /// The same for a function that must be there. Throws Error (kDevice).
  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(find_or_throw(name));
  }
  /// "CUDA's driver fails with error 2 (out of memory) while <doing>."
  Error error(const char* doing, int result) const;

 private:
  struct Functions;
  explicit Driver(std::unique_ptr<Functions> functions);
  void* find_or_throw(const char* name) const;
  std::optional<Owner> recorded_owner_of(const void* address) const;
  void* primary_of(int device) const noexcept;
  void remember(const void* on_device) const;
  bool was_on_device(const void* address) const;

  std::unique_ptr<Functions> functions_;
  mutable Mutex mutex_;
  /// Ends, by beginnings, of memory that has been seen to have an owner, now or earlier.
  mutable std::map<std::uint64_t, std::uint64_t> seen_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom::device::cuda
