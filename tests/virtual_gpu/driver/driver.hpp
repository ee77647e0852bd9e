// driver.hpp -- the state of the virtual driver, which every entry point looks at under one lock, and how one
// is entered.
#pragma once

#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/virtual_gpu/driver/cuda_interface.hpp"
#include "tests/virtual_gpu/driver/gpus.hpp"
#include "tests/virtual_gpu/driver/memory_file.hpp"
#include "tests/virtual_gpu/driver/multiprocessors.hpp"
#include "tests/virtual_gpu/driver/virtual_gpu.hpp"
#include "tests/virtual_gpu/driver/work.hpp"

namespace virtual_gpu {

struct Context;
struct Module;
struct Function;

/// A sequence of operations that are recorded and not done.
struct Capture {
  struct Stream* origin;
  Context* context;
  CaptureMode mode;
  std::thread::id thread;
  std::uint64_t id;
  bool valid = true;
  std::vector<std::vector<std::size_t>> nodes = {};  ///< by node, those that it comes after
};
struct Graph {
  std::size_t nodes;
};

struct Stream {
  Context* context;
  bool blocking;  ///< synchronises with the legacy stream
  bool destroyed = false;
  WorkPtr last = {};
  std::shared_ptr<Capture> capture = {};
  std::vector<std::size_t> tail = {};  ///< nodes of the capture that the next one comes after
};
struct Event {
  Context* context;
  unsigned flags;
  bool recorded = false;
  WorkPtr work = {};
  std::shared_ptr<Capture> capture = {};  ///< last recorded in a stream that captured
  std::vector<std::size_t> tail = {};
};

struct Context {
  Ordinal device;
  bool primary;
  bool active = true;
  int retained = 0;
  unsigned flags = 0;
  std::atomic<Result> sticky{kSuccess};  ///< a kernel has failed: all calls return this
  std::atomic<bool> stop{false};         ///< its kernels have to end
  std::shared_ptr<Stream> legacy = {};
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread = {};
  std::vector<std::shared_ptr<Stream>> streams = {};  ///< of both kinds, also destroyed ones that have work
  std::set<Context*> peers = {};                      ///< whose memory its kernels may use
};

enum class Kind { kDevice, kManaged, kPool, kModule, kHost, kRegistered, kPeer, kVirtual };
struct Allocation {
  Address begin;
  std::size_t bytes;
  Kind kind;
  Context* context;  ///< of pools and virtual memory: none
  Ordinal device;
  std::uint64_t id;                       ///< never used again
  std::shared_ptr<MemoryFile> file = {};  ///< of registered memory: none
  std::map<Ordinal, int> access = {};     ///< of virtual memory, by device: flags
  unsigned flags = 0;                     ///< of host memory
  int opened = 0;                         ///< of a peer's memory: how many times
  std::int64_t peer = 0;                  ///< the process
  Address begin_there = 0;
  bool exported = false;                  ///< other processes may have it
  bool leaves = false;                    ///< a stream will free it
  std::atomic<int> users{0};              ///< copies on their way

  bool on_host() const { return kind == Kind::kHost || kind == Kind::kRegistered; }
  bool cpu_may() const { return on_host() || kind == Kind::kManaged; }
  /// Where the driver may reach an address in it.
  std::byte* at(Address address) const {
    return file ? file->data() + (address - begin) : reinterpret_cast<std::byte*>(address);
  }
};
using AllocationPtr = std::shared_ptr<Allocation>;

/// All memory that CUDA knows in this process, by address.
class AddressMap {
 public:
  /// What holds the whole range; nullptr: nothing does.
  AllocationPtr holding(Address address, std::size_t bytes = 1) const;
  /// The one that begins there.
  AllocationPtr at(Address address) const;
  bool overlaps(Address address, std::size_t bytes) const;
  void add(AllocationPtr allocation);
  void remove(Address begin);
  std::vector<AllocationPtr> all() const;
  /// Kernels that run look again at what they have found: who reaches it has changed.
  void touch() noexcept { generation_.fetch_add(1, std::memory_order_release); }
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }

 private:
  std::map<Address, AllocationPtr> by_begin_;
  std::atomic<std::uint64_t> generation_{0};
};

/// What a handle of virtual memory management stands for.
struct Physical {
  std::shared_ptr<MemoryFile> file;
  Ordinal device;
  int references = 1;
};

struct Driver {
  Driver();

  std::mutex mutex;
  std::atomic<pid_t> process{0};  ///< that has initialised it; 0: none
  Engine engine;
  std::optional<Gpus> gpus;                                       ///< once it is initialised
  std::vector<std::unique_ptr<Multiprocessors>> multiprocessors;  ///< by GPU
  std::vector<Context*> primary;                                  ///< by GPU; never freed
  std::set<Context*> contexts;                                    ///< alive
  std::set<Context*> ended;  ///< never freed, so that no other gets such an address
  AddressMap memory;
  std::vector<std::size_t> used;                      ///< bytes, by GPU
  std::map<std::size_t, std::vector<Address>> freed;  ///< addresses that are used again, by whole pages
  std::map<Address, std::size_t> reserved;            ///< addresses, for virtual memory
  std::map<std::uint64_t, Physical> handles;
  std::uint64_t last_handle = 0, last_id = 0;
  std::map<void*, std::shared_ptr<Stream>> streams;
  std::map<void*, std::shared_ptr<Event>> events;
  std::map<void*, std::shared_ptr<Module>> modules;
  std::map<void*, Function*> functions;
  std::map<void*, std::unique_ptr<Graph>> graphs;
  std::vector<std::shared_ptr<void>> ended_handles;  ///< their addresses are not used again
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<std::string, std::pair<int, Result>> failures;
  VirtualGpuCounts counts{};

  Result fails(const char* function);
  Ordinal count() const { return static_cast<Ordinal>(gpus->size()); }
  bool is_device(Ordinal device) const { return device >= 0 && device < count(); }
  /// Everything in it is gone when it has become idle; kernels are told to end.
  void end(std::unique_lock<std::mutex>& lock, Context& context);
  void release(const AllocationPtr& allocation);
};

Driver& driver();
/// Of this thread; the last one is current. May hold contexts that have been destroyed.
extern thread_local std::vector<Context*> current;
extern thread_local CaptureMode capture_mode;
extern thread_local bool in_host_function;

/// A variable of the environment.
std::optional<std::string> variable(const char* name);
std::uint64_t number(const char* name, std::uint64_t otherwise);
/// To stderr, where VIRTUAL_GPU_VERBOSE asks for it; and returns the result.
Result say(Result result, const std::string& why);

/// What an entry point needs.
enum Needs : unsigned {
  kNothing = 0,
  kInContext = 1,  ///< a current context that is alive and has not failed
  kUnsafe = 2      ///< must not be called while a capture goes on that forbids it
};

/// A call of an entry point, with the lock.
struct Call {
  Driver& driver;
  std::unique_lock<std::mutex> lock;
  Context* context = nullptr;

  /// nullptr: there is no such stream.
  std::shared_ptr<Stream> stream(void* handle) const;
  void wait(const WorkPtr& work);
  /// The program has asked, and learns that it has ended; work nullptr: that there is none.
  void find_ended(const WorkPtr& work);
  /// All that streams of a context have to do. Then: its error.
  Result wait_for_all(Context& context);
};

/// kSuccess, or why the call must not go on.
Result begin(Call& call, const char* function, unsigned needs);
/// Errors of the call that stream captures forbid it; marks these as invalid.
Result check_captures(Call& call);
/// Whether the legacy stream may be used.
Result check_legacy(Call& call, Context& context);

template <class Body>
Result enter(const char* function, unsigned needs, Body&& body) {
  Call call{driver(), {}};
  if (const Result result = begin(call, function, needs); result != kSuccess) return result;
  try {
    return body(call);
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
}

/// Of virtual time, in ns: what it takes to enqueue work, beside what the work itself moves.
struct Cost {
  machine::Ns call = 0;   ///< of the program's
  machine::Ns start = 0;  ///< from there until the work may begin
  machine::Ns gap = 0;    ///< between what came before it and the work
};
inline constexpr Cost kLaunch{machine::kLaunchCallNs, machine::kKernelStartNs, machine::kKernelGapNs},
    kCopy{machine::kCopyCallNs, machine::kCopyStartNs, 0}, kMark{machine::kEventRecordNs, 0, 0};

/// Puts work into a stream; where that captures, into its capture, and the body is not called. Work of a
/// context that has failed is left out, but for marks.
Result enqueue(Call& call, Stream& stream, std::function<void(Work&)> body, const Cost& cost = {},
               const WorkPtr& after = nullptr);

/// A pointer that the program gave, or that it gets.
inline void* pointer(Address address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}
inline Address address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace virtual_gpu

#define EXPORT extern "C" __attribute__((visibility("default")))
