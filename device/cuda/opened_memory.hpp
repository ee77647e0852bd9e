// opened_memory.hpp -- memory of other processes that this one has open by CUDA's IPC: each once, whoever
// uses it. CUDA waits for all work of the context before it closes any, also for a kernel of the program that
// waits for the host: so a thread of its own does that, and nobody else. Drivers refuse to open memory at
// addresses that are open already for what lay there before.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <thread>

#include "base/mutex.hpp"
#include "device/cuda/gpu.hpp"

namespace loom::device::cuda {

/// Any thread may call it.
class OpenedMemory {
 public:
  /// gpu must outlive this.
  explicit OpenedMemory(Gpu& gpu) : gpu_(gpu) {}
  /// Waits as CUDA does.
  ~OpenedMemory();
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;

  /// Memory that a process has told of: so many bytes, from handle.address there, and its driver's number for
  /// them, which never recurs.
  struct Place {
    std::uint64_t id;
    MemoryHandle handle;
    std::uint64_t bytes;
  };
  /// Returns where this process reaches it. Throws Error, maybe because of what lay there before
  /// (is_in_the_way()).
  std::byte* open(const Place& place);
  /// Once for each open(). What nobody uses is closed.
  void let_go(const Place& place) noexcept;
  /// Whatever else is open at these addresses is gone, for its owner has allocated them anew: it is closed,
  /// whoever has it.
  void supersede(const Place& place) noexcept;
  /// Whether something else there has yet to be closed.
  bool is_in_the_way(const Place& place) noexcept;
  /// Until nothing is any more, or nothing has been closed for so long.
  void wait_for_room(const Place& place, std::chrono::milliseconds moment) const noexcept;

 private:
  struct Opened {
    Place place;
    std::byte* memory;
    int users;
  };
  using List = std::list<Opened>;

  void close(List::iterator opened) noexcept LOOM_REQUIRES(mutex_);
  void start_closer() noexcept LOOM_REQUIRES(mutex_);
  void close_all() noexcept;
  bool is_closing_at(const Place& place) const noexcept LOOM_REQUIRES(mutex_);

  Gpu& gpu_;
  mutable Mutex mutex_;
  mutable std::condition_variable_any closed_;
  std::condition_variable_any wanted_;
  List opened_ LOOM_GUARDED_BY(mutex_), closing_
      LOOM_GUARDED_BY(mutex_);                          ///< the first one of these is being closed
  std::thread closer_ LOOM_GUARDED_BY(mutex_);          ///< from the first one on
  std::uint64_t closings_ LOOM_GUARDED_BY(mutex_) = 0;  ///< that have ended
  bool ends_ LOOM_GUARDED_BY(mutex_) = false;
};

}  // namespace loom::device::cuda
