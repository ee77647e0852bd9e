// fake_driver.hpp -- what the parts of the fake driver have in common: its state, which every function of
// CUDA's interface looks at under one lock.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake_cuda.hpp"

namespace fake_cuda {

inline constexpr int kInvalidValue = 1, kNoMemory = 2, kNotInitialized = 3, kInvalidContext = 201,
                     kInvalidHandle = 400, kNotFound = 500, kNotReady = 600, kAlreadyRegistered = 712,
                     kNotRegistered = 713, kNotSupported = 801;

struct Context {
  int device;
  int retained = 0;
};

enum class Kind { kDevice, kManaged, kPool, kHost, kPeer, kVirtual };  // kPeer: of another process
struct Allocation {
  std::byte* at;
  std::byte* alias;  // where the CPU may
  std::size_t bytes;
  Kind kind;
  Context* context;  // of virtual memory: none
  int device;
  int file;
  bool accessible = true;
};
/// What a handle of virtual memory management stands for.
struct Physical {
  int file;
  std::size_t bytes;
  int device;
};

/// A kernel by its name, in place of its code: loom_reduce_<operation>_<type>, or loom_collective_...
struct Kernel {
  int operation, type;
  bool collective;
};

using Clock = std::chrono::steady_clock;

/// What is enqueued is put off. Where FAKE_CUDA_GBPS says how fast copies are, they have a time, too, at
/// which a copy engine would be through with them.
struct Stream {
  std::deque<std::function<void()>> work;
  std::uint64_t enqueued = 0;
  Clock::time_point ends{};

  bool empty() const { return work.empty(); }
  void push_back(std::function<void()> next) {
    work.push_back(std::move(next));
    ++enqueued;
  }
  /// As far as what was enqueued when there were so many.
  void run(std::uint64_t to) {
    while (!work.empty() && enqueued - work.size() < to) {
      const auto next = std::move(work.front());
      work.pop_front();
      next();
    }
  }
};
struct Event {
  Stream* stream = nullptr;
  std::uint64_t position = 0;
  Clock::time_point ends{};
};

struct Driver {
  std::mutex mutex;
  bool initialised = false;
  Context* primary[2] = {nullptr, nullptr};
  std::set<Context*> alive;
  std::vector<Context*> ended;                   // never freed, so that no other gets such an address
  std::map<std::byte*, Allocation> allocations;  // by address
  std::map<std::byte*, std::pair<std::size_t, Context*>> registered;
  std::map<std::byte*, std::size_t> reserved;  // addresses, for virtual memory
  std::map<std::uint64_t, Physical> handles;
  std::uint64_t last_handle = 0;
  Stream stream;              // the legacy default one
  std::set<Stream*> streams;  // others, that do not wait for it
  std::vector<Stream*> left;  // destroyed: what is in them goes on
  std::set<Event*> events;
  std::map<std::string, std::pair<int, int>> failures;
  std::map<int, Kernel> kernels;
  std::thread
      kernel;  ///< a collective, which is at work beside the program until it has met those of other ranks
  std::atomic<bool> kernel_runs{false};
  FakeCudaCounts counts{};

  int fails(const char* function) {
    const auto found = failures.find(function);
    if (found == failures.end()) return 0;
    if (found->second.first > 0) {
      --found->second.first;
      return 0;
    }
    return found->second.second;
  }
  Allocation* holding(const void* address, std::size_t bytes = 1) {
    auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
    auto next = allocations.upper_bound(at);
    if (next == allocations.begin()) return nullptr;
    Allocation& found = std::prev(next)->second;
    return at + bytes <= found.at + found.bytes ? &found : nullptr;
  }
  /// Where the CPU may reach what is at an address; nullptr: beyond the end of an allocation, or the device
  /// may not.
  std::byte* reach(void* address, std::size_t bytes) {
    if (Allocation* in = holding(address, bytes))
      return in->accessible ? in->alias + (static_cast<std::byte*>(address) - in->at) : nullptr;
    return holding(address) != nullptr ? nullptr : static_cast<std::byte*>(address);
  }
  /// nullptr: there is no such stream.
  Stream* find(void* handle) {
    if (reinterpret_cast<std::uintptr_t>(handle) <= 1) return &stream;
    auto* const other = static_cast<Stream*>(handle);
    return streams.contains(other) ? other : nullptr;
  }
  void run() {
    if (kernel.joinable()) kernel.join();
    stream.run(stream.enqueued);
  }
  void run_all() {
    run();
    for (Stream* other : streams) other->run(other->enqueued);
    for (Stream* other : left) other->run(other->enqueued);
  }
  bool is_idle() const {
    for (const auto& others : {std::vector(streams.begin(), streams.end()), left})
      for (const Stream* other : others)
        if (!other->empty()) return false;
    return stream.empty() && !kernel_runs;
  }
  void unmap(const Allocation& allocation) {
    if (allocation.kind != Kind::kVirtual) ::munmap(allocation.at, allocation.bytes);
    if (allocation.alias != allocation.at) ::munmap(allocation.alias, allocation.bytes);
    ::close(allocation.file);
    --counts.allocations;
  }
};

Driver& driver();
/// Of this thread; the last one is current.
extern thread_local std::vector<Context*> current;
inline Context* current_context() {
  return current.empty() ? nullptr : current.back();
}

/// Whether IPC fails there, by FAKE_CUDA_NO_IPC.
bool no_ipc(const std::string& where);

inline void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace fake_cuda

#define LOCK(function)                        \
  Driver& d = driver();                       \
  const std::lock_guard lock(d.mutex);        \
  if (!d.initialised) return kNotInitialized; \
  if (const int failure = d.fails(function)) return failure

#define EXPORT extern "C" __attribute__((visibility("default")))
