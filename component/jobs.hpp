// jobs.hpp -- calls that do not wait. Each communicator has a queue of started jobs, performed strictly in
// order: MPI has all ranks start a communicator's collectives in one order, so jobs that go in this order
// meet their counterparts, and nobody who waits for a later one can miss an earlier one. The engine of the
// process drives all queues.
#pragma once

#include <atomic>
#include <chrono>
#include <variant>

#include "component/core.h"
#include "component/plan.hpp"
#include "device/host/block_executor.hpp"
#include "device/host/board_executor.hpp"
#include "device/host/rails_executor.hpp"
#include "device/host/scan_executor.hpp"
#include "device/host/single_copy_executor.hpp"
#include "device/host/two_level_executor.hpp"

namespace loom {

class Communicator;
class JobEngine;

/// See loom_job in core.h.
struct Job {
  Communicator& communicator;
  device::HostJob call;
  Algorithm algorithm;
  loom_job_done done;
  void* context;

  /// Made when the job's turn comes.
  std::variant<std::monostate, device::BoardExecutor, device::SingleCopyExecutor, device::BlockExecutor,
               device::ScanExecutor, device::TwoLevelExecutor, device::RailsExecutor, device::RootedExecutor>
      executor = {};
  bool executed = false;  ///< the result is in place, but what was sent may not have left
  int result = LOOM_SUCCESS;
  Job* next = nullptr;
};

/// The started jobs of one communicator.
class JobQueue {
 public:
  explicit JobQueue(Communicator& communicator) : communicator_(communicator) {}
  /// Of a program that ends with calls outstanding: they are never told done.
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  /// Pairs with the decrement after a job's last step: once this is true, all that the jobs did is visible.
  bool empty() const noexcept { return outstanding_.load(std::memory_order_acquire) == 0; }

 private:
  friend class JobEngine;
  void append(Job& job) noexcept;
  Job* advance(int& steps) noexcept;
  void look_after(const Job& job);

  Communicator& communicator_;
  JobEngine* engine_ = nullptr;
  Job* first_ = nullptr;
  Job* last_ = nullptr;
  std::atomic<unsigned> outstanding_{0};
  JobQueue* next_ = nullptr;  ///< in the engine's list
  // Since when the first job has been waiting, and when its peers were last looked after.
  unsigned fruitless_ = 0;
  std::chrono::steady_clock::time_point began_, checked_;
};

/// Drives the queues of one process. From any thread; one at a time is let in, the others pass by.
class JobEngine {
 public:
  /// `callback` leads to progress(), for the MPI library's progress loop; may be null.
  JobEngine(const loom_runtime& runtime, int (*callback)(void)) : runtime_(runtime), callback_(callback) {}

  void start(JobQueue& queue, Job& job) noexcept;
  void forget(JobQueue& queue) noexcept;
  /// Advances every queue as far as it goes without waiting; returns the number of steps.
  int progress() noexcept;

 private:
  void enter() noexcept;
  void leave() noexcept { busy_.clear(std::memory_order_release); }

  const loom_runtime& runtime_;
  int (*callback_)(void);
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  JobQueue* queues_ = nullptr;  ///< those with jobs
};

}  // namespace loom
