// requests.hpp -- calls that do not wait. Each communicator has a queue of started requests, which are
// performed strictly in order. MPI has all ranks start a communicator's collectives in one order, so each
// request matches its counterparts, and waiting for a later request also completes the earlier ones. A
// persistent request with a lane has a queue of its own, and matches by its lane. The engine of the process
// drives all queues.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.hpp"
#include "component/core.h"
#include "component/execute/device_operation.hpp"
#include "component/execute/execution.hpp"
#include "component/execute/operation.hpp"

namespace loom {

class Communicator;
struct Lane;
class Process;
class ProgressEngine;

/// What a persistent request has of its own lane; the communicator takes the lane back later.
struct ReleaseLane {
  void operator()(Lane* lane) const noexcept;
};
using LaneLease = std::unique_ptr<Lane, ReleaseLane>;

/// See loom_request in core.h.
struct Request {
  Communicator& communicator;
  /// Where ranks may have buffers on GPUs; of a persistent one without a lane, where all have. `operation`
  /// then performs its parts, one after the other, and may refer to it.
  std::unique_ptr<DeviceOperation> on_device;
  Operation operation;
  loom_request_done done;
  void* context;
  int result = LOOM_SUCCESS;
  Request* next = nullptr;
  LaneLease lane = {};  ///< nullptr: it shares the links and the queue of its communicator
};

/// The started requests of one communicator, or of one lane.
class RequestQueue {
 public:
  /// execution: what performs them. Both must outlive this.
  RequestQueue(Communicator& communicator, Execution& execution)
      : communicator_(communicator), execution_(execution) {}
  /// If the program ends with calls outstanding, they are never reported as done.
  ~RequestQueue();
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  /// Pairs with the decrement after a request's last step: once this is true, all that the requests did is
  /// visible.
  bool empty() const noexcept { return outstanding_.load(std::memory_order_acquire) == 0; }

 private:
  friend class ProgressEngine;
  void append(Request& request) noexcept;
  Request* advance(int& steps, bool may_tell) noexcept;
  bool take_steps(Request& request, int& steps, bool may_tell) noexcept;
  int tell_failure() noexcept;
  void let_go() noexcept { outstanding_.fetch_sub(1, std::memory_order_release); }
  void look_after(const Operation& operation);

  Communicator& communicator_;
  Execution& execution_;
  ProgressEngine* engine_ = nullptr;
  Request* first_ = nullptr;
  Request* last_ = nullptr;
  std::atomic<unsigned> outstanding_{0};
  RequestQueue* next_ = nullptr;  ///< in the engine's list
  std::exception_ptr failure_;    ///< of the first request, until it may be told
  std::chrono::steady_clock::time_point failed_;
  // How long the first request has been waiting, and when its peers were last checked.
  unsigned fruitless_ = 0;
  bool has_said_ = false;
  std::chrono::steady_clock::time_point began_, checked_;
};

/// Drives the queues of one process. Any thread may call it; one at a time advances requests, and progress()
/// returns at once in the others.
///
/// A thread of its own (coll_loom_progress_thread) advances requests while the program computes. It calls
/// nothing of the MPI library, which may not expect threads: the next MPI call reports that a request is done
/// or has failed. Without requests the thread sleeps.
class ProgressEngine {
 public:
  /// `callback` calls progress() from the MPI library's progress loop, while nonblocking calls are
  /// outstanding and for some turns after; may be null. The process must outlive this.
  explicit ProgressEngine(Process& process, int (*callback)(void) = nullptr)
      : process_(process), callback_(callback) {}
  ~ProgressEngine();
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  /// Starts coll_loom_progress_thread, if that is wanted and not done. Throws std::system_error.
  void start_thread();

  void start(RequestQueue& queue, Request& request) noexcept;
  void forget(RequestQueue& queue) noexcept;
  /// Runs body while nobody advances requests. Not from inside a request's steps.
  template <class Body>
  void apart(Body&& body) noexcept {
    enter();
    body();
    leave();
  }
  /// Advances every queue as far as it goes without waiting; returns the number of steps.
  int progress() noexcept;

 private:
  void enter() noexcept;
  void leave() noexcept { busy_.clear(std::memory_order_release); }
  int advance_all(bool may_tell) noexcept;
  void tell_done() noexcept;
  void work() noexcept;
  void rest() noexcept;
  void stop_thread() noexcept;
  void register_callback() noexcept;
  void unregister_callback() noexcept;

  Process& process_;
  int (*callback_)(void);
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  RequestQueue* queues_ = nullptr;  ///< those with requests
  Request* done_first_ = nullptr;   ///< done, but not reported
  Request* done_last_ = nullptr;
  bool registered_ = false;  ///< the callback, with the library's progress loop
  unsigned idle_turns_ = 0;  ///< of that loop since there was a request

  std::thread thread_;
  std::atomic<bool> passed_by_{false};  ///< a call of progress() found another thread inside
  // Used only if there is a thread.
  Mutex mutex_;
  std::condition_variable_any started_;
  bool has_work_ LOOM_GUARDED_BY(mutex_) = false, stops_ LOOM_GUARDED_BY(mutex_) = false;
};

}  // namespace loom
