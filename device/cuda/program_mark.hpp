// program_mark.hpp -- a place in the program's own work on a GPU: that of a call, which may only begin after
// what was enqueued before it, and does not care for what comes later.
#pragma once

#include <chrono>

#include "device/cuda/driver.hpp"
#include "device/cuda/streams.hpp"

namespace loom::device::cuda {

/// Behind all that the program had put into the legacy default stream of a context, and into the streams that
/// synchronise with it, when this was made. Nothing here waits.
class ProgramMark {
 public:
  /// kNothing: a mark that has passed, of a rank that has no memory of GPUs in a call: what its program does
  /// there is none of the call's business, whatever memory other ranks have.
  enum class Behind { kProgram, kNothing };
  /// driver must outlive this. Throws Error.
  ProgramMark(const Driver& driver, const Owner& owner, Behind behind = Behind::kProgram);
  ~ProgramMark();
  ProgramMark(const ProgramMark&) = delete;
  ProgramMark& operator=(const ProgramMark&) = delete;

  /// Whether the work before it has ended. A query of the driver, until the answer is yes. Throws Error.
  bool has_passed() const;
  /// The driver's event.
  void* event() const noexcept { return event_; }
  const Owner& owner() const noexcept { return owner_; }

 private:
  const StreamFunctions functions_;
  const Driver& driver_;
  const Owner owner_;
  void* event_ = nullptr;
  mutable bool passed_;
};

/// For a call that waits for such work, which takes as long as it takes: no reason to give the call up. So
/// the wait counts as progress whenever this is due; peers are looked after between.
class ProgramWait {
 public:
  bool is_due() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kBetween) return false;
    last_ = now;
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds kBetween{100};
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace loom::device::cuda
