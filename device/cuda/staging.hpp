// staging.hpp -- staging buffers: host memory in place of device buffers while a call goes on. The caller
// says which bytes are copied when.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "device/cuda/driver.hpp"

namespace loom::device::cuda {

class Staging;

/// Host memory in place of one device buffer, as long as this lives; and the copies between the two. Each
/// byte of it lies at the same distance from its byte in the device buffer.
class StagingBuffer {
 public:
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;
  /// From an address in the device buffer to the one in its staging buffer.
  std::ptrdiff_t distance() const noexcept { return distance_; }
  /// See Driver::copy. Throws Error.
  void copy(std::span<const StridedRegion> regions, Direction direction);

  /// For code that copies in another way (streamed_copies.hpp): who owns the buffer now (throws Error); a
  /// note of how many bytes have been copied; and a note that copies may go on for ever.
  Owner owner() const;
  /// Its pages are locked in memory.
  bool is_locked() const noexcept { return kept_; }
  /// Locked memory beside it, of a fixed length: a long message has too many pages to lock, and passes
  /// through this. Empty: there is none to be had. May wait for the device.
  static constexpr std::size_t kWindowBytes = std::size_t{2} << 20;
  std::span<std::byte> locked_window();
  void note_copied(std::size_t bytes) noexcept;
  void lose() noexcept { lost_ = true; }
  const Driver& driver() const noexcept;

 private:
  friend class Staging;
  StagingBuffer(Staging& staging, const void* address, void* context)
      : staging_(staging), address_(address), context_(context) {}
  Staging& staging_;
  const void* address_;
  void* context_;  ///< where it was made
  std::ptrdiff_t distance_ = 0;
  std::vector<std::span<std::byte>> memory_;  ///< one range, unless blocks lie far apart
  bool kept_ = false;
  std::span<std::byte> window_;
  bool lost_ = false;  ///< copies may still be going on, long after: never used again, nor unmapped
};

/// The staging buffers of one process. From any thread.
class Staging {
 public:
  /// kept_bytes: the most memory that is kept from call to call, with its pages locked. Calls that need more
  /// use plain memory.
  Staging(std::unique_ptr<Driver> driver, std::size_t kept_bytes)
      : driver_(std::move(driver)), most_kept_(kept_bytes) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Throws Error.
  bool is_on_device(const void* address) const { return driver_->owner_of(address).has_value(); }
  /// For the regions that will be copied from and to the device buffer that `address` is in. They may lie far
  /// apart, some of them on the host; they are as well aligned as in the buffer, up to a cache line. Sets
  /// their `host`. may_wait: for the device, where pages have to be unlocked to make room for others; CUDA
  /// does that only when nothing in the context is on its way. Throws Error.
  /// otherwise: see Driver::owner_of().
  std::unique_ptr<StagingBuffer> staging_buffer(const void* address, std::span<StridedRegion> load,
                                                std::span<StridedRegion> store, bool may_wait = true,
                                                void* otherwise = nullptr);

  const Driver& driver() const noexcept { return *driver_; }
  std::uint64_t bytes_copied() const noexcept { return copied_.load(std::memory_order_relaxed); }

 private:
  friend class StagingBuffer;
  std::span<std::byte> reuse(std::size_t bytes, std::size_t most_bytes);
  Owner owner_of(const void* address, void* otherwise = nullptr) const;
  std::span<std::byte> keep_new(const Owner& owner, std::size_t bytes, bool may_wait);
  std::span<std::byte> locked_memory(const Owner& owner, std::size_t bytes, bool may_wait);
  void keep(std::span<std::byte> locked) noexcept;
  void give_back(const StagingBuffer& staging_buffer) noexcept;
  std::span<std::byte> take_last() noexcept LOOM_REQUIRES(mutex_);
  void forget(const std::optional<Owner>& in_context_of, std::span<std::byte> kept) noexcept;

  std::unique_ptr<Driver> driver_;
  std::size_t most_kept_;
  Mutex mutex_;
  std::vector<std::span<std::byte>> free_ LOOM_GUARDED_BY(mutex_);
  std::size_t kept_ LOOM_GUARDED_BY(mutex_) = 0;  // bytes in free_ and in staging buffers
  std::atomic<std::uint64_t> copied_{0};
};

}  // namespace loom::device::cuda
