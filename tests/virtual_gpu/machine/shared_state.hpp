// shared_state.hpp -- what the processes of one run have in common: bytes that have moved, and transfers on
// their way. It lies in a file of the folder that VIRTUAL_GPU_STATE names, which whoever starts the run makes
// for that run alone, and removes. Without it each process has its own.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/virtual_gpu/machine/machine.hpp"

namespace virtual_gpu::machine {

/// Of the run's transfers; see clock.hpp.
struct Transfer {
  struct Range {
    std::uint64_t first = 0, count = 0;
  };
  double earliest_ns = 0, work_ns = 0;
  std::uint32_t from = 0, to = 0;  ///< places
  std::uint64_t bytes = 0;
  Range after[2];
};

class SharedState {
 public:
  static constexpr std::size_t kTransfers = 1024;

  struct Header {
    std::uint64_t fingerprint;        ///< of the machine
    pthread_mutex_t mutex;            ///< guards what follows
    std::uint64_t first, next;        ///< numbers: of the first transfer that is kept, and of the next one
    double before_ns;                 ///< when the last of those ended that are not kept
    Transfer transfers[kTransfers];   ///< by their number modulo kTransfers
    std::atomic<std::uint32_t> told;  ///< somebody has left as the last one
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

  /// folder "": of this process alone. Throws Error; also where another machine uses the folder.
  SharedState(const Machine& machine, const std::string& folder);
  ~SharedState();
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;

  /// True for one of those processes that leave when no other is left, and once only.
  bool leave();

  Header& header() const { return *header_; }
  /// Bytes moved, by place from and place to.
  std::atomic<std::uint64_t>* moved() const { return moved_; }

  /// Until it goes out of scope. A process that dies meanwhile does not block others.
  class Lock {
   public:
    explicit Lock(const SharedState& state);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    pthread_mutex_t& mutex_;
  };

 private:
  struct File {
    File() = default;
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int number = -1;
  };
  void map(int flags, const std::string& what);
  void set_up(std::uint64_t fingerprint);

  std::size_t bytes_;
  File file_;
  Header* header_ = nullptr;
  std::atomic<std::uint64_t>* moved_ = nullptr;
};

}  // namespace virtual_gpu::machine
