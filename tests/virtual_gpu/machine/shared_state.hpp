// shared_state.hpp -- what the processes of one run have in common: bytes that have moved, when links are busy
// in virtual time, and which kernels are on each GPU. It lies in a file.
//
// Variables of the environment:
//   VIRTUAL_GPU_STATE=FOLDER   of this run alone; whoever starts the run makes and removes it. Without it:
//                              where VIRTUAL_GPU_SHARED or VIRTUAL_GPU_MACHINE makes GPUs common to
//                              processes, a file that the last of them removes, in the folder of mpirun's job
//                              (PMIX_SERVER_TMPDIR), so that jobs have nothing in common; with no mpirun, in
//                              /dev/shm. Else each process has its own.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/virtual_gpu/machine/machine.hpp"

namespace virtual_gpu::machine {

/// Nanoseconds. 1 GB/s is 1 byte in each.
using Ns = double;

/// When a link is busy; see clock.hpp.
struct Calendar {
  static constexpr std::uint32_t kSpans = 64;
  struct Span {
    Ns begin, end;
  };
  Span spans[kSpans];  ///< one behind the other
  std::uint32_t count;

  /// Takes so much of what is free from `earliest` on. When that is used up.
  Ns take(Ns earliest, Ns needed);
};

/// Of one GPU: what each process has of its multiprocessors. Only whose process it is changes a row, but for
/// rows of processes that are not alive: these are free.
struct Residents {
  static constexpr std::size_t kProcesses = 64, kMultiprocessors = 256;
  struct Use {
    std::uint32_t blocks, threads, registers, shared;
  };
  struct Process {
    pid_t process;           ///< 0: nobody's
    std::uint32_t together;  ///< its kernels may be there with those of other processes
    std::uint32_t grids;     ///< that are there, with some block at least
    std::uint64_t waits;     ///< when it asked for a turn, by `next_wait`; 0: it does not
    Use use[kMultiprocessors];
  };
  pthread_mutex_t mutex;
  std::uint64_t next_wait;
  Process processes[kProcesses];
};

/// Until it goes out of scope. A process that dies meanwhile does not block others.
class MutexLock {
 public:
  explicit MutexLock(pthread_mutex_t& mutex);
  ~MutexLock();
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

struct StateFile {
  std::string path;      ///< "": none, the state is of this process alone
  bool removed = false;  ///< by the last process that leaves
};
/// In a folder; "": none.
StateFile state_file_in(const std::string& folder, std::size_t host);
/// As the environment says.
StateFile state_file(const Machine& machine);

class SharedState {
 public:
  struct Header {
    std::uint64_t fingerprint;             ///< of the machine
    pthread_mutex_t mutex;                 ///< guards calendars
    std::atomic<std::uint32_t> told;       ///< somebody has left as the last one
    std::atomic<std::uint64_t> elsewhere;  ///< bytes moved from or to places that the machine does not have
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<Ns>::is_always_lock_free,
                "shared between processes");

  /// Throws Error; also where another machine uses the file.
  SharedState(const Machine& machine, const StateFile& file);
  SharedState(const Machine& machine, const std::string& folder)
      : SharedState(machine, state_file_in(folder, machine.host())) {}
  ~SharedState();
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;

  /// True for one of those processes that leave when no other is left, and once only. The file goes then, if
  /// it is to be removed.
  bool leave();

  Header& header() const { return *header_; }
  /// Bytes moved, by place from and place to.
  std::atomic<std::uint64_t>* moved() const { return moved_; }
  /// By GPU of the machine.
  Residents& residents(std::size_t gpu) const { return residents_[gpu]; }
  /// By Link::capacity. With the lock.
  Calendar& calendar(std::size_t capacity) const { return calendars_[capacity]; }

  class Lock : public MutexLock {
   public:
    explicit Lock(const SharedState& state) : MutexLock(state.header().mutex) {}
  };

 private:
  struct File {
    File() = default;
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int number = -1;
  };
  void open_file(const Machine& machine);
  void map(int flags, const std::string& what);
  void set_up(const Machine& machine);

  StateFile where_;
  std::size_t residents_offset_, calendars_offset_, bytes_;
  File file_;
  Header* header_ = nullptr;
  std::atomic<std::uint64_t>* moved_ = nullptr;
  Residents* residents_ = nullptr;
  Calendar* calendars_ = nullptr;
};

}  // namespace virtual_gpu::machine
