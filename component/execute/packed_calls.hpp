// packed_calls.hpp -- the packed calls of a communicator, which stay, with their memory and kernels, for
// later calls of any form.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "component/execute/packed_call.hpp"

namespace loom {

/// Any thread may return one. To make memory and kernels may wait for the GPU: a call that does not wait is
/// staged for lack of them, and the next call that may wait makes them for those that come later.
class PackedCalls {
 public:
  struct Return {
    PackedCalls* to;
    void operator()(PackedCall* call) const noexcept { to->take_back(std::unique_ptr<PackedCall>(call)); }
  };
  using Lease = std::unique_ptr<PackedCall, Return>;

  /// process must outlive this, and this must outlive what it has lent.
  explicit PackedCalls(Process& process) : process_(process) {}
  PackedCalls(const PackedCalls&) = delete;
  PackedCalls& operator=(const PackedCalls&) = delete;

  /// nullptr: no buffer of the call has gaps, or they have to be staged (PackedCall::prepare).
  Lease lend(const device::Call& call, int rank, int ranks, bool may_wait);
  /// The same, for which memory and kernels are made and nothing is freed, because that may wait.
  Lease lend_without_freeing(const device::Call& call, int rank, int ranks);
  /// Whether some call has lacked memory and kernels; make_ready() makes those where that may be done now.
  bool lack() const;
  void make_ready(const std::function<bool(const PackedCall&)>& may_wait_for_gpu);

 private:
  /// More are kept until a call may wait for the GPU.
  static constexpr std::size_t kMost = 16;

  void take_back(std::unique_ptr<PackedCall> call) noexcept;
  void drop_idle(std::size_t below);

  Process& process_;
  std::atomic<std::size_t> bytes_ = 0;  ///< of GPUs, of all of them
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<PackedCall>> idle_ LOOM_GUARDED_BY(mutex_), lacking_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom
